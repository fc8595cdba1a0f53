"""A device made of host threads, which keeps the device's part of the protocol, for tests of the host's part."""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable

from kernelkeep.resident.protocol import TAG_MASK, RingView

# What a task does: (lane, sequence, task number, record) -> two result words without tags, or None
Body = Callable[[int, int, int, bytes], tuple[int, int] | None]


def acknowledge_one(ring: RingView, lane: int, body: Body) -> bool:
    """Run the next task of a lane, if there is one."""
    done = int(ring.done[lane])
    if int(ring.head[lane]) <= done:
        return False
    record = ring.slots[lane, done % ring.layout.capacity].tobytes()
    task = struct.unpack_from("<I", record)[0]
    bits = body(lane, done, task, record)
    if bits is not None:
        tag = ((done + 1) & TAG_MASK) << 32
        for word in (0, 1):
            ring.results[lane, done % ring.layout.capacity, word] = tag | bits[word]
    ring.done[lane] = done + 1
    return True


class DeviceThreads:
    """One thread for each lane; a context manager."""

    def __init__(self, ring: RingView, body: Body) -> None:
        self.ring = ring
        self.ending = threading.Event()
        self.threads = [threading.Thread(target=self._run, args=(lane, body)) for lane in range(ring.layout.lanes)]

    def _run(self, lane: int, body: Body) -> None:
        while True:
            if not acknowledge_one(self.ring, lane, body):
                if self.ending.is_set():
                    return
                time.sleep(20e-6)

    def __enter__(self) -> DeviceThreads:
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ending.set()
        for thread in self.threads:
            thread.join()
