"""Hits of CuPy, cuda.core, PyOpenCL and moderngl, for `guest_hit_child.py`."""

from __future__ import annotations

import contextlib
import os
from functools import partial
from pathlib import Path
from typing import Any

from guest_hit_child import PROGRAMS, Measured, Missing, fill, module

_ROUNDS = 20  # where a process keeps nothing in memory between two of them
_SCALE = 'extern "C" __global__ void scale(float* x) {{ x[threadIdx.x] *= {number}.0f; }}'


def cupy(do: str, folder: Path, measured: Measured) -> None:
    """The bytes that CuPy's cache gives; on a GPU, a kernel that is loaded, too."""
    os.environ["CUPY_CACHE_DIR"] = str(folder / "theirs")
    library, compiler = module("cupy"), module("cupy.cuda.compiler")
    theirs = getattr(compiler, "_kernel_cache_backend", None)
    if theirs is None:
        raise Missing(f"CuPy {library.__version__} has no cache that can be changed")
    module("kernelkeep.guests.cupy").turn_on()
    ours = compiler._kernel_cache_backend
    names = [f"{number:064x}.cubin" for number in range(PROGRAMS + 1)]
    if do == "fill":
        for number, name in enumerate(names):
            for backend in (theirs, ours):
                backend.save(name, _bytes(number), _SCALE)
    else:
        for _ in range(_ROUNDS):
            pairs = [(partial(theirs.load, name), partial(ours.load, name)) for name in names]
            measured.turns("CuPy: a kernel's bytes, about 4 KB", pairs)
    if not _has_gpu(library):
        return

    def compile_kernel(backend: Any, number: int) -> Any:
        compiler._set_kernel_cache_backend(backend)
        library.clear_memo()
        kernel = library.RawKernel(_SCALE.format(number=number), "scale")
        kernel.compile()
        return kernel

    numbers = range(PROGRAMS + 1)
    programs = [(partial(compile_kernel, theirs, n), partial(compile_kernel, ours, n)) for n in numbers]
    if do == "fill":
        fill(programs)
        return
    for _ in range(_ROUNDS):
        measured.turns("CuPy: a RawKernel from the cache, loaded", programs)


def _bytes(number: int) -> bytes:
    """As many as a small kernel has."""
    return bytes(range(256)) * (12 + number)


def _has_gpu(cupy: Any) -> bool:
    with contextlib.suppress(Exception):
        return bool(cupy.cuda.runtime.getDeviceCount())
    return False


def cuda_core(do: str, folder: Path, measured: Measured) -> None:
    """The bytes that a `ProgramCacheResource` gives; on a GPU, a kernel that is loaded, too."""
    theirs = module("cuda.core.utils").FileStreamProgramCache(folder / "theirs")
    ours = module("kernelkeep.guests.cuda_core").KernelkeepProgramCache()
    keys = [bytes([number]) * 32 for number in range(PROGRAMS + 1)]
    if do == "fill":
        for number, key in enumerate(keys):
            theirs[key] = ours[key] = _bytes(number)
    else:
        for _ in range(_ROUNDS):
            pairs = [(partial(theirs.__getitem__, key), partial(ours.__getitem__, key)) for key in keys]
            measured.turns("cuda.core: a program's bytes, about 4 KB", pairs)
    core = module("cuda.core")
    try:
        device = core.Device()
        device.set_current()
    except Exception:  # no GPU here, or no driver
        return

    def compile_program(cache: Any, number: int) -> Any:
        options = core.ProgramOptions(arch=f"sm_{device.arch}")
        program = core.Program(_SCALE.format(number=number), code_type="c++", options=options)
        return program.compile("cubin", cache=cache).get_kernel("scale")

    numbers = range(PROGRAMS + 1)
    programs = [(partial(compile_program, theirs, n), partial(compile_program, ours, n)) for n in numbers]
    if do == "fill":
        fill(programs)
        return
    for _ in range(_ROUNDS):
        measured.turns("cuda.core: a kernel from the cache, loaded", programs)


def pyopencl(do: str, folder: Path, measured: Measured) -> None:
    """From a source to the result of its first launch, in a process that has not seen it."""
    os.environ["POCL_CACHE_DIR"] = str(folder / f"pocl-{do}")
    cl, np = module("pyopencl"), module("numpy")
    try:
        platforms = cl.get_platforms()
    except Exception as error:
        raise Missing(f"there is no OpenCL driver: {error}") from None
    chosen = [one for one in platforms if one.name == "Portable Computing Language"] or platforms
    context = cl.Context(chosen[0].get_devices()[:1])
    # PyOpenCL alone compiles nothing on a CPU that PoCL does not know.
    if chosen[0].name == "Portable Computing Language":
        module("kernelkeep.devices.opencl.pocl_cpu").name_unknown_cpu(context.devices[0])
    queue = cl.CommandQueue(context)
    build = module("kernelkeep.guests.pyopencl").build
    own = str(folder / "pyopencl")

    def first_result(text: str, buffer: Any) -> Any:
        program = build(context, text) if do == "ours" else cl.Program(context, text).build(cache_dir=own)
        cl.Kernel(program, "scale")(queue, (64,), (16,), buffer, np.float32(3))
        out = np.empty(64, "f4")
        cl.enqueue_copy(queue, out, buffer)
        return out

    for number in range(PROGRAMS + 1):
        text = f"__kernel void scale(__global float* y, float a) {{ y[get_global_id(0)] *= a * {number + 1}; }}"
        buffer = cl.Buffer(context, cl.mem_flags.COPY_HOST_PTR, hostbuf=np.arange(64, dtype="f4"))
        hit = partial(first_result, text, buffer)
        result = measured.add("PyOpenCL: a program from the cache, to its first result", do, hit, keep=number > 0)
        assert (result == np.arange(64) * 3 * (number + 1)).all()


_SHADER = """#version 430
layout(local_size_x = 64) in;
layout(std430, binding = 0) buffer Y { float y[]; };
void main() { y[gl_GlobalInvocationID.x] *= FACTOR; }
"""


def moderngl(do: str, folder: Path, measured: Measured) -> None:
    """From a shader's text to the result of its first dispatch. The driver's cache has the code on both sides."""
    library, np = module("moderngl"), module("numpy")
    door = module("kernelkeep.guests.moderngl")
    if do == "ours":
        door.turn_on()
    else:
        os.environ["MESA_SHADER_CACHE_DIR"] = os.environ["__GL_SHADER_DISK_CACHE_PATH"] = str(folder / "driver")
    try:
        context = library.create_context(standalone=True, backend="egl", require=430)
    except Exception as error:
        raise Missing(f"there is no OpenGL context: {error}") from None
    make = partial(door.compute_shader, context) if do == "ours" else context.compute_shader

    def first_result(text: str, buffer: Any) -> Any:
        make(text).run(1)
        context.finish()
        return np.frombuffer(buffer.read(), "f4")

    for number in range(PROGRAMS + 1):
        buffer = context.buffer(np.ones(64, "f4").tobytes())
        buffer.bind_to_storage_buffer(0)
        hit = partial(first_result, _SHADER.replace("FACTOR", f"{number + 2}.0"), buffer)
        result = measured.add("moderngl: a compute shader, to its first result", do, hit, keep=number > 0)
        assert (result == number + 2).all()
