"""The machine that a benchmark runs on, and the versions of what it compares, each as one line."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import time
from pathlib import Path

from ... import __version__

# Packages that rows are measured with or against; the ones that are installed are named.
_COMPARED = re.compile(
    r"numpy|cuda-core|cuda-bindings|cupy(-cuda\d+x?)?|torch|triton|jax|pyopencl|pocl-binary-distribution|moderngl|wgpu|kernel.tuner|redis|"
    r"nvidia-(cublas|cudnn|cuda-nvrtc)(-cu\d+)?"
)


def machine() -> str:
    """The processor and its cores, the system and Python."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return f"{_processor()}, {cores} cores, {platform.system()}, Python {platform.python_version()}"


def versions() -> str:
    """The packages beside kernelkeep that decide the figures."""
    found = {}
    for distribution in importlib.metadata.distributions():
        name = (distribution.metadata["Name"] or "").lower()
        if _COMPARED.fullmatch(name):
            found[name] = distribution.version
    return ", ".join(f"{name} {version}" for name, version in sorted(found.items()))


def measured_now() -> str:
    """When this is, with which version of kernelkeep, and how busy the machine is."""
    load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    return f"{time.strftime('%Y-%m-%d %H:%M', time.gmtime())} UTC, kernelkeep {__version__}{load}"


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor() or platform.machine()
    found = re.search(r"^model name\s*: (.*)$", text, re.MULTILINE)
    return found[1].strip() if found else platform.machine()
