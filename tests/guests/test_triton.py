"""Triton's kernels, compiled for a GPU that need not be here."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from .conftest import Guest, needs

pytestmark = needs("triton")

ON = {"TRITON_CACHE_MANAGER": "kernelkeep.guests.triton:KernelkeepCacheManager"}
# A kernel in a file, as Triton wants it.
KERNEL = """
import importlib.util, sys, tempfile
with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
    file.write('''
import triton, triton.language as tl
@triton.jit
def add(x, y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)
''')
    file.flush()
    spec = importlib.util.spec_from_file_location("kernels", file.name)
    kernels = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(kernels)
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

target = GPUTarget("cuda", 90, 32)

def make_source(size):
    return ASTSource(kernels.add, {"x": "*fp32", "y": "*fp32", "n": "i32", "B": "constexpr"}, {"B": size})
"""
PROGRAM = (
    KERNEL
    + """
compiled = []
triton.knobs.compilation.listener = lambda **facts: compiled.append(not facts["cache_hit"])
kernel = triton.compile(make_source(int(sys.argv[1])), target=target)
assert kernel.asm["cubin"][:4] == b"\\x7fELF" and kernel.metadata.name == "add" and "ptx" in kernel.asm
print("compiled" if any(compiled) else "found")
"""
)


@pytest.fixture
def warm(guest: Guest, tmp_path_factory: pytest.TempPathFactory) -> Guest:
    """With the kernel in its cache, which is compiled once for all tests: Triton takes two seconds."""
    made = Guest(tmp_path_factory.getbasetemp() / "compiled by triton")
    if not made.folder.exists():
        made.folder.mkdir()
        assert made.run(PROGRAM, "64", **ON) == "compiled"
    shutil.copytree(made.cache_dir, guest.cache_dir)
    return guest


def test_the_next_process_finds_it(guest: Guest) -> None:
    assert guest.run(PROGRAM, "64", **ON) == "compiled"
    assert guest.run(PROGRAM, "64", **ON) == "found"
    assert guest.run(PROGRAM, "128", **ON) == "compiled"
    entries = guest.entries()
    assert [stored.facts.name for stored in entries if stored.facts is not None] == ["add", "add"]
    fields = [stored.facts.key.fields for stored in entries if stored.facts is not None]
    assert fields[0]["target"] == fields[1]["target"] and fields[0]["hash"] != fields[1]["hash"]
    assert not (guest.folder / "triton_cache_dir").exists()  # Triton's own folder is not used


def kept_files(guest: Guest) -> list[Path]:
    return sorted(guest.cache_dir.glob("guest_triton_*/driver/*"))


def test_a_damaged_entry_is_compiled_again(warm: Guest) -> None:
    for path in kept_files(warm):
        path.unlink()
    warm.flip(0.95)
    assert warm.run(PROGRAM, "64", **ON) == "compiled"


def test_the_next_process_uses_the_files_of_the_last_and_mends_them(warm: Guest) -> None:
    before = {path: (path.stat().st_ino, path.read_bytes()) for path in kept_files(warm)}
    assert {path.suffix for path in before} >= {".files", ".cubin", ".json", ".ptx"}
    assert warm.run(PROGRAM, "64", **ON) == "found"
    assert {path: (path.stat().st_ino, path.read_bytes()) for path in kept_files(warm)} == before
    cubin = next(path for path in before if path.suffix == ".cubin")
    cubin.write_bytes(cubin.read_bytes()[:-8] + b"8 others")
    assert warm.run(PROGRAM, "64", **ON) == "found"
    assert {path: path.read_bytes() for path in kept_files(warm)} == {path: data for path, (_, data) in before.items()}


def test_without_the_entry_its_kept_files_are_not_used(warm: Guest) -> None:
    for stored in warm.entries():
        stored.path.unlink()
    assert warm.run(PROGRAM, "64", **ON) == "compiled"


def test_processes_that_start_together_compile_once(guest: Guest) -> None:
    children = [guest.start(PROGRAM, "64", **ON) for _ in range(3)]
    said = [child.communicate(timeout=300)[0].strip() for child in children]
    assert sorted(said) == ["compiled", "found", "found"]
