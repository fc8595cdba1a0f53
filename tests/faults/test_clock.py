"""A clock that jumps: nothing breaks, entries are served, and pruning does not run wild."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from kernelkeep.testing.disk_chain import DiskChain
from kernelkeep.testing.entries import sample_entry

DAY = 86400.0
REAL = time.time


class Clock:
    """The time all modules see; files get the true one, as on a machine whose clock was set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.shift = 0.0
        monkeypatch.setattr(time, "time", lambda: REAL() + self.shift)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def open_tier(root: Path, max_bytes: int = 1 << 30) -> DiskChain:
    return DiskChain(root, "gpu", {}, max_bytes)


def held(tier: DiskChain, numbers: range) -> list[int]:
    return [n for n in numbers if tier.get(sample_entry(n).facts.key.digest, f"program{n}") == sample_entry(n)]


@pytest.mark.parametrize("jump", [-3650 * DAY, -DAY, -7200.0, 7200.0, DAY, 3650 * DAY, -1e9 - 8e8, 2e11])
def test_entries_are_served_across_a_jump(tmp_path: Path, clock: Clock, jump: float) -> None:
    for shift in (0.0, jump, 0.0, -jump if abs(jump) < 1e9 else 0.0, 0.0):
        clock.shift = shift
        tier = open_tier(tmp_path / "cache")
        start = len(list(tier.folder.path.glob("programs/*/*.bin")))
        for number in range(start, start + 3):
            assert tier.put(sample_entry(number))
        assert held(tier, range(start + 3)) == list(range(start + 3))
        with tier.alone("0" * 64, 1) as locked:
            assert locked
    assert tier.rejected == 0 and tier.count()[0] == 15


@pytest.mark.parametrize("jump", [-30 * DAY, 30 * DAY])
def test_the_bound_holds_across_a_jump(tmp_path: Path, clock: Clock, jump: float) -> None:
    tier = open_tier(tmp_path / "cache", max_bytes=20_000)
    for number in range(60):
        if number == 30:
            clock.shift = jump
        assert tier.put(sample_entry(number))
        files = list(tier.folder.path.glob("programs/*/*.bin"))
        assert sum(path.stat().st_size for path in files) <= 20_000
    assert len(files) >= 10, "not everything went"
    assert tier.count()[0] == len(files)


def test_pruning_by_age_after_the_clock_went_back_keeps_what_is_new(tmp_path: Path, clock: Clock) -> None:
    tier = open_tier(tmp_path / "cache")
    for number in range(3):
        tier.put(sample_entry(number))
    clock.shift = -400 * DAY
    assert tier.prune(max_age_days=30).entries == 0, "files from the future are not old"
    assert held(tier, range(3)) == [0, 1, 2]  # and are now noted as used at the clock's time
    clock.shift = 0.0
    assert tier.prune(max_age_days=500).entries == 0
    assert held(tier, range(3)) == [0, 1, 2]


def test_pruning_by_age_works_again_after_a_jump_forward_and_back(tmp_path: Path, clock: Clock) -> None:
    tier = open_tier(tmp_path / "cache")
    clock.shift = 100 * DAY
    tier.put(sample_entry(0))
    held(tier, range(1))
    clock.shift = 0.0
    assert held(tier, range(1)) == [0]
    clock.shift = 40 * DAY
    tier.prune(max_age_days=30)
    assert held(tier, range(1)) == []


def test_locks_ignore_the_clock(tmp_path: Path, clock: Clock) -> None:
    tier = open_tier(tmp_path / "cache")
    with tier.alone("1" * 64, 5):
        clock.shift = -3650 * DAY
        start = time.monotonic()
        with tier.alone("1" * 64, 0.2) as locked:
            assert not locked
        assert 0.1 < time.monotonic() - start < 2
