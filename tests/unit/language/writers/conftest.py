"""`run` writes a body for a device's language, runs it there and returns its arrays; `written` only writes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import kernelkeep as kk
from kernelkeep.devices.base import Device
from kernelkeep.language import writers
from kernelkeep.language.readers.c import read_body
from kernelkeep.language.tree import kernel_parameter
from kernelkeep.programs.signature import declaration, entry_symbol
from kernelkeep.testing import open_or_skip

Array = np.ndarray[Any, Any]


def write(target: str, kernel: kk.PortableKernel, **options: Any) -> writers.Written:
    parameters = [kernel_parameter(p.name, p.dtype, getattr(p, "access", None)) for p in kernel.params]
    module = read_body(kernel.name, parameters, kernel.body).module
    signature = kernel.signature
    assert signature.group is not None
    entry = writers.Entry(declaration(signature), entry_symbol(kernel.name), signature.group)
    return writers.write(target, module, entry, **options)


@pytest.fixture(params=["opencl", "opengl"])
def device(request: pytest.FixtureRequest, pocl: str) -> Iterator[Device]:
    with open_or_skip(request.param, pocl if request.param == "opencl" else None) as device:
        yield device


@pytest.fixture
def run(device: Device) -> Callable[..., list[Array]]:
    def run(body: str, *, scalars: dict[str, Any] | None = None, group: int = 64, **arrays: Array) -> list[Array]:
        """One group. All arrays are read and written, and returned in their order."""
        scalars = scalars or {}
        params: list[Any] = [kk.Buffer(name, array.dtype.str[1:]) for name, array in arrays.items()]
        params += [kk.Scalar(name, "i4" if isinstance(value, int) else "f4") for name, value in scalars.items()]
        kernel = kk.PortableKernel("k", params, body, group)
        source = kk.Source(write(device.language, kernel).text, name="k", language=device.language)
        given = [device.array(array) for array in arrays.values()]
        with device.build(source) as program:
            program.kernel("k").launch(1, (*given, *scalars.values()))
            return [array.numpy() for array in given]

    return run


@pytest.fixture
def writer() -> Callable[..., writers.Written]:
    return write


@pytest.fixture
def written() -> Callable[..., str]:
    def written(target: str, body: str, *params: Any, **options: Any) -> str:
        """The text of a kernel, without its first lines."""
        kernel = kk.PortableKernel("k", params or (kk.Buffer("x", "f4"), kk.Scalar("n", "i4")), body, 64)
        return write(target, kernel, **options).text

    return written
