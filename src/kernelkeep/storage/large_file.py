"""Writing much into one file, as fast as the disk takes it: past the system's cache, several parts at a time."""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import sys
import threading
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Self, TypeVar

import numpy as np

from ..platforms import system

_THREADS = 4  # however few cores there are: most of the time they wait for the disk
_BOUNCE_BYTES = 1 << 22
_LEAST_DIRECT = 1 << 16  # below this the system's cache is faster

T = TypeVar("T")


class LargeFile:
    """A file that is open to write: parts of it are written by any thread, in any order. The caller syncs and closes it."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._direct = system.reopen_direct(descriptor)
        self._local = threading.local()
        self._is_reserved = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._direct is not None:
            os.close(self._direct)
            self._direct = None

    def begin(self, nbytes: int) -> None:
        """Make a new file this long. It reads as zeros, and parts that stay so are to be told by `leave_out`."""
        os.ftruncate(self._descriptor, nbytes)
        if self._direct is not None:
            self._is_reserved = system.reserve(self._descriptor, nbytes)
            if not self._is_reserved:  # half of it may be
                os.ftruncate(self._descriptor, 0)
                os.ftruncate(self._descriptor, nbytes)

    def leave_out(self, offset: int, nbytes: int) -> None:
        """A part of a new file is not written: it takes no room on the disk, where the file system can."""
        if self._is_reserved:
            system.give_blocks_back(self._descriptor, offset, nbytes)

    def write(self, data: memoryview, offset: int) -> None:
        """Write bytes at an offset. `OSError` where the disk is full."""
        whole = len(data) // system.DIRECT_ALIGNMENT * system.DIRECT_ALIGNMENT
        if self._direct is None or whole < _LEAST_DIRECT or offset % system.DIRECT_ALIGNMENT:
            self._write_plainly(data, offset)
            return
        try:
            self._write_directly(self._direct, data[:whole], offset)
        except OSError as error:
            if error.errno not in system.NOT_DIRECT:
                raise
            whole = 0
        if whole < len(data):
            self._write_plainly(data[whole:], offset + whole)

    def _write_directly(self, descriptor: int, data: memoryview, offset: int) -> None:
        if address_of(data) % system.DIRECT_ALIGNMENT == 0:
            _write_all(descriptor, data, offset)
            return
        bounce = getattr(self._local, "bounce", None)
        if bounce is None:
            bounce = self._local.bounce = aligned_bytes(_BOUNCE_BYTES)
        for at in range(0, len(data), _BOUNCE_BYTES):
            part = data[at : at + _BOUNCE_BYTES]
            np.copyto(bounce[: len(part)], np.frombuffer(part, "u1"))
            _write_all(descriptor, bounce[: len(part)].data, offset + at)

    def _write_plainly(self, data: memoryview, offset: int) -> None:
        _write_all(self._descriptor, data, offset)
        if len(data) >= _LEAST_DIRECT:
            system.begin_writing(self._descriptor, offset, len(data))


def _write_all(descriptor: int, data: memoryview, offset: int) -> None:
    while len(data):
        count = system.write_at(descriptor, data, offset)
        if not count:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        data, offset = data[count:], offset + count


def address_of(data: memoryview) -> int:
    """Where memory begins."""
    return int(np.frombuffer(data, "u1").ctypes.data) if len(data) else 0


def aligned_bytes(nbytes: int) -> np.ndarray[Any, Any]:
    """Memory that begins at a page, all zeros, in large pages where the system has them. `MemoryError` where it has too few."""
    try:
        memory = mmap.mmap(-1, max(1, nbytes))
    except OSError as error:
        raise MemoryError(f"{nbytes:,} bytes: {error.strerror or error}") from error
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, "u1")[:nbytes]


def in_parallel(work: Callable[[T], object], parts: Iterable[T]) -> None:
    """Call `work` for each part, with a few threads; the first exception ends it and is raised."""
    all_parts = list(parts)
    waiting, taking = iter(all_parts), threading.Lock()
    errors: list[BaseException] = []

    def go_on() -> None:
        while not errors:
            with taking:
                try:
                    part = next(waiting)
                except StopIteration:
                    return
            try:
                work(part)
            except BaseException as error:
                errors.append(error)

    helpers = []
    if system.WRITES_SIDE_BY_SIDE:
        for _ in range(min(_THREADS, len(all_parts)) - 1):
            helper = threading.Thread(target=go_on, name="kernelkeep-file", daemon=True)
            try:
                helper.start()
            except RuntimeError:  # the interpreter is ending, and starts no more threads
                break
            helpers.append(helper)
    go_on()
    for helper in helpers:
        helper.join()
    if errors:
        raise errors[0]
