"""moderngl's compute shaders: the driver's cache lies in the cache folder, and a second process compiles nothing."""

from __future__ import annotations

import subprocess

import pytest

from kernelkeep.cache.stats import STATS_FILE, read_file
from kernelkeep.cache.upkeep import survey_root
from kernelkeep.storage.private import default_trust

from .conftest import Guest, needs

pytestmark = needs("moderngl")

PROGRAM = """
import sys
import numpy as np
import kernelkeep.guests.moderngl as guest

guest.turn_on()
import moderngl
context = moderngl.create_context(standalone=True, backend="egl", require=430)
shader = guest.compute_shader(context, '''#version 430
layout(local_size_x = 16) in;
layout(std430, binding = 0) buffer Y { float y[]; };
void main() { y[gl_GlobalInvocationID.x] *= 3.0; }
''', "scale")
buffer = context.buffer(np.arange(64, dtype="f4").tobytes())
buffer.bind_to_storage_buffer(0)
shader.run(4)
assert (np.frombuffer(buffer.read(), "f4") == np.arange(64) * 3).all()
print("fine")
"""


def test_the_drivers_cache_is_ours(guest: Guest) -> None:
    assert guest.run(PROGRAM) == "fine"
    (stored,) = guest.entries()
    assert stored.facts is not None and stored.facts.name == "scale"
    (folder,) = survey_root(guest.cache_dir).folders
    assert folder.driver_bytes > 0
    assert guest.run(PROGRAM) == "fine"
    assert len(guest.entries()) == 1
    counts = read_file(guest.cache_dir / STATS_FILE, default_trust())
    assert (counts["misses"], counts["compiles"], counts["hits_disk"]) == (1, 1, 1)


def test_a_shader_whose_entry_was_removed_is_known_again(guest: Guest) -> None:
    guest.run(PROGRAM)
    for stored in guest.entries():
        stored.path.unlink()
    assert guest.run(PROGRAM) == "fine"
    assert len(guest.entries()) == 1


# One process at a time compiles: the others wait for its turn to end.
TOGETHER = PROGRAM.replace(
    "shader = guest",
    """from kernelkeep.guests.guest_cache import guest_cache
shader = guest""",
).replace('print("fine")', 'print(guest_cache("moderngl").stats().compiles)')


def test_processes_that_start_together_compile_once(guest: Guest) -> None:
    children = [guest.start(TOGETHER) for _ in range(4)]
    assert sorted(child.communicate(timeout=300)[0].strip() for child in children) == ["0", "0", "0", "1"]


def test_after_the_first_context_it_is_too_late(guest: Guest) -> None:
    late = """
import kernelkeep as kk
import kernelkeep.guests.moderngl as guest
with kk.open_device("opengl"):
    try:
        guest.turn_on()
    except kk.ArgumentError as error:
        print("before" in str(error))
"""
    assert guest.run(late) == "True"


@pytest.mark.parametrize("options", ["size=16k,mode=700", "mode=700,ro"], ids=["full", "read-only"])
def test_on_a_disk_that_takes_nothing_the_program_runs(guest: Guest, options: str) -> None:
    guest.cache_dir.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(guest.cache_dir)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("FULL AND READ-ONLY DISKS ARE NOT TESTED: only root can mount one")
    try:
        assert guest.run(PROGRAM) == "fine"  # Mesa's own cache would end the process on a full disk
    finally:
        subprocess.run(["umount", "-l", str(guest.cache_dir)], check=True)
