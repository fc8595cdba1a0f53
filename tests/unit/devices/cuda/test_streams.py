"""Streams of a device: given back, handed out again, and destroyed once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kernelkeep.devices.cuda.streams import Streams


def streams() -> Streams:
    busy = SimpleNamespace(CUDA_SUCCESS=0)
    driver: Any = SimpleNamespace(CUresult=busy, cuStreamQuery=lambda stream: (600 if stream == 7 else 0,))
    return Streams(driver, 1)


def test_a_stream_that_has_work_is_not_handed_out() -> None:
    found = streams()
    found.give(7)
    found.give(8)
    assert found.take() == 8
    assert found.take() is None


def test_each_is_destroyed_once() -> None:
    """A queue that gave its stream back may still be there, and the stream may be another's by now."""
    found = streams()
    queue: Any = _Queue(5)
    found.queues.add(queue)
    found.give(5)
    assert sorted(found.take_all()) == [1, 5]
    assert found.take() is None


class _Queue:
    def __init__(self, stream: int) -> None:
        self.cu_stream = stream
