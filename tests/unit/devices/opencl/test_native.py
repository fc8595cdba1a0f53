"""Launches in C: what the driver is given, what is raised where it refuses, and what lives meanwhile."""

from __future__ import annotations

import ctypes
import gc
import struct
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import kernelkeep as kk
from kernelkeep.devices.opencl.device import OpenCLDevice
from kernelkeep.devices.opencl.native_replay import NativeReplay
from kernelkeep.devices.opencl.prepared import OpenCLPrepared

enqueue: Any = pytest.importorskip("kernelkeep._enqueue")

N = 256
ADD = kk.PortableKernel(
    "add_to",
    params=[kk.Buffer("x", "f4", "r"), kk.Buffer("y", "f4"), kk.Scalar("a", "f4")],
    body="int i = kk_global_id(0); y[i] += a * x[i];",
    group=64,
)
X = np.arange(N, dtype="f4")
FUNCTION = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.POINTER(ctypes.c_size_t),
    ctypes.POINTER(ctypes.c_size_t), ctypes.c_uint32, ctypes.c_void_p, ctypes.c_void_p,
)  # fmt: skip


def launch_of(kernel: int, items: int = 64, group: int = 16) -> bytes:
    return struct.pack("=8Q", kernel, 1, items, 1, 1, group, 1, 1)


class Driver:
    """A driver's function that notes its calls and refuses a kernel."""

    def __init__(self, refused: int = 0, during: Callable[[], Any] = lambda: None) -> None:
        self.calls: list[tuple[int, int, int, list[int], list[int]]] = []

        def called(queue: int, kernel: int, dimensions: int, _: Any, items: Any, group: Any, *rest: Any) -> int:
            assert rest == (0, None, None)  # waits for nothing, and makes no event
            self.calls.append((queue, kernel, dimensions, items[:dimensions], group[:dimensions]))
            during()
            return -54 if kernel == refused else 0

        self.function = FUNCTION(called)
        self.target = enqueue.Target(ctypes.cast(self.function, ctypes.c_void_p).value, 7)


Bound: Any = enqueue.BoundLaunches


class Launch(Bound):  # type: ignore[misc]
    def __init__(self) -> None:
        self.failed: list[tuple[int, int]] = []

    def call_failed(self, place: int, status: int) -> None:
        self.failed.append((place, status))


def test_a_call_gives_the_driver_every_launch_in_order() -> None:
    driver, launch = Driver(), Launch()
    three_d = struct.pack("=8Q", 12, 3, 8, 4, 2, 4, 2, 1)
    launch.bind_launches(driver.target, launch_of(11) + three_d, None)
    launch()
    assert driver.calls == [(7, 11, 1, [64], [16]), (7, 12, 3, [8, 4, 2], [4, 2, 1])]
    driver.target.queue = 8
    launch()
    assert [queue for queue, *_ in driver.calls] == [7, 7, 8, 8] and driver.target.queue == 8
    assert driver.target.enqueue(launch_of(13)) is None and driver.calls[-1][:2] == (8, 13)
    assert not launch.failed


def test_a_refused_launch_is_told_by_its_place_and_none_follows() -> None:
    driver, launch = Driver(refused=12), Launch()
    launch.bind_launches(driver.target, launch_of(11) + launch_of(12) + launch_of(13), None)
    launch()
    assert launch.failed == [(1, -54)] and [kernel for _, kernel, *_ in driver.calls] == [11, 12]
    assert driver.target.enqueue(launch_of(12)) == (0, -54)


def test_an_unbound_launch_does_not_reach_the_driver() -> None:
    driver, launch = Driver(), Launch()
    launch()
    launch.bind_launches(driver.target, launch_of(11), None)
    launch.bind_launches()
    launch()
    assert launch.failed == [(0, 0), (0, 0)] and not driver.calls


def test_what_is_kept_lives_until_the_driver_returns() -> None:
    """Another thread may close everything while this one is in the driver."""

    class Kept:
        pass

    kept, launch = Kept(), Launch()
    lives, seen = weakref.ref(kept), []

    def during() -> None:
        launch.bind_launches()
        gc.collect()
        seen.append(lives() is not None)

    driver = Driver(during=during)
    launch.bind_launches(driver.target, launch_of(11), [kept])
    del kept
    launch()
    gc.collect()
    assert seen == [True] and lives() is None


def test_a_cycle_through_what_is_kept_is_collected() -> None:
    launch = Launch()
    launch.bind_launches(Driver().target, launch_of(11), [launch])
    lives = weakref.ref(launch)
    del launch
    gc.collect()
    assert lives() is None


@pytest.mark.parametrize(
    "mistake",
    [
        lambda driver, launch: launch.bind_launches(driver.target, b"123", None),
        lambda driver, launch: launch.bind_launches(driver.target, bytearray(64), None),
        lambda driver, launch: launch.bind_launches(7, bytes(64), None),
        lambda driver, launch: launch.bind_launches(driver.target),
        lambda driver, launch: launch(1),
        lambda driver, launch: driver.target.enqueue(b"123"),
        lambda driver, launch: setattr(driver.target, "queue", 0),
        lambda driver, launch: setattr(driver.target, "queue", "7"),
        lambda driver, launch: delattr(driver.target, "queue"),
        lambda driver, launch: enqueue.Target(0, 7),
    ],
)
def test_mistakes_raise(mistake: Any) -> None:
    driver = Driver()
    with pytest.raises((TypeError, ValueError)):
        mistake(driver, Launch())
    assert not driver.calls and driver.target.queue == 7


# --- with PoCL


@pytest.fixture
def device(pocl: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenCLDevice]:
    monkeypatch.setenv("KERNELKEEP_NATIVE", "1")
    with kk.open_device(pocl) as opened:
        assert isinstance(opened, OpenCLDevice)
        yield opened


def prepared_on(device: OpenCLDevice, a: float = 1.0, **options: Any) -> tuple[Any, Any, Any]:
    kernel = device.load(device.compile(ADD.source(device))).kernel()
    x, y = device.array(X), device.array(np.zeros(N, "f4"))
    return kernel.prepare(N // 64, (x, y, a), **options), x, y


def test_prepared_launches_and_graphs_are_made_in_c(device: OpenCLDevice) -> None:
    prepared, _, y = prepared_on(device)
    assert isinstance(prepared, enqueue.BoundLaunches)
    prepared()
    with kk.Graph(device) as graph:
        host = np.zeros(N, "f4")
        graph.add(prepared).add(prepared).copy(host, y).add(prepared)
        graph.launch()
        assert (y.numpy() == 4 * X).all() and (host == 3 * X).all()
        prepared.update("a", 2.0)
        graph.launch()
        assert (y.numpy() == 10 * X).all() and (host == 8 * X).all()


def test_a_timer_measures_what_is_launched_in_c(device: OpenCLDevice) -> None:
    prepared, _, y = prepared_on(device)
    graph = kk.Graph(device).add(prepared)
    for launch in (prepared, graph.launch, lambda: prepared.kernel.launch(N // 64, prepared.args)):
        launch()  # PoCL loads its code now
        device.synchronize()
        with device.timer() as timer:
            assert device.launch_target is not None and device.launch_target.queue == device.profiling_queue.int_ptr
            launch()
        assert 0 < timer.seconds < 60
    assert (y.numpy() == 6 * X).all()


def test_a_queue_of_its_own_is_used(device: OpenCLDevice) -> None:
    queue = device.queue()
    prepared, _, y = prepared_on(device, queue=queue)
    prepared()
    queue.synchronize()
    assert (y.numpy() == X).all()
    with kk.Graph(device) as graph:
        graph.add(prepared).launch()  # on the device's own
        assert (y.numpy() == 2 * X).all()


def test_closing_what_is_bound_revokes_launches_and_graphs(device: OpenCLDevice) -> None:
    prepared, x, y = prepared_on(device)
    graph = kk.Graph(device).add(prepared)
    graph.launch()
    x.close()
    for launch in (prepared, graph.launch):
        with pytest.raises(kk.DeviceError, match="closed"):
            launch()
    replacement = device.array(X)
    prepared.update("x", replacement)
    prepared()
    graph.launch()
    assert (y.numpy() == 3 * X).all()


def test_a_graph_lets_go_of_memory_that_is_closed(device: OpenCLDevice) -> None:
    prepared, x, _ = prepared_on(device)
    graph = kk.Graph(device).add(prepared)
    graph.launch()
    device.synchronize()
    memory = x.open_handle()
    x.close()
    assert sys.getrefcount(memory) <= 2  # this function's own, and that of the question


def test_a_launch_that_the_driver_refuses_is_left_to_pyopencl(device: OpenCLDevice) -> None:
    prepared, _, y = prepared_on(device)
    graph = kk.Graph(device).add(prepared).add(prepared)
    driver = Driver(refused=prepared.cl_kernel.int_ptr)
    prepared.bind_launches(driver.target, launch_of(prepared.cl_kernel.int_ptr), None)
    prepared()
    assert len(driver.calls) == 1 and (y.numpy() == X).all()
    prepared.group = (63,)  # PoCL refuses it, and so does pyopencl, with an error
    prepared.arm()
    for launch in (prepared, graph.launch):
        with pytest.raises(kk.ArgumentError, match="grid or group"):
            launch()
    assert (y.numpy() == X).all()


def test_threads_launch_while_another_closes(device: OpenCLDevice) -> None:
    """Whatever a call meets, it launches whole or raises; the driver never sees freed memory."""
    prepared, x, _ = prepared_on(device)
    graph = kk.Graph(device).add(prepared).add(prepared)
    began, problems = threading.Barrier(4), []

    def launching(launch: Callable[[], Any]) -> None:
        began.wait()
        try:
            for _ in range(2000):
                launch()
        except kk.DeviceError as error:
            problems.append(str(error))

    threads = [threading.Thread(target=launching, args=(one,)) for one in (prepared, prepared, graph.launch)]
    for thread in threads:
        thread.start()
    began.wait()
    x.close()
    for thread in threads:
        thread.join()
    device.synchronize()
    assert all("closed" in problem for problem in problems)


def test_without_the_module_launches_are_pyopencl_s(pocl: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELKEEP_NATIVE", "0")
    with kk.open_device(pocl) as opened:
        assert isinstance(opened, OpenCLDevice) and opened.launch_target is None
        prepared, _, y = prepared_on(opened)
        graph = kk.Graph(opened).add(prepared)
        prepared()
        graph.launch()
        prepared.kernel.launch(N // 64, prepared.args)
        assert type(prepared) is OpenCLPrepared and not isinstance(graph._replay, NativeReplay)
        assert (y.numpy() == 3 * X).all()
