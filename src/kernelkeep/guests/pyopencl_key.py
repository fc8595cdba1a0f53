"""What the key of a PyOpenCL program is made of, beside its source: options, headers and devices."""

from __future__ import annotations

import hashlib
import os
from typing import Any

import pyopencl as cl

from ..devices.fingerprint import cpu_identity
from ..devices.opencl import language
from ..devices.opencl.pocl import is_pocl
from ..devices.opencl.pocl_cpu import name_unknown_cpu
from ..errors import CompileError
from ..programs.includes import find_headers
from ..programs.source import Source


def options_of(given: list[str]) -> str:
    """The options, with those of the environment, which PyOpenCL puts behind the others."""
    return " ".join([*given, os.environ.get("PYOPENCL_BUILD_OPTIONS", "")]).rstrip()


def headers_of(context: Any, source: str, options: list[str]) -> dict[str, str] | None:
    """The digests of the headers that a source includes; None where one is not found, or a line is not understood."""
    if "include" not in source:
        return {}
    folders = cl.Program._process_build_options(context, options)[1]
    try:
        found = find_headers(Source(source, language=language, include_dirs=folders))
    except CompileError:
        return None
    return {
        f"header {number}: {header.spelled}": hashlib.sha256(header.content).hexdigest()
        for number, header in enumerate(found, 1)
    }


def devices_of(context: Any) -> dict[str, str]:
    """What each device of a context is, for which the program is compiled."""
    said = {}
    for number, device in enumerate(context.devices, 1):
        if is_pocl(device.platform):
            name_unknown_cpu(device)
        said[f"device {number}"] = _identity(device)
    return said


def _identity(device: Any) -> str:
    platform = device.platform
    parts = [platform.name, platform.version, device.name, device.driver_version, device.version]
    if device.type & cl.device_type.CPU:
        parts.append(cpu_identity())
    return ", ".join(part.strip() for part in parts)
