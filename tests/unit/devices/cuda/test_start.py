"""The thread in which the driver starts."""

from __future__ import annotations

import ctypes
import threading
import time
from typing import Any

import pytest

from kernelkeep.devices import forks
from kernelkeep.devices.cuda import start


class Driver:
    """Counts the contexts that are held."""

    def __init__(self, init_status: int = 0) -> None:
        self.held = self.retained = 0
        self.threads: set[int] = set()
        self._init_status = init_status

    def cuInit(self, flags: int) -> int:
        self.threads.add(threading.get_ident())
        return self._init_status

    def cuDeviceGet(self, device: Any, index: int) -> int:
        return 0

    def cuDevicePrimaryCtxRetain(self, context: Any, device: Any) -> int:
        self.held += 1
        self.retained += 1
        return 0

    def cuDevicePrimaryCtxRelease(self, device: Any) -> int:
        self.held -= 1
        return 0


@pytest.fixture
def missing() -> list[str]:
    """The drivers that turned out to be missing."""
    return []


@pytest.fixture(autouse=True)
def first_in_process(monkeypatch: pytest.MonkeyPatch, missing: list[str]) -> None:
    monkeypatch.setattr(start, "_begun", set())
    monkeypatch.setattr(forks, "before_driver", lambda backend: None)
    monkeypatch.setattr(forks, "no_driver", missing.append)


def test_the_context_is_held_in_the_block_and_given_back_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver()
    monkeypatch.setattr(ctypes, "CDLL", lambda name: driver)
    opening = start.DriverStart(0)
    with pytest.raises(RuntimeError), opening:
        raise RuntimeError("the device cannot be opened")
    assert driver.held == 0 and driver.threads and threading.get_ident() not in driver.threads


def test_listing_devices_makes_no_context_and_opening_one_after_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver()
    monkeypatch.setattr(ctypes, "CDLL", lambda name: driver)
    with start.DriverStart(None):
        pass
    assert driver.threads and driver.retained < 1
    with start.DriverStart(0):
        pass
    assert driver.retained > 0 and driver.held == 0


def test_it_starts_once_in_a_process(monkeypatch: pytest.MonkeyPatch, missing: list[str]) -> None:
    loaded: list[str] = []

    def load(name: str) -> Driver:
        loaded.append(name)
        return Driver()

    monkeypatch.setattr(ctypes, "CDLL", load)
    for _ in range(2):
        with start.DriverStart(0):
            pass
    assert len(loaded) == 1 and not missing


def test_without_a_device_nothing_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver(init_status=100)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: driver)
    with start.DriverStart(0):
        pass
    assert driver.held == 0


def test_without_a_driver_it_is_silent(monkeypatch: pytest.MonkeyPatch, missing: list[str]) -> None:
    monkeypatch.setattr(start, "_LIBRARY", "libthere-is-none.so")
    before = threading.active_count()
    with start.DriverStart(0):
        pass
    assert threading.active_count() == before and missing == ["cuda"]


def test_the_block_begins_after_the_start_and_beside_the_making_of_the_context(monkeypatch: pytest.MonkeyPatch) -> None:
    entered = threading.Event()
    steps: list[str] = []

    class Slow(Driver):
        def cuInit(self, flags: int) -> int:
            time.sleep(0.05)
            steps.append("initialised")
            return super().cuInit(flags)

        def cuDevicePrimaryCtxRetain(self, context: Any, device: Any) -> int:
            assert entered.wait(10)
            steps.append("context")
            return super().cuDevicePrimaryCtxRetain(context, device)

    driver = Slow()
    monkeypatch.setattr(ctypes, "CDLL", lambda name: driver)
    with start.DriverStart(0):
        steps.append("block")
        entered.set()
    assert steps == ["initialised", "block", "context"] and driver.held == 0
