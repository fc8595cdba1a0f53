"""Which driver calls block beside a CUDA kernel that never exits: measures the table in `devices/cuda/residents.py`.

    python benchmarks/beside_resident.py [words of the calls to measure …]

One block spins until a word in host memory tells it to stop. Meanwhile a second thread makes one call. If it has not returned
after a second, the kernel is stopped, and the call is said to block.
"""

from __future__ import annotations

import ctypes
import itertools
import mmap
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import kernelkeep as kk
from kernelkeep.devices.cuda.resident_queue import ResidentQueue

LIMIT_SECONDS = 1.0
ENDLESS = """extern "C" __global__ void endless(unsigned long long address) {
    volatile unsigned* word = (volatile unsigned*)address;
    while (word[0] == 0) { }
}
"""
SMALL = """extern "C" __global__ void small%d(float* x, int n) { if (n == %d) x[0] += 1.0f; }
"""
SPILLING = """extern "C" __global__ void spilling%(number)d(float* x, int n) {
    float local[%(words)d];
    for (int k = 0; k < %(words)d; k++) local[k] = (float)(k + n);
    for (int k = 0; k < n %% 7; k++) local[(k * 31 + n) %% %(words)d] += local[(k * 17 + n) %% %(words)d];
    x[0] = local[(n * 13) %% %(words)d];
}
"""
Probe = Callable[["Bench"], Callable[[], Any]]  # prepares, without the endless kernel, and returns the call
probes: dict[str, Probe] = {}


def probe(name: str) -> Callable[[Probe], Probe]:
    def add(function: Probe) -> Probe:
        probes[name] = function
        return function

    return add


class Bench:
    """A device, an endless kernel, and what probes need."""

    def __init__(self) -> None:
        device: Any = kk.open_device("cuda")
        self.device, self.driver = device, device.driver
        self.word = self.device.pinned_empty(64, "u4")
        self.endless = self.device.build(kk.Source(ENDLESS, name="endless", language="cuda")).kernel()
        self.queue = ResidentQueue(device)
        second = device.queue()
        self.stream = second.cu_stream
        self.keep: list[Any] = [second]
        self._numbers = itertools.count(1)

    def ok(self, result: Any) -> Any:
        status, *rest = result
        if status != self.driver.CUresult.CUDA_SUCCESS:
            raise kk.DeviceError(status.name)
        return rest[0] if len(rest) == 1 else rest

    def compiled(self, template: str = SMALL, **fields: int) -> bytes:
        from kernelkeep.devices.binary import Binary

        number = next(self._numbers)
        text = template % (dict(fields, number=number) if fields else (number, number))
        return Binary.decode(self.device.compile(kk.Source(text, name=f"k{number}", language="cuda")), "cuda").payload

    def library(self, payload: bytes | None = None) -> Any:
        payload = payload or self.compiled()
        self.keep.append(payload)
        return self.ok(self.driver.cuLibraryLoadData(payload, [], [], 0, [], [], 0))

    def kernel(self, library: Any) -> Any:
        return self.ok(self.driver.cuLibraryEnumerateKernels(1, library))[0]

    def loaded(self, payload: bytes | None = None) -> Any:
        kernel = self.kernel(self.library(payload))
        self.ok(self.driver.cuKernelGetFunction(kernel))
        return kernel

    def launcher(self, kernel: Any, shared: int = 0) -> Callable[[], Any]:
        x = self.ok(self.driver.cuMemAlloc(256))
        values = (ctypes.c_void_p(int(x)), ctypes.c_int(1))
        pointers = (ctypes.c_void_p * 2)(*(ctypes.addressof(value) for value in values))
        self.keep += [values, pointers]
        function = self.driver.CUfunction(int(kernel))

        def launch() -> None:
            where = ctypes.addressof(pointers)
            self.ok(self.driver.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, shared, self.stream, where, 0))
            self.ok(self.driver.cuStreamSynchronize(self.stream))

        return launch

    def graph(self) -> tuple[Any, Any, Any]:
        """A graph of one kernel, its node and the node's parameters."""
        driver = self.driver
        graph = self.ok(driver.cuGraphCreate(0))
        x = self.ok(driver.cuMemAlloc(256))
        values = (ctypes.c_void_p(int(x)), ctypes.c_int(1))
        pointers = (ctypes.c_void_p * 2)(*(ctypes.addressof(value) for value in values))
        parameters = driver.CUDA_KERNEL_NODE_PARAMS()
        parameters.func = self.ok(driver.cuKernelGetFunction(self.loaded()))
        parameters.gridDimX = parameters.gridDimY = parameters.gridDimZ = 1
        parameters.blockDimX = parameters.blockDimY = parameters.blockDimZ = 1
        parameters.kernelParams = ctypes.addressof(pointers)
        self.keep += [values, pointers, parameters]
        return graph, self.ok(driver.cuGraphAddKernelNode(graph, [], 0, parameters)), parameters

    def measure(self, name: str) -> str:
        """How long a call took beside the kernel, or that it blocked."""
        seconds: list[float] = []
        errors: list[str] = []
        with self.device.current:
            call = probes[name](self)
        self.device.synchronize()

        def work() -> None:
            with self.device.current:
                began = time.perf_counter()
                try:
                    call()
                except Exception as error:
                    errors.append(f"{type(error).__name__}: {error}")
                seconds.append(time.perf_counter() - began)

        self.word[0] = 0
        self.endless.launch(grid=1, group=1, args=(np.uint64(self.word.ctypes.data),), queue=self.queue)
        time.sleep(0.02)
        thread = threading.Thread(target=work)
        thread.start()
        thread.join(LIMIT_SECONDS)
        blocked, early = thread.is_alive(), self.queue.idle
        self.word[0] = 1
        assert self.queue.wait(10)
        thread.join()
        if errors:
            return errors[0]
        if early:
            return "the endless kernel did not run"
        return "BLOCKS" if blocked else f"{seconds[0] * 1e6:,.0f} µs"


def simple(name: str, call: Callable[[Bench], Any]) -> None:
    probes[name] = lambda bench: lambda: bench.ok(call(bench))


def prepared(name: str, prepare: Callable[[Bench], Any], call: Callable[[Bench, Any], Any]) -> None:
    def make(bench: Bench) -> Callable[[], Any]:
        made = prepare(bench)
        return lambda: bench.ok(call(bench, made))

    probes[name] = make


STACK, LOCAL = "CU_LIMIT_STACK_SIZE", 40_000
SHARED = 64 * 1024

# code
prepared("cuLibraryLoadData", Bench.compiled, lambda b, p: b.driver.cuLibraryLoadData(p, [], [], 0, [], [], 0))
prepared("cuModuleLoadData", Bench.compiled, lambda b, p: b.driver.cuModuleLoadData(p))
prepared(
    "cuKernelGetFunction, the first", lambda b: b.kernel(b.library()), lambda b, k: b.driver.cuKernelGetFunction(k)
)
prepared("cuKernelGetFunction, again", Bench.loaded, lambda b, k: b.driver.cuKernelGetFunction(k))
prepared("cuLibraryGetKernel", Bench.library, lambda b, one: b.driver.cuLibraryEnumerateKernels(1, one))
prepared("cuKernelGetParamInfo", lambda b: b.kernel(b.library()), lambda b, k: b.driver.cuKernelGetParamInfo(k, 0))
prepared(
    "cuKernelGetAttribute, not loaded",
    lambda b: b.kernel(b.library()),
    lambda b, k: b.driver.cuKernelGetAttribute(
        b.driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, k, b.device.cu_device
    ),
)
prepared(
    "cuOccupancyMaxActiveBlocksPerMultiprocessor",
    lambda b: b.ok(b.driver.cuKernelGetFunction(b.loaded())),
    lambda b, f: b.driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(f, 128, 0),
)
prepared(
    "cuKernelSetAttribute, shared memory",
    Bench.loaded,
    lambda b, k: b.driver.cuKernelSetAttribute(
        b.driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, SHARED, k, b.device.cu_device
    ),
)
prepared("cuLibraryUnload, never loaded", Bench.library, lambda b, one: b.driver.cuLibraryUnload(one))


@probe("cuLibraryUnload")
def _unload(bench: Bench) -> Callable[[], Any]:
    library = bench.library()
    bench.ok(bench.driver.cuKernelGetFunction(bench.kernel(library)))
    return lambda: bench.ok(bench.driver.cuLibraryUnload(library))


# launches
@probe("a launch, not loaded")
def _first_launch(bench: Bench) -> Callable[[], Any]:
    return bench.launcher(bench.kernel(bench.library()))


@probe("a launch, loaded")
def _launch(bench: Bench) -> Callable[[], Any]:
    return bench.launcher(bench.loaded())


@probe("a launch, loaded, with 64 KiB of shared memory")
def _launch_shared(bench: Bench) -> Callable[[], Any]:
    kernel = bench.loaded()
    which = bench.driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    bench.ok(bench.driver.cuKernelSetAttribute(which, SHARED, kernel, bench.device.cu_device))
    return bench.launcher(kernel, SHARED)


@probe("a launch, loaded, with more local memory than any before")
def _launch_local(bench: Bench) -> Callable[[], Any]:
    return bench.launcher(bench.loaded(bench.compiled(SPILLING, words=8_000)))


@probe("a launch, loaded, with more local memory, reserved by cuCtxSetLimit")
def _launch_reserved(bench: Bench) -> Callable[[], Any]:
    kernel = bench.loaded(bench.compiled(SPILLING, words=LOCAL // 4))
    which = bench.driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES
    needed = bench.ok(bench.driver.cuKernelGetAttribute(which, kernel, bench.device.cu_device))
    bench.ok(bench.driver.cuCtxSetLimit(getattr(bench.driver.CUlimit, STACK), needed))
    return bench.launcher(kernel)


simple("cuCtxSetLimit, more stack", lambda b: b.driver.cuCtxSetLimit(getattr(b.driver.CUlimit, STACK), 2 * LOCAL))
simple("cuCtxGetLimit", lambda b: b.driver.cuCtxGetLimit(getattr(b.driver.CUlimit, STACK)))

# memory
simple("cuMemAlloc, 1 KiB", lambda b: b.driver.cuMemAlloc(1 << 10))
simple("cuMemAlloc, 1 GiB", lambda b: b.driver.cuMemAlloc(1 << 30))
prepared("cuMemFree, 1 KiB", lambda b: b.ok(b.driver.cuMemAlloc(1 << 10)), lambda b, p: b.driver.cuMemFree(p))
prepared("cuMemFree, 1 GiB", lambda b: b.ok(b.driver.cuMemAlloc(1 << 30)), lambda b, p: b.driver.cuMemFree(p))
simple("cuMemAllocAsync", lambda b: b.driver.cuMemAllocAsync(1 << 20, b.stream))


@probe("cuMemFreeAsync and cuStreamSynchronize")
def _free_async(bench: Bench) -> Callable[[], Any]:
    pointer = bench.ok(bench.driver.cuMemAllocAsync(1 << 28, bench.stream))

    def call() -> None:
        bench.ok(bench.driver.cuMemFreeAsync(pointer, bench.stream))
        bench.ok(bench.driver.cuStreamSynchronize(bench.stream))

    return call


@probe("cuMemFreeAsync of memory from cuMemAlloc, and cuStreamSynchronize")
def _free_other_async(bench: Bench) -> Callable[[], Any]:
    pointer = bench.ok(bench.driver.cuMemAlloc(1 << 28))

    def call() -> None:
        bench.ok(bench.driver.cuMemFreeAsync(pointer, bench.stream))
        bench.ok(bench.driver.cuStreamSynchronize(bench.stream))

    return call


simple("cuMemHostAlloc", lambda b: b.driver.cuMemHostAlloc(1 << 20, 2))
prepared(
    "cuMemFreeHost", lambda b: b.ok(b.driver.cuMemHostAlloc(1 << 20, 2)), lambda b, p: b.driver.cuMemFreeHost(int(p))
)


def pages(bench: Bench) -> int:
    memory = np.frombuffer(mmap.mmap(-1, 1 << 20), "u1")
    bench.keep.append(memory)
    return int(memory.ctypes.data)


def registered(bench: Bench) -> int:
    address = pages(bench)
    bench.ok(bench.driver.cuMemHostRegister(address, 1 << 20, 2))
    return address


prepared("cuMemHostRegister", pages, lambda b, p: b.driver.cuMemHostRegister(p, 1 << 20, 2))
prepared("cuMemHostUnregister", registered, lambda b, p: b.driver.cuMemHostUnregister(p))
simple("cuMemGetInfo", lambda b: b.driver.cuMemGetInfo())


@probe("copies from and to pageable memory, 64 MiB")
def _copies(bench: Bench) -> Callable[[], Any]:
    host = np.zeros(1 << 26, "u1")
    pointer = bench.ok(bench.driver.cuMemAlloc(host.nbytes))

    def call() -> None:
        bench.ok(bench.driver.cuMemcpyHtoDAsync(pointer, host.ctypes.data, host.nbytes, bench.stream))
        bench.ok(bench.driver.cuMemcpyDtoHAsync(host.ctypes.data, pointer, host.nbytes, bench.stream))
        bench.ok(bench.driver.cuStreamSynchronize(bench.stream))

    return call


# order
simple("cuStreamCreate", lambda b: b.driver.cuStreamCreate(1))
prepared("cuStreamDestroy", lambda b: b.ok(b.driver.cuStreamCreate(1)), lambda b, s: b.driver.cuStreamDestroy(s))
simple("cuEventCreate", lambda b: b.driver.cuEventCreate(2))
prepared("cuEventDestroy", lambda b: b.ok(b.driver.cuEventCreate(2)), lambda b, e: b.driver.cuEventDestroy(e))


@probe("an event on the default stream, waited for")
def _default_stream(bench: Bench) -> Callable[[], Any]:
    event = bench.ok(bench.driver.cuEventCreate(2))

    def call() -> None:
        bench.ok(bench.driver.cuEventRecord(event, bench.driver.CUstream(1)))
        bench.ok(bench.driver.cuEventSynchronize(event))

    return call


simple("cuCtxSynchronize", lambda b: b.driver.cuCtxSynchronize())
simple("cuDevicePrimaryCtxRetain", lambda b: b.driver.cuDevicePrimaryCtxRetain(b.device.cu_device))
prepared(
    "cuDevicePrimaryCtxRelease, not the last",
    lambda b: b.ok(b.driver.cuDevicePrimaryCtxRetain(b.device.cu_device)),
    lambda b, _: b.driver.cuDevicePrimaryCtxRelease(b.device.cu_device),
)

# graphs
prepared("cuGraphInstantiate", Bench.graph, lambda b, g: b.driver.cuGraphInstantiate(g[0], 0))


def executable(bench: Bench) -> tuple[Any, Any, Any]:
    graph, node, parameters = bench.graph()
    return bench.ok(bench.driver.cuGraphInstantiate(graph, 0)), node, parameters


prepared("cuGraphUpload", executable, lambda b, x: b.driver.cuGraphUpload(x[0], b.stream))
prepared("cuGraphLaunch, not uploaded", executable, lambda b, x: b.driver.cuGraphLaunch(x[0], b.stream))


def uploaded(bench: Bench) -> tuple[Any, Any, Any]:
    made = executable(bench)
    bench.ok(bench.driver.cuGraphUpload(made[0], bench.stream))
    bench.ok(bench.driver.cuStreamSynchronize(bench.stream))
    return made


prepared("cuGraphLaunch, uploaded", uploaded, lambda b, x: b.driver.cuGraphLaunch(x[0], b.stream))


@probe("cuGraphExecKernelNodeSetParams, cuGraphLaunch and cuStreamSynchronize")
def _change_graph(bench: Bench) -> Callable[[], Any]:
    made, node, parameters = uploaded(bench)
    parameters.gridDimX = 2

    def call() -> None:
        bench.ok(bench.driver.cuGraphExecKernelNodeSetParams(made, node, parameters))
        bench.ok(bench.driver.cuGraphLaunch(made, bench.stream))
        bench.ok(bench.driver.cuStreamSynchronize(bench.stream))

    return call


prepared("cuGraphExecDestroy", uploaded, lambda b, x: b.driver.cuGraphExecDestroy(x[0]))
prepared("cuGraphDestroy", Bench.graph, lambda b, g: b.driver.cuGraphDestroy(g[0]))


# green contexts
def green(bench: Bench) -> Any:
    from kernelkeep.devices.cuda.green import GreenContext

    return GreenContext(bench.device, 8)


probes["cuGreenCtxCreate"] = lambda bench: lambda: green(bench)
prepared("cuGreenCtxStreamCreate", green, lambda b, g: b.driver.cuGreenCtxStreamCreate(g.handle, 1, 0))
prepared("cuGreenCtxDestroy", green, lambda b, g: b.driver.cuGreenCtxDestroy(g.handle))


@probe("a launch on each of 80 streams")
def _many_streams(bench: Bench) -> Callable[[], Any]:
    kernel = bench.device.build(kk.Source(SMALL % (0, 0), name="small0", language="cuda")).kernel()
    arrays = [bench.device.empty(64) for _ in range(80)]
    queues = [bench.device.queue() for _ in arrays]

    def call() -> None:
        for queue, array in zip(queues, arrays, strict=True):
            kernel.launch(grid=1, group=32, args=(array, np.int32(1)), queue=queue)
        for queue in queues:
            queue.synchronize()

    return call


def main(words: list[str]) -> None:
    bench = Bench()
    print(f"beside a kernel that never exits on {bench.device.info.name}, driver {bench.device.info.driver}:")
    for name in probes:
        if not words or any(word in name for word in words):
            try:
                said = bench.measure(name)
            except Exception as error:
                said = f"cannot be measured ({type(error).__name__}: {error})"
            print(f"  {name:72} {said}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
