"""The thread that keeps the context and makes recorded calls, so that no other thread has to take it for a launch."""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from typing import Any

from .calls import Call, address_of, caller_module

# How long the thread looks for calls, and others for its answers, before they sleep. Waking a thread takes several microseconds;
# where there are few cores, somebody else needs the one that looks.
_LOOK_NANOSECONDS = 50_000
_CORES_TO_SPARE = 5


class ContextKeeper:
    """Who uses it has the context's lock."""

    def __init__(self, egl: Any, taking: list[Call], leaving: Call, lock: threading.RLock) -> None:
        self._flush = address_of(egl.glFlush)
        self._taking, self._leaving, self._lock = taking, leaving, lock
        self._caller: Any = None  # the thread, which begins with the first calls
        self._has_context = False

    def make(self, calls: list[Call], wait: bool) -> int:
        """Have calls made; what failed in these, if they are waited for, or in earlier ones, or 0."""
        if self._caller is None:
            cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
            look = _LOOK_NANOSECONDS if cores >= _CORES_TO_SPARE else 0
            self._caller = caller_module().Caller(self._flush, look, look)
            weakref.finalize(self, _end, self._caller, self._leaving, self._lock)
        if not self._has_context:
            calls[:0] = self._taking
            self._has_context = True
        self._caller.make(calls, wait)
        failure: int = self._caller.failure
        return failure

    def put_down(self) -> None:
        """Make what was given, and have the context current nowhere."""
        if self._has_context:
            self._caller.make([self._leaving], True)
            self._has_context = False

    def stop(self) -> None:
        """Put the context down and end the thread."""
        self.put_down()
        if self._caller is not None:
            self._caller.stop()

    def abandon(self) -> None:
        """The thread is not in this forked process."""
        if self._caller is not None:
            self._caller.abandon()


def _end(caller: Any, leaving: Call, lock: threading.RLock) -> None:
    """End the thread when the context is collected or the interpreter ends."""
    if lock.acquire(timeout=1):
        with contextlib.suppress(RuntimeError):  # it was stopped, or is not in this forked process
            caller.make([leaving], True)
        caller.stop()
        lock.release()
