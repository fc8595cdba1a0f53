"""What OpenCL needs: pyopencl and a driver; PoCL also needs a linker and a folder, Intel's driver a second package."""

from __future__ import annotations

import ctypes
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from ...installation import install_command
from ..base import DeviceInfo
from ..requirements import Check, check, check_package


def hint() -> str:
    return f"{install_command('opencl')} brings a driver for the CPU"


def needs() -> Iterator[Check]:
    packages = install_command("opencl")
    yield check_package("pyopencl", "pyopencl", packages)
    yield check("an OpenCL driver", _platforms, packages)


def device_needs(devices: Sequence[DeviceInfo]) -> Iterator[Check]:
    drivers = [info.driver.lower() for info in devices]
    if any("portable computing language" in driver for driver in drivers):
        yield from _pocl_library()
        yield _linker()
        yield check("a folder for PoCL to compile in", _pocl_folder, "free some space there, or set POCL_CACHE_DIR")
    yield from _intel_driver(drivers)


def _platforms() -> str:
    from .library import find_platforms

    return ", ".join(f"{platform.name.strip()} ({platform.version.strip()})" for platform in find_platforms())


def _pocl_library() -> Iterator[Check]:
    """Which PoCL was loaded, where the system tells: a package of Python's, or the system's."""
    try:
        paths = {line.split(maxsplit=5)[-1].strip() for line in Path("/proc/self/maps").read_text().splitlines()}
    except OSError:
        return
    for path in sorted(path for path in paths if Path(path).name.startswith("libpocl") and "devices" not in path):
        whose = "of a Python package" if "site-packages" in Path(path).parts else "the system's"
        yield Check("PoCL's library", True, f"{path}, {whose}")


def _linker() -> Check:
    from . import linker

    missing = linker.missing_part()
    if missing is not None:
        return Check("a linker for PoCL", False, missing, linker.ADVICE)
    return Check("a linker for PoCL", True, str(shutil.which("ld")))


def _pocl_folder() -> str:
    from .pocl_folder import folder_in_use, require_folder

    require_folder(to_build=True)
    return f"{folder_in_use()}"


def _intel_driver(drivers: Sequence[str]) -> Iterator[Check]:
    """Intel's driver from PyPI is not found without the libraries of a second package."""
    from .library import intel_library

    library = intel_library()
    if library is None:
        return
    what = "Intel's driver for CPUs"
    if any("intel" in driver for driver in drivers):
        yield Check(what, True, str(library))
        return
    try:
        ctypes.CDLL(str(library))
        found = f"{library} can be loaded, but the OpenCL loader does not find it"
    except OSError as error:
        found = str(error)
    yield Check(what, False, found, f"{install_command('intel')}; unset OCL_ICD_VENDORS")
