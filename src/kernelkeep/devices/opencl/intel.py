"""Makes Intel's OpenCL driver for CPUs from PyPI (the extra `intel`) visible to the OpenCL loader.

The package `intel-opencl-rt` puts `libintelocl.so` into the environment's `lib`, beside an .icd file with a path of the machine
it was built on. So while the loader looks for drivers, once in a process, it is given a temporary folder with a correct
.icd file and links to those of the system.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_LIBRARY = "libintelocl.so"
_VARIABLES = ("OCL_ICD_VENDORS", "OPENCL_VENDOR_PATH")
_SYSTEM_VENDORS = Path("/etc/OpenCL/vendors")


def driver_library(pyopencl_file: str | None) -> Path | None:
    """Where the driver's library is, beside this Python or in the `lib` that pyopencl was installed to; None without one."""
    places = [Path(sys.prefix, "lib"), Path(sys.base_prefix, "lib")]
    if pyopencl_file is not None:
        places += Path(pyopencl_file).absolute().parents[3:4]  # lib/python3.x/site-packages/pyopencl/__init__.py
    for place in places:
        if (place / _LIBRARY).is_file():
            return place / _LIBRARY
    return None


def is_intel_for_cpus(cl: Any, device: Any) -> bool:
    """Whether a device is a CPU behind Intel's driver."""
    return bool(device.type & cl.device_type.CPU) and "intel" in device.platform.name.lower()


@contextlib.contextmanager
def visible_to_loader(library: Path | None) -> Iterator[bool]:
    """Have the loader find this driver too, if it looks for drivers inside the block. Yields whether it will.

    If the user has set a folder of drivers in the environment, that one is used alone.
    """
    if library is None or any(name in os.environ for name in _VARIABLES):
        yield False
        return
    try:
        folder = Path(tempfile.mkdtemp(prefix="kernelkeep-opencl-"))
    except OSError:
        yield False
        return
    try:
        with contextlib.suppress(OSError):
            for found in sorted(_SYSTEM_VENDORS.glob("*.icd")):
                (folder / found.name).symlink_to(found)
        written = False
        with contextlib.suppress(OSError):
            written = bool((folder / "kernelkeep-intel.icd").write_text(f"{library}\n", encoding="utf-8"))
        if not written:
            yield False
            return
        os.environ["OCL_ICD_VENDORS"] = str(folder)
        try:
            yield True
        finally:
            os.environ.pop("OCL_ICD_VENDORS", None)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
