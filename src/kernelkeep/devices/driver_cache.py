"""Sets the folder of a driver's own shader cache, before the driver starts. OpenGL and Vulkan drivers have one, and share it.

What can be kept of a program for these drivers is not native code: it loads quickly, and the first launch compiles it (27 ms on
an H200, 20 ms on llvmpipe). The driver keeps the native code in a shader cache of its own, whose folder it reads from the
environment. So that cache is put into the GPU's folder, where it is counted, limited and pruned with the rest.

The GPU's folder is named after model and driver, which only an open device can tell, but the variable must be set before:
NVIDIA's driver reads it once, when it is loaded; Mesa whenever it begins to look for devices. So the names are stored in the
cache folder (`<backend>-devices.json`) by the driver's family. If they are not stored yet, they are found out first: in a child
process if there is an NVIDIA driver, else in this one. After a driver update a stored name is out of date for one run; that is
harmless, since drivers check what they find in their cache. A process has one such folder for a family of drivers: that of the
backend which is opened first.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from .. import settings
from ..errors import ArgumentError
from ..storage.files import Damaged, publish, read_regular, write_temporary
from ..storage.foreign_folder import FOREIGN
from ..storage.private import default_trust, make_private_folder, make_private_tree

_MAX_BYTES = 256 << 20
_LEAST_FREE_BYTES = 8 << 20
_MAX_NAMES_BYTES = 1 << 20
_lock = threading.Lock()
_placed: dict[str, Path] = {}
_started: set[str] = set()  # families whose folder can no longer change
_nvidia_signs = ("/proc/driver/nvidia/version", "/dev/nvidiactl", "/sys/module/nvidia/version")


def family_of(vendor: str) -> str:
    """ "nvidia", or "mesa" for all others: each family has its own variables."""
    return "nvidia" if "nvidia" in vendor.lower() else "mesa"


def driver_cache_of(vendor: str) -> Path | None:
    """The shader cache of that vendor's driver, if it was set here."""
    return _placed.get(family_of(vendor))


def set_folder(folder: str | os.PathLike[str]) -> None:
    """Have every such driver of this process keep its shaders in `folder`, which is created if missing."""
    path = Path(folder).expanduser().absolute()
    with _lock:
        late = [family for family in _started if _placed.get(family) != path]
        if late:
            where = _placed.get(late[0], "its own default folder")
            raise ArgumentError(
                f"driver_cache_dir must be set before the driver's first device: it already keeps its shaders in {where}"
            )
        try:
            make_private_tree(path)
        except OSError as error:
            raise ArgumentError(
                f"driver_cache_dir must be a private folder that can be written to, got {path}: {error.strerror}"
            ) from None
        for family in ("mesa", "nvidia"):
            _set_variables(family, path)


def set_default_folder(
    backend: str, root: str | os.PathLike[str] | None, find_names: Callable[[], dict[str, str]]
) -> None:
    """Have each driver keep its shaders in its GPU's folder under the cache folder `root`.

    `find_names` opens the devices of `backend` and returns the folder's name for each family of drivers. Nothing changes if
    the user has set a folder in the environment, or if the cache folder cannot be written to or is not private.
    """
    with _lock:
        set_by_user = any(
            name in os.environ for family, names in _VARIABLES.items() if family not in _placed for name in names
        )
        if set_by_user or (_placed and root is None):
            return
    folder = settings.cache_dir(root)
    known = _read_names(backend, folder)
    if not known:
        known = _find_names_in_child(backend) if must_be_set_first() else find_names()
        remember(backend, folder, known)
    with _lock:
        for family, name in known.items():
            path = folder / name / FOREIGN
            if family in _started and _placed.get(family) != path:
                continue  # too late
            with contextlib.suppress(OSError):
                make_private_tree(path)
                _set_variables(family, path)


def must_be_set_first() -> bool:
    """Whether listing devices already fixes the folder: NVIDIA's driver reads it when it is loaded."""
    return any(Path(sign).exists() for sign in _nvidia_signs)


def note_started(vendor: str, probing: bool) -> None:
    """Note that a driver of that vendor was asked for devices: its folder may be fixed from now on."""
    family = family_of(vendor)
    if family == "nvidia" or not probing:
        _started.add(family)


def remember(backend: str, root: Path, known: dict[str, str]) -> None:
    """Store the folder's name for each family of drivers."""
    if not known:
        return
    with contextlib.suppress(OSError):
        make_private_folder(root)
        text = json.dumps(_read_names(backend, root) | known, indent=2)
        publish(write_temporary(root, text.encode(), f".{backend}-devices."), root / f"{backend}-devices.json")


def _read_names(backend: str, root: Path) -> dict[str, str]:
    try:
        found = json.loads(read_regular(root / f"{backend}-devices.json", default_trust(), _MAX_NAMES_BYTES)[0])
    except (OSError, ValueError, RecursionError, Damaged):
        return {}
    if not isinstance(found, dict):
        return {}
    # Only names of folders directly below the root are accepted.
    return {
        k: v for k, v in found.items() if k in _VARIABLES and isinstance(v, str) and v == Path(v).name and v != ".."
    }


_CHILD_PROGRAM = """
import json
import sys
from importlib import import_module
print(json.dumps(import_module(sys.argv[1]).folders_by_family()))
"""


def _find_names_in_child(backend: str) -> dict[str, str]:
    try:
        # -P: nothing is imported from the current folder, which others may write to.
        command = [sys.executable, "-P", "-c", _CHILD_PROGRAM, f"{__package__}.{backend}.listing"]
        answer = subprocess.run(command, capture_output=True, timeout=30, check=True).stdout
        found = json.loads(answer)
    except (OSError, subprocess.SubprocessError, ValueError):
        return {}
    return {str(family): str(name) for family, name in found.items()}


_VARIABLES = {
    "mesa": ("MESA_SHADER_CACHE_DIR",),
    "nvidia": ("__GL_SHADER_DISK_CACHE_PATH",),
}


def _set_variables(family: str, path: Path) -> None:
    _placed[family] = path
    for name in _VARIABLES[family]:
        os.environ[name] = str(path)
    if family == "nvidia":
        os.environ["__GL_SHADER_DISK_CACHE"] = "1"  # NVIDIA leaves it off for root
        os.environ["__GL_SHADER_DISK_CACHE_SKIP_CLEANUP"] = "1"  # kernelkeep prunes it
        os.environ.setdefault("__GL_SHADER_DISK_CACHE_SIZE", str(_MAX_BYTES))
    else:
        os.environ.setdefault("MESA_SHADER_CACHE_MAX_SIZE", f"{_MAX_BYTES >> 20}M")
        if not _has_room(path):
            os.environ.setdefault("MESA_SHADER_CACHE_DISABLE", "true")


def _has_room(path: Path) -> bool:
    """Whether a shader cache can begin there. Mesa maps a file of 1.3 MB, and on a full disk it ends the process (SIGBUS)."""
    try:
        return shutil.disk_usage(path).free >= _LEAST_FREE_BYTES
    except OSError:
        return True
