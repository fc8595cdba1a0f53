"""Several C functions that one call from Python calls in order."""

from __future__ import annotations

import ctypes
import time
from typing import Any

import pytest

calls_module = pytest.importorskip("kernelkeep._calls")
Callback = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_uint64] * 11)


class Heard:
    """Functions that note what they are called with, and return what a test wants."""

    def __init__(self, *statuses: int) -> None:
        self.calls: list[tuple[int, tuple[int, ...]]] = []
        self.statuses = list(statuses)
        self._functions = [Callback(self._function(number)) for number in range(len(statuses))]

    def _function(self, number: int) -> Any:
        def function(*arguments: int) -> int:
            self.calls.append((number, arguments[:3]))
            return self.statuses[number]

        return function

    @property
    def addresses(self) -> list[int]:
        return [ctypes.cast(function, ctypes.c_void_p).value or 0 for function in self._functions]


def test_all_are_called_in_order_with_their_arguments() -> None:
    heard, calls = Heard(0, 0, 0), calls_module.BoundCalls()
    calls.bind_calls(tuple((address, (number, 2**64 - 1)) for number, address in enumerate(heard.addresses)))
    assert calls.run(0) is None
    assert heard.calls == [(number, (number, 2**64 - 1, 0)) for number in range(3)]
    calls.set_argument(1, 2, 77)
    assert calls.run(1) is None
    assert heard.calls[3:] == [(1, (1, 2**64 - 1, 77)), (2, (2, 2**64 - 1, 0))]
    assert calls.run(3) is None and calls.run(100) is None and len(heard.calls) == 5


def test_the_first_that_fails_ends_it_and_is_named() -> None:
    heard, calls = Heard(0, 201, 0), calls_module.BoundCalls()
    calls.bind_calls(tuple((address, ()) for address in heard.addresses))
    assert calls.run(0) == (1, 201)
    heard.statuses[1] = 0
    assert calls.run(1) is None
    assert [number for number, _ in heard.calls] == [0, 1, 1, 2]


@pytest.mark.parametrize(
    "bad", [[], ((1, 2),), ((0, ()),), ((1, tuple(range(12))),), ((1, ("a",)),), tuple((1, ()) for _ in range(17))]
)
def test_what_cannot_be_bound_is_refused_and_nothing_is_called(bad: Any) -> None:
    calls = calls_module.BoundCalls()
    with pytest.raises((TypeError, ValueError)):
        calls.bind_calls(bad)
    assert calls.run(0) is None
    with pytest.raises(IndexError):
        calls.set_argument(0, 0, 1)
    with pytest.raises(ValueError, match="negative"):
        calls.run(-1)


def test_polling_ends_with_what_is_not_to_be_called_again() -> None:
    left = [600] * 5 + [0]
    heard = Callback(lambda *arguments: left.pop(0))
    address = ctypes.cast(heard, ctypes.c_void_p).value
    assert _polled(address) == 0 and not left
    left[:] = [600, 3, 0]
    assert _polled(address) == 3 and left == [0]


def _polled(address: int | None) -> int:
    while (found := calls_module.poll(address, 7, 600, 10.0))[0] == 600:
        assert found[1]  # a busy machine makes a thread stand still
    return int(found[0])


def test_polling_ends_early_where_the_thread_stood_still() -> None:
    heard = Callback(lambda *arguments: time.sleep(0.002) or 600)  # type: ignore[func-returns-value]
    start = time.perf_counter()
    assert calls_module.poll(ctypes.cast(heard, ctypes.c_void_p).value, 7, 600, 30.0) == (600, True)
    assert time.perf_counter() - start < 10.0
    passed = Callback(lambda *arguments: time.sleep(0.002) or 0)  # type: ignore[func-returns-value]
    assert calls_module.poll(ctypes.cast(passed, ctypes.c_void_p).value, 7, 600, 30.0) == (0, True)


def test_polling_ends_at_its_time_and_calls_once_at_least() -> None:
    heard = Heard(600)
    assert calls_module.poll(heard.addresses[0], 7, 600, -1.0)[0] == 600
    assert heard.calls == [(0, (7, 0, 0))]
    assert calls_module.poll(heard.addresses[0], 7, 600, 0.01)[0] == 600
    for bad in ((), (0, 7, 600, 1.0), (heard.addresses[0], "a", 600, 1.0), (heard.addresses[0], 7, 600, "a")):
        with pytest.raises((TypeError, ValueError)):
            calls_module.poll(*bad)
