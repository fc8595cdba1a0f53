"""Which host arrays are page-locked, and for how long, with a driver that only notes what it is asked."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

import kernelkeep as kk
from kernelkeep.devices.cuda import registered
from kernelkeep.devices.cuda.context import Discarded
from kernelkeep.devices.cuda.registered import RegisteredArrays
from kernelkeep.devices.cuda.resident_blocks import CudaResidentBlocks

ITEMS = 1 << 18  # of four bytes: the least that is page-locked
SUCCESS, ALREADY = object(), object()


class Driver:
    """Notes what is page-locked, and refuses what is so already."""

    CU_MEMHOSTREGISTER_PORTABLE = 1

    def __init__(self) -> None:
        self.locked: dict[int, int] = {}

    def cuMemHostRegister(self, address: int, nbytes: int, flags: int) -> tuple[object]:
        if address in self.locked:
            return (ALREADY,)
        self.locked[address] = nbytes
        return (SUCCESS,)

    def cuMemHostUnregister(self, address: int) -> tuple[object]:
        del self.locked[address]
        return (SUCCESS,)


class DriverOfJournals(Driver):
    """As well for memory of mapped files."""

    CU_MEMHOSTREGISTER_DEVICEMAP = 2

    def cuMemHostGetFlags(self, address: int) -> tuple[object, int]:
        return (SUCCESS if address in self.locked else None, 0)


@pytest.fixture
def driver() -> Driver:
    return Driver()


@pytest.fixture
def arrays(driver: Driver) -> Iterator[RegisteredArrays]:
    device: Any = SimpleNamespace(
        driver=driver, current=contextlib.nullcontext(), discarded=Discarded(), success=SUCCESS, lost=False
    )
    made = RegisteredArrays(device)
    made.open()
    yield made
    made.close()
    assert not driver.locked, "closing gives all back"


def ask(arrays: RegisteredArrays, host: np.ndarray[Any, Any], times: int = 3) -> bool:
    return [arrays.has(host, page_lock=True) for _ in range(times)][-1]


def test_an_array_that_comes_again_is_page_locked_once(arrays: RegisteredArrays, driver: Driver) -> None:
    host = np.zeros(ITEMS, "f4")
    assert [arrays.has(host, page_lock=True) for _ in range(4)] == [False, False, True, True]
    assert list(driver.locked.values()) == [host.nbytes]


def test_nothing_is_page_locked_unless_it_is_wanted(arrays: RegisteredArrays, driver: Driver) -> None:
    host = np.zeros(ITEMS, "f4")
    assert not any(arrays.has(host, page_lock=False) for _ in range(10))
    assert not driver.locked


def test_views_share_the_memory_of_their_owner(arrays: RegisteredArrays, driver: Driver) -> None:
    host = np.zeros((2, ITEMS), "f4")
    assert ask(arrays, host[0]) and ask(arrays, host[1], 1) and ask(arrays, host.view("i4"), 1)
    assert list(driver.locked.values()) == [host.nbytes]


def test_memory_that_no_array_owns_is_left_alone(arrays: RegisteredArrays, driver: Driver, tmp_path: Path) -> None:
    on_file = np.memmap(tmp_path / "x", "f4", "w+", shape=(ITEMS,))
    of_bytes = np.frombuffer(bytes(4 * ITEMS), "f4")
    small = np.zeros(ITEMS // 2, "f4")
    for host in (on_file, np.asarray(on_file), of_bytes, small):
        assert not ask(arrays, host, 10)
    assert not driver.locked


def test_what_somebody_else_has_page_locked_is_copied(arrays: RegisteredArrays, driver: Driver) -> None:
    host = np.zeros(ITEMS, "f4")
    driver.locked[host.ctypes.data] = host.nbytes
    assert not ask(arrays, host, 10)
    driver.locked.clear()


def test_an_array_that_nobody_else_has_is_dropped(arrays: RegisteredArrays, driver: Driver) -> None:
    host = np.zeros(ITEMS, "f4")
    view = host[1:]
    assert ask(arrays, host)
    address = host.ctypes.data
    del host
    other = np.zeros(ITEMS, "f4")
    assert ask(arrays, other)
    assert address in driver.locked, "a view is left"
    del view
    third = np.zeros(ITEMS, "f4")
    assert ask(arrays, third)
    assert set(driver.locked) == {other.ctypes.data, third.ctypes.data}


def test_an_array_that_does_not_come_any_more_is_dropped(
    arrays: RegisteredArrays, driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, other = np.zeros(ITEMS, "f4"), np.zeros(ITEMS, "f4")
    assert ask(arrays, host)
    monkeypatch.setattr(registered, "_IDLE_SECONDS", -1.0)  # as if they had passed
    assert ask(arrays, other)
    assert list(driver.locked) == [other.ctypes.data]


def test_so_many_bytes_and_no_more(arrays: RegisteredArrays, driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registered, "_MOST_BYTES", 10 * ITEMS)
    hosts = [np.zeros(ITEMS, "f4") for _ in range(4)]
    assert [ask(arrays, host) for host in hosts] == [True, True, False, False]
    assert sum(driver.locked.values()) == 8 * ITEMS


def test_an_array_with_other_memory_than_before_is_page_locked_anew(arrays: RegisteredArrays, driver: Driver) -> None:
    host = np.zeros(ITEMS, "f4")
    assert ask(arrays, host)
    with pytest.raises(ValueError, match="cannot resize"):
        host.resize(4 * ITEMS)
    host.resize(16 * ITEMS, refcheck=False)
    assert not ask(arrays, host, 1)
    assert ask(arrays, host)
    assert driver.locked == {host.ctypes.data: 64 * ITEMS}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no process forks here")
def test_nothing_stays_page_locked_over_a_fork(arrays: RegisteredArrays, driver: Driver) -> None:
    """Where the parent writes after a fork, older systems give it other pages than those that the device sees."""
    host = np.zeros(ITEMS, "f4")
    assert ask(arrays, host)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # other threads may run
        child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    assert not ask(arrays, host, 1)
    assert ask(arrays, host)
    assert list(driver.locked) == [host.ctypes.data]


def test_an_array_whose_page_locking_is_interrupted_is_not_page_locked(
    arrays: RegisteredArrays, driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    register, host = driver.cuMemHostRegister, np.zeros(ITEMS, "f4")

    def interrupted(*arguments: int) -> tuple[object]:
        register(*arguments)
        raise KeyboardInterrupt

    assert not ask(arrays, host, 2)
    with monkeypatch.context() as patch:
        patch.setattr(driver, "cuMemHostRegister", interrupted)
        with pytest.raises(KeyboardInterrupt):
            ask(arrays, host, 1)
    arrays._device.discarded.clear()  # as the next allocation does
    assert not driver.locked and not arrays._bytes and not arrays._device.discarded.under_way
    assert ask(arrays, host, 1)
    assert list(driver.locked) == [host.ctypes.data]


def test_an_interruption_gives_back_nothing_that_somebody_else_has_page_locked(
    arrays: RegisteredArrays, driver: Driver
) -> None:
    class Interrupted(contextlib.nullcontext[None]):
        def __exit__(self, *exc: object) -> None:
            raise KeyboardInterrupt

    host, device = np.zeros(ITEMS, "f4"), arrays._device
    assert not ask(arrays, host, 2)
    driver.locked[host.ctypes.data] = host.nbytes
    whole, device.current = device.current, Interrupted()  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        ask(arrays, host, 1)
    device.current = whole
    device.discarded.clear()
    assert list(driver.locked) == [host.ctypes.data]
    assert not ask(arrays, host) and not arrays._bytes
    driver.locked.clear()


@pytest.mark.parametrize("is_refused", [False, True], ids=["interrupted", "refused"])
def test_a_journal_that_the_device_got_access_to_is_given_back(is_refused: bool) -> None:
    """Also where Ctrl-C comes right after the driver's call."""

    class Driver(DriverOfJournals):
        def cuMemHostRegister(self, address: int, nbytes: int, flags: int) -> tuple[object]:
            if not is_refused:
                super().cuMemHostRegister(address, nbytes, flags)
                raise KeyboardInterrupt
            raise kk.DeviceError("no")  # as the device's `call` does

    driver, memory = Driver(), np.zeros(4096, "u1")
    device: Any = SimpleNamespace(
        driver=driver, current=contextlib.nullcontext(), discarded=Discarded(), success=SUCCESS, lost=False,
        call=lambda function, *args, doing: function(*args),
    )  # fmt: skip
    place = CudaResidentBlocks.__new__(CudaResidentBlocks)
    place._device, place._queue, place._registered = device, cast(Any, SimpleNamespace(close=lambda: None)), []
    with pytest.raises(kk.DeviceError if is_refused else KeyboardInterrupt):
        place.map_memory(memory)
    place.close()
    assert device.discarded.waiting == (0 if is_refused else 1)
    device.discarded.clear()
    assert not driver.locked


def test_nothing_is_page_locked_beside_a_kernel_that_never_exits(arrays: RegisteredArrays, driver: Driver) -> None:
    host = np.zeros(ITEMS, "f4")
    arrays._device.discarded.held = True
    assert not ask(arrays, host, 10) and not driver.locked
    arrays._device.discarded.held = False
    assert ask(arrays, host, 1)


def test_no_kernel_that_never_exits_begins_while_an_array_is_page_locked(
    arrays: RegisteredArrays, driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    register, under_way = driver.cuMemHostRegister, arrays._device.discarded.under_way
    seen: list[int] = []

    def note(*arguments: int) -> tuple[object]:
        seen.append(len(under_way))
        return register(*arguments)

    monkeypatch.setattr(driver, "cuMemHostRegister", note)
    assert ask(arrays, np.zeros(ITEMS, "f4"))
    assert seen == [1] and not under_way
