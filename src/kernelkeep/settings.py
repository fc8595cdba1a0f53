"""Every KERNELKEEP_* variable and its default, in one place.

    KERNELKEEP_DEVICE     the device `open_device()` opens, for example "opencl:0" or "cuda"
    KERNELKEEP_CACHE_DIR  where compiled programs are kept; by default `kernelkeep` in the user's cache folder
    KERNELKEEP_NATIVE     "0": leave the module in C alone, and use its twin in plain Python
    KERNELKEEP_REQUIRE    comma-separated backends whose absence fails the tests instead of skipping them

Variables are read when they are asked for, so a program may set them after importing kernelkeep.
"""

from __future__ import annotations

import os
from pathlib import Path

from .errors import ArgumentError

__all__ = [
    "COMPILE_WAIT_SECONDS",
    "MAX_DISK_BYTES",
    "MAX_PROGRAMS",
    "cache_dir",
    "device_spec",
    "native",
    "required_backends",
]

MAX_PROGRAMS = 100  # resident in memory
MAX_DISK_BYTES = 1 << 30
COMPILE_WAIT_SECONDS = 120.0  # how long one process waits for another's compile before it compiles for itself


def cache_dir(chosen: str | os.PathLike[str] | None = None) -> Path:
    """Where compiled programs are kept: what was chosen, else $KERNELKEEP_CACHE_DIR, else the user's cache folder."""
    named = chosen if chosen is not None else os.environ.get("KERNELKEEP_CACHE_DIR")
    if named or chosen is not None:
        try:
            path = Path(named or "").expanduser().absolute()
            path.is_dir()  # refuses what no file system takes
            return path
        except (TypeError, ValueError, RuntimeError) as error:
            raise ArgumentError(f"{named!r} cannot be a cache folder: {error}") from None
    from platformdirs import user_cache_path

    return user_cache_path("kernelkeep", appauthor=False)


def device_spec() -> str | None:
    """The device to open when the caller names none."""
    return os.environ.get("KERNELKEEP_DEVICE") or None


def native() -> bool:
    """Whether the module in C may be used, where it was built."""
    return os.environ.get("KERNELKEEP_NATIVE", "1") != "0"


def required_backends() -> frozenset[str]:
    """Backends that must be here: a test run fails without them."""
    names = os.environ.get("KERNELKEEP_REQUIRE", "")
    return frozenset(name.strip() for name in names.split(",") if name.strip())
