"""Where an OpenGL driver keeps its own compiled shaders, decided before it starts.

An OpenGL program binary is not native code: loading one is quick, and the first launch then compiles (measured: 27 ms on
an H200, 20 ms on llvmpipe). The native code lives in the driver's own shader cache, whose place the driver reads from
the environment. So that cache is pointed into the folder of the GPU, where it is counted, bounded and pruned with the
rest.

The trouble is the order. The folder is named after model and driver, which a context tells, and the place must be set
before the first context: NVIDIA's driver reads it once, when it is loaded; Mesa reads it whenever a display is
initialised. So the names are remembered in the cache folder (`opengl-devices.json`) by the driver's family. Where they
are not known yet, they are found out first: in a child process where there is an NVIDIA driver, else right here. A
remembered name may be out of date after a driver update; then the driver's cache stays in the old folder for that one
run, which does no harm, since drivers check what they find in it.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from ... import settings
from ...errors import ArgumentError
from ...storage.files import Damaged, publish, read_regular, write_temporary
from ...storage.foreign_folder import FOREIGN
from ...storage.private import default_trust, make_private_folder

__all__ = [
    "driver_cache_of",
    "family_of",
    "must_be_placed_first",
    "note_display",
    "place",
    "place_by_default",
    "remember",
]

_MAX_BYTES = 256 << 20
_LARGEST_BOOK = 1 << 20
_lock = threading.Lock()
_placed: dict[str, Path] = {}
_started: set[str] = set()  # families whose place can no longer change
_nvidia_signs = ("/proc/driver/nvidia/version", "/dev/nvidiactl", "/sys/module/nvidia/version")


def family_of(vendor: str) -> str:
    """ "nvidia" or "mesa", which is everybody else: each has its own variables."""
    return "nvidia" if "nvidia" in vendor.lower() else "mesa"


def driver_cache_of(vendor: str) -> Path | None:
    """Where the driver of that vendor keeps its shaders, if it was placed here."""
    return _placed.get(family_of(vendor))


def place(folder: str | os.PathLike[str]) -> None:
    """Have every OpenGL driver of this process keep its shaders in `folder`, which is created."""
    path = Path(folder).expanduser().absolute()
    with _lock:
        late = [family for family in _started if _placed.get(family) != path]
        if late:
            where = _placed.get(late[0], "its own default folder")
            raise ArgumentError(
                f"the OpenGL driver already keeps its shaders in {where}: choose before the first device"
            )
        try:
            _make_ready(path)
        except OSError as error:
            raise ArgumentError(f"the OpenGL driver cannot keep its shaders in {path}: {error.strerror}") from None
        for family in ("mesa", "nvidia"):
            _point(family, path)


def place_by_default(root: str | os.PathLike[str] | None, find_out: Callable[[], dict[str, str]]) -> None:
    """Have each driver keep its shaders in its GPU's folder under the cache folder `root`.

    `find_out` opens the devices of this process and gives the folder's name for each family of drivers. What the user
    set in the environment stays; a cache folder that cannot be written to, or that another user could have written to,
    leaves everything as it is.
    """
    with _lock:
        theirs = any(
            name in os.environ for family, names in _VARIABLES.items() if family not in _placed for name in names
        )
        if theirs or (_placed and root is None):
            return
    folder = settings.cache_dir(root)
    known = _recall(folder)
    if not known:
        known = _ask_child() if must_be_placed_first() else find_out()
        remember(folder, known)
    with _lock:
        for family, name in known.items():
            path = folder / name / FOREIGN
            if family in _started and _placed.get(family) != path:
                continue  # it can no longer be told
            with contextlib.suppress(OSError):
                _make_ready(path)
                _point(family, path)


def _make_ready(path: Path) -> None:
    """A folder for native code that the driver will run: private, down to the last file that is in it already."""
    make_private_folder(path)
    default_trust().check_tree(path)


def must_be_placed_first() -> bool:
    """Whether even looking round fixes a driver's place: NVIDIA's driver reads it when it is loaded."""
    return any(Path(sign).exists() for sign in _nvidia_signs)


def note_display(vendor: str, probing: bool) -> None:
    """A display of that vendor was initialised."""
    family = family_of(vendor)
    if family == "nvidia" or not probing:
        _started.add(family)


def remember(root: Path, known: dict[str, str]) -> None:
    """Write down which folder belongs to which family of drivers."""
    if not known:
        return
    with contextlib.suppress(OSError):
        make_private_folder(root)
        text = json.dumps(_recall(root) | known, indent=2)
        publish(write_temporary(root, text.encode(), ".opengl-devices."), root / "opengl-devices.json")


def _recall(root: Path) -> dict[str, str]:
    try:
        found = json.loads(read_regular(root / "opengl-devices.json", default_trust(), _LARGEST_BOOK)[0])
    except (OSError, ValueError, RecursionError, Damaged):
        return {}
    if not isinstance(found, dict):
        return {}
    # A name is one folder below the root, whatever the file says.
    return {
        k: v for k, v in found.items() if k in _VARIABLES and isinstance(v, str) and v == Path(v).name and v != ".."
    }


_ASK = "import json\nfrom kernelkeep.devices.opengl.listing import folders_by_family\nprint(json.dumps(folders_by_family()))"


def _ask_child() -> dict[str, str]:
    try:
        # -P: nothing is imported from the current folder, which may be anybody's.
        command = [sys.executable, "-P", "-c", _ASK]
        answer = subprocess.run(command, capture_output=True, timeout=30, check=True).stdout
        found = json.loads(answer)
    except (OSError, subprocess.SubprocessError, ValueError):
        return {}
    return {str(family): str(name) for family, name in found.items()}


_VARIABLES = {
    "mesa": ("MESA_SHADER_CACHE_DIR",),
    "nvidia": ("__GL_SHADER_DISK_CACHE_PATH",),
}


def _point(family: str, path: Path) -> None:
    _placed[family] = path
    for name in _VARIABLES[family]:
        os.environ[name] = str(path)
    if family == "nvidia":
        os.environ["__GL_SHADER_DISK_CACHE"] = "1"  # NVIDIA leaves it off for root
        os.environ["__GL_SHADER_DISK_CACHE_SKIP_CLEANUP"] = "1"  # pruning is ours
        os.environ.setdefault("__GL_SHADER_DISK_CACHE_SIZE", str(_MAX_BYTES))
    else:
        os.environ.setdefault("MESA_SHADER_CACHE_MAX_SIZE", f"{_MAX_BYTES >> 20}M")
