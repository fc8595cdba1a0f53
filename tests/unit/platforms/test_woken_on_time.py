"""Sleeps that end when they should: the thread's timer slack is put back as it was."""

from __future__ import annotations

import ctypes
import sys
from types import SimpleNamespace

import pytest

from kernelkeep.platforms import system

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="timer slack is Linux's")

_SET, _GET = 29, 30


@pytest.mark.parametrize(("said", "changes"), [(50_000, [1, 50_000]), (-1, [])])
def test_what_was_before_is_restored_and_a_refusal_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, said: int, changes: list[int]
) -> None:
    made: list[int] = []

    def prctl(what: int, value: int, *_: int) -> int:
        if what == _SET:
            made.append(value)
        return said if what == _GET else 0

    monkeypatch.setattr(ctypes, "CDLL", lambda _: SimpleNamespace(prctl=prctl))
    with system.woken_on_time():
        pass
    assert made == changes
