"""Runs many generated kernels on a device and compares them with the reference device.

The work is done in processes of their own, because a driver's compiler may crash.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import Empty, Queue
from tempfile import TemporaryFile
from typing import IO, NamedTuple

from msgspec import json

from ...devices.base import Device

SECONDS_TO_SHRINK = 60.0


class Found(NamedTuple):
    """What is wrong with one seed: the lines that differ, or the compiler's error; the shortest body that shows it."""

    seed: int
    lines: tuple[str, ...]
    body: str


class _Task(NamedTuple):
    device: str
    seeds: tuple[int, ...]
    seconds_to_shrink: float
    options: tuple[str, ...]


def search(
    device: str,
    seeds: Iterable[int],
    *,
    processes: int = 1,
    batch: int = 20,
    seconds_to_shrink: float = SECONDS_TO_SHRINK,
    options: Sequence[str] = (),
    progress: Callable[[int], object] = lambda done: None,
) -> list[Found]:
    """What differs between a device and the reference device, for each seed that differs. An empty list is what you want.

    `batch` kernels are compiled together. `options` are handed to the device's compiler. `progress` is called with the number of
    seeds that are done.
    """
    waiting: Queue[tuple[int, ...]] = Queue()
    everything = list(seeds)
    for at in range(0, len(everything), batch):
        waiting.put(tuple(everything[at : at + batch]))
    found: list[Found] = []
    done = 0
    lock = threading.Lock()

    def work(errors: IO[bytes]) -> None:
        nonlocal done
        worker: subprocess.Popen[bytes] | None = None
        while True:
            try:
                seeds = waiting.get_nowait()
            except Empty:
                break
            worker = worker or _start(errors)
            answer = _ask(worker, _Task(device, seeds, seconds_to_shrink, tuple(options)))
            if answer is None:
                status = worker.wait()
                worker = None
                if status > 0:  # a mistake here, not a crash of a driver
                    errors.seek(0)
                    raise RuntimeError(f"comparing kernels {seeds} failed: {errors.read()[-2000:].decode()}")
                if len(seeds) > 1:  # find out which one it was
                    for seed in seeds:
                        waiting.put((seed,))
                    continue
                answer = [Found(seeds[0], (f"the process ended with status {status}",), _body(device, seeds[0]))]
            with lock:
                found.extend(answer)
                done += len(seeds)
                progress(done)
        if worker is not None:
            worker.communicate()

    def work_and_keep_errors() -> None:
        with TemporaryFile() as errors:
            work(errors)

    with ThreadPoolExecutor(processes) as pool:
        for one in [pool.submit(work_and_keep_errors) for _ in range(processes)]:
            one.result()
    return sorted(found)


def _start(errors: IO[bytes]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", f"from {__name__} import serve; serve()"]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors)


def _ask(worker: subprocess.Popen[bytes], task: _Task) -> list[Found] | None:
    """A worker's answer; None where it was killed."""
    assert worker.stdin is not None and worker.stdout is not None
    try:
        worker.stdin.write(json.encode(task) + b"\n")
        worker.stdin.flush()
    except BrokenPipeError:
        return None
    line = worker.stdout.readline()
    return json.decode(line, type=list[Found]) if line else None


def _body(device: str, seed: int) -> str:
    from ...devices.registry import open_device
    from .body import generated_kernel
    from .execution import features_of

    with open_device(device) as opened:
        return generated_kernel(seed, features_of(opened)).kernel.body


# --- in a worker


def serve() -> None:
    """Answer tasks that come line by line, until there are no more."""
    from ...devices.registry import open_device

    answers = sys.stdout.buffer
    sys.stdout = sys.stderr
    devices = {}
    for line in sys.stdin.buffer:
        task = json.decode(line, type=_Task)
        if task.device not in devices:
            devices[task.device] = open_device(task.device)
        answers.write(
            json.encode(compared(devices[task.device], task.seeds, task.seconds_to_shrink, task.options)) + b"\n"
        )
        answers.flush()


def compared(
    device: Device, seeds: Sequence[int], seconds_to_shrink: float = SECONDS_TO_SHRINK, options: Sequence[str] = ()
) -> list[Found]:
    """What differs between an open device and the reference device, for each seed that differs."""
    from ...errors import KernelKeepError
    from .body import GeneratedKernel, from_decisions, generated_kernel
    from .comparison import differences
    from .execution import expected, features_of, run
    from .shrinking import shrunk

    features = features_of(device)

    def wrong(program: GeneratedKernel, results: object = None) -> tuple[str, ...]:
        try:
            wanted = expected(program)
        except Exception as error:  # a mistake of the reader or of the reference device
            return (f"on the reference device: {type(error).__name__}: {error}",)
        try:
            got = results or run(device, [program], options)[0]
        except KernelKeepError as error:
            return (f"{type(error).__name__}: {error}",)
        return tuple(differences(program, wanted, got))  # type: ignore[arg-type]

    programs = [generated_kernel(seed, features) for seed in seeds]
    results: list[object]
    try:
        results = [*run(device, programs, options)]
    except KernelKeepError:
        results = [None] * len(programs)
    answer = []
    for seed, program, result in zip(seeds, programs, results, strict=True):
        lines = wrong(program, result)
        if not lines:
            continue
        kind = lines[0].partition(":")[0] if "[" not in lines[0] else ""

        def is_same(decisions: tuple[int, ...], kind: str = kind) -> bool:
            found = wrong(from_decisions(decisions, features))
            return bool(found) and (found[0].partition(":")[0] if "[" not in found[0] else "") == kind

        least = shrunk(program.decisions, is_same, seconds_to_shrink) if is_same(program.decisions) else ()
        smaller = from_decisions(least, features) if least else program
        answer.append(Found(seed, wrong(smaller) or lines, smaller.kernel.body))
    return answer
