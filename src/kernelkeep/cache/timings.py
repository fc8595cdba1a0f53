"""How long compiles and loads of a cache take, and what it compiles now."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Iterator
from typing import Any

from ..activity.facts import Histogram

_MOST_UNCOUNTED = 256


class Timings:
    """What a cache tells those who watch it. Safe under threads."""

    def __init__(self) -> None:
        self._compiles, self._loads = Histogram(), Histogram()
        # Loads are counted when somebody looks, or there are many: counting one takes longer than much else of a hit on disk.
        self._uncounted: list[tuple[float, float]] = []
        self._counting = threading.RLock()  # a signal's handler may look while its own thread counts
        self._seconds_saved = 0.0
        self._compiling: dict[int, tuple[str, float]] = {}  # by a number: the program, and since when
        self._numbers = itertools.count()

    @contextlib.contextmanager
    def compiling(self, program: str) -> Iterator[None]:
        """For the block in which a program is compiled. One that fails is not counted."""
        number, began = next(self._numbers), time.perf_counter()
        self._compiling[number] = program, began
        try:
            yield
            self._compiles.add(time.perf_counter() - began)
        finally:
            self._compiling.pop(number, None)

    def add_load(self, seconds: float, compile_seconds: float) -> None:
        """A program was loaded from a tier in that time; its compile had taken `compile_seconds`."""
        self._uncounted.append((seconds, compile_seconds))
        if len(self._uncounted) >= _MOST_UNCOUNTED:
            self._count_loads()

    def _count_loads(self) -> None:
        with self._counting:
            while self._uncounted:
                try:
                    seconds, compile_seconds = self._uncounted.pop()
                except IndexError:  # a handler came in between, and counted it
                    return
                self._loads.add(seconds)
                saved = max(0.0, compile_seconds - seconds)
                self._seconds_saved += saved  # without a call in between, where a handler could run

    @property
    def compile_seconds_saved(self) -> float:
        """How much longer the compiles of the loaded programs had taken than to load them."""
        self._count_loads()
        return self._seconds_saved

    def compiling_now(self) -> list[dict[str, Any]]:
        """The programs that are being compiled, and for how long."""
        now = time.perf_counter()
        return [{"program": program, "seconds": now - began} for program, began in self._compiling.copy().values()]

    def histograms(self) -> dict[str, dict[str, Any]]:
        """What was measured so far."""
        self._count_loads()
        return {"compile_seconds": self._compiles.read(), "load_seconds": self._loads.read()}
