"""How long compiles and loads of a cache take, and what it compiles now."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterator
from typing import Any

from ..activity.facts import Histogram


class Timings:
    """What a cache tells those who watch it. Safe under threads; reading takes no lock."""

    def __init__(self) -> None:
        self._compiles, self._loads = Histogram(), Histogram()
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

    def add_load(self, seconds: float) -> None:
        """A program was loaded from a tier in that time."""
        self._loads.add(seconds)

    def compiling_now(self) -> list[dict[str, Any]]:
        """The programs that are being compiled, and for how long."""
        now = time.perf_counter()
        return [{"program": program, "seconds": now - began} for program, began in self._compiling.copy().values()]

    def histograms(self) -> dict[str, dict[str, Any]]:
        """What was measured so far."""
        return {"compile_seconds": self._compiles.read(), "load_seconds": self._loads.read()}
