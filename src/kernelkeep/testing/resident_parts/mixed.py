"""All operations in random order, with threads that submit meanwhile: every task runs once, whatever happens to the grid."""

from __future__ import annotations

import tempfile
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ...cache.program_cache import ProgramCache
from ...resident.resident import Resident
from .common import TASKS, TIMEOUT, ResidentPart

__all__ = ["MixedTests"]

_BODIES = [
    "(int at, int by) { if (kk_local_id(0) == 0) kk_atomic_add(total[at], by); }",
    "(int at, int by) { if (kk_local_id(0) == 1) kk_atomic_add(total[at], by); }",
]


class MixedTests(ResidentPart):
    steps = 25

    @pytest.mark.parametrize("seed", range(3))
    def test_every_task_runs_once_whatever_happens(self, cache: ProgramCache, seed: int) -> None:
        """The grid is paused, changed, drained, and stopped with tasks in its journal; another one goes on with its arrays."""
        random = np.random.default_rng(seed)
        expected = np.zeros(64, "i8")
        in_memory = "/dev/shm" if not self.emulated and Path("/dev/shm").is_dir() else None
        with tempfile.TemporaryDirectory(dir=in_memory) as folder:
            options: dict[str, Any] = {"journal": Path(folder) / "work.kkj", "capacity": 128}
            resident = self.make(cache, **options)
            try:
                for _ in range(self.steps):
                    what = random.choice(
                        ["submit", "many", "spread", "wide", "threads", "pause", "add", "reopen", "drain"]
                    )
                    at, by = int(random.integers(16)), int(random.integers(1, 9))
                    if what == "submit":
                        resident.submit("count", at, by)
                        expected[at] += by
                    elif what in ("many", "spread"):
                        count = int(random.integers(1, 60))
                        resident.submit_many("count", [(at, by)] * count, ordered=what == "many")
                        expected[at] += by * count
                    elif what == "wide":
                        assert resident.submit("everywhere", 1).result(TIMEOUT) == resident.blocks
                    elif what == "threads":
                        self.submit_in_threads(resident, at, by)
                        expected[at] += 3 * 20 * by
                    elif what == "pause":
                        assert resident.drain(TIMEOUT)  # a full ring that is paused has no room
                        with resident.paused():
                            resident.submit("count", at, by)
                        expected[at] += by
                    elif what == "add":
                        resident.add("count", _BODIES[int(random.integers(2))])
                    elif what == "drain":
                        assert resident.drain(TIMEOUT)
                    else:
                        resident.pause()
                        waiting = sum(resident.submitted) - sum(resident.done)
                        arrays = resident.arrays
                        resident.stop(TIMEOUT)
                        # So that the ring of one block has room for them all.
                        blocks = self.blocks if waiting > 128 else int(random.integers(1, self.blocks + 1))
                        resident = self.make(cache, TASKS, arrays, blocks=blocks, **options)
                        assert len(resident.recovered) == waiting
                assert self.read(resident, "total").tolist() == expected.tolist()
            finally:
                resident.stop(TIMEOUT)

    @staticmethod
    def submit_in_threads(resident: Resident, at: int, by: int) -> None:
        threads = [
            threading.Thread(target=lambda: [resident.submit("count", at, by) for _ in range(20)]) for _ in range(3)
        ]
        for thread in threads:
            thread.start()
        resident.pause()
        resident.resume()
        for thread in threads:
            thread.join(TIMEOUT)
