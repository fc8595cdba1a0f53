"""Which NVRTC and which headers compile here. That is part of every program's key, also of one that a cache has.

NVRTC is a hundred megabytes, and finding it takes longer than a hit. So what was found is written down in the cache folder, and
holds as long as everything is as it was where the search had looked: the library's file, the folders of packages and the
variables of the environment. The headers are looked at each time.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from ... import settings
from ...errors import DeviceError
from ...installation import install_command
from ...storage.files import Damaged, publish, read_regular, write_temporary
from ...storage.private import default_trust, make_private_folder
from .bindings import load_bindings

_FILE = "cuda_compiler.json"
_LARGEST_FILE = 1 << 16
# What NVIDIA's search for libraries and headers reads.
_VARIABLES = ("CUDA_PATH", "CUDA_HOME", "CONDA_PREFIX", "LD_LIBRARY_PATH", "PYTHONUSERBASE")
_SYSTEM_LIBRARIES = "/etc/ld.so.cache"

_believed: tuple[Path, Toolkit] | None = None  # what was read, and where: if it was wrong, it is removed


class Toolkit(NamedTuple):
    """What was found."""

    version: str  # of NVRTC
    library: str  # its path; "" where the loader does not tell
    headers: tuple[str, ...]  # folders of CUDA's own headers, if they are installed

    @property
    def identity(self) -> str:
        """NVRTC's version and build, and a digest of the toolkit's headers."""
        build = ""
        if self.library:
            # The first page holds the build id; hashing all hundred megabytes would be slow.
            with contextlib.suppress(OSError), open(self.library, "rb", buffering=0) as library:  # noqa: PTH123
                build = "-" + hashlib.sha256(library.read(4096)).hexdigest()[:8]
        return f"nvrtc {self.version}{build} headers {_headers_identity(self.headers)}"


@cache
def find_toolkit() -> Toolkit:
    """Find and load NVRTC; `DeviceError` says how to get it where it is missing."""
    nvrtc = load_bindings("nvrtc")
    try:
        _, major, minor = nvrtc.nvrtcVersion()
        from cuda.pathfinder import load_nvidia_dynamic_lib

        path = load_nvidia_dynamic_lib("nvrtc").abs_path
    except Exception as error:
        message = f"CUDA needs NVRTC, which was not found ({error}); install it with: {install_command('cuda')}"
        raise DeviceError(message.replace("\n", " ")) from None
    found = Toolkit(f"{major}.{minor}", str(path or ""), _find_headers())
    if _believed is not None and _believed[1] != found:
        with contextlib.suppress(OSError):
            _believed[0].unlink(missing_ok=True)
    return found


@cache
def compiler_version() -> str:
    """NVRTC's version and build, and a digest of the toolkit's headers."""
    return find_toolkit().identity


def compiler_or_none(cache_dir: str | os.PathLike[str] | None = None) -> str:
    """`compiler_version`, without loading NVRTC where a process before this one has found it.

    "none" where there is no NVRTC: a device without it still runs what was compiled elsewhere.
    """
    global _believed
    looked_at = _looked_at()
    try:
        folder = settings.cache_dir(cache_dir)
        known = _read(folder / _FILE, looked_at)
        if known is not None:
            _believed = folder / _FILE, known
            return known.identity
        version = compiler_version()
    except DeviceError:
        return "none"
    _write(folder, find_toolkit(), looked_at)
    return version


def _find_headers() -> tuple[str, ...]:
    """Folders of CUDA's own headers (cuda_fp16.h, cooperative_groups.h), if they are installed."""
    from cuda.pathfinder import find_nvidia_header_directory

    folders = []
    for component in ("cudart", "cccl"):
        with contextlib.suppress(Exception):
            folder = find_nvidia_header_directory(component)
            if folder:
                folders.append(str(folder))
    return tuple(folders)


def _headers_identity(folders: Sequence[str]) -> str:
    """A digest of the names and sizes of the toolkit's headers, which come in packages of their own."""
    digest = hashlib.sha256()
    for folder in folders:
        with contextlib.suppress(OSError), os.scandir(folder) as found:
            for entry in sorted((one for one in found if ".h" in one.name), key=lambda one: one.name):
                digest.update(f"{entry.name} {entry.stat().st_size}\n".encode())
    return digest.hexdigest()[:8]


# --- what a process before this one found


def _looked_at() -> list[Any]:
    """What decides where NVRTC and the headers are found: if none of this has changed, they are where they were."""
    packages = [one for one in sys.path if one.endswith(("site-packages", "dist-packages"))]
    variables = [os.environ.get(name) for name in _VARIABLES]
    return [sys.version, sys.prefix, variables, [[one, *_state(one)] for one in (*packages, _SYSTEM_LIBRARIES)]]


def _state(path: str) -> list[int]:
    """Changes whenever a file is written or replaced, and whenever a folder gets, loses or renames an entry."""
    try:
        found = os.stat(path)  # noqa: PTH116
    except OSError:
        return []
    return [found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino]


def _read(path: Path, looked_at: list[Any]) -> Toolkit | None:
    try:
        kept = msgspec.json.decode(read_regular(path, default_trust(), _LARGEST_FILE)[0])
        known = Toolkit(str(kept["version"]), str(kept["library"]), tuple(map(str, kept["headers"])))
        as_it_was = kept["looked_at"] == looked_at and kept["state"] == [_state(one) for one in _places(known)]
    except (OSError, Damaged, ValueError, KeyError, TypeError, RecursionError):
        return None
    return known if as_it_was and known.library else None


def _places(toolkit: Toolkit) -> tuple[str, ...]:
    return (toolkit.library, *toolkit.headers)


def _write(folder: Path, toolkit: Toolkit, looked_at: list[Any]) -> None:
    kept = {
        "version": toolkit.version,
        "library": toolkit.library,
        "headers": toolkit.headers,
        "looked_at": looked_at,
        "state": [_state(one) for one in _places(toolkit)],
    }
    with contextlib.suppress(OSError):  # the next process searches again
        make_private_folder(folder)
        publish(write_temporary(folder, msgspec.json.encode(kept), f"{_FILE}."), folder / _FILE)
