"""Runs generated kernels on a device, many of them in one program where the device's language allows it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ...devices.base import Device
from ...programs.languages import find_language
from ...programs.source import Source
from .body import GeneratedKernel
from .comparison import Arrays
from .scope import Features

# Names outside of the kernel, which those of another program in the same text must not have.
_OUTER = re.compile(r"\b(?=kk_(?!entry_)|help\d|pair\d|TABLE\d)")
_OPERATOR = re.compile(r"^\S[^\n]* operator[^\n]*\{(?:[^\n]*\}$|.*?^\}$)", re.MULTILINE | re.DOTALL)


def features_of(*devices: Device) -> Features:
    """What all of these devices have."""
    capabilities = [device.capabilities for device in devices]
    return Features(all(one.float64 for one in capabilities), all(one.int64 for one in capabilities))


def expected(program: GeneratedKernel) -> Arrays:
    """What the reference device computes."""
    from ...devices.reference import ReferenceDevice

    with ReferenceDevice() as device:
        return run(device, [program])[0]


def run(device: Device, programs: Sequence[GeneratedKernel], options: Sequence[str] = ()) -> list[Arrays]:
    """The arguments of each after its launch. `options` are handed to the compiler."""
    if find_language(device.language).source_names_kernel or device.info.is_interpreter:
        return [_run_one(device, one, options) for one in programs]
    name = programs[0].kernel.name
    with device.build(Source(combined(programs, device), name, device.language, tuple(options))) as built:
        return [_launch(device, built.kernel(one.kernel.name), one) for one in programs]


def combined(programs: Sequence[GeneratedKernel], device: Device | str) -> str:
    """The text of many kernels, for a device or in a language."""
    texts = [_OUTER.sub(f"p{at}_", one.kernel.source(device).text) for at, one in enumerate(programs)]
    # What one program needs of the compiler must not hold for the next.
    text = "\n".join(
        f"{one}#pragma clang optimize on\n" if "#pragma clang optimize off" in one else one for one in texts
    )
    # Operators have no name that could be made different, and two programs may define the same one.
    for operator in set(_OPERATOR.findall(text)):
        before, _, behind = text.partition(operator)
        text = before + operator + behind.replace(operator, "")
    return text


def _run_one(device: Device, program: GeneratedKernel, options: Sequence[str]) -> Arrays:
    kernel = replace(program.kernel, options=tuple(options))
    with device.build(kernel.source(device)) as built:
        return _launch(device, built.kernel(program.kernel.name), program)


def _launch(device: Device, kernel: Any, program: GeneratedKernel) -> Arrays:
    arrays = [device.array(one) for one in program.arrays]
    kernel.launch(program.grid, (*arrays, *program.scalars))
    found = [one.numpy() for one in arrays]
    for one in arrays:
        one.close()
    return found
