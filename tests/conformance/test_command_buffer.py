"""Graphs on OpenCL as command buffers, where a device here has them; and that anything unknown gets the loop."""

from __future__ import annotations

import _ctypes
import ctypes
import gc
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import kernelkeep as kk
from kernelkeep.devices.opencl import command_buffers as native
from kernelkeep.devices.opencl import library, replay
from kernelkeep.devices.opencl.device import OpenCLDevice
from kernelkeep.devices.opencl.replay import OpenCLReplay
from kernelkeep.testing import note_skipped, run_python

pytestmark = pytest.mark.opencl

N = 1000
GROUPS = 16

ADD = kk.PortableKernel(
    "add",
    params=[kk.Buffer("x", "f4", "r"), kk.Buffer("y", "f4", "rw"), kk.Scalar("a", "f4"), kk.Scalar("n", "i4")],
    body="int i = kk_global_id(0);\nif (i < n) y[i] = a * x[i] + y[i];",
    group=64,
)

# Everything is still open, and running, when the interpreter ends.
LEAVE = """
import sys
import numpy as np
import kernelkeep as kk

add = kk.PortableKernel(
    "add",
    params=[kk.Buffer("x", "f4", "r"), kk.Buffer("y", "f4", "rw"), kk.Scalar("a", "f4"), kk.Scalar("n", "i4")],
    body="int i = kk_global_id(0);\\nif (i < n) y[i] = a * x[i] + y[i];",
    group=64,
)
device = kk.open_device(sys.argv[1])
kernel = device.load(device.compile(add.source(device))).kernel()
x, y = device.array(np.ones(1000, "f4")), device.array(np.zeros(1000, "f4"))
prepared, out = kernel.prepare(16, (x, y, 1.0, 1000)), np.zeros(1000, "f4")
graph = kk.Graph(device)
for _ in range(200):
    graph.add(prepared)
graph.copy(out, y)
graph.launch()
device.synchronize()
print(int(out[0]), int(out[-1]))
for _ in range(20):
    graph.launch()
"""


@pytest.fixture(scope="module")
def device() -> Iterator[OpenCLDevice]:
    """The first device that is used with command buffers."""
    try:
        cl, devices = library.load_pyopencl(), library.find_devices()
        found = [i for i, one in enumerate(devices) if native.command_buffer_functions(cl, one) is not None]
        reason = "no OpenCL device here has cl_khr_command_buffer in a revision that is used (PoCL 3.1 and 6.0 have)"
    except kk.DeviceError as error:
        found, reason = [], str(error)
    if not found:
        note_skipped("opencl command buffers", reason)
        pytest.skip(reason)
    with kk.open_device(f"opencl:{found[0]}") as device:
        assert isinstance(device, OpenCLDevice)
        yield device


@pytest.fixture(autouse=True)
def _even_if_it_leaks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that is spared because it leaks is good enough for a test."""
    if "device" in request.fixturenames:
        monkeypatch.setattr(replay, "_leaks", lambda device: False)


@pytest.fixture(scope="module")
def add(device: kk.Device) -> kk.Kernel:
    """`y += a * x`."""
    return device.load(device.compile(ADD.source(device))).kernel()


@pytest.fixture
def arrays(device: kk.Device) -> tuple[kk.Array, kk.Array, kk.Array]:
    """0, 1, 2 … and twice nothing."""
    return device.array(X), device.array(np.zeros(N, "f4")), device.array(np.zeros(N, "f4"))


X = np.arange(N, dtype="f4")


def parts(graph: kk.Graph) -> list[Any]:
    """What a graph consists of, as the driver has it."""
    assert isinstance(graph._replay, OpenCLReplay)
    return graph._replay._parts


def command_buffers(graph: kk.Graph) -> int:
    return sum(isinstance(part, int) for part in parts(graph))


def test_launches_and_copies_on_the_device_are_one_command_buffer(
    device: kk.Device, add: kk.Kernel, arrays: Any
) -> None:
    x, y, z = arrays
    with kk.Graph(device) as graph:
        graph.add(add.prepare(GROUPS, (x, y, 2.0, N))).copy(z, y).add(add.prepare(GROUPS, (x, y, 1.0, N)))
        graph.launch()
        assert command_buffers(graph) == len(parts(graph)) == 1
        assert (z.numpy() == 2 * X).all() and (y.numpy() == 3 * X).all()
        graph.launch()  # nothing waits between these two
        graph.launch()
        assert (z.numpy() == 8 * X).all() and (y.numpy() == 9 * X).all()


def test_the_order_of_a_thousand_launches_is_kept(device: kk.Device) -> None:
    # v = 3 v + k, modulo 2³²: no other order gives the same.
    step = kk.PortableKernel(
        "step",
        params=[kk.Buffer("v", "u4", "rw"), kk.Scalar("k", "u4")],
        body="int i = kk_global_id(0);\nv[i] = 3u * v[i] + k;",
        group=64,
    )
    kernel = device.load(device.compile(step.source(device))).kernel()
    v = device.array(np.arange(64, dtype="u4"))
    graph = kk.Graph(device)
    for k in range(1000):
        graph.add(kernel.prepare(1, (v, k)))
    expected = np.arange(64, dtype="u4")
    for _ in range(3):
        graph.launch()
        for k in range(1000):
            expected = expected * np.uint32(3) + np.uint32(k)
    assert (v.numpy() == expected).all()
    assert command_buffers(graph) > 1  # they are bounded
    graph.close()


def test_host_memory_is_read_and_written_at_each_replay(device: kk.Device, add: kk.Kernel, arrays: Any) -> None:
    x, y, z = arrays
    given, out, between = np.full(N, 3, "f4"), np.zeros(N, "f4"), np.zeros(N, "f4")
    prepared = add.prepare(GROUPS, (x, y, 1.0, N))
    with kk.Graph(device) as graph:
        graph.copy(y, given).add(prepared).add(prepared).add(prepared).copy(between, y)
        graph.add(prepared).add(prepared).copy(z, y).copy(out, z)
        for value in (3, 5):
            given[:] = value
            graph.launch()
            device.synchronize()
            assert (between == value + 3 * X).all() and (out == value + 5 * X).all()
        assert command_buffers(graph) == 2
        for _ in range(50):
            graph.launch()
        device.synchronize()
        graph.launch()
        assert isinstance(graph._replay, OpenCLReplay)
        assert len(graph._replay._copying) == 3  # those of before are done, and let go


def test_host_memory_lives_until_its_copy_is_done(device: kk.Device, add: kk.Kernel, arrays: Any) -> None:
    x, y, _ = arrays
    prepared = add.prepare(GROUPS, (x, y, 1.0, N))
    graph = kk.Graph(device).copy(y, np.full(N, 7, "f4"))
    for _ in range(300):
        graph.add(prepared)
    graph.copy(np.zeros(N, "f4"), y)
    graph.launch()
    graph.close()
    del graph
    gc.collect()
    assert (y.numpy() == 7 + 300 * X).all()


def test_an_update_takes_effect_at_the_next_replay_and_not_before(
    device: kk.Device, add: kk.Kernel, arrays: Any
) -> None:
    x, y, z = arrays
    first, second = add.prepare(GROUPS, (x, y, 1.0, N)), add.prepare(GROUPS, (x, y, 10.0, N))
    with kk.Graph(device) as graph:
        graph.add(first).add(second).add(first).copy(z, y).add(second)
        expected = 0.0
        for factor in (1.0, 2.0, 3.0, 2.0):
            first.update("a", factor)
            graph.launch()  # while the one before may still run
            expected += 2 * factor + 20
        assert (y.numpy() == expected * X).all()
        other = device.array(np.zeros(N, "f4"))
        second.update("y", other)
        graph.launch()
        assert (other.numpy() == 20 * X).all() and (y.numpy() == (expected + 4) * X).all()
        assert (z.numpy() == y.numpy()).all()


def test_a_launch_that_changes_leaves_the_command_buffers_of_the_others(
    device: kk.Device, add: kk.Kernel, arrays: Any
) -> None:
    x, y, _ = arrays
    steady, changing = add.prepare(GROUPS, (x, y, 0.0, N)), add.prepare(GROUPS, (x, y, 1.0, N))
    with kk.Graph(device) as graph:
        for prepared in (steady, steady, steady, changing, steady, steady, steady):
            graph.add(prepared)
        graph.launch()
        assert command_buffers(graph) == 1
        changing.update("a", 2.0)
        assert not parts(graph)  # they would keep an array alive that was exchanged
        graph.launch()
        assert command_buffers(graph) == 2
        before = parts(graph)
        changing.update("a", 3.0)
        graph.launch()
        assert parts(graph) is before  # nothing is recorded any more
        assert (y.numpy() == 6 * X).all()


def test_arguments_of_every_kind_and_shapes_of_every_rank_are_recorded(device: kk.Device) -> None:
    source = kk.Source(
        "__kernel void turn(__global const int* x, __global int* y, __local int* tile, int by) {\n"
        "  int c = get_global_id(0), r = get_global_id(1), p = get_global_id(2);\n"
        "  int w = get_global_size(0), h = get_global_size(1), l = get_local_id(0), m = get_local_size(0);\n"
        "  tile[l] = x[(p * h + r) * w + c];\n"
        "  barrier(CLK_LOCAL_MEM_FENCE);\n"
        "  y[(p * h + r) * w + c] = tile[m - 1 - l] + by;\n"
        "}\n",
        name="turn",
    )
    turn = device.load(device.compile(source)).kernel()
    host = np.arange(2 * 3 * 32, dtype="i4").reshape(2, 3, 32)
    x, y = device.array(host), device.array(np.zeros_like(host))
    there = turn.prepare((4, 3, 2), (x, y, kk.LocalMemory(32), 1), group=(8, 1, 1))
    back = turn.prepare((4, 3, 2), (y, x, kk.LocalMemory(32), 10), group=(8, 1, 1))
    with kk.Graph(device) as graph:
        graph.add(there).add(back).add(there)
        graph.launch()
        assert command_buffers(graph) == 1
        assert (x.numpy() == host + 11).all()
        assert (y.numpy() == (host + 12).reshape(2, 3, 4, 8)[..., ::-1].reshape(2, 3, 32)).all()


def test_a_large_grid_that_pocl_compiles_again_is_recorded(device: kk.Device, add: kk.Kernel) -> None:
    n = 200_000
    x, y = device.array(np.ones(n, "f4")), device.array(np.zeros(n, "f4"))
    prepared = add.prepare(-(-n // 64), (x, y, 1.0, n))
    with kk.Graph(device) as graph:
        for _ in range(5):
            graph.add(prepared)
        graph.launch()
        assert command_buffers(graph) == 1
        assert (y.numpy() == 5).all()


def test_other_work_keeps_its_place_before_and_after(device: kk.Device, add: kk.Kernel, arrays: Any) -> None:
    x, y, z = arrays
    prepared = add.prepare(GROUPS, (x, y, 1.0, N))
    with kk.Graph(device) as graph:
        graph.add(prepared).add(prepared).add(prepared)
        for _ in range(20):
            y.copy_from(z)
            graph.launch()
            add.launch(GROUPS, (y, y, 1.0, N))
            assert (y.numpy() == 6 * X).all()
        graph.launch()
        fence = device.fence()
        assert fence.wait(60) and (y.numpy() == 9 * X).all()


def test_a_graph_computes_the_same_inside_a_timer(device: kk.Device, add: kk.Kernel, arrays: Any) -> None:
    x, y, z = arrays
    prepared, out = add.prepare(GROUPS, (x, y, 1.0, N)), np.zeros(N, "f4")
    with kk.Graph(device) as graph:
        graph.add(prepared).add(prepared).add(prepared).copy(z, y).copy(out, z)
        with device.timer() as timer:  # made in here, of all places
            graph.launch()
        assert timer.seconds > 0 and (out == 3 * X).all()
        graph.launch()
        assert command_buffers(graph) == 1
        with device.timer() as timer:
            graph.launch()
        device.synchronize()
        assert timer.seconds > 0 and (out == 9 * X).all()
        prepared.update("a", 2.0)
        with device.timer():
            graph.launch()
        graph.launch()
        device.synchronize()
        assert (out == 21 * X).all()


def test_a_launch_prepared_for_a_queue_keeps_its_place_in_the_graph(
    device: kk.Device, add: kk.Kernel, arrays: Any
) -> None:
    x, y, z = arrays
    prepared, elsewhere = add.prepare(GROUPS, (x, y, 1.0, N)), add.prepare(GROUPS, (y, y, 1.0, N), queue=device.queue())
    expected = 0
    with kk.Graph(device) as graph:
        for _ in range(5):
            graph.add(prepared).add(elsewhere)
        for turn in range(4):
            y.copy_from(z)
            with device.timer() if turn == 2 else nullcontext():
                graph.launch()
            assert (y.numpy() == (2 + 4 + 8 + 16 + 32) * X).all()
            expected += command_buffers(graph)
            elsewhere.update("a", 1.0)  # from the second turn on it is by itself
    assert expected == 1


def test_closed_arrays_are_refused_and_can_be_replaced(device: kk.Device, add: kk.Kernel, arrays: Any) -> None:
    x, y, z = arrays
    prepared = add.prepare(GROUPS, (x, y, 1.0, N))
    with kk.Graph(device) as graph:
        graph.add(prepared).add(prepared).add(prepared).copy(z, x)
        graph.launch()
        y.close()
        with pytest.raises(kk.DeviceError, match="closed"):
            graph.launch()
        prepared.update("y", device.array(np.zeros(N, "f4")))
        graph.launch()
        assert (prepared.args[1].numpy() == 3 * X).all()
        z.close()
        with pytest.raises(kk.DeviceError, match="closed"):
            graph.launch()


@pytest.mark.parametrize("which", ["array of a launch", "array of a copy", "program"])
def test_a_graph_keeps_nothing_alive_that_is_closed(device: kk.Device, which: str) -> None:
    program = device.load(device.compile(ADD.source(device)))
    x, y, z = (device.array(np.ones(N, "f4")) for _ in range(3))
    prepared = program.kernel().prepare(GROUPS, (x, y, 1.0, N))
    with kk.Graph(device) as graph:
        graph.add(prepared).add(prepared).copy(z, x)
        graph.launch()
        assert command_buffers(graph) == 1
        {"array of a launch": y.close, "array of a copy": z.close, "program": program.close}[which]()
        assert not parts(graph)
        with pytest.raises(kk.DeviceError, match="closed"):
            graph.launch()


@pytest.mark.parametrize("first", ["graph", "arrays", "program", "nothing"])
def test_graphs_may_be_closed_in_any_order_while_they_run(device: kk.Device, first: str) -> None:
    for _ in range(5):
        program = device.load(device.compile(ADD.source(device)))
        x, y = device.array(np.ones(N, "f4")), device.array(np.zeros(N, "f4"))
        prepared = program.kernel().prepare(GROUPS, (x, y, 1.0, N))
        graph = kk.Graph(device)
        for _ in range(200):
            graph.add(prepared)
        for _ in range(3):
            graph.launch()
        for close in {"graph": [graph.close], "arrays": [x.close, y.close], "program": [program.close]}.get(first, ()):
            close()
        del program, prepared, graph, x, y
        gc.collect()
    device.synchronize()


def test_a_device_may_be_closed_before_its_graphs(device: kk.Device) -> None:
    for _ in range(3):
        other = kk.open_device(device.spec)
        kernel = other.load(other.compile(ADD.source(other))).kernel()
        x, y = other.array(np.ones(N, "f4")), other.array(np.zeros(N, "f4"))
        prepared = kernel.prepare(GROUPS, (x, y, 1.0, N))
        graph = kk.Graph(other).add(prepared).add(prepared).add(prepared)
        graph.launch()
        assert command_buffers(graph) == 1
        other.close()
        graph.close()


def test_the_interpreter_may_end_with_everything_open(device: kk.Device) -> None:
    assert run_python(LEAVE, device.spec).stdout.split() == ["200", "200"]


def test_many_threads_launch_graphs_of_their_own(device: kk.Device, add: kk.Kernel) -> None:
    def work(number: int) -> None:
        x, y = device.array(X), device.array(np.zeros(N, "f4"))
        out, expected = np.zeros(N, "f4"), 0
        for _ in range(10):
            prepared = add.prepare(GROUPS, (x, y, 1.0, N))
            with kk.Graph(device) as graph:
                for _ in range(20):
                    graph.add(prepared)
                graph.copy(out, y)
                for factor in (1, 2, number):
                    prepared.update("a", factor)
                    graph.launch()
                    expected += 20 * factor
                device.synchronize()
            assert (out == expected * X).all()

    in_threads([partial(work, number) for number in range(6)])


def test_many_threads_launch_one_graph(device: kk.Device, add: kk.Kernel, arrays: Any) -> None:
    x, y, z = arrays
    out = np.zeros(N, "f4")
    prepared = add.prepare(GROUPS, (x, y, 1.0, N))
    with kk.Graph(device) as graph:
        for _ in range(10):
            graph.add(prepared)
        graph.copy(z, y).copy(out, z)
        graph.launch()

        def work() -> None:
            for _ in range(50):
                graph.launch()

        in_threads([work] * 6)
        device.synchronize()
        assert (out == 3010 * X).all()


def test_closing_a_graph_that_other_threads_launch_raises_there(device: kk.Device, add: kk.Kernel, arrays: Any) -> None:
    x, y, _ = arrays
    prepared = add.prepare(GROUPS, (x, y, 1.0, N))
    for _ in range(10):
        graph = kk.Graph(device)
        for _ in range(10):
            graph.add(prepared)
        graph.launch()
        started = threading.Barrier(4)

        def work(graph: kk.Graph = graph, started: threading.Barrier = started) -> None:
            started.wait()
            with pytest.raises(kk.DeviceError, match="closed"):
                launch_forever(graph)

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        started.wait()
        graph.close()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
    device.synchronize()


def test_a_refusal_of_the_driver_is_translated(
    device: OpenCLDevice, add: kk.Kernel, arrays: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y, _ = arrays
    prepared = add.prepare(GROUPS, (x, y, 1.0, N))
    functions = native.command_buffer_functions(device.cl, device.cl_device)
    with kk.Graph(device) as graph:
        graph.add(prepared).add(prepared).add(prepared)
        with monkeypatch.context() as patch:
            patch.setattr(functions, "_finalize", lambda buffer: -6)  # CL_OUT_OF_HOST_MEMORY
            graph.launch()
        assert not isinstance(graph._replay, OpenCLReplay) and (y.numpy() == 3 * X).all()
        graph.add(prepared)
        graph.launch()
        assert command_buffers(graph) == 1
        for code, kind, match in ((-6, kk.OutOfMemory, "graph"), (-1138, kk.DeviceError, "error -1138")):
            with monkeypatch.context() as patch:
                patch.setattr(functions, "_enqueue", lambda *args, code=code: code)
                with pytest.raises(kind, match=match):
                    graph.launch()
        graph.launch()
        assert (y.numpy() == 11 * X).all()


def test_a_command_buffer_that_was_not_finalized_is_refused_by_the_real_driver(device: OpenCLDevice) -> None:
    functions = native.command_buffer_functions(device.cl, device.cl_device)
    assert functions is not None
    buffer = functions.create(device.own_queue.int_ptr)
    with pytest.raises(native.CommandBufferRefusedError, match="clEnqueueCommandBufferKHR failed: INVALID_OPERATION"):
        functions.enqueue(buffer)
    functions.release(buffer)


# --- what needs no such device


@pytest.mark.parametrize(
    ("platform", "kind", "leaks"),
    [("Intel(R) OpenCL", 2, True), ("Intel(R) OpenCL Graphics", 4, False), ("Portable Computing Language", 2, False)],
)
def test_a_driver_that_leaks_gets_the_loop(
    platform: str, kind: int, leaks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    monkeypatch.setattr(replay, "command_buffer_functions", lambda cl, device: "functions")
    monkeypatch.setattr(replay, "OpenCLReplay", lambda device, functions, steps: made.append("command buffers"))
    monkeypatch.setattr(replay, "Replay", lambda device, steps: made.append("loop"))
    driver = SimpleNamespace(type=kind, platform=SimpleNamespace(name=platform))
    cl = SimpleNamespace(device_type=SimpleNamespace(CPU=2, GPU=4))
    replay.new_replay(SimpleNamespace(cl=cl, cl_device=driver, launch_target=None), [])  # type: ignore[arg-type]
    assert made == ["loop" if leaks else "command buffers"]


def test_without_the_extension_a_graph_is_a_loop() -> None:
    try:
        cl, devices = library.load_pyopencl(), library.find_devices()
    except kk.DeviceError as error:
        note_skipped("opencl", str(error))
        pytest.skip(f"opencl: {error}")
    without = [i for i, one in enumerate(devices) if native.command_buffer_functions(cl, one) is None]
    if not without:
        pytest.skip("every OpenCL device here has command buffers")
    with kk.open_device(f"opencl:{without[0]}") as device:
        kernel = device.load(device.compile(ADD.source(device))).kernel()
        x, y = device.array(X), device.array(np.zeros(N, "f4"))
        prepared = kernel.prepare(GROUPS, (x, y, 1.0, N))
        with kk.Graph(device) as graph:
            graph.add(prepared).add(prepared).add(prepared)
            graph.launch()
            assert not isinstance(graph._replay, OpenCLReplay) and (y.numpy() == 3 * X).all()


def fake(*versions: tuple[str, int]) -> Any:
    """A device that says it has these extensions in these versions."""
    names = " ".join(name for name, _ in versions)
    extensions = [SimpleNamespace(name=name, version=version) for name, version in versions]
    return SimpleNamespace(extensions=names, extensions_with_version=extensions, int_ptr=0, platform=None)


def revision(major: int, minor: int, patch: int) -> int:
    return major << 22 | minor << 12 | patch


PYOPENCL = SimpleNamespace(Error=ArithmeticError, _cl=SimpleNamespace(__file__=_ctypes.__file__ or sys.executable))


@pytest.mark.parametrize(
    "device",
    [
        fake(("cl_khr_fp64", revision(1, 0, 0))),
        fake(("cl_khr_command_buffer_mutable_dispatch", revision(0, 9, 0))),
        fake(("cl_khr_command_buffer", revision(0, 8, 9))),
        fake(("cl_khr_command_buffer", revision(1, 1, 0))),
        fake(("cl_khr_command_buffer", revision(2, 0, 0))),
        SimpleNamespace(extensions="cl_khr_command_buffer"),  # an OpenCL or a pyopencl that tells no versions
    ],
    ids=lambda device: device.extensions,
)
def test_unknown_revisions_are_not_used(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda path: pytest.fail("this device's functions are not looked up"))
    assert native.command_buffer_functions.__wrapped__(PYOPENCL, device) is None


@pytest.mark.parametrize("known", [revision(0, 9, 0), revision(0, 9, 7), revision(1, 0, 0)])
def test_a_missing_loader_leaves_the_loop(known: int) -> None:
    device = fake(("cl_khr_command_buffer", known))
    assert native.command_buffer_functions.__wrapped__(PYOPENCL, device) is None  # a library, but none of OpenCL's
    nowhere = SimpleNamespace(Error=ArithmeticError, _cl=SimpleNamespace(__file__="/nowhere/_cl.so"))
    assert native.command_buffer_functions.__wrapped__(nowhere, device) is None


def launch_forever(graph: kk.Graph) -> None:
    while True:
        graph.launch()


def in_threads(works: list[Callable[[], None]]) -> None:
    """Do all at once; the first thing that goes wrong is raised."""
    wrong: list[BaseException] = []

    def guarded(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive()
    if wrong:
        raise wrong[0]
