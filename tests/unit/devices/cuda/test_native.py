"""The module in C: a bound function is called with what it was bound to, and a status other than 0 is told."""

from __future__ import annotations

import contextlib
import ctypes
import sys
import threading
from typing import Any

import pytest

from kernelkeep.testing import note_skipped

try:
    from kernelkeep._native import BoundCall
except ImportError as error:
    reason = f"kernelkeep._native was not built here, and its twin in plain Python is used ({error})"
    note_skipped("native", reason)
    pytest.skip(reason, allow_module_level=True)

LIBC = ctypes.CDLL(None)


def address(name: str) -> int:
    return ctypes.cast(getattr(LIBC, name), ctypes.c_void_p).value or 0


class Call(BoundCall):
    """Remembers what failed."""

    def __init__(self) -> None:
        self.statuses: list[int] = []

    def call_failed(self, status: int, /) -> None:
        self.statuses.append(status)


def test_a_bound_function_is_called() -> None:
    buffer = ctypes.create_string_buffer(8)
    call = Call()
    # fflush(NULL) returns 0; getentropy writes to a buffer and returns 0.
    call.bind_function(address("fflush"), (0,))
    assert call() is None  # type: ignore[func-returns-value]
    call.bind_function(address("getentropy"), (ctypes.addressof(buffer), 8))
    seen = set()
    for _ in range(20):
        call()
        seen.add(buffer.raw)
    assert len(seen) == 20, "each call is a call"
    assert call.statuses == []


def test_a_status_other_than_zero_is_reported() -> None:
    call = Call()
    call.bind_function(address("abs"), (7,))
    call()
    call.bind_function(address("abs"), ((1 << 64) - 9,))  # −9 in 64 bits, of which C takes 32
    call()
    call()
    assert call.statuses == [7, 9, 9]


def test_call_failed_decides_what_is_raised_or_returned() -> None:
    class Strict(BoundCall):
        def call_failed(self, status: int, /) -> Any:
            if status == 5:
                raise KeyError(status)
            return "another try"

    call = Strict()
    call.bind_function(address("abs"), (5,))
    with pytest.raises(KeyError, match="5"):
        call()
    call.bind_function(address("abs"), (6,))
    assert call() == "another try"  # type: ignore[func-returns-value]


def test_a_class_without_call_failed_raises() -> None:
    call = BoundCall()
    call.bind_function(address("abs"), (0,))
    call()
    call.bind_function(address("abs"), (1,))
    with pytest.raises(AttributeError, match="call_failed"):
        call()


@pytest.mark.parametrize("was_bound", [False, True])
def test_an_unbound_call_fails(was_bound: bool) -> None:
    call = Call()
    if was_bound:
        call.bind_function(address("fflush"), (0,))
        call.bind_function(0, ())
    call()
    assert call.statuses == [-1]
    call.bind_function(address("fflush"), (0,))
    call()
    assert call.statuses == [-1], "it may be aimed again"


def test_every_argument_arrives_in_its_place() -> None:
    kinds = [ctypes.c_uint64] * 11
    seen: list[tuple[int, ...]] = []

    def note(*values: int) -> int:
        seen.append(values)
        return 0

    function = ctypes.CFUNCTYPE(ctypes.c_int, *kinds)(note)
    target = ctypes.cast(function, ctypes.c_void_p).value or 0
    call = Call()
    values = tuple((1 << 63) + 1000 * k for k in range(11))
    call.bind_function(target, values)
    call()
    call.bind_function(target, values[:3])  # those left out are zeros, not what was there before
    call()
    assert seen == [values, values[:3] + (0,) * 8]
    assert call.statuses == []


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        ((), TypeError), ((1,), TypeError), ((1, (), "3"), TypeError), ((1, [2]), TypeError), ((1, None), TypeError),
        ((1, (0,) * 12), TypeError), (("1", ()), TypeError), ((1.5, ()), TypeError), ((1, (None,)), TypeError),
        ((1, (2, "3")), TypeError), ((-1, ()), OverflowError), ((1 << 64, ()), OverflowError),
        ((1, (-1,)), OverflowError), ((1, (1 << 64,)), OverflowError),
        ((1, (), 3, True, 5), TypeError), ((1, (), -1), OverflowError), ((1, (), None, True), TypeError),
    ],
    ids=repr,
)  # fmt: skip
def test_wrong_arguments_leave_the_binding_unchanged(arguments: tuple[Any, ...], kind: type[Exception]) -> None:
    call = Call()
    call.bind_function(address("abs"), (3,))
    with pytest.raises(kind):
        call.bind_function(*arguments)
    call()
    assert call.statuses == [3]


class Counted(Call):
    """Notes after which of its calls `called_often` was called."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.often_after: list[int] = []

    def call(self, times: int) -> None:
        for _ in range(times):
            self.calls += 1
            self()

    def called_often(self) -> None:
        self.often_after.append(self.calls)


def test_what_is_called_often_is_told_once_after_so_many_calls() -> None:
    call = Counted()
    call.bind_function(address("fflush"), (0,), 3)
    call.call(10)
    assert call.often_after == [3]
    call.bind_function(address("fflush"), (0,), 3)  # counts anew
    call.call(2)
    assert call.often_after == [3]
    call.call(2)
    assert call.often_after == [3, 13]
    call.bind_function(address("fflush"), (0,))
    call.call(10)
    assert call.often_after == [3, 13], "without a number nothing is counted"


def test_a_call_that_fails_is_not_told_as_called_often() -> None:
    call = Counted()
    call.bind_function(address("abs"), (4,), 1)
    call.call(2)
    assert (call.statuses, call.often_after) == ([4, 4], [])


def test_what_called_often_binds_is_called_from_then_on() -> None:
    class Changes(Call):
        def called_often(self) -> None:
            self.bind_function(address("abs"), (8,), 0, True)

    call = Changes()
    call.bind_function(address("fflush"), (0,), 2)
    for _ in range(4):
        call()
    assert call.statuses == [8, 8], "the second call itself was the old function's"


def test_called_often_may_raise() -> None:
    class Raises(Call):
        def called_often(self) -> None:
            raise KeyError("often")

    call = Raises()
    call.bind_function(address("fflush"), (0,), 1)
    with pytest.raises(KeyError, match="often"):
        call()
    assert call.calls_under_way == 0
    call()


@pytest.mark.parametrize("alone", [False, True])
def test_threads_call_the_function_one_after_the_other_if_asked_to(alone: bool) -> None:
    inside, most, gate = [0], [0], threading.Lock()
    both = threading.Barrier(2)

    def enter() -> int:
        with gate:
            inside[0] += 1
            most[0] = max(most[0], inside[0])
        with contextlib.suppress(threading.BrokenBarrierError):
            both.wait(0.2 if alone else 30)  # two that are inside together meet here
        with gate:
            inside[0] -= 1
        return 0

    function = ctypes.CFUNCTYPE(ctypes.c_int)(enter)
    call = Call()
    call.bind_function(ctypes.cast(function, ctypes.c_void_p).value or 0, (), 0, alone)
    threads = [threading.Thread(target=call) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert most[0] == (1 if alone else 2) and call.statuses == []


def test_a_call_takes_no_arguments() -> None:
    call: Any = Call()
    call.bind_function(address("abs"), (3,))
    for wrong, named in (((1,), {}), ((), {"x": 1})):
        with pytest.raises(TypeError, match="bound already"):
            call(*wrong, **named)
    assert call.statuses == []
    call(*(), **{})
    assert call.statuses == [3]


def test_other_threads_run_meanwhile() -> None:
    """The function waits for what another Python thread does: with the interpreter's lock held it would for ever."""
    arrived, go_on = threading.Event(), threading.Event()

    def meet() -> int:
        arrived.set()
        return 0 if go_on.wait(30) else 1

    function = ctypes.CFUNCTYPE(ctypes.c_int)(meet)
    call = Call()
    call.bind_function(ctypes.cast(function, ctypes.c_void_p).value or 0, ())
    caller = threading.Thread(target=call)
    caller.start()
    assert arrived.wait(30)
    call.bind_function(0, ())  # while the call is under way
    go_on.set()
    caller.join(30)
    assert not caller.is_alive() and call.statuses == []


def test_nothing_is_leaked() -> None:
    call, arguments = Call(), (0,)
    call.bind_function(address("fflush"), arguments)
    held = sys.getrefcount(call), sys.getrefcount(arguments)
    for _ in range(10_000):
        call.bind_function(address("fflush"), arguments)
        call()
    assert (sys.getrefcount(call), sys.getrefcount(arguments)) == held


def test_calls_under_way_are_counted() -> None:
    call = Call()
    assert call.calls_under_way == 0
    call.bind_function(address("usleep"), (300_000,))
    thread = threading.Thread(target=call)
    thread.start()
    while call.calls_under_way == 0 and thread.is_alive():
        pass
    assert call.calls_under_way == 1
    thread.join()
    assert call.calls_under_way == 0
    call.bind_function(0, ())
    call()
    assert (call.calls_under_way, call.statuses) == (0, [-1])
