"""Keeps signals away from PoCL: from its compiler, whose handlers fail every compile, and from its linker.

PoCL has its compiler, LLVM, install signal handlers when its devices are first listed (on x86-64, to add its own for SIGFPE). On
Ctrl-C that handler removes the files that LLVM is writing in any thread, so correct programs fail to compile, and PoCL prints
"1 error generated."; then it puts back the handlers that LLVM had found, which undoes those installed since. A handler of
SIGUSR1 is never called again. So the handlers are put back as soon as the devices are listed. Those for faults, such as
SIGFPE and SIGSEGV, stay: PoCL needs them.

PoCL starts a linker, in a thread of its own at the first launch of a kind, or in the thread that reads a binary, and ends the
process if the linker fails. Ctrl-C in a terminal, a closed terminal and batch systems send their signal to the linker too.
Threads and processes inherit which signals are blocked: PoCL's threads are started with all of these blocked, and a binary is
read with those blocked that Python handles, which would have to wait for the end of the call anyway.

Where other code loads PoCL before kernelkeep does, the handlers and the threads are as PoCL made them.
"""

from __future__ import annotations

import ctypes
import signal
from collections.abc import Callable, Iterable
from typing import TypeVar

from ...platforms import system

_ACTION_BYTES = 512  # more than a `struct sigaction` has

T = TypeVar("T")


def load_undisturbed(work: Callable[[], T]) -> T:
    """Call `work`, which loads drivers. This process keeps its signal handlers, and threads of the drivers get no signals."""
    return _blocking(system.outside_signals(), lambda: _keeping_handlers(work))


def link_undisturbed(work: Callable[[], T]) -> T:
    """Call `work`, in which a driver may start a linker from this thread: no signal that Python handles ends the linker."""
    return _blocking([number for number in system.outside_signals() if callable(signal.getsignal(number))], work)


def _blocking(numbers: Iterable[int], work: Callable[[], T]) -> T:
    with system.signals_blocked(numbers):
        return work()


def _keeping_handlers(work: Callable[[], T]) -> T:
    if not system.outside_signals():
        return work()
    sigaction = ctypes.CDLL(None).sigaction
    before = []
    for number in system.outside_signals():
        action = ctypes.create_string_buffer(_ACTION_BYTES)
        if sigaction(int(number), None, action) == 0:
            before.append((number, signal.getsignal(number), action))
    try:
        return work()
    finally:
        for number, handler, action in before:
            if signal.getsignal(number) is handler:  # else the main thread has installed another one meanwhile
                sigaction(int(number), action, None)
