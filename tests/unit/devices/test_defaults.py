"""A backend with nothing but the required methods: everything else works by the defaults."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

import kernelkeep as kk
from kernelkeep.devices import base
from kernelkeep.devices.base import Binary, Capabilities, Device, DeviceInfo, Kernel, LaunchOptions, MemoryInfo, Program
from kernelkeep.devices.fingerprint import Fingerprint
from kernelkeep.programs.signature import KernelSignature, Parameter
from kernelkeep.programs.source import Source

ADD = KernelSignature(
    "add",
    (
        Parameter("x", "buffer", "f4", "r", 8),
        Parameter("y", "buffer", "f4", "rw", 8),
        Parameter("a", "scalar", "f4", "r", 4),
    ),
    group=(1, 1, 1),
)


class ToyKernel(Kernel):
    def enqueue(self, values: Sequence[Any], shape: Any, options: LaunchOptions) -> None:
        x, y, a = values
        y.view("f4")[:] += x.view("f4") * a


class ToyProgram(Program):
    def make_kernel(self, signature: KernelSignature) -> Kernel:
        return ToyKernel(self, signature)


class ToyDevice(Device):
    """Works on NumPy arrays; its only program adds `a * x` to `y`."""

    backend = "toy"
    language = "opencl"

    def __init__(self) -> None:
        info = DeviceInfo("toy:0", "toy", "a toy", "nobody", "1", is_gpu=False)
        super().__init__(info, Fingerprint("toy", "nobody", "a toy", "1", "", ""), Capabilities())
        self.waits = 0

    def compile_program(self, source: Source) -> bytes:
        return Binary(self.backend, "toy", (ADD,), b"", source.name).encode()

    def load_program(self, binary: bytes, *, eager: bool = True) -> Program:
        return ToyProgram(self, Binary.decode(binary, self.backend))

    def allocate(self, nbytes: int) -> Any:
        return np.zeros(nbytes, "u1")

    def upload(self, handle: Any, host: np.ndarray[Any, Any]) -> None:
        handle[: host.nbytes] = host.reshape(-1).view("u1")

    def download(self, handle: Any, out: np.ndarray[Any, Any]) -> None:
        out.reshape(-1).view("u1")[:] = handle[: out.nbytes]

    def copy(self, target: Any, origin: Any, nbytes: int) -> None:
        target[:nbytes] = origin[:nbytes]

    def memory_info(self) -> MemoryInfo:
        return MemoryInfo(1 << 30, None)

    def synchronize(self) -> None:
        self.check_open()
        self.waits += 1


@pytest.fixture
def device() -> Iterator[ToyDevice]:
    with ToyDevice() as opened:
        yield opened


@pytest.fixture
def add(device: ToyDevice) -> Kernel:
    return device.build(Source("…", name="add", language="opencl")).kernel()


def test_a_first_backend_needs_ten_methods() -> None:
    required = [name for part in (Device, Program, Kernel) for name in part.__abstractmethods__]
    assert len(required) == 10, required
    table = base.__doc__ or ""
    assert all(name in table for name in required)


def test_launches_check_their_arguments(device: ToyDevice, add: Kernel) -> None:
    x, y = device.array(np.ones(4, "f4")), device.array(np.zeros(4, "f4"))
    add.launch(1, (x, y, 2.0))
    assert (y.numpy() == 2).all()
    with pytest.raises(kk.ArgumentError, match="must be a device array"):
        add.launch(1, (1.0, y, 2.0))
    with pytest.raises(kk.ArgumentError, match="shared_bytes must be 0"):
        add.launch(1, (x, y, 2.0), shared_bytes=64)
    with pytest.raises(kk.Unsupported, match="cooperative"):
        add.launch(1, (x, y, 2.0), cooperative=True)


def test_prepared_launches_follow_updates_and_are_revoked(device: ToyDevice, add: Kernel) -> None:
    x, y = device.array(np.ones(4, "f4")), device.array(np.zeros(4, "f4"))
    prepared = add.prepare(1, (x, y, 2.0))
    prepared()
    prepared.update("a", 3.0)
    prepared()
    assert (y.numpy() == 5).all()
    x.close()
    with pytest.raises(kk.DeviceError, match="an array it was prepared with is closed"):
        prepared()
    prepared.update("x", y)
    prepared()
    assert (y.numpy() == 20).all()
    add.program.close()
    with pytest.raises(kk.DeviceError, match="the program of kernel add is closed"):
        prepared()


def test_a_graph_is_a_loop(device: ToyDevice, add: Kernel) -> None:
    x, y = device.array(np.ones(4, "f4")), device.array(np.zeros(4, "f4"))
    out = np.empty(4, "f4")
    graph = kk.Graph(device).add(add.prepare(1, (x, y, 2.0))).copy(x, y).copy(out, x)
    graph.launch()
    graph.launch()
    assert (out == 6).all()


def test_fences_and_timers_wait_for_the_device(device: ToyDevice) -> None:
    fence = device.fence()
    assert device.waits == 1 and fence.done and fence.wait(0)
    with device.timer() as timer:
        time.sleep(0.01)
    assert timer.seconds >= 0.01
    assert device.time_work(lambda: time.sleep(0.01)) >= 0.01
    with pytest.raises(kk.Unsupported, match="queues"):
        device.queue()


def test_lanes_are_one_lane(device: ToyDevice) -> None:
    lanes = device.open_lanes()
    block, array = lanes.block(16), device.empty(4)
    block.host[:] = 7
    before = time.perf_counter()
    lanes.upload.upload(array.handle, block)
    mark = lanes.compute.mark()
    assert mark.done and before <= lanes.times([mark])[0] <= time.perf_counter()
    lanes.compute.clear(array.handle, 8)
    lanes.download.download(array.handle, block)
    assert block.host.tolist() == [0] * 8 + [7] * 8
    assert lanes.single and lanes.all == (lanes.upload,)


def test_memory_is_not_shared_with_other_libraries(device: ToyDevice) -> None:
    array = device.empty(4)
    assert not hasattr(array, "__cuda_array_interface__")
    with pytest.raises(BufferError, match=r"use \.numpy"):
        array.__dlpack__()


def test_closing_twice_and_using_a_closed_device(device: ToyDevice, add: Kernel) -> None:
    device.close()
    device.close()
    with pytest.raises(kk.DeviceError, match="toy:0 is closed"):
        device.fence()
    with pytest.raises(kk.DeviceError, match="toy:0 is closed"):
        add.launch(1, ())
