"""Ctrl-C between any two lines: nobody waits for ever, and no program is closed while it is used."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from types import FrameType, ModuleType
from typing import Any

from kernelkeep.cache import single_flight
from kernelkeep.cache.loaded_programs import LoadedProgram, LoadedPrograms
from kernelkeep.cache.single_flight import Flights


def interrupted_at(place: int, module: ModuleType, call: Callable[[], object]) -> bool:
    """Whether a call was interrupted: at the `place`-th moment in this module at which Python looks for signals."""
    left = place

    def profile(frame: FrameType, event: str, arg: Any) -> None:
        nonlocal left
        if frame.f_code.co_filename == module.__file__ and event in ("call", "c_return"):
            left -= 1
            if not left:
                sys.setprofile(None)
                raise KeyboardInterrupt

    sys.setprofile(profile)
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.setprofile(None)
    return False


def assert_free(flights: Flights[int]) -> None:
    """The next thread that asks need not wait for anybody."""
    results: list[tuple[int, bool]] = []
    thread = threading.Thread(target=lambda: results.append(flights.join("key", lambda: 7)), daemon=True)
    thread.start()
    thread.join(10)
    assert results == [(7, True)], "a flight was left behind"


def test_who_works_and_is_interrupted_leaves_no_flight() -> None:
    for place in range(1, 100):
        flights: Flights[int] = Flights()
        join = partial(flights.join, "key", lambda: 1)
        interrupted = interrupted_at(place, single_flight, join)
        assert_free(flights)
        if not interrupted:
            break
    assert place > 3


def test_who_waits_and_is_interrupted_stops_no_other() -> None:
    for place in range(1, 100):
        scene = _Scene()
        interrupted = interrupted_at(place, single_flight, partial(scene.flights.join, "key", lambda: 2, 10))
        assert scene.finish() == [(1, False), (1, False), (1, True)]
        if not interrupted:
            break
    assert place > 3


class _Scene:
    """A thread that works, and two that wait for it behind this one."""

    def __init__(self) -> None:
        self.flights: Flights[int] = Flights()
        self._results: list[tuple[int, bool]] = []
        self._begun, self._go, self._over = threading.Event(), threading.Event(), threading.Event()
        self._threads = [threading.Thread(target=self._join, daemon=True) for _ in range(3)]
        self._threads[0].start()
        self._begun.wait(10)
        self._director = threading.Thread(target=self._direct, daemon=True)
        self._director.start()

    def _work(self) -> int:
        self._begun.set()
        self._go.wait(10)
        return 1

    def _join(self) -> None:
        self._results.append(self.flights.join("key", self._work, 10))

    def _direct(self) -> None:
        while not self.flights.waiting("key") and not self._over.is_set():
            time.sleep(0.001)
        waiting = self.flights.waiting("key")
        for thread in self._threads[1:]:
            thread.start()
        while self.flights.waiting("key") < waiting + 2:
            time.sleep(0.001)
        time.sleep(0.01)  # between its count and its wait
        self._go.set()

    def finish(self) -> list[tuple[int, bool]]:
        self._over.set()
        for thread in (self._director, *self._threads):
            thread.join(10)
        return sorted(self._results)


class _Program:
    nbytes = 1
    closed = False

    def kernel(self, name: str | None = None) -> None:
        pass

    def close(self) -> None:
        self.closed = True


def test_an_eviction_that_is_interrupted_counts_no_use_too_few() -> None:
    for place in range(1, 100):
        store, program = LoadedPrograms(1, None), _Program()
        loaded = store.add(LoadedProgram(store, "digest", program), "alias")
        left = place

        def counted(count: Callable[[], int]) -> int:
            nonlocal left
            number, left = count(), left - 1
            if not left:
                raise KeyboardInterrupt
            return number

        loaded.begin, loaded.end = partial(counted, loaded.begin), partial(counted, loaded.end)
        with contextlib.suppress(KeyboardInterrupt):
            store.trim(0)
        if left > 0:
            break
        store.trim(0)
        assert not program.closed, f"it is still used, and an eviction was interrupted after {place} counts"
    assert place > 2
