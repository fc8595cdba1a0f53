"""The twins in plain Python of the types in `_ring.c`: a lane of the ring, and the future of a task in it.

They do the same, slower, and need a machine whose loads and stores are in order (see `lane.require_order`). Any thread may call
any method; a lock is taken, so none must be called from a finalizer or a signal handler.
"""

from __future__ import annotations

import functools
import struct
import threading
import time
from collections import deque
from typing import Any

import numpy as np

from .argument_checks import checked
from .protocol import CODE_BYTES, COPY_AT, HEADER_BYTES, NO_RESULT, RESULT_BYTES, TAG_MASK, code_bytes, unpack_plan

LEAST_SLEEP, MOST_SLEEP = 20e-6, 1e-3
HEADER = struct.Struct("<II")
STRAGGLER_NS = 1_000_000  # how long `value` waits for words of a result that is on its way


class PythonFuture:
    """The result of one task, or of the tasks of one `push_many`, which is on its way or here.

    A subclass adds `wait_for_result(timeout)`, which `result` calls when the result is not here, and for batches.
    """

    __slots__ = ("_left", "batch", "code", "count", "failure", "lane", "sequence", "values")

    lane: PythonLane
    sequence: int
    count: int
    batch: bool
    code: str
    failure: BaseException | None
    _left: int  # how many tasks are not done, or have results that are still in the ring
    values: bytearray  # what was taken out of the ring so far

    def ready(self) -> bool:
        """Whether the tasks are done and their results here. Never waits."""
        return not self._left or self.lane.take(self)

    def value(self) -> Any:
        """The result, which must be there: a number, for a batch a bytearray of numbers, or None."""
        if not self.ready():
            if self.lane.done >= self.sequence + self.count:
                self.wait(STRAGGLER_NS, STRAGGLER_NS)
            if not self.ready():
                raise RuntimeError("the result is not there yet; wait for it with result()")
        if not self.code:
            return None
        return self.values if self.batch else struct.unpack("<" + self.code, self.values)[0]

    def wait(self, spin_ns: int, timeout_ns: int) -> bool:
        """Wait until `ready`, at most `timeout_ns`; whether it is."""
        end = time.perf_counter_ns() + timeout_ns
        if not self.lane.wait(self.sequence + self.count, spin_ns, timeout_ns):
            return False
        while not self.ready():
            if time.perf_counter_ns() >= end:
                return False
            time.sleep(0)
        return True

    def spin(self) -> bool:
        """Whether it is ready, or becomes so within the lane's `held_ns`."""
        return self.ready() or (self.lane.held_ns > 0 and self.wait(self.lane.held_ns, self.lane.held_ns))

    def result(self, timeout: float | None = None) -> Any:
        """The result; waits for it, at most `timeout` seconds."""
        if self.failure is None and not self.batch and self.ready():
            return self.value()
        return self.wait_for_result(timeout)

    def wait_for_result(self, timeout: float | None) -> Any:
        raise NotImplementedError("a subclass of Future waits")


class PythonLane:
    """A lane in plain Python."""

    def __init__(
        self,
        buffer: Any,
        head_at: int,
        done_at: int,
        results_at: int,
        slots_at: int,
        slot: int,
        capacity: int,
        future_type: type[PythonFuture],
    ) -> None:
        raw = memoryview(buffer).cast("B")
        if raw.readonly:
            raise ValueError("the buffer of a lane must be writable")
        for at, size in (
            (head_at, COPY_AT + 8),
            (done_at, 8),
            (results_at, capacity * RESULT_BYTES),
            (slots_at, capacity * slot),
        ):
            if at < 0 or at % 8 or at + size > raw.nbytes:
                raise ValueError(
                    f"offset {at} with {size} bytes does not lie in the buffer of {raw.nbytes}, at a multiple of 8"
                )
        if capacity < 1 or capacity & (capacity - 1) or slot < 16 or slot & (slot - 1):
            raise ValueError(f"capacity and slot must be powers of two, slot at least 16; got {capacity} and {slot}")
        if not (isinstance(future_type, type) and issubclass(future_type, PythonFuture)):
            raise TypeError("future_type must be a subclass of Future")
        self.buffer = buffer
        self.context: Any = None
        self.failure: BaseException | None = None
        self.held_ns = 0
        # One store of eight aligned bytes each, which `memoryview` makes of an item of format Q.
        self._head = raw[head_at : head_at + 8].cast("Q")
        self._copy = raw[head_at + COPY_AT : head_at + COPY_AT + 8].cast("Q")
        self._done = raw[done_at : done_at + 8].cast("Q")
        self._results = raw[results_at : results_at + capacity * RESULT_BYTES].cast("Q")
        self._slots = raw[slots_at : slots_at + capacity * slot]
        self._slot = slot
        self._capacity = capacity
        self._future_type = future_type
        self._lock = threading.Lock()
        self._pending: deque[PythonFuture] = deque()  # with results, in order; the first one is not taken yet
        self.submitted = self._head[0]
        if not 0 <= self.submitted - self.done <= capacity:
            raise ValueError(
                f"the ring is damaged: {self.submitted} tasks submitted, {self.done} done, capacity {capacity}"
            )

    @property
    def done(self) -> int:
        """How many tasks the device has acknowledged."""
        return self._done[0]

    @property
    def pending(self) -> int:
        """How many futures the lane keeps because their results are still in the ring."""
        return len(self._pending)

    def push(self, plan: bytes, args: tuple[Any, ...]) -> Any:
        """Submit one task; its future, or None when the ring is full."""
        task, code, places = compile_plan(plan, self._slot)
        if len(args) != len(places):
            raise TypeError(f"the task takes {len(places)} arguments, got {len(args)}")
        record = bytearray(self._slot)
        # Before the lock: converting a value may run any code.
        for number, (value, (kind, at, packer)) in enumerate(zip(args, places, strict=True), 1):
            packer.pack_into(record, at, checked(number, kind, value))
        with self._lock:
            sequence = self.submitted
            if not self._room(1):
                return None
            at = sequence % self._capacity * self._slot
            HEADER.pack_into(record, 0, task, (sequence + 1) & TAG_MASK)
            self._slots[at : at + self._slot] = record
            return self._publish(sequence, 1, code, batch=False)

    def push_many(
        self, task: int, rows: Any, row_bytes: int, count: int, result_code: str = NO_RESULT, start: int = 0
    ) -> tuple[int, Any]:
        """Submit the rows from `start` on, as many as fit: (how many were taken, their future or None).

        A row is the arguments as they lie in a slot from byte 8 on.
        """
        if result_code:
            code_bytes(result_code)
        raw = np.frombuffer(rows, np.uint8).data
        if row_bytes < 0 or row_bytes > self._slot - HEADER_BYTES:
            raise ValueError(f"row_bytes must be 0 to {self._slot - HEADER_BYTES}, got {row_bytes}")
        if start < 0 or count < start or raw.nbytes < count * row_bytes:
            raise ValueError(f"rows {start} to {count} of {row_bytes} bytes do not lie in {raw.nbytes} bytes")
        with self._lock:
            sequence = self.submitted
            taken = min(count - start, self._room(count - start))
            if not taken:
                return 0, None
            for number in range(taken):
                at = (sequence + number) % self._capacity * self._slot
                header = HEADER.pack(task, (sequence + number + 1) & TAG_MASK)
                row = (start + number) * row_bytes
                self._slots[at : at + HEADER_BYTES + row_bytes] = header + bytes(raw[row : row + row_bytes])
            return taken, self._publish(sequence, taken, result_code, batch=True)

    def wait(self, count: int, spin_ns: int, timeout_ns: int) -> bool:
        """Wait until `done` is at least `count`, at most `timeout_ns`; whether it is."""
        if self.done >= count:
            return True
        began = time.perf_counter_ns()
        pause = LEAST_SLEEP
        while self.done < count:
            waited = time.perf_counter_ns() - began
            if waited >= timeout_ns:
                return False
            if waited < spin_ns:
                time.sleep(0)
            else:
                time.sleep(min(pause, (timeout_ns - waited) / 1e9))
                pause = min(2 * pause, MOST_SLEEP)
        return True

    def wait_for_room(self, spin_ns: int, timeout_ns: int, slots: int = 1) -> bool:
        """Wait until that many tasks fit into the ring, at most `timeout_ns`; whether they do."""
        if not 1 <= slots <= self._capacity:
            raise ValueError(f"slots must be 1 to {self._capacity}, got {slots}")
        end = time.perf_counter_ns() + timeout_ns
        while True:
            with self._lock:
                if self._room(slots) >= slots:
                    return True
            rest = end - time.perf_counter_ns()
            if rest <= 0:
                return False
            self.wait(self.submitted - self._capacity + slots, spin_ns, rest)
            time.sleep(0)  # the words of a result may still be on their way

    def take(self, future: PythonFuture) -> bool:
        """Take what has arrived of a future's results out of the ring; whether that is all of them."""
        with self._lock:
            arrived = self._take(future)
            self._drop_taken()
            return arrived

    def _room(self, wanted: int) -> int:
        """How many slots are free, up to `wanted`: acknowledged, and their results taken."""
        while True:
            done = self._done[0]
            oldest = self._pending[0] if self._pending else None
            before = min(done, oldest.sequence + oldest.count - oldest._left) if oldest else done
            room = min(wanted, before + self._capacity - self.submitted)
            if oldest is None or room >= wanted or before == done:
                return room
            left = oldest._left
            self._take(oldest)
            if oldest._left == left:  # its words are on their way
                return room
            self._drop_taken()

    def _take(self, future: PythonFuture) -> bool:
        if not future._left:
            return True
        end = future.sequence + future.count
        done = self._done[0]
        if not future.code:
            future._left = 0 if done >= end else future.count
            return not future._left
        size = CODE_BYTES[future.code]
        while future._left and (sequence := end - future._left) < done:
            at = 2 * (sequence % self._capacity)
            low, high = self._results[at], self._results[at + 1]
            tag = (sequence + 1) & TAG_MASK
            if low >> 32 != tag or (size == 8 and high >> 32 != tag):
                return False
            bits = low & TAG_MASK | ((high & TAG_MASK) << 32)
            future.values += bits.to_bytes(8, "little")[:size]
            future._left -= 1
        return not future._left

    def _drop_taken(self) -> None:
        while self._pending and not self._pending[0]._left:
            self._pending.popleft()

    def _publish(self, sequence: int, count: int, code: str, *, batch: bool) -> PythonFuture:
        future = self._future_type.__new__(self._future_type)
        future.lane, future.sequence, future.count, future.batch, future.code = self, sequence, count, batch, code
        future.failure, future.values, future._left = None, bytearray(), count
        if code:
            self._pending.append(future)
            if sequence + count > TAG_MASK:  # the first tag that may be in the ring already is that of task 2^32 - 1
                self._spoil_old_tags(sequence, count)
        self._copy[0] = (
            self._done[0] & TAG_MASK
        ) << 32  # there is none: no block expects the tag of a task that is done
        self.submitted = sequence + count
        self._head[0] = self.submitted
        return future

    def _spoil_old_tags(self, sequence: int, count: int) -> None:
        for number in range(sequence, sequence + count):
            tag = (number + 1) & TAG_MASK
            at = 2 * (number % self._capacity)
            for word in (at, at + 1):
                if self._results[word] >> 32 == tag:
                    self._results[word] = (tag ^ TAG_MASK) << 32


@functools.lru_cache(1024)
def compile_plan(plan: bytes, slot: int) -> tuple[int, str, list[tuple[str, int, struct.Struct]]]:
    """A plan as `push` uses it: task, code of the result, and for each argument its code, offset and packer."""
    task, code, places = unpack_plan(plan)
    if code:
        code_bytes(code)
    for number, (kind, at) in enumerate(places, 1):
        if at < HEADER_BYTES or at + code_bytes(kind) > slot:
            raise ValueError(f"argument {number} at byte {at} does not lie in a slot of {slot} bytes")
    return task, code, [(kind, at, struct.Struct("<" + kind)) for kind, at in places]
