"""What a launch costs through kernelkeep, against the same launch written by hand with the underlying library.

    python benchmarks/launch.py [--json]

Every contender launches the same saxpy over 1,024 elements, rebinding all four arguments each time, 1,000 times, and
waits once at the end. Each backend that is here is measured; the figure is the median of interleaved rounds.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

import kernelkeep as kk
from common import interleaved, show

LAUNCHES = 1000
SAXPY = kk.PortableKernel(
    "saxpy",
    params=[kk.Buffer("x", "f4", "r"), kk.Buffer("y", "f4", "rw"), kk.Scalar("a", "f4"), kk.Scalar("n", "i4")],
    body="int i = kk_global_id(0); if (i < n) y[i] = a * x[i] + y[i];",
)
A, N = np.float32(0.5), np.int32(1024)
Contenders = dict[str, Callable[[], None]]


def ours(device: kk.Device) -> Callable[[], None]:
    kernel = device.build(SAXPY.source(device)).kernel("saxpy")
    x, y = device.array(np.ones(1024, "f4")), device.array(np.ones(1024, "f4"))

    def run() -> None:
        for _ in range(LAUNCHES):
            kernel.launch(4, (x, y, A, N))
        device.synchronize()

    return run


def opencl_by_hand(device: Any) -> Contenders:
    import pyopencl as cl

    context = cl.Context([device.cl_device])
    queue = cl.CommandQueue(context)
    program = cl.Program(context, SAXPY.source(device).text).build()
    kernel = cl.Kernel(program, "saxpy")
    kernel.set_scalar_arg_dtypes([None, None, np.float32, np.int32])
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    x, y = (cl.Buffer(context, flags, hostbuf=np.ones(1024, "f4")) for _ in range(2))

    def run() -> None:
        for _ in range(LAUNCHES):
            kernel(queue, (1024,), (256,), x, y, A, N)
        queue.finish()

    return {"pyopencl": run}


def cuda_by_hand(device: Any) -> Contenders:
    from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch

    source = SAXPY.source(device)
    cuda_device = Device(device.info.index)
    cuda_device.set_current()
    stream = cuda_device.create_stream()
    module = Program(source.text, "c++", ProgramOptions(arch=device.architecture)).compile("cubin")
    kernel = module.get_kernel("saxpy")
    x, y = device.array(np.ones(1024, "f4")), device.array(np.ones(1024, "f4"))

    def with_core() -> None:
        for _ in range(LAUNCHES):
            launch(stream, LaunchConfig(grid=4, block=256), kernel, x.handle, y.handle, A, N)
        stream.sync()

    found: Contenders = {"cuda.core": with_core}
    try:
        import cupy
    except ImportError:
        return found
    raw = cupy.RawKernel(source.text, "saxpy")
    cx, cy = cupy.ones(1024, "f4"), cupy.ones(1024, "f4")

    def with_cupy() -> None:
        for _ in range(LAUNCHES):
            raw((4,), (256,), (cx, cy, A, N))
        cupy.cuda.get_current_stream().synchronize()

    return found | {"cupy": with_cupy}


def opengl_by_hand(device: Any) -> Contenders:
    from kernelkeep.devices.opengl.libgl import Constants as C

    built = device.build(SAXPY.source(device))
    program = built.gl_program
    x, y = device.array(np.ones(1024, "f4")), device.array(np.ones(1024, "f4"))
    scalars = device.empty(4)
    block = (ctypes.c_char * 16)()

    def run() -> None:
        # As a careful person writes it with one context in one thread: everything a launch needs, nothing cached.
        with device.context.current() as gl:
            for _ in range(LAUNCHES):
                gl.glUseProgram(program)
                gl.glBindBufferBase(C.SHADER_STORAGE_BUFFER, 0, x.handle)
                gl.glBindBufferBase(C.SHADER_STORAGE_BUFFER, 1, y.handle)
                ctypes.c_float.from_buffer(block, 0).value = 0.5
                ctypes.c_int.from_buffer(block, 4).value = 1024
                gl.glBindBuffer(C.UNIFORM_BUFFER, scalars.handle)
                gl.glBufferSubData(C.UNIFORM_BUFFER, 0, 16, block)
                gl.glBindBufferBase(C.UNIFORM_BUFFER, 0, scalars.handle)
                gl.glDispatchCompute(4, 1, 1)
                gl.glMemoryBarrier(C.ALL_BARRIER_BITS)
            gl.glFinish()
            device._bound.clear()
            device._used = 0
        assert not built.closed

    return {"OpenGL by ctypes": run} | moderngl_by_hand(device)


def moderngl_by_hand(device: Any) -> Contenders:
    try:
        import moderngl

        context = moderngl.create_context(standalone=True, require=430, backend="egl")  # type: ignore[arg-type]
    except Exception as error:
        print(f"moderngl is left out: {error}")
        return {}
    text = SAXPY.source(device).text.replace("layout(std140, binding = 0) uniform kk_scalars { float a; int n; };",
                                             "uniform float a; uniform int n;")  # fmt: skip
    shader = context.compute_shader(text)
    x, y = (context.buffer(np.ones(1024, "f4")) for _ in range(2))
    a, n = shader["a"], shader["n"]

    def run() -> None:
        with context:
            for _ in range(LAUNCHES):
                x.bind_to_storage_buffer(0)
                y.bind_to_storage_buffer(1)
                a.value, n.value = 0.5, 1024
                shader.run(4)
                context.memory_barrier()
            context.finish()

    return {"moderngl": run}


BY_HAND = {"opencl": opencl_by_hand, "opengl": opengl_by_hand, "cuda": cuda_by_hand}


def main() -> None:
    rows = []
    for info in kk.list_devices():
        with kk.open_device(info.spec) as device:
            contenders = BY_HAND[info.backend](device) | {"kernelkeep": ours(device)}
            seconds = {name: value / LAUNCHES for name, value in interleaved(contenders).items()}
        for name, value in seconds.items():
            rows.append([info.spec, info.name, name, value * 1e6, seconds["kernelkeep"] / value])
    columns = ["device", "name", "who", "µs per launch", "kernelkeep ÷ it"]
    show("One launch of a small kernel, all arguments rebound", columns, rows)


if __name__ == "__main__":
    main()
