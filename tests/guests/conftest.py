"""Each guest is the real library, in processes of its own: what a library reads from the environment is read once."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernelkeep.cache.entry_files import Stored
from kernelkeep.cache.upkeep import list_entries
from kernelkeep.testing import skip_backend


class Guest:
    """Programs of one library, and what they left in the cache folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cache_dir = folder / "cache"

    def environment(self, **more: str) -> dict[str, str]:
        """With every cache of the library itself in new folders."""
        own = {
            name: str(self.folder / name.lower())
            for name in (
                "TRITON_CACHE_DIR",
                "TORCHINDUCTOR_CACHE_DIR",
                "CUPY_CACHE_DIR",
                "POCL_CACHE_DIR",
                "XDG_CACHE_HOME",
            )
        }
        return os.environ | own | {"KERNELKEEP_CACHE_DIR": str(self.cache_dir)} | more

    def start(self, program: str, *args: str, **environment: str) -> subprocess.Popen[str]:
        """Run a program in a new process."""
        command = [sys.executable, "-W", "ignore", "-c", program, *args]
        return subprocess.Popen(
            command, env=self.environment(**environment), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def run(self, program: str, *args: str, **environment: str) -> str:
        """What it printed, without white space around it; fails if it fails."""
        child = self.start(program, *args, **environment)
        out, err = child.communicate(timeout=300)
        assert child.returncode == 0, err
        return out.strip()

    def entries(self) -> list[Stored]:
        """What is kept, verified."""
        return list(list_entries(self.cache_dir))

    def flip(self, share: float) -> None:
        """Flip one byte of every entry, so far behind its beginning."""
        for stored in self.entries():
            data = bytearray(stored.path.read_bytes())
            data[int(share * (len(data) - 1))] ^= 0x41
            stored.path.write_bytes(bytes(data))


def needs(package: str) -> pytest.MarkDecorator:
    """Skip tests where a library is missing, loudly; they fail where KERNELKEEP_REQUIRE names it."""
    return pytest.mark.guest(package)


@pytest.fixture(autouse=True)
def _guest_is_here(request: pytest.FixtureRequest) -> None:
    for marker in request.node.iter_markers("guest"):
        (package,) = marker.args
        try:
            missing = importlib.util.find_spec(package) is None
        except ModuleNotFoundError:
            missing = True
        if missing:
            skip_backend(package, f"{package} is not installed; `make test-guests` installs all guests")


@pytest.fixture
def guest(tmp_path: Path) -> Guest:
    return Guest(tmp_path)
