"""What a launch costs once everything is bound, against the same launch by hand with the driver and with the peers.

    python benchmarks/dispatch.py [section …] [--device SPEC] [--json FILE]      sections: launch graph switch ahead

- *launch*: what the caller pays for a launch while earlier ones are under way. 200 launches are timed, the wait for them
  is not, so the driver's queue never fills. Nothing is rebound, except where the contender knows no other way.
- *graph*: 1,000 dispatches of 1,024 elements, from the launch until the last one is done, divided by 1,000.
- *switch*: two prepared launches of different programs in turn, less two of the same program.
- *ahead*: one launch on an idle device, from the call until it is submitted, and the same with the command buffer encoded before.

Every contender adds a half to each of its elements with each launch, and the sum is checked at the end: none was lost.
The C++ loop is compiled beside the script with g++ and called in this process, in the same rounds as the others.
"""

from __future__ import annotations

import contextlib
import ctypes
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import kernelkeep as kk
from common import chosen_devices, chosen_sections, row, show
from kernelkeep.programs.signature import entry_symbol
from wgpu_by_hand import ByHand

LAUNCHES, NODES = 200, 1000
ROUNDS = 31
GROUP = 256
PARAMS: list[kk.Buffer | kk.Scalar] = [
    kk.Buffer("x", "f4", "r"),
    kk.Buffer("y", "f4", "rw"),
    kk.Scalar("a", "f4"),
    kk.Scalar("n", "i4"),
]
SAXPY = kk.PortableKernel(
    "saxpy", params=PARAMS, body="int i = kk_global_id(0); if (i < n) y[i] = a * x[i] + y[i];", group=GROUP
)
OTHER = kk.PortableKernel(
    "other", params=PARAMS, body="int i = kk_global_id(0); if (i >= n) return; y[i] += x[i] * a;", group=GROUP
)
A = np.float32(0.5)
AHEAD = "kernelkeep, encoded ahead"
NATIVE, PLAIN, LAUNCH = "kernelkeep, prepared", "kernelkeep, prepared, plain Python", "kernelkeep, launch"
WGPU = "wgpu-py, everything bound once"
WGPU_BATCH = "wgpu-py, everything bound once, 64 in a command buffer"
CPP, CORE, CUPY = "C++ loop", "cuda.core", "CuPy RawKernel"
OPENCL_ONCE, OPENCL_EACH = "pyopencl, arguments set once", "pyopencl, arguments set each time"
OPENGL_ONCE, OPENGL_EACH = "GL calls by ctypes, everything bound once", "GL calls by ctypes, bound each time"
PEERS = {  # of a prepared launch, with the goal for our time ÷ theirs
    CPP: "≤ 1.0",
    CORE: "≤ 1.0",
    CUPY: "≤ 1.0",
    OPENCL_ONCE: "≤ 1.15",
    OPENGL_ONCE: "≤ 1.15",
    WGPU: "≤ 1.3",
    WGPU_BATCH: "≤ 1.3",
}
SAME, TWO = "the same program twice", "two programs in turn"
LOOP, CUPY_GRAPH, GRAPH = "kernelkeep, prepared one by one", "CuPy graph", "kernelkeep, graph"
COMMAND = ["g++", "-O2", "-shared", "-fPIC", "-o"]
# Declared here, so that neither CUDA's headers nor its stub library are needed: the driver is in the process already.
CPP_TEXT = """
#include <chrono>
extern "C" int cuLaunchKernel(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**, void**);
extern "C" double loop(void* function, void* stream, void** params, unsigned groups, unsigned group, int count) {
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < count; i++)
    if (cuLaunchKernel(function, groups, 1, 1, group, 1, 1, 0, stream, params, nullptr) != 0) return -1;
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}
"""


class Contender(NamedTuple):
    """A way to launch many times."""

    burst: Callable[[int], float]  # launches so many times; the seconds that took the caller
    wait: Callable[[], Any]  # until all of them are done
    result: Callable[[], Any]  # the array they all added to
    around: Callable[[], AbstractContextManager[Any]] = contextlib.nullcontext
    kept: Any = None  # what must stay alive: of a bare address nobody takes care


Contenders = dict[str, Contender]


def looped(launch: Callable[[], Any], last: Callable[[], Any] | None = None) -> Callable[[int], float]:
    def burst(count: int) -> float:
        start = time.perf_counter()
        for _ in range(count):
            launch()
        if last is not None:
            last()
        return time.perf_counter() - start

    return burst


def in_turn(first: Callable[[], Any], second: Callable[[], Any], last: Any = None) -> Callable[[int], float]:
    def burst(count: int) -> float:
        start = time.perf_counter()
        for _ in range(count // 2):
            first()
            second()
        if last is not None:
            last()
        return time.perf_counter() - start

    return burst


def items_on(info: kk.DeviceInfo) -> int:
    """Elements of a launch. PoCL's worker sleeps when a launch is done before the next one comes, and waking it costs more
    than the launch; there a launch is given a little more to do."""
    return 16384 if info.backend == "opencl" and not info.is_gpu else 1024


class Ours:
    """What kernelkeep needs for its contenders: two programs and the arrays they add to."""

    def __init__(self, device: kk.Device, items: int | None = None) -> None:
        self.device = device
        self.items = items or items_on(device.info)
        self.groups = self.items // GROUP
        self.kernel, self.other = (device.build(k.source(device)).kernel() for k in (SAXPY, OTHER))
        # Some devices collect launches in batches; the last one is not to be left to the wait, which is not timed.
        self.last = getattr(device, "submit", None)

    def args(self) -> tuple[Any, ...]:
        x, y = (self.device.array(np.ones(self.items, "f4")) for _ in range(2))
        return (x, y, A, np.int32(self.items))

    def contender(self, burst: Callable[[int], float], args: tuple[Any, ...]) -> Contender:
        return Contender(burst, self.device.synchronize, args[1].numpy)

    def launches(self) -> Contenders:
        args = self.args()
        prepared = self.kernel.prepare(self.groups, args)
        found = {NATIVE: self.contender(looped(prepared, self.last), args)}
        if self.device.backend == "cuda":
            if type(prepared).__name__ != "NativePrepared":
                print("the module in C is not built: prepared launches are the twin in plain Python", file=sys.stderr)
            args = self.args()
            found[PLAIN] = self.contender(looped(self.plain(args)), args)
        args = self.args()
        launch = partial(self.kernel.launch, self.groups, args)
        return found | {LAUNCH: self.contender(looped(launch, self.last), args)}

    def plain(self, args: tuple[Any, ...]) -> kk.Prepared:
        from kernelkeep.devices.base import LaunchOptions
        from kernelkeep.devices.cuda.prepared import PlainPrepared

        kernel: Any = self.kernel
        shape = kernel.check_shape(self.groups, None)
        return PlainPrepared(kernel, args, kernel.check_arguments(args)[0], shape, LaunchOptions())

    def graphs(self) -> Contenders:
        args = self.args()
        prepared = self.kernel.prepare(self.groups, args)
        one_by_one = self.contender(looped(prepared, self.last), args)
        args = self.args()
        prepared, graph = self.kernel.prepare(self.groups, args), kk.Graph(self.device)
        for _ in range(NODES):
            graph.add(prepared)
        return {LOOP: one_by_one, GRAPH: self.contender(looped_graph(graph.launch), args)}

    def switches(self) -> Contenders:
        found = {}
        for name, second in ((SAME, self.kernel), (TWO, self.other)):
            args = self.args()
            first, other = (kernel.prepare(self.groups, args) for kernel in (self.kernel, second))
            found[name] = self.contender(in_turn(first, other, self.last), args)
        return found


def looped_graph(launch: Callable[[], Any]) -> Callable[[int], float]:
    """A graph as a contender: a burst is counted in dispatches."""

    def burst(count: int) -> float:
        start = time.perf_counter()
        for _ in range(count // NODES):
            launch()
        return time.perf_counter() - start

    return burst


# --- by hand, and the peers


def opencl_by_hand(ours: Ours) -> Iterator[tuple[str, Contender]]:
    import pyopencl as cl

    device: Any = ours.device
    context = cl.Context([device.cl_device])
    queue = cl.CommandQueue(context)
    program = cl.Program(context, SAXPY.source(device).text).build()
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR

    def made(bound: bool) -> Contender:
        kernel = cl.Kernel(program, entry_symbol("saxpy"))
        x, y = (cl.Buffer(context, flags, hostbuf=np.ones(ours.items, "f4")) for _ in range(2))
        shape, args = ((ours.items,), (GROUP,)), (x, y, A, np.int32(ours.items))
        if bound:
            kernel.set_args(*args)
            launch: Any = partial(cl.enqueue_nd_range_kernel, queue, kernel, *shape)
        else:
            kernel.set_scalar_arg_dtypes([None, None, np.float32, np.int32])
            launch = partial(kernel, queue, *shape, *args)

        def result() -> Any:
            host = np.empty(ours.items, "f4")
            cl.enqueue_copy(queue, host, y)
            return host

        return Contender(looped(launch), queue.finish, result, kept=args)

    yield OPENCL_ONCE, made(bound=True)
    yield OPENCL_EACH, made(bound=False)


def opengl_by_hand(ours: Ours) -> Iterator[tuple[str, Contender]]:
    from kernelkeep.devices.opengl.libgl import Constants as C
    from kernelkeep.devices.opengl.libgl import library

    gl = library()
    block = struct.pack("<fi8x", A, ours.items)

    def made(bound: bool) -> Contender:
        # A context of its own, current in this thread all the time, as a careful person has it in a program of one thread.
        other: Any = kk.open_device(ours.device.spec)
        program = other.build(SAXPY.source(other))
        x, y = (other.array(np.ones(ours.items, "f4")) for _ in range(2))
        scalars = other.empty(4)

        def bind() -> None:
            gl.glUseProgram(program.gl_program)
            gl.glBindBufferBase(C.SHADER_STORAGE_BUFFER, 0, x.handle)
            gl.glBindBufferBase(C.SHADER_STORAGE_BUFFER, 1, y.handle)
            gl.glBindBuffer(C.UNIFORM_BUFFER, scalars.handle)
            gl.glBufferSubData(C.UNIFORM_BUFFER, 0, 16, block)
            gl.glBindBufferBase(C.UNIFORM_BUFFER, 0, scalars.handle)

        def launch() -> None:
            if not bound:
                bind()
            gl.glDispatchCompute(ours.groups, 1, 1)
            gl.glMemoryBarrier(C.ALL_BARRIER_BITS)

        with other.context.current():
            bind()
        return Contender(looped(launch, gl.glFlush), gl.glFinish, y.numpy, other.context.current)

    yield OPENGL_ONCE, made(bound=True)
    yield OPENGL_EACH, made(bound=False)


def webgpu_by_hand(ours: Ours) -> Iterator[tuple[str, Contender]]:
    by_hand = ByHand(SAXPY.source(ours.device).text, SAXPY.name, ours.items, ours.device.info)
    for name, way in ((WGPU, by_hand.one_by_one()), (WGPU_BATCH, by_hand.batched())):
        yield name, Contender(looped(partial(way.launch_bound, ours.groups), way.submit), way.wait, way.result)


def cuda_by_hand(ours: Ours) -> Iterator[tuple[str, Contender]]:
    yield from attempted(CPP, lambda: cpp_loops(ours))
    yield from attempted(CORE, lambda: cuda_core(ours))
    yield from attempted("CuPy", lambda: {CUPY: cupy_kernel(ours)[0]})


def attempted(what: str, make: Callable[[], Contenders]) -> Iterator[tuple[str, Contender]]:
    """A peer that is not here, or that does not work, is left out with a word."""
    try:
        yield from make().items()
    except Exception as error:
        print(f"{what} is left out: {type(error).__name__}: {error}", file=sys.stderr)


def cpp_loops(ours: Ours) -> Contenders:
    device: Any = ours.device
    if shutil.which("g++") is None:
        raise FileNotFoundError("there is no g++")
    with tempfile.TemporaryDirectory() as name:
        text, file = Path(name) / "loop.cpp", Path(name) / "loop.so"
        text.write_text(CPP_TEXT)
        subprocess.run([*COMMAND, str(file), str(text)], check=True)
        ctypes.CDLL("libcuda.so.1", mode=ctypes.RTLD_GLOBAL)  # where the loop finds cuLaunchKernel
        loop = ctypes.CDLL(str(file)).loop
    loop.restype = ctypes.c_double
    loop.argtypes = [*[ctypes.c_void_p] * 3, ctypes.c_uint, ctypes.c_uint, ctypes.c_int]
    kernel: Any = ours.kernel
    function = int(device.call(device.driver.cuKernelGetFunction, kernel.cu_kernel))

    def made(handle: int) -> Contender:
        args, queue = ours.args(), device.queue()
        x, y, a, n = args
        values = (ctypes.c_uint64(x.handle), ctypes.c_uint64(y.handle), ctypes.c_float(a), ctypes.c_int(n))
        pointers = (ctypes.c_void_p * 4)(*(ctypes.addressof(value) for value in values))
        stream = int(queue.cu_stream)

        def burst(count: int) -> float:
            seconds = float(loop(handle, stream, ctypes.addressof(pointers), ours.groups, GROUP, count))
            assert seconds >= 0, "the driver refused a launch"
            return seconds

        return Contender(burst, queue.synchronize, y.numpy, kept=(args, values))

    # kernelkeep launches a CUkernel, which belongs to no context; C++ programs mostly have a CUfunction, which does.
    return {CPP: made(function), f"{CPP}, over a CUkernel": made(int(kernel.cu_kernel))}


def cuda_core(ours: Ours) -> Contenders:
    from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch

    device: Any = ours.device
    cuda_device = Device(device.info.index)
    cuda_device.set_current()
    stream = cuda_device.create_stream()
    module = Program(SAXPY.source(device).text, "c++", ProgramOptions(arch=device.architecture)).compile("cubin")
    kernel, config = module.get_kernel(entry_symbol("saxpy")), LaunchConfig(grid=ours.groups, block=GROUP)
    x, y, a, n = ours.args()
    bound = partial(launch, stream, config, kernel, x.handle, y.handle, a, n)
    return {CORE: Contender(looped(bound), stream.sync, y.numpy, kept=(x, y))}


def cupy_kernel(ours: Ours) -> tuple[Contender, Callable[[], Any], Any]:
    import cupy

    with cupy.cuda.Device(ours.device.info.index):
        raw = cupy.RawKernel(SAXPY.source(ours.device).text, entry_symbol("saxpy"))
        x, y = cupy.ones(ours.items, "f4"), cupy.ones(ours.items, "f4")
        stream = cupy.cuda.Stream(non_blocking=True)
        bound = partial(raw, (ours.groups,), (GROUP,), (x, y, A, np.int32(ours.items)))
        with stream:
            bound()  # compiled now: a capture takes no such thing
            y.fill(1)
            stream.synchronize()
    return Contender(looped(bound), stream.synchronize, lambda: cupy.asnumpy(y), lambda: stream), bound, stream


def cupy_graph(ours: Ours) -> Contenders:
    contender, launch, stream = cupy_kernel(ours)
    with stream:
        stream.begin_capture()
        for _ in range(NODES):
            launch()
        graph = stream.end_capture()
        graph.upload(stream)
        stream.synchronize()
    return {CUPY_GRAPH: contender._replace(burst=looped_graph(partial(graph.launch, stream)))}


BY_HAND: dict[str, Callable[[Ours], Iterable[tuple[str, Contender]]]] = {
    "opencl": opencl_by_hand,
    "opengl": opengl_by_hand,
    "webgpu": webgpu_by_hand,
    "cuda": cuda_by_hand,
}


# --- measuring


Seconds = dict[
    str, tuple[list[float], list[float]]
]  # of a launch in each round: what the caller pays, and until it is done


def medians(seconds: Seconds) -> dict[str, tuple[float, float]]:
    return {name: (statistics.median(paid), statistics.median(done)) for name, (paid, done) in seconds.items()}


def ratio_of(ours: list[float], its: list[float]) -> float:
    """The median of the ratios of neighbours in time, so that a slow spell is in both."""
    return statistics.median(a / b for a, b in zip(ours, its, strict=True))


def rounds_of(contenders: Contenders, count: int, rounds: int = ROUNDS) -> Seconds:
    """Seconds of a launch in each round. The contenders take turns, in another order each time; their results are checked."""
    seconds: Seconds = {name: ([], []) for name in contenders}
    turns = list(contenders.items())
    for round_number in range(1 + rounds):
        turns.append(turns.pop(0))
        for name, contender in turns:
            with contender.around():
                start = time.perf_counter()
                paid = contender.burst(count) / count
                contender.wait()
                done = (time.perf_counter() - start) / count
            if round_number:  # the first is to warm up
                seconds[name][0].append(paid)
                seconds[name][1].append(done)
    expected = 1 + 0.5 * (1 + rounds) * count
    for name, contender in contenders.items():
        with contender.around():
            result = contender.result()
        assert (result == expected).all(), f"{name}: {expected} was expected, and the result is {result[:4]}"
    return seconds


def section_launch(ours: Ours, rows: list[list[Any]]) -> None:
    contenders = dict(BY_HAND[ours.device.backend](ours)) | ours.launches()
    rounds = rounds_of(contenders, LAUNCHES)
    paid = {name: seconds for name, (seconds, _) in medians(rounds).items()}
    spec, mine = ours.device.spec, paid[NATIVE]
    for name, seconds in paid.items():
        rows.append(["one launch", spec, name, seconds * 1e6, mine / seconds])
    compared = partial(row, unit="µs", device=ours.device.info)
    for peer, limit in PEERS.items():
        if peer in paid:
            note = note_on_python() if peer == CPP else ""
            ratio = ratio_of(rounds[NATIVE][0], rounds[peer][0])
            compared("prepared launch", mine * 1e6, peer=peer, its=paid[peer] * 1e6, goal=limit, ratio=ratio, note=note)
    for peer in (CORE, CUPY, OPENCL_EACH, OPENGL_EACH):
        if peer in paid:
            work = "kernel.launch, everything checked again"
            ratio = ratio_of(rounds[LAUNCH][0], rounds[peer][0])
            compared(work, paid[LAUNCH] * 1e6, peer=peer, its=paid[peer] * 1e6, goal="≤ 1.0", ratio=ratio)


def note_on_python() -> str:
    """What a prepared launch costs without the driver: Python's loop and call, and its lock, released and taken again."""
    try:
        from kernelkeep._native import BoundCall
    except ImportError:
        return ""
    call = BoundCall()
    call.bind_function(ctypes.cast(ctypes.CDLL(None).abs, ctypes.c_void_p).value or 0, (0,))
    burst = looped(call)
    nanoseconds = min(burst(10_000) for _ in range(9)) / 10_000 * 1e9
    return f"{nanoseconds:.0f} ns of it are Python's loop, call and lock, with a C function that does nothing"


def section_graph(ours: Ours, rows: list[list[Any]]) -> None:
    ours = Ours(ours.device, items=1024)
    contenders = ours.graphs()
    if ours.device.backend == "cuda":
        contenders |= dict(attempted(CUPY_GRAPH, lambda: cupy_graph(ours)))
        contenders |= {name: made for name, made in attempted(CPP, lambda: cpp_loops(ours)) if name == CPP}
    rounds = rounds_of(contenders, NODES)
    measured = medians(rounds)
    spec, mine = ours.device.spec, measured[GRAPH]
    for name, (_, seconds) in measured.items():
        rows.append([f"{NODES:,} dispatches until done, each", spec, name, seconds * 1e6, mine[1] / seconds])
    for name, (seconds, _) in measured.items():
        rows.append([f"{NODES:,} dispatches, what the caller pays", spec, name, seconds * 1e6, mine[0] / seconds])
    for peer, limit in ((CUPY_GRAPH, "≤ 0.8"), (LOOP, "≤ 1.0")):
        if peer in measured:
            work = f"a node of a graph of {NODES:,}, until done"
            its, ratio = measured[peer][1] * 1e6, ratio_of(rounds[GRAPH][1], rounds[peer][1])
            row(work, mine[1] * 1e6, "µs", peer=peer, its=its, goal=limit, ratio=ratio, device=ours.device.info)


def section_switch(ours: Ours, rows: list[list[Any]]) -> None:
    seconds = rounds_of(ours.switches(), LAUNCHES, 2 * ROUNDS)
    spec = ours.device.spec
    for i, what in enumerate(("what the caller pays", "until done")):
        same, two = seconds[SAME][i], seconds[TWO][i]
        for name, times in ((SAME, same), (TWO, two)):
            rows.append([f"two launches in turn, each, {what}", spec, name, statistics.median(times) * 1e6, 1.0])
        # Of neighbours in time, so that a slow spell is in both.
        more = statistics.median(b - a for a, b in zip(same, two, strict=True)) * 1e6
        row(f"going to another program, {what}", more, "µs", goal="≤ 1.0", device=ours.device.info)


def section_ahead(ours: Ours, rows: list[list[Any]]) -> None:
    device, args = ours.device, ours.args()
    prepared = ours.kernel.prepare(ours.groups, args)
    if ours.last is None or device.encode_ahead([prepared]) is None:
        return
    seconds: dict[str, list[float]] = {AHEAD: [], NATIVE: []}
    for at in range(4000):
        encoded = device.encode_ahead([prepared])
        assert encoded is not None
        device.synchronize()
        name, launch = (AHEAD, encoded) if at % 2 else (NATIVE, prepared)
        start = time.perf_counter()
        launch()
        ours.last()
        seconds[name].append(time.perf_counter() - start)
    assert (args[1].numpy() == 1 + 0.5 * 4000).all()
    mine = statistics.median(seconds[AHEAD])
    for name, times in seconds.items():
        paid = statistics.median(times)
        rows.append(["one launch on an idle device", device.spec, name, paid * 1e6, mine / paid])


SECTIONS = {"launch": section_launch, "graph": section_graph, "switch": section_switch, "ahead": section_ahead}


def main() -> None:
    rows: list[list[Any]] = []
    for info in chosen_devices():
        with kk.open_device(info.spec) as device:
            ours = Ours(device)
            for name in chosen_sections(SECTIONS):
                SECTIONS[name](ours, rows)
    show("Dispatch with everything bound", ["what", "device", "who", "µs", "kernelkeep ÷ it"], rows)


if __name__ == "__main__":
    main()
