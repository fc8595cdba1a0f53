"""What PoCL links with is looked for before PoCL ends the process for want of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelkeep.devices.opencl import linker

pytestmark = pytest.mark.skipif("not sys.platform.startswith('linux')", reason="where Linux keeps libraries")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with a linker and nothing else."""
    (tmp_path / "bin").mkdir()
    ld = tmp_path / "bin" / "ld"
    ld.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(ld.parent))
    return tmp_path


def _add(root: Path, path: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).touch()


def test_a_linker_without_libraries_is_not_enough(root: Path) -> None:
    assert "libgcc or libc.so" in str(linker.missing_part(root))
    _add(root, "usr/lib/gcc/x86_64-linux-gnu/12/libgcc.a")
    assert linker.missing_part(root) is not None


@pytest.mark.parametrize(
    ("libgcc", "libc"),
    [
        ("usr/lib/gcc/x86_64-linux-gnu/12/libgcc.a", "usr/lib/x86_64-linux-gnu/libc.so"),  # Debian
        ("usr/lib/gcc/x86_64-redhat-linux/13/libgcc.a", "usr/lib64/libc.so"),  # Fedora
        ("usr/lib64/gcc/x86_64-suse-linux/13/libgcc.a", "usr/lib64/libc.so"),  # openSUSE
        ("usr/lib/gcc/x86_64-pc-linux-gnu/14.1.1/libgcc.a", "usr/lib/libc.so"),  # Arch
    ],
)
def test_what_was_installed_meanwhile_is_found(root: Path, libgcc: str, libc: str) -> None:
    assert linker.missing_part(root) is not None
    _add(root, libgcc)
    _add(root, libc)
    assert linker.missing_part(root) is None


def test_no_linker(root: Path) -> None:
    (root / "bin" / "ld").unlink()
    assert "ld" in str(linker.missing_part(root))
