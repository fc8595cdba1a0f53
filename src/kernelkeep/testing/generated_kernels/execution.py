"""Runs generated kernels on a device, many of them in one program where the device's language allows it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ...devices.base import Device
from ...language.readers.c import read_body
from ...language.tree import kernel_parameter
from ...language.writers import TARGETS, Entry, write
from ...programs.languages import find_language
from ...programs.portable import Buffer, PortableKernel
from ...programs.signature import declaration, entry_symbol
from ...programs.source import Source
from .body import GeneratedKernel
from .comparison import Arrays
from .scope import Features

# Names outside of the kernel, which those of another program in the same text must not have.
_OUTER = re.compile(r"\b(?=kk_(?!entry_)|help\d|pair\d|TABLE\d)")


def features_of(*devices: Device) -> Features:
    """What all of these devices have."""
    capabilities = [device.capabilities for device in devices]
    return Features(all(one.float64 for one in capabilities), all(one.int64 for one in capabilities))


def run(device: Device, programs: Sequence[GeneratedKernel]) -> list[Arrays]:
    """The arguments of each after its launch."""
    if find_language(device.language).source_names_kernel or device.language not in TARGETS:
        return [_run_one(device, one) for one in programs]
    texts = [_OUTER.sub(f"p{at}_", source_of(one.kernel, device).text) for at, one in enumerate(programs)]
    name = programs[0].kernel.name
    with device.build(Source("\n".join(texts), name=name, language=device.language)) as built:
        return [_launch(device, built.kernel(one.kernel.name), one) for one in programs]


def source_of(kernel: PortableKernel, device: Device) -> Source:
    """The kernel in the language of a device."""
    if device.language not in TARGETS:
        return kernel.source(device)
    empty = Source("", kernel.name, device.language, (), kernel.defines)
    variables = [
        kernel_parameter(one.name, one.dtype, one.access if isinstance(one, Buffer) else None) for one in kernel.params
    ]
    signature = kernel.signature
    module = read_body(kernel.name, variables, kernel.body, defines=empty.macros, group=signature.group).module
    assert signature.group is not None
    entry = Entry(declaration(signature), entry_symbol(kernel.name), signature.group)
    return Source(write(device.language, module, entry).text, kernel.name, device.language)


def _run_one(device: Device, program: GeneratedKernel) -> Arrays:
    with device.build(source_of(program.kernel, device)) as built:
        return _launch(device, built.kernel(program.kernel.name), program)


def _launch(device: Device, kernel: Any, program: GeneratedKernel) -> Arrays:
    arrays = [device.array(one) for one in program.arrays]
    kernel.launch(program.grid, (*arrays, *program.scalars))
    found = [one.numpy() for one in arrays]
    for one in arrays:
        one.close()
    return found
