"""A fresh process that opens a device and runs ten cached programs: the contenders of `fresh_process.py`.

    python benchmarks/fresh_process_child.py CONTENDER FOLDER [SPEC]

Prints one line of JSON: when each step was done, by the clock that all processes of the machine share.
"""

import sys
import time

steps = {"begun": time.monotonic()}
N = 1024
PROGRAMS = 10


def done(step: str) -> None:
    steps[step] = time.monotonic()


def body_of(number: int) -> str:
    return (
        "int i = kk_global_id(0); if (i < n) { float s = 0.0f; "
        f"for (int j = 0; j < 8; j++) s += x[(i + j * {number + 1}) % n] * {number}.25f; y[i] = a * s + y[i]; }}"
    )


def texts(folder: str, language: str) -> "list[tuple[str, str]]":
    """The programs in a device's language, as kernelkeep wrote them: each text and the name of its kernel."""
    with open(f"{folder}/{language}.texts", encoding="utf-8") as file:  # noqa: PTH123
        lines = file.read().split("\0")
    return list(zip(lines[::2], lines[1::2], strict=True))


def check(results: "list[object]") -> None:
    import numpy as np

    x = np.linspace(0, 1, N, dtype="f4")
    for number, result in enumerate(results):
        s = sum(x[(np.arange(N) + j * (number + 1)) % N] * np.float32(number + 0.25) for j in range(8))
        np.testing.assert_allclose(np.asarray(result), 2 * s + 1, rtol=1e-5)


def kernelkeep(folder: str, spec: str) -> "list[object]":
    import numpy as np

    done("numpy")
    import kernelkeep as kk

    device = kk.open_device(spec, cache_dir=folder)
    done("opened")
    params: list[kk.Buffer | kk.Scalar] = [kk.Buffer("x", "f4", "r"), kk.Buffer("y", "f4", "rw")]
    params += [kk.Scalar("a", "f4"), kk.Scalar("n", "i4")]
    cache = kk.ProgramCache(device, folder)
    x = device.array(np.linspace(0, 1, N, dtype="f4"))
    outputs = []
    for number in range(PROGRAMS):
        y = device.array(np.ones(N, "f4"))
        with cache.get(kk.PortableKernel(f"work{number}", params=params, body=body_of(number))) as lease:
            lease.kernel().launch(N // 256, (x, y, np.float32(2), np.int32(N)))
        outputs.append(y)
    results: list[object] = [y.numpy() for y in outputs]
    done("results")
    steps["compiles"] = cache.stats().compiles
    if "--texts" in sys.argv:
        from kernelkeep.programs.signature import entry_symbol

        written = []
        for number in range(PROGRAMS):
            source = kk.PortableKernel(f"work{number}", params=params, body=body_of(number)).source(device)
            written += [source.text, entry_symbol(source.name)]
        with open(f"{folder}/{device.language}.texts", "w", encoding="utf-8") as file:  # noqa: PTH123
            file.write("\0".join(written))
    cache.close()
    return results


def cupy(folder: str, spec: str) -> "list[object]":
    import numpy as np

    done("numpy")
    import cupy as cp

    done("cupy")
    cp.cuda.Device(0).use()
    cp.cuda.runtime.free(0)  # makes the context
    done("opened")
    x = cp.asarray(np.linspace(0, 1, N, dtype="f4"))
    outputs = []
    for text, symbol in texts(folder, "cuda"):
        y = cp.asarray(np.ones(N, "f4"))
        cp.RawKernel(text, symbol)((N // 256,), (256,), (x, y, np.float32(2), np.int32(N)))
        outputs.append(y)
    results: list[object] = [cp.asnumpy(y) for y in outputs]
    done("results")
    return results


def by_hand(folder: str, spec: str) -> "list[object]":
    """What every program with cuda-bindings does first."""
    import numpy as np  # noqa: F401

    done("numpy")
    from cuda.bindings import driver

    done("bindings")
    driver.cuInit(0)
    done("initialised")
    _, device = driver.cuDeviceGet(0)
    driver.cuDevicePrimaryCtxRetain(device)
    done("opened")
    return []


def pyopencl(folder: str, spec: str) -> "list[object]":
    import numpy as np

    done("numpy")
    import pyopencl as cl

    done("pyopencl")
    index = int(spec.partition(":")[2] or 0)
    device = [one for platform in cl.get_platforms() for one in platform.get_devices()][index]
    context = cl.Context([device])
    queue = cl.CommandQueue(context)
    done("opened")
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    x = cl.Buffer(context, flags, hostbuf=np.linspace(0, 1, N, dtype="f4"))
    outputs = []
    for text, symbol in texts(folder, "opencl"):
        y = cl.Buffer(context, flags, hostbuf=np.ones(N, "f4"))
        kernel = cl.Kernel(cl.Program(context, text).build(), symbol)
        kernel(queue, (N,), (256,), x, y, np.float32(2), np.int32(N))
        outputs.append(y)
    results: list[object] = []
    for y in outputs:
        host = np.empty(N, "f4")
        cl.enqueue_copy(queue, host, y)
        results.append(host)
    done("results")
    return results


def numpy_alone(folder: str, spec: str) -> "list[object]":
    import numpy as np  # noqa: F401

    done("numpy")
    return []


if __name__ == "__main__":
    who, folder = sys.argv[1:3]
    found = globals()[who](folder, sys.argv[3] if len(sys.argv) > 3 else "")
    check(found)
    import json

    print(json.dumps(steps))
