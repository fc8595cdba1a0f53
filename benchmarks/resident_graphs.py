"""Graphs of a resident grid against CUDA graphs of the same kernels.

    python benchmarks/resident_graphs.py [chain] [fan] [wide] [--json]

Needs CUDA; takes about 10 seconds. Each section has 1,000 tasks of one block of 128 threads:

- *chain*: each waits for the one before.
- *fan*: all but the first and the last wait for the first, and the last waits for all.
- *wide*: a chain of 100 tasks that all blocks run.

Time is what Python sees from the launch to the end of the wait, divided by the tasks. "PDL" is programmatic dependent launch: a
kernel is launched while the one before still runs, and waits inside. "In a row" is ten runs and one wait. A tiny task adds to one
element; a longer one computes for a microsecond before. How often it multiplies for that is measured: its body in a plain loop of
one kernel, with a barrier behind it as a node has, takes that long. No chain can be faster; its rows say how long it is.
"""

from __future__ import annotations

import ctypes
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import kernelkeep as kk
from common import chosen_sections, open_cuda, row, show

NODES = 1000
ROUNDS = 60
ROW = 10
BODY = "float u = a; for (int k = 0; k < n; k++) u = u * 0.999f + 0.001f * a; if ({first}) y[i] += u;"
TASK = "(int i, float a, int n) { " + BODY.format(first="kk_local_id(0) == 0") + " }"
# Dependents may start at once; all but their first instructions wait for the end of the kernel before.
KERNELS = kk.Source(
    """extern "C" __global__ void plain(float* y, int i, float a, int n) { BODY }
extern "C" __global__ void early(float* y, int i, float a, int n) {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
    BODY
}
extern "C" __global__ void in_a_loop(float* y, int i, float given, int n, int rounds) {
    for (int round = 0; round < rounds; round++) {
        float a = given;
        asm volatile("" : "+f"(a));  // or all rounds would use what the first has computed
        BODY
        __syncthreads();
    }
}
""".replace("BODY", BODY.format(first="threadIdx.x == 0")),
    name="graph_nodes",
    language="cuda",
)


class CudaGraph:
    """A CUDA graph made node by node, or captured from a stream."""

    def __init__(self, device: Any, lease: Any, y: Any) -> None:
        self.device, self.driver, self.call = device, device.driver, device.call
        self.functions = {}
        for name in ("plain", "early", "in_a_loop"):
            kernel = lease.kernel(name)
            self.functions[name] = kernel.program.load_kernel(kernel.cu_kernel, name)
        self.y = int(y.handle)
        with device.current:
            self.stream = self.call(self.driver.cuStreamCreate, 1)
        self.executable: Any = None

    def arguments(self, i: int, n: int) -> Any:
        types = (ctypes.c_void_p, ctypes.c_int, ctypes.c_float, ctypes.c_int)
        return ((self.y, i, 1.0, n), types)

    def node(self, graph: Any, before: list[Any], i: int, n: int, name: str = "plain") -> Any:
        parameters = self.driver.CUDA_KERNEL_NODE_PARAMS()
        parameters.func = self.functions[name]
        parameters.gridDimX = parameters.gridDimY = parameters.gridDimZ = 1
        parameters.blockDimX, parameters.blockDimY, parameters.blockDimZ = 128, 1, 1
        parameters.kernelParams = self.arguments(i, n)
        return self.call(self.driver.cuGraphAddKernelNode, graph, before, len(before), parameters)

    def finish(self, graph: Any) -> CudaGraph:
        self.executable = self.call(self.driver.cuGraphInstantiate, graph, 0)
        self.call(self.driver.cuGraphUpload, self.executable, self.stream)
        self.run()
        return self

    def run(self, times: int = 1) -> None:
        for _ in range(times):
            self.call(self.driver.cuGraphLaunch, self.executable, self.stream)
        self.call(self.driver.cuStreamSynchronize, self.stream)

    def chain(self, n: int) -> CudaGraph:
        graph = self.call(self.driver.cuGraphCreate, 0)
        last: list[Any] = []
        for _ in range(NODES):
            last = [self.node(graph, last, 0, n)]
        return self.finish(graph)

    def early_chain(self, n: int) -> CudaGraph:
        driver = self.driver
        config = driver.CUlaunchConfig()
        config.gridDimX = config.gridDimY = config.gridDimZ = 1
        config.blockDimX, config.blockDimY, config.blockDimZ = 128, 1, 1
        config.hStream = self.stream
        attribute = driver.CUlaunchAttribute()
        attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        attribute.value.programmaticStreamSerializationAllowed = 1
        config.attrs, config.numAttrs = [attribute], 1
        relaxed = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        self.call(driver.cuStreamBeginCapture, self.stream, relaxed)
        try:
            for _ in range(NODES):
                self.call(driver.cuLaunchKernelEx, config, self.functions["early"], self.arguments(0, n), 0)
        finally:
            graph = self.call(driver.cuStreamEndCapture, self.stream)
        return self.finish(graph)

    def fan(self, n: int) -> CudaGraph:
        graph = self.call(self.driver.cuGraphCreate, 0)
        first = self.node(graph, [], 0, n)
        between = [self.node(graph, [first], i, n) for i in range(1, NODES - 1)]
        self.node(graph, between, 0, n)
        return self.finish(graph)

    def early_fan(self, n: int) -> CudaGraph:
        """The edges from the first node are programmatic; a node that waits for many waits for their ends."""
        driver = self.driver
        graph = self.call(driver.cuGraphCreate, 0)
        first = self.node(graph, [], 0, n, "early")
        between = [self.node(graph, [], i, n, "early") for i in range(1, NODES - 1)]
        edge = driver.CUgraphEdgeData()
        edge.from_port = 1  # CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC
        edge.type = int(driver.CUgraphDependencyType.CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC)
        add = getattr(driver, "cuGraphAddDependencies_v2", driver.cuGraphAddDependencies)
        for node in between:
            self.call(add, graph, [first], [node], [edge], 1)
        self.node(graph, between, 0, n)
        return self.finish(graph)


def time_in_a_loop(graph: CudaGraph, n: int) -> float:
    """Microseconds of the body with n multiplications, one after the other in one kernel."""
    rounds = 20 * NODES
    types = (ctypes.c_void_p, ctypes.c_int, ctypes.c_float, ctypes.c_int, ctypes.c_int)
    given = ((graph.y, 0, 1.0, n, rounds), types)
    launch = graph.driver.cuLaunchKernel

    def run() -> float:
        start = time.perf_counter()
        graph.call(launch, graph.functions["in_a_loop"], 1, 1, 1, 128, 1, 1, 0, graph.stream, given, 0)
        graph.call(graph.driver.cuStreamSynchronize, graph.stream)
        return time.perf_counter() - start

    run()
    return statistics.median(run() for _ in range(5)) / rounds * 1e6


def bodies(graph: CudaGraph) -> dict[str, tuple[int, float]]:
    """How often each body multiplies, and how many microseconds it takes in a loop."""
    least, many = time_in_a_loop(graph, 0), time_in_a_loop(graph, 1000)
    n = round((1.0 - least) / (many - least) * 1000)
    return {"tiny": (0, least), "1 µs": (n, time_in_a_loop(graph, n))}


def measured(run: Callable[[int], Any], nodes: int = NODES) -> tuple[float, float]:
    """Microseconds of a node: in one run that is waited for, and in several in a row."""
    run(1)
    found = []
    for times in (1, ROW):
        seconds = []
        for _ in range(ROUNDS if times == 1 else ROUNDS // 4):
            start = time.perf_counter()
            run(times)
            seconds.append((time.perf_counter() - start) / times)
        found.append(statistics.median(seconds) / nodes * 1e6)
    return found[0], found[1]


def resident_chain(resident: Any, n: int) -> Any:
    graph = resident.graph()
    last: Any = ()
    for _ in range(NODES):
        last = graph.task("task", 0, 1.0, n, after=last)
    return graph


def resident_fan(resident: Any, n: int) -> Any:
    graph = resident.graph()
    first = graph.task("task", 0, 1.0, n)
    between = [graph.task("task", i, 1.0, n, after=first) for i in range(1, NODES - 1)]
    graph.task("task", 0, 1.0, n, after=between)
    return graph


def runs(graph: Any) -> Callable[[int], None]:
    def run(times: int) -> None:
        for _ in range(times):
            future = graph.run()
        future.result(60)

    return run


def compare(cache: kk.ProgramCache, shape: str) -> None:
    """A table: both kinds of CUDA graphs, and resident grids of one block and of all."""
    device: Any = cache.device
    rows: list[list[Any]] = []
    lease = cache.get(KERNELS)
    y = device.array(np.zeros(NODES, "f4"))
    with device.current:
        work = bodies(CudaGraph(device, lease, y))
    rows.extend(["the body in a loop", length, floor, "", ""] for length, (_, floor) in work.items())
    plain: dict[str, float] = {}
    theirs: dict[tuple[str, str], float] = {}
    # CUDA graphs first: making them would stop a resident grid.
    for name, kind in (("CUDA graph", shape), ("CUDA graph, PDL", f"early_{shape}")):
        for length, (n, _) in work.items():
            try:
                with device.current:
                    graph = getattr(CudaGraph(device, lease, y), kind)(n)
                    one, in_a_row = measured(graph.run)
            except Exception as error:
                rows.append([name, length, "-", "-", f"not here: {type(error).__name__}: {error}"[:90]])
                continue
            plain.setdefault(length, one)
            theirs[name, length] = one
            rows.append([name, length, one, in_a_row, one / plain[length]])
    build = {"chain": resident_chain, "fan": resident_fan}[shape]
    for blocks in (1, None):
        with kk.Resident(cache, {"task": TASK}, {"y": np.zeros(NODES, "f4")}, blocks=blocks) as resident:
            for length, (n, floor) in work.items():
                graph = build(resident, n)
                one, in_a_row = measured(runs(graph))
                ratio = one / plain[length] if length in plain else "-"
                name = f"resident, {resident.blocks} block{'s' if resident.blocks > 1 else ''}"
                rows.append([name, length, one, in_a_row, ratio])
                for (peer, task), its in theirs.items():
                    if task == length:
                        tasks = "tiny tasks" if length == "tiny" else f"tasks of {length}"
                        what = f"{shape} of {NODES:,} {tasks}, a node, {name}"
                        goal = "≤ 0.7" if (blocks is None) == (shape == "fan") else ""
                        note = ""
                        if shape == "chain":
                            note = f"the body alone takes {floor:.3f} µs, {floor / its:.2f} of the peer's node"
                        row(what, one, "µs", peer=peer, its=its, goal=goal, device=device.info, note=note)
            counted = 2 * (1 + ROUNDS + ROW * (ROUNDS // 4)) * (NODES if shape == "chain" else 2)
            with resident.paused():
                found = float(resident.arrays["y"].numpy()[0])
            if abs(found / counted - 1) > 1e-3:  # a longer task adds 1 but for rounding
                raise SystemExit(f"the first element must be {counted}, got {found}")
    show(f"{shape} of {NODES}", ["what", "task", "µs a node", "in a row", "to the CUDA graph"], rows)


def chain(cache: kk.ProgramCache) -> None:
    compare(cache, "chain")


def fan(cache: kk.ProgramCache) -> None:
    compare(cache, "fan")


def wide(cache: kk.ProgramCache) -> None:
    rows = []
    for blocks in (None, 8):
        body = kk.Task("if (kk_local_id(0) == 0) kk_atomic_add(total[kk_group_id(0) % 64], 1);", whole_grid=True)
        with kk.Resident(cache, {"task": body}, {"total": np.zeros(64, "i4")}, blocks=blocks) as resident:
            graph = resident.graph()
            last: Any = ()
            for _ in range(100):
                last = graph.task("task", after=last)
            rows.append([f"{resident.blocks} blocks", *measured(runs(graph), 100)])
    show("chain of 100 tasks for all blocks", ["where", "µs a node", "in a row"], rows)


SECTIONS = {"chain": chain, "fan": fan, "wide": wide}


def main() -> None:
    with open_cuda() as device, kk.ProgramCache(device) as cache:
        for name in chosen_sections(SECTIONS):
            SECTIONS[name](cache)


if __name__ == "__main__":
    main()
