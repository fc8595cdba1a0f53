"""The program cache against its peers, in the same run.

    python benchmarks/cache.py [section …] [--device SPEC] [--json FILE] [--long]
        sections: start parallel disk memory resident scale

- *start*: ten programs in a fresh process, from the opened device to the first correct results of all ten. Every
  contender is a process of its own; importing and opening the device are left out for all alike. Cold figures have the
  drivers' own caches emptied first; warm ones have them as the contender's last run left them, or switched off.
- *parallel*: ten programs compiled from nothing by one thread and by one for each core.
- *disk*: one program from disk to a callable kernel in this process (CUDA), verified, against cuda.core's file cache.
- *memory*: taking and giving back a loaded program, against cuda.core's in-memory cache of bytes; and under threads.
- *resident*: what 100 loaded programs cost in memory.
- *scale*: opening, getting, putting and pruning with 100 and with 10,000 entries on disk.

Without a section start, disk and memory are measured; with --long all of them, with more rounds and programs.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import kernelkeep as kk
from common import chosen_devices, interleaved, long_run, row, show
from kernelkeep.programs.signature import entry_symbol

PROGRAMS = 10
ROUNDS = 5
START = f"{PROGRAMS} programs, fresh process, opened device to results"
N = 1024


def kernel(number: int) -> kk.PortableKernel:
    body = (
        "int i = kk_global_id(0); if (i < n) { float s = 0.0f; "
        f"for (int j = 0; j < 8; j++) s += x[(i + j * {number + 1}) % n] * {number}.25f; y[i] = a * s + y[i]; }}"
    )
    params: list[kk.Buffer | kk.Scalar] = [
        kk.Buffer("x", "f4", "r"),
        kk.Buffer("y", "f4", "rw"),
        kk.Scalar("a", "f4"),
        kk.Scalar("n", "i4"),
    ]
    return kk.PortableKernel(f"work{number}", params=params, body=body)


def expected(number: int, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    s = sum(x[(np.arange(N) + j * (number + 1)) % N] * np.float32(number + 0.25) for j in range(8))
    return np.asarray(2 * s + 1)


# --- children: each prints the milliseconds from the opened device to the first results


def check(results: list[np.ndarray[Any, Any]], x: np.ndarray[Any, Any]) -> None:
    for number, result in enumerate(results):
        np.testing.assert_allclose(result, expected(number, x), rtol=1e-5)


def child_kernelkeep(spec: str, folder: str) -> None:
    device = kk.open_device(spec, cache_dir=folder)
    kernels = [kernel(number) for number in range(PROGRAMS)]
    kk.ProgramCache  # noqa: B018 (import it now, as the peers' libraries are imported)
    x = np.linspace(0, 1, N, dtype="f4")
    start = time.perf_counter()
    with kk.ProgramCache(device, folder) as cache:
        dx = device.array(x)
        outputs = []
        for k in kernels:
            y = device.array(np.ones(N, "f4"))
            with cache.get(k) as lease:
                lease.kernel().launch(N // 256, (dx, y, np.float32(2), np.int32(N)))
            outputs.append(y)
        results = [y.numpy() for y in outputs]
        print(json.dumps({"ms": (time.perf_counter() - start) * 1e3, "compiles": cache.stats().compiles}))
        check(results, x)


def opencl_programs(build: Callable[[Any, Any, int, str], Any]) -> None:
    import pyopencl as cl

    device = cl.get_platforms()[0].get_devices()[0]
    context = cl.Context([device])
    queue = cl.CommandQueue(context)
    with kk.open_device("opencl") as ours:
        texts = [kernel(number).source(ours).text for number in range(PROGRAMS)]
    x = np.linspace(0, 1, N, dtype="f4")
    start = time.perf_counter()
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    dx = cl.Buffer(context, flags, hostbuf=x)
    outputs, programs = [], []
    for number, text in enumerate(texts):
        y = cl.Buffer(context, flags, hostbuf=np.ones(N, "f4"))
        program = build(context, device, number, text)
        function = cl.Kernel(program, entry_symbol(f"work{number}"))
        function(queue, (N,), (256,), dx, y, np.float32(2), np.int32(N))
        outputs.append(y)
        programs.append(program)
    results = []
    for y in outputs:
        host = np.empty(N, "f4")
        cl.enqueue_copy(queue, host, y)
        results.append(host)
    print(json.dumps({"ms": (time.perf_counter() - start) * 1e3}))
    check(results, x)
    for number, program in enumerate(programs):
        raw = Path(os.environ["BENCH_FOLDER"]) / f"raw{number}.bin"
        if not raw.exists():
            raw.write_bytes(program.get_info(cl.program_info.BINARIES)[0])


def child_pyopencl(spec: str, folder: str) -> None:
    import pyopencl as cl

    opencl_programs(lambda context, device, number, text: cl.Program(context, text).build())


def child_raw_binaries(spec: str, folder: str) -> None:
    import pyopencl as cl

    def load(context: Any, device: Any, number: int, text: str) -> Any:
        data = (Path(folder) / f"raw{number}.bin").read_bytes()
        return cl.Program(context, [device], [data]).build()

    opencl_programs(load)


def child_compiling(spec: str, folder: str) -> None:
    """The same programs with the device layer alone: compile, launch, read."""
    own = spec.partition(":")[0] in ("opengl", "webgpu")
    device = kk.open_device(spec, driver_cache_dir=folder) if own else kk.open_device(spec)
    kernels = [kernel(number) for number in range(PROGRAMS)]
    x = np.linspace(0, 1, N, dtype="f4")
    start = time.perf_counter()
    dx = device.array(x)
    outputs = []
    for k in kernels:
        y = device.array(np.ones(N, "f4"))
        device.build(k.source(device)).kernel().launch(N // 256, (dx, y, np.float32(2), np.int32(N)))
        outputs.append(y)
    results = [y.numpy() for y in outputs]
    print(json.dumps({"ms": (time.perf_counter() - start) * 1e3}))
    check(results, x)


CHILDREN = {
    "kernelkeep": child_kernelkeep,
    "pyopencl": child_pyopencl,
    "raw binaries": child_raw_binaries,
    "compiling": child_compiling,
}


def run_child(who: str, spec: str, folder: Path, extra: dict[str, str] | None = None) -> dict[str, Any]:
    environment = os.environ | {"BENCH_FOLDER": str(folder)} | (extra or {})
    command = [sys.executable, __file__, "--child", who, spec, str(folder)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{who} on {spec} failed:\n{done.stderr}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def median_ms(who: str, spec: str, folder: Path, extra: dict[str, str] | None = None, *, cold: bool = False) -> float:
    times: list[float] = []
    for round_number in range(ROUNDS if long_run() or not cold else 1):
        if cold:
            # Nothing of an earlier run helps: a new folder for every cache there is.
            fresh = folder / f"cold{round_number}"
            fresh.mkdir(parents=True, exist_ok=True)
            caches = {"POCL_CACHE_DIR": str(fresh), "XDG_CACHE_HOME": str(fresh), "CUDA_CACHE_DISABLE": "1"}
            times.append(run_child(who, spec, fresh, caches)["ms"])
            shutil.rmtree(fresh, ignore_errors=True)
        else:
            times.append(run_child(who, spec, folder, extra)["ms"])
    return statistics.median(times)


def in_turn_ms(contenders: dict[str, Path], spec: str, extra: dict[str, str]) -> dict[str, list[float]]:
    """Milliseconds of each contender's processes, which take turns. The first round is to warm up."""
    times: dict[str, list[float]] = {who: [] for who in contenders}
    for round_number in range(1 + ROUNDS):
        for who, folder in contenders.items():
            taken = run_child(who, spec, folder, extra)["ms"]
            if round_number:
                times[who].append(taken)
    return times


def section_start(rows: list[list[Any]]) -> None:
    for info in chosen_devices():
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            own = {"POCL_CACHE_DIR": f"{name}/pocl", "XDG_CACHE_HOME": f"{name}/xdg"}
            for cache in own.values():
                Path(cache).mkdir()
            what = f"{PROGRAMS} programs, fresh process, {info.spec} {info.name}"
            run_child("kernelkeep", info.spec, folder / "kk", own)  # fills the cache
            ours = median_ms("kernelkeep", info.spec, folder / "kk", own)
            assert run_child("kernelkeep", info.spec, folder / "kk", own)["compiles"] == 0
            rows.append([what, "kernelkeep, warm", ours, "ms", 1.0])
            if info.backend in ("opengl", "webgpu"):  # whose entries hold no native code
                off = own | {"MESA_SHADER_CACHE_DISABLE": "true", "__GL_SHADER_DISK_CACHE": "0"}
                without = median_ms("kernelkeep", info.spec, folder / "kk", off)
                rows.append([what, "kernelkeep, warm, driver's own cache off", without, "ms", ours / without])
            compiling = median_ms("compiling", info.spec, folder / "c", cold=True)
            rows.append([what, "compiling, caches off", compiling, "ms", ours / compiling])
            row(START, ours, "ms", peer="compiling, caches off", its=compiling, goal="≥ 10", device=info)
            if info.backend == "opencl":
                if long_run():
                    cold = median_ms("pyopencl", info.spec, folder / "p", cold=True)
                    rows.append([what, "PyOpenCL, cold", cold, "ms", ours / cold])
                run_child("pyopencl", info.spec, folder, own)  # writes the raw binaries
                start_beside_pyopencl(info, folder, own, what, rows)


def start_beside_pyopencl(
    info: kk.DeviceInfo, folder: Path, extra: dict[str, str], what: str, rows: list[list[Any]]
) -> None:
    """Processes that take turns; a ratio is the median of the ratios of neighbours."""
    contenders = {"kernelkeep": folder / "kk", "pyopencl": folder, "raw binaries": folder}
    ours, warm, raw = in_turn_ms(contenders, info.spec, extra).values()
    goal = "≥ 20" if not info.is_gpu else "≥ 2"
    bare = statistics.median(a / b for a, b in zip(warm, raw, strict=True))
    limit_of_driver = f"raw binaries, loaded by hand with nothing checked, are {bare:.1f} times faster in the same run"
    for peer, its, limit, note in (
        ("PyOpenCL, caches warm", warm, goal, limit_of_driver),
        ("raw binaries, loaded by hand", raw, "≤ 1.3", ""),
    ):
        middle = statistics.median(its)
        less = statistics.median(a / b for a, b in zip(ours, its, strict=True))
        rows.append([what, peer, middle, "ms", less])
        ratio = less if limit.startswith("≤") else 1 / less
        mine = statistics.median(ours)
        row(START, mine, "ms", peer=peer, its=middle, goal=limit, ratio=ratio, device=info, note=note)


def child_preload(spec: str, folder: str) -> None:
    """Compile ten programs from nothing, with as many threads as $BENCH_WORKERS says."""
    device = kk.open_device(spec, cache_dir=folder)
    sources = [kernel(number).source(device) for number in range(PROGRAMS)]
    with kk.ProgramCache(device, folder) as cache:
        report = cache.preload(sources, workers=int(os.environ["BENCH_WORKERS"]))
        assert report.compiled == PROGRAMS, report
        print(json.dumps({"ms": report.seconds * 1e3}))


def child_nvrtc(spec: str, folder: str) -> None:
    """The same with NVRTC alone, which needs no GPU."""
    from concurrent.futures import ThreadPoolExecutor
    from types import SimpleNamespace

    from kernelkeep.devices.base import Capabilities
    from kernelkeep.devices.cuda import compile_for

    target: Any = SimpleNamespace(language="cuda", capabilities=Capabilities(float64=True, int64=True, int8=True))
    sources = [kernel(number).source(target) for number in range(PROGRAMS)]
    compile_for(kernel(99).source(target), "sm_90")
    start = time.perf_counter()
    with ThreadPoolExecutor(int(os.environ["BENCH_WORKERS"])) as pool:
        list(pool.map(lambda source: compile_for(source, "sm_90"), sources))
    print(json.dumps({"ms": (time.perf_counter() - start) * 1e3}))


CHILDREN |= {"preload": child_preload, "nvrtc": child_nvrtc}


def section_parallel(rows: list[list[Any]]) -> None:
    """Whether compiles overlap is the compiler's to decide; the cache only gets out of the way."""
    contenders = [("preload", info.spec, f"{info.spec} {info.name}") for info in kk.list_devices()]
    contenders.append(("nvrtc", "cuda", "NVRTC"))
    for who, spec, name in contenders:
        seconds = {}
        for workers in (1, os.cpu_count() or 1):
            with tempfile.TemporaryDirectory() as folder:
                os.environ["BENCH_WORKERS"] = str(workers)
                seconds[workers] = median_ms(who, spec, Path(folder), cold=True)
        one, *many = seconds.values()
        for workers, value in seconds.items():
            rows.append(
                [
                    f"compiling {PROGRAMS} programs, {name}",
                    f"{workers} threads",
                    value,
                    "ms",
                    (many or [one])[0] / value,
                ]
            )


# --- in this process


def section_disk(rows: list[list[Any]]) -> None:
    device: Any = open_or_none("cuda")
    if device is None:
        return
    from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch
    from cuda.core.utils import FileStreamProgramCache

    core_device = Device(device.info.index)
    core_device.set_current()
    with tempfile.TemporaryDirectory() as name:
        written = [kernel(number).source(device) for number in range(200 if long_run() else 40)]
        sources = [kk.Source(source.text, source.name, "cuda") for source in written]
        with kk.ProgramCache(device, f"{name}/kk", max_programs=300) as cache:
            cache.preload(sources)
        peer = FileStreamProgramCache(f"{name}/core")
        options = ProgramOptions(arch=device.architecture)
        for source in sources:
            Program(source.text, "c++", options).compile("cubin", cache=peer)

        stream = core_device.create_stream()
        x, y = device.array(np.ones(N, "f4")), device.array(np.ones(N, "f4"))
        a, n, config = np.float32(2), np.int32(N), LaunchConfig(grid=N // 256, block=256)

        # Neither unloads anything before the end: memory that the driver got back makes its next load slower.
        kept: list[Any] = []
        opened = contextlib.ExitStack()

        def with_core(run: bool) -> float:
            start = time.perf_counter()
            for source in sources:
                module = Program(source.text, "c++", options).compile("cubin", cache=peer)
                function = module.get_kernel(entry_symbol(source.name))
                kept.append((module, function))
                if run:
                    launch(stream, config, function, x.handle, y.handle, a, n)
                    stream.sync()
            return time.perf_counter() - start

        def with_ours(run: bool) -> float:
            # New Source objects and a new cache, so that nothing is in memory and every key is computed. Opening it is not
            # counted, as cuda.core's is opened before.
            again = opened.enter_context(kk.ProgramCache(device, f"{name}/kk", max_programs=300))
            start = time.perf_counter()
            for source in sources:
                fresh = kk.Source(source.text, source.name, "cuda")
                with again.get(fresh) as lease:
                    function = lease.kernel(source.name)
                    if run:
                        function.launch(N // 256, (x, y, a, n))
                        device.synchronize()
            seconds = time.perf_counter() - start
            assert again.stats().hits_disk == len(sources)
            return seconds

        contenders = {(who, run): partial(work, run) for run in (False, True) for who, work in
                      (("core", with_core), ("kk", with_ours))}  # fmt: skip
        samples: dict[tuple[str, bool], list[float]] = {}
        for measured in [False] + [True] * 9:
            for which, work in contenders.items():
                seconds = work()
                if measured:
                    samples.setdefault(which, []).append(seconds)
        for run, what in ((False, "to a callable kernel"), (True, "to the first result")):
            core, ours = (statistics.median(samples[who, run]) / len(sources) * 1e6 for who in ("core", "kk"))
            label = f"disk hit {what}, CUDA"
            rows.append([label, "kernelkeep (verified)", ours, "µs", 1.0])
            rows.append(
                [label, "cuda.core FileStreamProgramCache + get_kernel (not verified)", core, "µs", ours / core]
            )
            limit = "≤ 1.2" if run else "≤ 1.0"
            row(f"disk hit {what}", ours, "µs", peer="cuda.core's file cache", its=core, goal=limit, device=device.info)

        opened.close()
        start = time.perf_counter()
        with kk.ProgramCache(device, f"{name}/kk") as again:
            again.preload(sources[:10], workers=1)
            seconds = time.perf_counter() - start
            assert again.stats().compiles == 0
        rows.append(["start-up beyond the device context, 10 programs, CUDA", "kernelkeep", seconds * 1e3, "ms", 1.0])
        row("10 programs loaded from disk, in a running process", seconds * 1e3, "ms", goal="≤ 10", device=device.info)
    device.close()


KERNELKEEP, CORE, EMPTY = "kernelkeep", "cuda.core InMemoryProgramCache.get", "two calls that do nothing"
THREADS = (1, 4, 16)


def section_memory(rows: list[list[Any]]) -> None:
    # Of each thread. With 50,000, all of it lasts a few turns of Python's threads, each on a processor that slept: on an H200's
    # host two calls that do nothing then took 1.8 times as long with four threads as with one.
    loops = 500_000
    core_loops = 5_000
    device: Any = kk.open_device(chosen_devices()[0].spec)
    with tempfile.TemporaryDirectory() as name, kk.ProgramCache(device, name) as cache:
        source = kernel(0).source(device)
        released = cache.get(source)
        released.release()

        def ours() -> None:
            get = cache.get
            for _ in range(loops):
                get(source).release()

        def empty() -> None:
            # The same loop with two calls into C that do nothing: what Python and the machine take for it.
            enter = released.__enter__
            for _ in range(loops):
                enter().release()

        contenders: dict[tuple[str, int], Callable[[], None]] = {
            (who, count): partial(in_threads, count, work)
            for count in THREADS
            for who, work in ((KERNELKEEP, ours), (EMPTY, empty))
        }
        try:
            from cuda.core.utils import InMemoryProgramCache

            peer = InMemoryProgramCache()
            peer[b"k" * 32] = b"x" * 6000

            def core() -> None:
                get, key = peer.get, b"k" * 32
                for _ in range(core_loops):
                    get(key)

            contenders[CORE, 1] = core
            contenders[CORE, THREADS[-1]] = partial(in_threads, THREADS[-1], core)
        except ImportError as error:
            print(f"cuda.core is left out: {error}")
        times = {
            (who, count): seconds / ((core_loops if who == CORE else loops) * count) * 1e6
            for (who, count), seconds in interleaved(contenders, rounds=5).items()
        }
        alone, empty_alone = times[KERNELKEEP, 1], times[EMPTY, 1]
        for (who, count), each in times.items():
            rows.append([f"memory hit: get and release, {count} threads", who, each, "µs", alone / each])
        compared = partial(row, unit="µs", device=device.info)
        for count in (1, THREADS[-1]):
            if (CORE, count) in times:
                work = "memory hit, get and release" + (f", {count} threads" if count > 1 else "")
                compared(work, times[KERNELKEEP, count], peer=CORE, its=times[CORE, count], goal="≤ 0.4")
        for count in THREADS[1:]:
            work = f"memory hit, get and release, {count} threads"
            ours_there, empty_there = times[KERNELKEEP, count], times[EMPTY, count]
            limit = (
                f"two calls that do nothing: {empty_alone:.3f} µs with one thread, {empty_there:.3f} µs with {count}"
            )
            compared(work, ours_there, peer="kernelkeep, one thread", its=alone, goal="≤ 1.2", note=limit)
    device.close()


def in_threads(count: int, work: Callable[[], None]) -> None:
    """The work in so many threads at once; in this thread if it is one."""
    if count == 1:
        work()
        return
    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def child_resident(spec: str, folder: str) -> None:
    """How much a process grows by loading 100 programs from disk. The first five are not counted: drivers grow once."""
    device = kk.open_device(spec, cache_dir=folder)
    sources = [kernel(number).source(device) for number in range(105)]
    with kk.ProgramCache(device, folder, max_programs=200) as cache:
        cache.preload(sources[:5], workers=1)
        before = _resident_bytes()
        cache.preload(sources[5:], workers=1)
        print(json.dumps({"ms": 0, "bytes": _resident_bytes() - before, "compiles": cache.stats().compiles}))


CHILDREN["resident"] = child_resident


def section_resident(rows: list[list[Any]]) -> None:
    for info in kk.list_devices():
        with tempfile.TemporaryDirectory() as name:
            run_child("resident", info.spec, Path(name))  # compiles
            grown = run_child("resident", info.spec, Path(name))
            assert grown["compiles"] == 0
            what = f"100 programs resident, {info.spec} {info.name}"
            rows.append([what, "kernelkeep", grown["bytes"] / 1e6, "MB", 1.0])
            row("100 programs loaded", grown["bytes"] / 1e6, "MB", goal="≤ 50", device=info)


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def section_scale(rows: list[list[Any]]) -> None:
    from kernelkeep.cache.entry import Entry, Facts
    from kernelkeep.cache.key import Key
    from kernelkeep.testing.disk_chain import DiskChain

    rng = np.random.default_rng(1)

    def entry(number: int) -> Entry:
        digest = f"{number:08x}" + rng.bytes(28).hex()
        facts = Facts(f"p{number % 50}", "opencl", "gpu", Key(digest[::-1], {}), time.time(), 0.1, "0", ("k",))
        return Entry(facts, rng.bytes(2000))

    def measure(count: int) -> dict[str, float]:
        results = {}

        def timed(what: str, work: Callable[[], Any]) -> None:
            times = []
            for _ in range(15):
                start = time.perf_counter()
                work()
                times.append(time.perf_counter() - start)
            results[what] = statistics.median(times) * 1e6

        with tempfile.TemporaryDirectory() as name:
            tier = DiskChain(Path(name), "gpu", {}, 1 << 40)
            stored = [entry(number) for number in range(count)]
            for item in stored:
                tier.put(item)
            timed("open", lambda: DiskChain(Path(name), "gpu", {}, 1 << 40))
            order = iter(rng.permutation(count).tolist() * 3)
            timed("get", lambda: tier.get((facts := stored[next(order)].facts).key.digest, facts.name))
            timed("get, a miss", lambda: tier.get(rng.bytes(32).hex(), "p1"))
            new = iter([entry(count + number) for number in range(15)])
            timed("put", lambda: tier.put(next(new)))
            timed("prune, nothing to remove", lambda: tier.prune(max_age_days=30, max_bytes=1 << 40))
            timed("prune, one entry to remove", lambda: tier.prune(None, tier.folder.manifest.count()[1] - 1))
        return results

    few, many = measure(100), measure(10_000)
    for what, time_of_few in few.items():
        rows.append([f"{what}, 100 entries on disk", "kernelkeep", time_of_few, "µs", 1.0])
        rows.append([f"{what}, 10,000 entries", "kernelkeep", many[what], "µs", time_of_few / many[what]])


def open_or_none(spec: str) -> Any:
    try:
        return kk.open_device(spec)
    except kk.DeviceError as error:
        print(f"{spec} is left out: {error}")
        return None


SECTIONS = {
    "start": section_start,
    "parallel": section_parallel,
    "disk": section_disk,
    "memory": section_memory,
    "resident": section_resident,
    "scale": section_scale,
}


def main() -> None:
    if "--child" in sys.argv:
        who, spec, folder = sys.argv[sys.argv.index("--child") + 1 :][:3]
        CHILDREN[who](spec, folder)
        return
    rows: list[list[Any]] = []
    usual = list(SECTIONS) if long_run() else ["start", "disk", "memory"]
    for name in [argument for argument in sys.argv[1:] if argument in SECTIONS] or usual:
        SECTIONS[name](rows)
    show("The program cache", ["what", "who", "figure", "unit", "kernelkeep ÷ it"], rows)


if __name__ == "__main__":
    main()
