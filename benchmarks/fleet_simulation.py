"""A fleet that starts, simulated: who compiles, what the store carries, and how long a machine waits.

    python benchmarks/fleet_simulation.py [--machines 1000,10000] [--join-seconds 60] [--programs 20] [--seed 1] [--json]
        [--lookup-ms …] [--put-ms …] [--service-us …] [--compile-ms …] [--entry-kb …] [--deaths …]

The machines join at random moments of a minute. Each one asks for the same programs, one after the other, all in the same order
or, as `cache.preload` does with a shared store, each in an order of its own. It looks into the store. On a miss it takes the
lease and compiles, or waits for who has it, with the pauses of `kernelkeep.remote.waiting`. An entry is visible once its
write has reached the store; the lease ends after that. Without leases everyone who misses compiles. A share of the compiling
machines (`--deaths`) dies half-way and never comes back; their leases run out.

The store is one server that answers requests in the order of their arrival, each in `service` time plus the transfer of its
bytes. Latencies are log-normal around their medians; so are compile times, which belong to the program and vary a little from
machine to machine. The defaults are what `benchmarks/remote.py` measured on the CPU machine of docs/benchmarks.md, with half a
millisecond added for a network. Nothing else of the world is in it: no packet is lost, no machine is slow, all disks are
empty. The same seed gives the same figures, to the last digit.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import random
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from typing import Any

from common import show
from kernelkeep.remote.lease import DURATION_SECONDS
from kernelkeep.remote.waiting import attempt_is_due, pause_seconds

Step = Generator[float, None, Any]


@dataclass(frozen=True)
class Setting:
    """What is simulated. Times are in seconds, and medians where they vary."""

    machines: int
    lease: bool
    preload: bool = False  # each machine in an order of its own, as `cache.preload` goes; else all in the same order
    programs: int = 20
    join_seconds: float = 60.0
    lookup_seconds: float = 0.00062
    put_seconds: float = 0.00064
    service_seconds: float = 30e-6
    bytes_per_second: float = 1.25e9
    compile_seconds: float = 0.45
    compile_sigma: float = 0.5  # between programs
    machine_sigma: float = 0.1  # between machines
    latency_sigma: float = 0.4
    entry_bytes: int = 31_000
    deaths: float = 0.0
    seed: int = 1


@dataclass
class Result:
    """What happened."""

    compiles: list[int]
    deaths: int = 0
    requests: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    waits: list[float] = field(default_factory=list)  # for one program
    starts: list[float] = field(default_factory=list)  # for all programs of one machine
    ended: float = 0.0
    busy: float = 0.0


class Simulation:
    """Processes are generators that yield how long they sleep."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.random = random.Random(f"{setting.seed} {setting.machines} {setting.lease}")
        self.now = 0.0
        self._queue: list[tuple[float, int, Step]] = []
        self._number = itertools.count()
        self._free_at = 0.0  # when the store has answered all requests so far
        self._present: set[int] = set()
        self._held: dict[int, tuple[int, float]] = {}  # program → holder, and when the lease runs out
        # The same programs with and without leases, and for any number of machines.
        chosen = random.Random(setting.seed)
        sigma = setting.compile_sigma
        self._compile = [setting.compile_seconds * chosen.lognormvariate(0.0, sigma) for _ in range(setting.programs)]
        self.result = Result([0] * setting.programs)

    def run(self) -> Result:
        for machine in range(self.setting.machines):
            self._start(self.random.uniform(0, self.setting.join_seconds), self._machine(machine))
        while self._queue:
            self.now, _, process = heapq.heappop(self._queue)
            for seconds in process:
                self._start(self.now + seconds, process)
                break
        self.result.ended = self.now
        return self.result

    def _start(self, at: float, process: Step) -> None:
        heapq.heappush(self._queue, (at, next(self._number), process))

    def _vary(self, median: float, sigma: float) -> float:
        return median * self.random.lognormvariate(0.0, sigma)

    # --- the store

    def _request(self, seconds: float, nbytes: int = 0) -> Step:
        """Travel to the store and wait for one's turn; the process goes on where the store answers."""
        yield self._vary(seconds, self.setting.latency_sigma) / 2
        service = self.setting.service_seconds + nbytes / self.setting.bytes_per_second
        self._free_at = max(self._free_at, self.now) + service
        self.result.requests += 1
        self.result.busy += service
        yield self._free_at - self.now

    def _answer(self, seconds: float) -> Step:
        yield self._vary(seconds, self.setting.latency_sigma) / 2

    def _look(self, program: int) -> Step:
        yield from self._request(self.setting.lookup_seconds)
        found = program in self._present
        if found:
            transfer = self.setting.entry_bytes / self.setting.bytes_per_second
            self._free_at = max(self._free_at, self.now) + transfer
            self.result.busy += transfer
            self.result.bytes_read += self.setting.entry_bytes
            yield self._free_at - self.now
        yield from self._answer(self.setting.lookup_seconds)
        return found

    def _take(self, program: int, machine: int) -> Step:
        yield from self._request(self.setting.lookup_seconds)
        taken = self._held.get(program, (0, 0.0))[1] <= self.now
        if taken:
            # A living holder renews in time, so its lease ends when it gives it back.
            self._held[program] = (machine, float("inf"))
        yield from self._answer(self.setting.lookup_seconds)
        return taken

    def _publish(self, program: int, machine: int) -> Step:
        """The background write, then the end of the lease."""
        yield from self._request(self.setting.put_seconds, self.setting.entry_bytes)
        self._present.add(program)
        self.result.bytes_written += self.setting.entry_bytes
        yield from self._answer(self.setting.put_seconds)
        if self.setting.lease:
            yield from self._request(self.setting.lookup_seconds)
            if self._held.get(program, (-1, 0.0))[0] == machine:
                del self._held[program]

    # --- a machine

    def _machine(self, machine: int) -> Step:
        joined = self.now
        programs = list(range(self.setting.programs))
        if self.setting.preload:
            self.random.shuffle(programs)
        for program in programs:
            asked = self.now
            alive = yield from self._get(program, machine)
            if not alive:
                return
            self.result.waits.append(self.now - asked)
        self.result.starts.append(self.now - joined)

    def _get(self, program: int, machine: int) -> Step:
        if (yield from self._look(program)):
            return True
        if self.setting.lease:
            holding = yield from self._wait(program, machine)
            if not holding or (yield from self._look(program)):
                if holding:
                    del self._held[program]
                return True
        seconds = self._vary(self._compile[program], self.setting.machine_sigma)
        if self.random.random() < self.setting.deaths:
            yield seconds / 2
            if self._held.get(program, (-1, 0.0))[0] == machine:
                self._held[program] = (machine, self.now + DURATION_SECONDS)
            self.result.deaths += 1
            return False
        yield seconds
        self.result.compiles[program] += 1
        self._start(self.now, self._publish(program, machine))
        return True

    def _wait(self, program: int, machine: int) -> Step:
        """`remote.waiting.wait_for`: True where the lease is held, False where the bytes are there."""
        begun: float = self.now
        attempted: float | None = None
        while True:
            waited = self.now - begun
            if attempt_is_due(waited, attempted):
                if (yield from self._take(program, machine)):
                    return True
                attempted = waited
            if (yield from self._look(program)):
                return False
            yield pause_seconds(waited, self.random.random())


def share(values: list[float], part: float) -> float:
    """A quantile."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))] if ordered else 0.0


def row(setting: Setting, result: Result) -> list[Any]:
    """A line of the table."""
    return [
        setting.machines,
        f"{setting.compile_seconds:g} s",
        "yes" if setting.lease else "no",
        "its own" if setting.preload else "the same",
        sum(result.compiles) / setting.programs,
        max(result.compiles),
        result.deaths,
        result.bytes_read / 1e6,
        result.bytes_written / 1e6,
        result.requests,
        f"{100 * result.busy / result.ended:.1f} %",
        share(result.waits, 0.5) * 1e3,
        share(result.waits, 0.99) * 1e3,
        share(result.starts, 0.5),
        share(result.starts, 0.99),
    ]


COLUMNS = (
    "machines",
    "compile",
    "lease",
    "order",
    "compiles/program",
    "at most",
    "died",
    "MB read",
    "MB written",
    "requests",
    "store busy",
    "wait p50 ms",
    "wait p99 ms",
    "start p50 s",
    "start p99 s",
)


def settings_of(arguments: argparse.Namespace) -> Iterator[Setting]:
    """Each number of machines and each compile time, with and without leases."""
    for machines in arguments.machines.split(","):
        for milliseconds in arguments.compile_ms.split(","):
            for lease, preload in ((False, False), (True, False), (False, True), (True, True)):
                yield Setting(
                    machines=int(machines),
                    lease=lease,
                    preload=preload,
                    programs=arguments.programs,
                    join_seconds=arguments.join_seconds,
                    lookup_seconds=arguments.lookup_ms / 1e3,
                    put_seconds=arguments.put_ms / 1e3,
                    service_seconds=arguments.service_us / 1e6,
                    compile_seconds=float(milliseconds) / 1e3,
                    entry_bytes=int(arguments.entry_kb * 1000),
                    deaths=arguments.deaths,
                    seed=arguments.seed,
                )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = Setting(0, lease=False)
    parser.add_argument("--machines", default="1000,10000")
    parser.add_argument("--programs", type=int, default=default.programs)
    parser.add_argument("--join-seconds", type=float, default=default.join_seconds)
    parser.add_argument("--lookup-ms", type=float, default=default.lookup_seconds * 1e3)
    parser.add_argument("--put-ms", type=float, default=default.put_seconds * 1e3)
    parser.add_argument("--service-us", type=float, default=default.service_seconds * 1e6)
    parser.add_argument("--compile-ms", default=f"{default.compile_seconds * 1e3:g}")
    parser.add_argument("--entry-kb", type=float, default=default.entry_bytes / 1e3)
    parser.add_argument("--deaths", type=float, default=default.deaths)
    parser.add_argument("--seed", type=int, default=default.seed)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    rows = [row(setting, Simulation(setting).run()) for setting in settings_of(arguments)]
    show(f"A fleet that starts, simulated (seed {arguments.seed})", COLUMNS, rows)


if __name__ == "__main__":
    main()
