"""Run a program that uses PyOpenCL without kernelkeep, also on a CPU that PoCL's compiler has no name for.

There PyOpenCL alone cannot compile anything, and the program would not be tested.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pyopencl as cl

from kernelkeep.devices.opencl.pocl import is_pocl
from kernelkeep.devices.opencl.pocl_cpu import name_unknown_cpu

if __name__ == "__main__":
    for platform in filter(is_pocl, cl.get_platforms()):
        for device in platform.get_devices():
            name_unknown_cpu(device)
    sys.argv = sys.argv[1:]
    sys.path[0] = str(Path(sys.argv[0]).resolve().parent)
    runpy.run_path(sys.argv[0], run_name="__main__")
