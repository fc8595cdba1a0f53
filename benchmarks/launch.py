"""What a launch costs through kernelkeep, against the same launch written by hand with the underlying library.

    python benchmarks/launch.py [--device SPEC] [--json FILE]

Every contender launches the same saxpy, rebinding all four arguments each time. Two figures, each the median of
interleaved rounds; a ratio is the median of the ratios of neighbours in time:

- *launch*: what the caller pays for a launch while the device is busy with earlier ones: 200 launches over 16,384
  elements are timed, the wait for them is not.
- *launch and wait*: one launch over 1,024 elements and the wait for it.

A small kernel launched back to back would measure something else with PoCL: its worker sleeps whenever it is done before
the next launch comes, and waking it costs more than the launch.
"""

from __future__ import annotations

import statistics
import struct
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import kernelkeep as kk
from common import chosen_devices, row, show
from kernelkeep.programs.signature import entry_symbol
from wgpu_by_hand import ByHand

EXCLUSIVE = "kernelkeep, in device.exclusive()"
LAUNCHES = 200
ROUNDS = 31
SMALL, LARGE = 1024, 16384
SAXPY = kk.PortableKernel(
    "saxpy",
    params=[kk.Buffer("x", "f4", "r"), kk.Buffer("y", "f4", "rw"), kk.Scalar("a", "f4"), kk.Scalar("n", "i4")],
    body="int i = kk_global_id(0); if (i < n) y[i] = a * x[i] + y[i];",
)
A = np.float32(0.5)
Launch = Callable[[int, Any], None]  # groups, elements
Contenders = dict[str, tuple[Any, ...]]  # how to launch, how to wait, and what must be around both


def ours(device: kk.Device) -> tuple[Any, ...]:
    kernel = device.build(SAXPY.source(device)).kernel("saxpy")
    x, y = device.array(np.ones(LARGE, "f4")), device.array(np.ones(LARGE, "f4"))
    return lambda groups, n: kernel.launch(groups, (x, y, A, n)), device.synchronize


def opencl_by_hand(device: Any) -> Contenders:
    import pyopencl as cl

    context = cl.Context([device.cl_device])
    queue = cl.CommandQueue(context)
    program = cl.Program(context, SAXPY.source(device).text).build()
    kernel = cl.Kernel(program, entry_symbol("saxpy"))
    kernel.set_scalar_arg_dtypes([None, None, np.float32, np.int32])
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    x, y = (cl.Buffer(context, flags, hostbuf=np.ones(LARGE, "f4")) for _ in range(2))
    return {"pyopencl": (lambda groups, n: kernel(queue, (groups * 256,), (256,), x, y, A, n), queue.finish)}


def cuda_by_hand(device: Any) -> Contenders:
    from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch

    source = SAXPY.source(device)
    cuda_device = Device(device.info.index)
    cuda_device.set_current()
    stream = cuda_device.create_stream()
    module = Program(source.text, "c++", ProgramOptions(arch=device.architecture)).compile("cubin")
    kernel = module.get_kernel(entry_symbol("saxpy"))
    x, y = device.array(np.ones(LARGE, "f4")), device.array(np.ones(LARGE, "f4"))

    def with_core(groups: int, n: Any) -> None:
        launch(stream, LaunchConfig(grid=groups, block=256), kernel, x.handle, y.handle, A, n)

    found: Contenders = {"cuda.core": (with_core, stream.sync)}
    try:
        import cupy
    except ImportError:
        return found
    raw = cupy.RawKernel(source.text, entry_symbol("saxpy"))
    cx, cy = cupy.ones(LARGE, "f4"), cupy.ones(LARGE, "f4")
    cupy_stream = cupy.cuda.get_current_stream()
    return found | {"cupy": (lambda groups, n: raw((groups,), (256,), (cx, cy, A, n)), cupy_stream.synchronize)}


def opengl_by_hand(device: Any) -> Contenders:
    from kernelkeep.devices.opengl.libgl import Constants as C

    # A context of its own, current in this thread all the time, as a careful person has it in a program of one thread.
    other: Any = kk.open_device(device.spec)
    program = other.build(SAXPY.source(other))
    x, y = other.array(np.ones(LARGE, "f4")), other.array(np.ones(LARGE, "f4"))
    scalars = other.empty(4)
    block = struct.Struct("<fi8x")

    def with_ctypes(groups: int, n: Any) -> None:
        gl.glUseProgram(program.gl_program)
        gl.glBindBufferBase(C.SHADER_STORAGE_BUFFER, 0, x.handle)
        gl.glBindBufferBase(C.SHADER_STORAGE_BUFFER, 1, y.handle)
        gl.glBindBuffer(C.UNIFORM_BUFFER, scalars.handle)
        gl.glBufferSubData(C.UNIFORM_BUFFER, 0, 16, block.pack(A, n))
        gl.glBindBufferBase(C.UNIFORM_BUFFER, 0, scalars.handle)
        gl.glDispatchCompute(groups, 1, 1)
        gl.glMemoryBarrier(C.ALL_BARRIER_BITS)

    from kernelkeep.devices.opengl.libgl import library

    gl = library()

    def taking(work: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            with other.context.current():
                work()

        return run

    return {"OpenGL by ctypes": (with_ctypes, gl.glFinish, taking)} | moderngl_by_hand(device)


def moderngl_by_hand(device: Any) -> Contenders:
    try:
        import moderngl

        context = moderngl.create_context(standalone=True, require=430, backend="egl")  # type: ignore[arg-type]
    except Exception as error:
        print(f"moderngl is left out: {error}")
        return {}
    text = SAXPY.source(device).text
    block = "layout(std140, binding = 0) uniform kk_scalars { float a; int n; };"
    assert block in text
    shader = context.compute_shader(text.replace(block, "uniform float a; uniform int n;"))
    x, y = (context.buffer(np.ones(LARGE, "f4")) for _ in range(2))
    a, n_uniform = shader["a"], shader["n"]

    def with_moderngl(groups: int, n: Any) -> None:
        x.bind_to_storage_buffer(0)
        y.bind_to_storage_buffer(1)
        a.value, n_uniform.value = 0.5, n
        shader.run(groups)
        context.memory_barrier()

    def taking(work: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            with context:
                work()

        return run

    return {"moderngl": (with_moderngl, context.finish, taking)}


def webgpu_by_hand(device: Any) -> Contenders:
    by_hand = ByHand(SAXPY.source(device).text, SAXPY.name, LARGE, device.info)
    one_by_one, batched = by_hand.one_by_one(), by_hand.batched()
    return {
        "wgpu-py": (one_by_one.launch, one_by_one.wait),
        "wgpu-py, 64 in a command buffer": (batched.launch, batched.wait),
    }


BY_HAND = {"opencl": opencl_by_hand, "opengl": opengl_by_hand, "webgpu": webgpu_by_hand, "cuda": cuda_by_hand}


def exclusively(device: kk.Device) -> Callable[[Callable[[], None]], Callable[[], None]]:
    def taking(work: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            with device.exclusive():
                work()

        return run

    return taking


def plainly(work: Callable[[], None]) -> Callable[[], None]:
    return work


Samples = dict[str, tuple[list[float], list[float]]]


def measure(contenders: Contenders) -> Samples:
    """Seconds of a launch, and of a launch and the wait for it, in each round; the contenders take turns in changing order."""
    samples: Samples = {name: ([], []) for name in contenders}
    turns = list(contenders.items())
    for _ in range(ROUNDS):
        turns.append(turns.pop(0))
        for name, (launch, wait, *rest) in turns:
            launches, waits = samples[name]

            def work(
                launch: Launch = launch,
                wait: Callable[[], None] = wait,
                launches: list[float] = launches,
                waits: list[float] = waits,
            ) -> None:
                large, small = np.int32(LARGE), np.int32(SMALL)
                launch(LARGE // 256, large)
                start = time.perf_counter()
                for _ in range(LAUNCHES):
                    launch(LARGE // 256, large)
                launches.append((time.perf_counter() - start) / LAUNCHES)
                wait()
                start = time.perf_counter()
                for _ in range(50):
                    launch(SMALL // 256, small)
                    wait()
                waits.append((time.perf_counter() - start) / 50)

            taking = rest[0] if rest else plainly
            taking(work)()
    return samples


def ratio_of(ours: list[float], its: list[float]) -> float:
    return statistics.median(a / b for a, b in zip(ours, its, strict=True))


def main() -> None:
    rows = []
    for info in chosen_devices():
        if info.backend not in BY_HAND:
            continue
        with kk.open_device(info.spec) as device:
            contenders = BY_HAND[info.backend](device) | {"kernelkeep": ours(device)}
            if info.backend == "opengl":
                # By hand the context stays with the thread all the time; this is the same.
                contenders[EXCLUSIVE] = (*ours(device), exclusively(device))
            samples = measure(contenders)
        seconds = {name: (statistics.median(one), statistics.median(two)) for name, (one, two) in samples.items()}
        mine = seconds["kernelkeep"]
        for name, (launch, wait) in seconds.items():
            if not name.startswith("kernelkeep"):
                compared = partial(row, unit="µs", peer=name, device=info)
                goal = "≤ 1.0" if info.backend == "cuda" else "≤ 1.15"
                ratio = ratio_of(samples["kernelkeep"][0], samples[name][0])
                compared("launch, all arguments rebound", mine[0] * 1e6, its=launch * 1e6, goal=goal, ratio=ratio)
                for work, who in (("launch and wait", "kernelkeep"), ("launch and wait, in exclusive()", EXCLUSIVE)):
                    if who in seconds:
                        ratio = ratio_of(samples[who][1], samples[name][1])
                        compared(work, seconds[who][1] * 1e6, its=wait * 1e6, goal="≤ 1.2", ratio=ratio)
            rows.append([info.spec, info.name, name, launch * 1e6, mine[0] / launch, wait * 1e6, mine[1] / wait])
    columns = ["device", "name", "who", "launch µs", "kernelkeep ÷ it", "launch and wait µs", "kernelkeep ÷ it "]
    show("One launch, all arguments rebound", columns, rows)


if __name__ == "__main__":
    main()
