"""PyOpenCL's programs: found by the next process, saved again after use, and never taken damaged."""

from __future__ import annotations

from pathlib import Path

from .conftest import Guest, needs

pytestmark = needs("pyopencl")

PROGRAM = """
import sys
import numpy as np
import pyopencl as cl
import kernelkeep.guests.pyopencl as guest

platforms = [p for p in cl.get_platforms() if p.name == "Portable Computing Language"] or cl.get_platforms()
context = cl.Context(platforms[0].get_devices()[:1])
queue = cl.CommandQueue(context)
source = "__kernel void scale(__global float* y, float a) { y[get_global_id(0)] *= a * FACTOR; }"
program = guest.build(context, source, "-DFACTOR=" + sys.argv[1], name="scale")
y = np.arange(64, dtype="f4")
buffer = cl.Buffer(context, cl.mem_flags.COPY_HOST_PTR, hostbuf=y)
program.scale(queue, (64,), (16,), buffer, np.float32(3))
cl.enqueue_copy(queue, y, buffer)
assert (y == np.arange(64) * 3 * int(sys.argv[1])).all()
print("compiled" if guest.was_compiled(program) else "found")
"""


def test_the_next_process_finds_it(guest: Guest) -> None:
    assert guest.run(PROGRAM, "2") == "compiled"
    assert guest.run(PROGRAM, "2") == "found"
    assert guest.run(PROGRAM, "5") == "compiled"
    names = [stored.facts.name for stored in guest.entries() if stored.facts is not None]
    assert names == ["scale", "scale"]


def test_it_is_saved_again_after_use(guest: Guest) -> None:
    guest.run(PROGRAM, "2")
    (stored,) = guest.entries()
    assert stored.facts is not None
    assert stored.facts.ripened == 1  # PoCL compiles for a group's size at the first launch


def test_a_damaged_entry_is_compiled_again(guest: Guest) -> None:
    guest.run(PROGRAM, "2")
    guest.flip(0.7)
    assert guest.run(PROGRAM, "2") == "compiled"
    assert guest.run(PROGRAM, "2") == "found"


def test_processes_that_start_together_compile_once(guest: Guest) -> None:
    children = [guest.start(PROGRAM, "2") for _ in range(3)]
    said = [child.communicate(timeout=300)[0].strip() for child in children]
    assert sorted(said) == ["compiled", "found", "found"]


INCLUDES = PROGRAM.replace("__kernel", '#include \\"factor.h\\"\\n__kernel').replace(
    '"-DFACTOR=" + sys.argv[1]', "['-I', sys.argv[2]]"
)


def test_a_changed_header_is_another_program(guest: Guest, tmp_path: Path) -> None:
    folder = tmp_path / "headers"
    folder.mkdir()
    for factor in (2, 3):
        (folder / "factor.h").write_text('#include "number.h"\n#define FACTOR NUMBER\n')
        (folder / "number.h").write_text(f"#define NUMBER {factor}\n")
        assert guest.run(INCLUDES, str(factor), str(folder)) == "compiled"
        assert guest.run(INCLUDES, str(factor), str(folder)) == "found"
    (folder / "number.h").write_text("#define NUMBER 2\n")
    assert guest.run(INCLUDES, "2", str(folder)) == "found"


def test_a_header_that_changes_meanwhile_leaves_no_wrong_entry(guest: Guest, tmp_path: Path) -> None:
    """Also not at the end, when what was compiled is compiled once more."""
    header = tmp_path / "factor.h"
    header.write_text("#define FACTOR 2\n")
    change = f"open({str(header)!r}, 'w').write('#define FACTOR 3')"
    guest.run(INCLUDES + f"\n{change}\n", "2", str(tmp_path))
    header.write_text("#define FACTOR 2\n")
    assert guest.run(INCLUDES, "2", str(tmp_path)) == "found"


def test_options_of_the_environment_are_part_of_the_key(guest: Guest) -> None:
    program = PROGRAM.replace('"-DFACTOR=" + sys.argv[1]', "''")
    for factor in ("2", "5"):
        assert guest.run(program, factor, PYOPENCL_BUILD_OPTIONS=f"-DFACTOR={factor}") == "compiled"
