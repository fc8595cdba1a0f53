"""The thread that makes C calls for others."""

from __future__ import annotations

import ctypes
import time

import pytest

from kernelkeep.testing import note_skipped

try:
    from kernelkeep._caller import NOT_ZERO, ZERO, Caller, make_here
except ImportError as error:
    reason = f"kernelkeep._caller was not built here ({error})"
    note_skipped("native", reason)
    pytest.skip(reason, allow_module_level=True)

LIBC = ctypes.CDLL(None)


def address(name: str) -> int:
    return ctypes.cast(getattr(LIBC, name), ctypes.c_void_p).value or 0


@pytest.fixture(params=[0, 100_000], ids=["sleeps at once", "looks for a while"])
def caller(request: pytest.FixtureRequest) -> Caller:
    return Caller(0, request.param, request.param)


def test_calls_are_made_in_order_and_the_last_result_is_told(caller: Caller) -> None:
    target = ctypes.create_string_buffer(8)
    at = ctypes.addressof(target)
    for _ in range(100):
        caller.make([(address("memset"), at, ord("a"), 8), (address("memset"), at, ord("b"), 4)], False)
        assert caller.make([(address("memset"), at, ord("c"), 2), (address("abs"), -7)], True) == 7
        assert target.raw == b"ccbbaaaa"
    assert caller.failure == 0


def test_more_calls_than_there_is_room_for(caller: Caller) -> None:
    target = ctypes.create_string_buffer(20_000)
    calls = [(address("memset"), ctypes.addressof(target) + i, ord("x"), 1) for i in range(20_000)]
    caller.make(list(calls), False)
    caller.make([(address("abs"), 0)], True)
    assert target.raw == b"x" * 20_000


def test_bytes_are_copied(caller: Caller) -> None:
    target = ctypes.create_string_buffer(1000)
    caller.make(
        [(address("memcpy"), ctypes.addressof(target), bytes([i % 256]) * 1000, 1000) for i in range(500)], True
    )
    assert target.raw == bytes([499 % 256]) * 1000


def test_the_first_failure_is_told_once(caller: Caller) -> None:
    absolute = address("abs")
    caller.make([(absolute | NOT_ZERO, 3), (absolute | ZERO, 0)], True)
    assert caller.failure == 0
    caller.make([(absolute | ZERO, 5), (absolute | NOT_ZERO, 0), (absolute | ZERO, 6)], True)
    assert caller.failure == ZERO | 5
    assert caller.failure == 0
    caller.make([(absolute | NOT_ZERO, 0)], True)
    assert caller.failure == NOT_ZERO
    assert make_here([(absolute | ZERO, 9), (absolute, -4)]) == (4, ZERO | 9)


def test_the_idle_function_is_called_when_nothing_more_comes() -> None:
    called = []
    idle = ctypes.CFUNCTYPE(None)(lambda: called.append(time.monotonic()))
    caller = Caller(ctypes.cast(idle, ctypes.c_void_p).value or 0, 0, 0)
    time.sleep(0.05)
    assert not called, "nothing was done before"
    caller.make([(address("abs"), 1)], True)
    deadline = time.monotonic() + 10
    while not called and time.monotonic() < deadline:
        time.sleep(0.001)
    time.sleep(0.05)
    assert len(called) == 1, "once, and then it sleeps"
    caller.stop()


def test_wrong_calls_are_refused(caller: Caller) -> None:
    with pytest.raises(TypeError):
        caller.make([()], True)
    with pytest.raises(TypeError):
        caller.make([(address("abs"), 1.5)], True)  # type: ignore[list-item]
    with pytest.raises(TypeError):
        make_here([(address("abs"), *range(11))])
    assert caller.make([(address("abs"), -2)], True) == 2, "it goes on"


def test_a_stopped_thread_makes_no_calls(caller: Caller) -> None:
    target = ctypes.create_string_buffer(1)
    caller.make([(address("memset"), ctypes.addressof(target), ord("z"), 1)], False)
    caller.stop()
    assert target.raw == b"z", "what was given before is made"
    with pytest.raises(RuntimeError):
        caller.make([(address("abs"), 1)], True)
    caller.stop()
