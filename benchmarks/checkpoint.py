"""Checkpoints of large states, measured: beside `dd conv=fsync` on the same disk, what is written where little changed, and what
the run pays.

    python benchmarks/checkpoint.py [section …] [--device SPEC] [--json FILE] [--folder PATH] [--mebibytes N,N,…] [--long]

- *speed*: a whole checkpoint, all of whose blocks have changed, from the state on the device to a file that survives a power
  cut: the time the run waits for the state, and the time until the file has its name. `dd` writes as many zeros, and syncs
  them; the two take turns.
- *changed*: the bytes that go to the disk where one percent of the state changed since the last checkpoint.
- *cost*: iterations a second of a run with a checkpoint every second, against none; runs take turns, and the best of each counts.

--long takes a state of many gigabytes as well, up to 20: the largest for which the device, the memory and the disk have room.
`--folder` is where the files go: the temporary folder by default.
"""

from __future__ import annotations

import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import kernelkeep as kk
from common import chosen_devices, chosen_sections, long_run, row, show
from kernelkeep.continuous.checkpoints.arriving import Arriving
from kernelkeep.continuous.checkpoints.block_digest import key_of
from kernelkeep.continuous.checkpoints.checkpoint import Written
from kernelkeep.continuous.checkpoints.claim import CheckpointClaim
from kernelkeep.continuous.checkpoints.free_memory import free_memory
from kernelkeep.continuous.checkpoints.header import CheckpointHeader
from kernelkeep.continuous.checkpoints.snapshot import Snapshots
from kernelkeep.continuous.checkpoints.writer import CheckpointWriter
from kernelkeep.continuous.initial_state import InitialState
from kernelkeep.continuous.run_options import RunOptions
from kernelkeep.continuous.session import Session

MIB = 1 << 20
LARGEST_ARRAY = 4096 * MIB
ROUNDS = {64: 5, 512: 3, 1024: 2}  # by size; larger ones once
LARGE = [20480, 8192, 4096]  # MiB, of which --long takes the first that there is room for


def state_program(mebibytes: int, percent: int) -> kk.StateProgram:
    """A state of so many MiB, of which an iteration changes so many percent, in one place of each array."""
    count = -(-mebibytes * MIB // LARGEST_ARRAY)
    items = mebibytes * MIB // count // 4
    names = [f"u{number}" for number in range(count)]
    body = ["int i = kk_item(), part = kk_items() / 100, at = kk_iteration() * 37 % 100 * part;"]
    body += ["int here = percent == 100 || (i >= at && i < at + part) ? 1 : 0;"]
    # The device makes up the numbers: many gigabytes of them on the host take longer to make than to write.
    body += [f"{name}_next[i] = here == 1 ? {name}[i] * 1664525u + kk_uint(i) : {name}[i];" for name in names]
    return kk.StateProgram(
        f"state_of_{mebibytes}_mib",
        coupling="independent",
        items=items,
        state={name: np.zeros(items, "u4") for name in names},
        scalars={"percent": np.int32(percent)},
        body="\n".join(body),
        group=256,
    )


class Checkpoints:
    """A session whose checkpoints are made one after the other, as a run makes them."""

    def __init__(self, cache: kk.ProgramCache, program: kk.StateProgram, path: Path) -> None:
        self.session = Session(cache, program, InitialState.of(program), RunOptions())
        self.session.slice("step")
        self.session.synchronize()
        self.free_bytes = cache.device.memory_info().free_bytes  # before anything is there for checkpoints
        self.claim = CheckpointClaim(path).acquire()
        self.snapshots = Snapshots(self.session, key_of(self.claim.lineage))
        self.writer = CheckpointWriter(self.claim)

    def make(self) -> tuple[float, float, Written]:
        """One iteration and its checkpoint: how long the run waited, how long all of it took, and what was written."""
        self.session.slice("step")
        self.session.synchronize()
        settle()
        ended: list[Any] = []
        begun = time.perf_counter()

        def submit(header: CheckpointHeader, arrays: dict[str, np.ndarray[Any, Any]], arriving: Arriving) -> None:
            ended.append(time.perf_counter() - begun)
            self.writer.submit(header, arrays, ended.append, arriving)

        waited = self.snapshots.take(submit)
        self.writer.flush()
        before, written = ended
        assert isinstance(written, Written), written
        return waited, max(waited, before + written.seconds), written

    def close(self) -> None:
        self.writer.close()
        self.claim.release()
        self.snapshots.close()
        self.session.close()


def settle() -> None:
    """Before something is measured: nothing that came before is still to be written or removed, and on a machine that is busy
    nobody is behind others with its share of the processor."""
    os.sync()
    time.sleep(0.2)


def dd_seconds(folder: Path, mebibytes: int) -> float:
    """What dd says that it took."""
    path = folder / "zeros"
    command = ["dd", "if=/dev/zero", f"of={path}", "bs=1M", f"count={mebibytes}", "conv=fsync"]
    said = subprocess.run(command, capture_output=True, text=True, check=True, env={"LC_ALL": "C"}).stderr
    path.unlink()
    found = re.search(r"copied, ([\d.e-]+) s", said)
    assert found, said
    return float(found[1])


@contextmanager
def folder_on_disk() -> Iterator[Path]:
    at = sys.argv.index("--folder") + 1 if "--folder" in sys.argv else 0
    with tempfile.TemporaryDirectory(dir=sys.argv[at] if at else None) as folder:
        yield Path(folder)


def sizes(cache: kk.ProgramCache, folder: Path) -> list[int]:
    """The sizes in MiB, with --long a large one among them."""
    if "--mebibytes" in sys.argv:
        return [int(size) for size in sys.argv[sys.argv.index("--mebibytes") + 1].split(",")]
    usual = [64, 1024] if cache.device.info.is_gpu else [64, 256]
    large = [size for size in LARGE if long_run() and has_room(cache.device, folder, size * MIB)]
    return usual + large[:1]


def has_room(device: kk.Device, folder: Path, nbytes: int) -> bool:
    """Two copies on the device, what the program begins with and what is written in memory, and four files."""
    info = device.memory_info()
    on_device = info.total_bytes if info.free_bytes is None else info.free_bytes
    in_memory = free_memory() or on_device
    copies = 2.5 if device.info.is_gpu else 4.5  # in memory; other devices have their own copies there, too
    return 2.5 * nbytes < on_device and copies * nbytes < in_memory and 4.5 * nbytes < shutil.disk_usage(folder).free


def speed(cache: kk.ProgramCache) -> None:
    details = []
    with folder_on_disk() as folder:
        for size in sizes(cache, folder):
            rounds = next((count for most, count in ROUNDS.items() if size <= most), 1)
            made = Checkpoints(cache, state_program(size, 100), folder / "state.kkpt")
            try:
                ours, its, parts = [], [], []
                made.make()  # memory, kernels and threads are there from then on
                for _ in range(rounds):
                    settle()
                    its.append(dd_seconds(folder, size))
                    waited, seconds, written = made.make()
                    ours.append(seconds)
                    parts.append((waited, seconds, written.written_bytes))
            finally:
                made.close()
            rate, dd_rate = (size * MIB / statistics.median(taken) / 1e9 for taken in (ours, its))
            waited, seconds, nbytes = parts[len(parts) // 2]
            row(
                f"checkpoint of {size} MiB, all changed",
                rate,
                "GB/s",
                peer="dd conv=fsync",
                its=dd_rate,
                goal="≥ 0.9",
                device=cache.device.info,
                note=f"the run waited {waited * 1e3:.1f} ms",
            )
            details.append([size, waited * 1e3, seconds * 1e3, nbytes / MIB, *(1e3 * min(x) for x in (ours, its))])
            for path in folder.iterdir():
                path.unlink()
    columns = ["MiB", "run waited ms", "all of it ms", "MiB written", "ours, best ms", "dd, best ms"]
    show("Checkpoints of which everything changed", columns, details)


def changed(cache: kk.ProgramCache) -> None:
    details: list[list[Any]] = []
    with folder_on_disk() as folder:
        for size in sizes(cache, folder)[:2]:
            made = Checkpoints(cache, state_program(size, 1), folder / "state.kkpt")
            try:
                made.make()
                after = cache.device.memory_info().free_bytes
                made.make()
                parts = [made.make() for _ in range(5)]
            finally:
                made.close()
            share = statistics.median(written.written_bytes / written.raw_bytes for _, _, written in parts)
            row(
                f"checkpoint of {size} MiB, 1 % changed: part of the bytes that is written",
                share * 100,
                "%",
                goal="≤ 3",
                device=cache.device.info,
            )
            if made.free_bytes is not None and after is not None:
                row(
                    f"device memory that checkpoints of {size} MiB take",
                    (made.free_bytes - after) / MIB,
                    "MiB",
                    goal="≤ 16",
                    device=cache.device.info,
                )
            waited, _, written = parts[2]
            details.append([size, waited * 1e3, written.seconds * 1e3, written.written_bytes / MIB])
            for path in folder.iterdir():
                path.unlink()
    show("Checkpoints of which 1 % changed", ["MiB", "run waited ms", "writing ms", "MiB written"], details)


def cost(cache: kk.ProgramCache) -> None:
    with folder_on_disk() as folder:
        size = sizes(cache, folder)[0] if cache.device.info.is_gpu else 1
        program = state_program(size, 100)
        rates: dict[bool, list[float]] = {False: [], True: []}
        waits = []
        iterations = max(50, int(2.2 / _iteration_seconds(cache, program)))
        for _ in range(5):
            for keeps, samples in rates.items():
                seen: list[tuple[float, int]] = []

                def note(progress: kk.Progress, seen: list[tuple[float, int]] = seen) -> None:
                    seen.append((time.perf_counter(), progress.iteration))

                run = kk.run(
                    cache,
                    program,
                    iterations,
                    "buffered",
                    checkpoint=folder / "run.kkpt" if keeps else None,
                    checkpoint_every=1.0,
                    resume=False if keeps else None,
                    on_progress=note,
                )
                # Up to the last turn: the final checkpoint, which is waited for, is not part of running.
                samples.append((seen[-1][1] - seen[0][1]) / (seen[-1][0] - seen[0][0]))
                if keeps:
                    waits.append(run.report.checkpoint_wait_seconds / max(1, run.report.checkpoints))
                run.close()
    plain, kept = (max(rates[keeps]) for keeps in (False, True))  # other processes only make a run slower
    row(
        f"a checkpoint every second, {size} MiB: the run is slower by",
        max(0.0, 100 * (1 - kept / plain)),
        "%",
        goal="≤ 2",
        device=cache.device.info,
        note=f"{plain:.0f} iterations/s without; each checkpoint is waited for {statistics.median(waits) * 1e3:.2f} ms",
    )


def _iteration_seconds(cache: kk.ProgramCache, program: kk.StateProgram) -> float:
    seconds = 0.0
    for iterations in (20, 100):  # the first run compiles
        with kk.run(cache, program, iterations, "buffered") as run:
            moments = run.report.history.progress
            seconds = (moments[-1].seconds - moments[0].seconds) / iterations
    return max(1e-6, seconds)


SECTIONS = {"speed": speed, "changed": changed, "cost": cost}


def main() -> None:
    # One device by default: the disk is the same for all, and all together take longer than a minute.
    for info in chosen_devices()[: None if long_run() else 1]:
        with kk.open_device(info.spec) as device, kk.ProgramCache(device) as cache:
            for name in chosen_sections(SECTIONS):
                try:
                    SECTIONS[name](cache)
                except kk.OutOfMemory as error:  # as large as a buffer can be here; what fits was measured
                    print(f"{name} on {info.spec} ended early: {error}", file=sys.stderr)


if __name__ == "__main__":
    main()
