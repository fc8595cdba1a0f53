"""A lane, in C and in Python: what is written into the ring, what comes out, and when it is full."""

from __future__ import annotations

import gc
import mmap
import struct
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kernelkeep.errors import Unsupported
from kernelkeep.resident import lane as lane_module
from kernelkeep.resident.protocol import (
    CODE_BYTES,
    TAG_MASK,
    Layout,
    argument_offsets,
    pack_plan,
    result_words,
    row_dtype,
)
from kernelkeep.resident.python_lane import PythonLane

MakeRing = Callable[..., tuple[Any, list[Any]]]
EXAMPLES = {"?": True, "b": -5, "B": 200, "h": -3000, "H": 60000, "i": -7, "I": 1 << 31, "q": -(1 << 40), "Q": 1 << 63,
            "e": 0.5, "f": 1.25, "d": 1e300}  # fmt: skip
PLAIN = pack_plan(3, "", [])
LONG = pack_plan(4, "q", ["q"])


def acknowledge(ring: Any, count: int = 1, code: str = "", value: Any = None, lane: int = 0) -> None:
    """What the device does: results, then done. `value`: of all, or a function of the sequence number."""
    for _ in range(count):
        sequence = int(ring.done[lane])
        if code:
            words = result_words(sequence, code, value(sequence) if callable(value) else value)
            ring.results[lane, sequence % ring.layout.capacity] = words
        ring.done[lane] = sequence + 1


@pytest.mark.parametrize("code", sorted(CODE_BYTES))
def test_arguments_and_results_of_every_type(make_ring: MakeRing, code: str) -> None:
    ring, [lane] = make_ring()
    value = EXAMPLES[code]
    codes = ["b", code, "B"]
    future = lane.push(pack_plan(9, code, codes), (1, value, 2))
    (first, second, third), _ = argument_offsets(codes)
    record = ring.slots[0, 0].tobytes()
    assert struct.unpack_from("<II", record) == (9, 1)  # the tag of task 0
    assert struct.unpack_from("<" + code, record, second) == (value,)
    assert (record[first], record[third]) == (1, 2)
    assert int(ring.head[0]) == lane.submitted == 1 and not future.ready()
    acknowledge(ring, 1, code, value)
    assert future.ready()
    assert future.result() == value and type(future.result()) is type(value)


@pytest.mark.parametrize(
    ("code", "value", "error"),
    [(code, bad, OverflowError) for code in "bBhHiIqQ" for bad in (-(1 << 65), 1 << 65)]
    + [(code, -1, OverflowError) for code in "BHIQ"]
    + [
        ("b", 128, OverflowError),
        ("B", 256, OverflowError),
        ("h", -32769, OverflowError),
        ("i", 1 << 31, OverflowError),
    ]
    + [("I", 1 << 32, OverflowError), ("q", 1 << 63, OverflowError), ("Q", 1 << 64, OverflowError)]
    + [("f", 1e39, OverflowError), ("e", 1e6, OverflowError), ("d", 10**400, OverflowError)]
    + [(code, "1", TypeError) for code in "bBhHiIqQefd"]
    + [("i", 1.0, TypeError), ("d", None, TypeError)],
)
def test_values_that_do_not_fit_are_refused_and_nothing_is_submitted(
    make_ring: MakeRing, code: str, value: Any, error: type[Exception]
) -> None:
    ring, [lane] = make_ring()
    with pytest.raises(error, match="argument 2"):
        lane.push(pack_plan(1, "", ["i", code]), (7, value))
    assert lane.submitted == 0 and not ring.head[0] and not ring.slots.any()


def test_values_of_numpy_and_with_conversions_are_taken(make_ring: MakeRing) -> None:
    class Index:
        def __index__(self) -> int:
            return 5

    ring, [lane] = make_ring()
    arguments = (np.float32(1.5), np.int64(-3), np.bool_(True), Index(), 3, np.uint64(1 << 63), float("inf"))
    lane.push(pack_plan(1, "", list("fi?idQf")), arguments)
    assert struct.unpack_from("<fi?xxxidQf", ring.slots[0, 0].tobytes(), 8) == (
        1.5,
        -3,
        True,
        5,
        3.0,
        1 << 63,
        float("inf"),
    )


def test_a_wrong_number_of_arguments_and_a_wrong_plan(make_ring: MakeRing) -> None:
    _, [lane] = make_ring(slot=16)
    with pytest.raises(TypeError, match="takes 2 arguments, got 1"):
        lane.push(pack_plan(1, "", ["i", "i"]), (1,))
    with pytest.raises(ValueError, match="5 bytes and 3"):
        lane.push(b"123456", ())
    with pytest.raises(ValueError, match="slot of 16 bytes"):
        lane.push(pack_plan(1, "", ["q", "q"]), (1, 2))
    with pytest.raises(ValueError, match="slot of 16 bytes"):
        lane.push(struct.pack("<IBBH", 1, 0, ord("i"), 4), (1,))
    with pytest.raises(ValueError, match="code"):
        lane.push(struct.pack("<IBBH", 1, 0, ord("x"), 8), (1,))
    assert lane.submitted == 0


def test_a_full_ring_takes_nothing_until_tasks_are_acknowledged(make_ring: MakeRing) -> None:
    ring, [lane] = make_ring(capacity=8)
    assert all(lane.push(PLAIN, ()) is not None for _ in range(8))
    assert lane.push(PLAIN, ()) is None and lane.submitted == 8
    acknowledge(ring, 2)
    assert lane.push(PLAIN, ()) and lane.push(PLAIN, ())
    assert lane.push(PLAIN, ()) is None and int(ring.head[0]) == 10


def test_a_slot_is_not_used_again_before_its_result_has_arrived(make_ring: MakeRing) -> None:
    """`done` may overtake the words of a result."""
    ring, [lane] = make_ring(capacity=8)
    futures = [lane.push(LONG, (number,)) for number in range(8)]
    ring.done[0] = 8
    assert not futures[0].ready() and lane.push(LONG, (8,)) is None
    ring.results[0, 0, 0] = result_words(0, "q", -1)[0]
    assert not futures[0].ready() and lane.push(LONG, (8,)) is None  # the upper half is missing
    ring.results[0, 0, 1] = result_words(0, "q", -1)[1]
    assert lane.push(LONG, (8,)) is not None
    ring.results[0, 0] = result_words(8, "q", 99)
    assert futures[0].ready() and futures[0].value() == -1  # taken out before the slot was used again
    assert not futures[1].ready()
    with pytest.raises(RuntimeError, match="not there yet"):
        futures[1].value()


def test_results_are_read_in_any_order_and_kept(make_ring: MakeRing) -> None:
    ring, [lane] = make_ring(capacity=8)
    kept = []
    for turn in range(5):
        futures = [lane.push(LONG, (0,)) for _ in range(8)]
        acknowledge(ring, 8, "q", lambda sequence: sequence * 10)
        for number in (7, 0, 3):
            assert futures[number].result() == (turn * 8 + number) * 10
        kept += futures
    assert [future.result() for future in kept] == [number * 10 for number in range(40)]
    assert lane.pending == 0


@pytest.mark.parametrize("begin", [(1 << 32) - 12, (1 << 32) - 1, (1 << 33) - 5])
def test_tags_that_return_are_not_taken_for_results(make_ring: MakeRing, begin: int) -> None:
    """In each slot lie words with just the tags that are expected next: as old as the tags are wide."""
    ring, [lane] = make_ring(capacity=8, begin=begin)
    for number in range(24):
        sequence = begin + number
        old = ((sequence + 1) & TAG_MASK) << 32 | 0xBAD
        ring.results[0, sequence % 8] = old
        if (sequence + 1) >> 32:  # before that, no result in the ring can be so old
            if number % 2:
                future = lane.push(LONG, (0,))
            else:
                _, future = lane.push_many(1, b"", 0, 1, "q")
            ring.done[0] = sequence + 1
            assert not future.ready()
            ring.results[0, sequence % 8] = result_words(sequence, "q", number)
            assert future.result() == number
        else:
            lane.push(PLAIN, ())
            ring.done[0] = sequence + 1


def rows_of(count: int) -> np.ndarray[Any, Any]:
    rows = np.zeros(count, row_dtype(["a", "b"], ["i", "d"]))
    rows["a"] = np.arange(count)
    rows["b"] = np.arange(count) / 2
    return rows


@pytest.mark.parametrize("begin", [0, 5, (1 << 32) - 3])
def test_many_rows_are_written_over_the_end_of_the_ring(make_ring: MakeRing, begin: int) -> None:
    ring, [lane] = make_ring(capacity=8, slot=32, begin=begin)
    rows = rows_of(20)
    taken, future = lane.push_many(6, rows, rows.itemsize, len(rows), "d")
    assert taken == 8 == future.count and future.batch and future.sequence == begin
    assert int(ring.head[0]) == begin + 8
    for number in range(8):
        record = ring.slots[0, (begin + number) % 8].tobytes()
        assert struct.unpack_from("<IIixxxxd", record) == (6, (begin + number + 1) % (1 << 32), number, number / 2)
    assert lane.push_many(6, rows, rows.itemsize, len(rows), "d", 8) == (0, None)
    acknowledge(ring, 5, "d", lambda sequence: sequence - begin + 0.5)
    assert not future.ready()
    taken, second = lane.push_many(6, rows, rows.itemsize, len(rows), "d", 8)
    assert taken == 5
    assert struct.unpack_from("<i", ring.slots[0, (begin + 8) % 8].tobytes(), 8) == (8,)
    acknowledge(ring, 8, "d", lambda sequence: sequence - begin + 0.5)
    assert np.array_equal(future.result(), np.arange(8) + 0.5)
    result = second.result()
    assert np.array_equal(result, np.arange(8, 13) + 0.5) and result.dtype == np.float64 and result.flags.writeable


@pytest.mark.parametrize("code", sorted(CODE_BYTES))
def test_results_of_many_tasks_of_every_type(make_ring: MakeRing, code: str) -> None:
    ring, [lane] = make_ring(capacity=16)
    _, future = lane.push_many(1, b"", 0, 5, code)
    acknowledge(ring, 5, code, EXAMPLES[code])
    result = future.result()
    assert result.dtype == np.dtype(code) and result.tolist() == [EXAMPLES[code]] * 5


def test_many_tasks_without_results(make_ring: MakeRing) -> None:
    ring, [lane] = make_ring(capacity=16)
    taken, future = lane.push_many(1, b"", 0, 9)
    assert taken == 9 and not future.ready()
    acknowledge(ring, 9)
    assert future.ready() and future.result() is None and future.value() is None


def test_push_many_rejects_rows_that_do_not_fit(make_ring: MakeRing) -> None:
    _, [lane] = make_ring(slot=32)
    for arguments, complaint in (
        ((1, bytes(100), 25, 4, ""), "row_bytes must be 0 to 24"),
        ((1, bytes(100), -1, 4, ""), "row_bytes must be 0 to 24"),
        ((1, bytes(100), 24, 5, ""), "do not lie in"),
        ((1, bytes(100), 24, 1 << 62, ""), "do not lie in"),
        ((1, bytes(100), 24, 4, "", 5), "do not lie in"),
        ((1, bytes(100), 24, 4, "", -1), "do not lie in"),
        ((1, bytes(100), 24, -4, ""), "do not lie in"),
        ((1, bytes(100), 24, 4, "x"), "code"),
        ((1, bytes(100), 24, 4, "ff"), "code"),
    ):
        with pytest.raises(ValueError, match=complaint):
            lane.push_many(*arguments)
    assert lane.submitted == 0
    assert lane.push_many(1, bytes(96), 24, 4, "", 4) == (0, None)


def test_wait_ends_when_acknowledged_or_in_time(make_ring: MakeRing) -> None:
    ring, [lane] = make_ring()
    assert lane.wait(0, 0, 0)
    future = lane.push(LONG, (1,))
    assert not lane.wait(1, 0, 1000) and not lane.wait(1, 10_000_000, 1000) and not future.wait(0, 1000)

    def device() -> None:
        time.sleep(0.02)
        ring.done[0] = 1
        time.sleep(0.02)
        ring.results[0, 0] = result_words(0, "q", 17)

    thread = threading.Thread(target=device)
    thread.start()
    assert lane.wait(1, 1_000_000, 10_000_000_000)
    assert future.wait(0, 10_000_000_000) and future.value() == 17
    thread.join()


def test_threads_run_while_one_waits(make_ring: MakeRing) -> None:
    """A wait lets go of the interpreter: otherwise the thread that ends it could not run."""
    ring, [lane] = make_ring()
    lane.held_ns = 0
    lane.push(PLAIN, ())
    spinning = threading.Thread(target=lambda: acknowledge(ring))
    spinning.start()
    assert lane.wait(1, 60_000_000_000, 60_000_000_000)
    spinning.join()


def test_a_lane_goes_on_where_the_ring_stands(make_ring: MakeRing, twins: tuple[Any, Any]) -> None:
    ring, [lane] = make_ring()
    for _ in range(3):
        lane.push(PLAIN, ())
    acknowledge(ring, 1)
    layout = ring.layout
    again = lane_module.open_lane(layout, 0, ring.bytes, twins[1], emulated=True)
    assert (again.submitted, again.done) == (3, 1)
    assert again.push(PLAIN, ()).sequence == 3


def test_lanes_over_what_is_no_ring_are_refused(twins: tuple[Any, Any]) -> None:
    Lane, Future = twins
    layout = Layout(1, 8, 16)
    buffer = np.zeros(layout.total_bytes // 8, np.uint64)
    good = (*layout.lane_offsets(0), 16, 8)
    Lane(buffer, *good, Future)
    Lane(mmap.mmap(-1, layout.total_bytes), *good, Future)
    for at in range(4):
        for bad in (-8, 4, layout.total_bytes, 1 << 62):
            with pytest.raises(ValueError, match="does not lie"):
                Lane(buffer, *good[:at], bad, *good[at + 1 :], Future)
    for slot, capacity in ((8, 8), (24, 8), (16, 0), (16, 12)):
        with pytest.raises(ValueError, match=r"powers of two|does not lie"):
            Lane(buffer, *good[:4], slot, capacity, Future)
    with pytest.raises((ValueError, BufferError), match="writable"):
        Lane(bytes(layout.total_bytes), *good, Future)
    with pytest.raises(TypeError, match="subclass of Future"):
        Lane(buffer, *good, object)
    for head, done in ((0, 1), (9, 0)):
        ring = layout.initialize(buffer)
        ring.head[0], ring.done[0] = head, done
        with pytest.raises(ValueError, match="damaged"):
            Lane(buffer, *good, Future)


def test_converting_an_argument_may_submit_to_the_same_lane(make_ring: MakeRing) -> None:
    ring, [lane] = make_ring()

    class Submits:
        def __index__(self) -> int:
            lane.push(pack_plan(1, "", ["i"]), (1,))
            return 2

    assert lane.push(pack_plan(2, "", ["i"]), (Submits(),)).sequence == 1
    records = [struct.unpack_from("<IIi", ring.slots[0, slot].tobytes()) for slot in (0, 1)]
    assert records == [(1, 1, 1), (2, 2, 2)]


def test_a_lane_keeps_no_future_longer_than_it_must(make_ring: MakeRing) -> None:
    ring, [lane] = make_ring(capacity=8)
    futures = [lane.push(LONG, (0,)) for _ in range(4)]
    before = [sys.getrefcount(futures[number]) for number in range(4)]
    acknowledge(ring, 4, "q", 1)
    assert futures[1].ready() and lane.pending == 4  # the first one is not taken yet
    assert futures[0].ready() and lane.pending == 2
    assert futures[2].ready() and futures[3].ready() and lane.pending == 0
    assert [sys.getrefcount(futures[number]) - before[number] for number in range(4)] == [-1] * 4


def test_a_lane_with_unfinished_futures_is_collected(twins: tuple[Any, Any]) -> None:
    layout = Layout(1, 8, 16)
    buffer = np.zeros(layout.total_bytes // 8, np.uint64)
    layout.initialize(buffer)
    before = sys.getrefcount(buffer)
    lane = lane_module.open_lane(layout, 0, buffer, twins[1], emulated=True)
    lane.context = [lane]
    for _ in range(3):
        lane.push(LONG, (0,))
    del lane
    gc.collect()
    assert sys.getrefcount(buffer) == before


def test_nothing_leaks(make_ring: MakeRing) -> None:
    ring, [lane] = make_ring(capacity=64)

    def turn() -> None:
        future = lane.push(LONG, (5,))
        acknowledge(ring, 1, "q", 1 << 40)
        assert future.result() == 1 << 40
        _, many = lane.push_many(1, bytes(64), 8, 8, "d")
        acknowledge(ring, 8, "d", 1.5)
        assert many.result().sum() == 12
        with pytest.raises(TypeError):
            lane.push(LONG, ("x",))
        with pytest.raises(OverflowError):
            lane.push(LONG, (1 << 70,))
        lane.push(LONG, (1,))  # nobody keeps that one
        acknowledge(ring, 1, "q", 1)

    def growth(turns: int) -> int:
        gc.collect()
        before = sys.getallocatedblocks()
        for _ in range(turns):
            turn()
        gc.collect()
        return sys.getallocatedblocks() - before

    growth(20)
    # Other threads may allocate in one of them, and the allocator of a free-threaded Python takes a while to settle.
    assert any(growth(100) < 50 for _ in range(12))


def test_elsewhere_than_on_x86_the_twin_is_for_emulated_devices_only(monkeypatch: pytest.MonkeyPatch) -> None:
    from .conftest import PythonTaskFuture

    layout = Layout(1, 8, 16)
    buffer = np.zeros(layout.total_bytes // 8, np.uint64)
    layout.initialize(buffer)
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    with pytest.raises(Unsupported, match="memory barriers"):
        lane_module.open_lane(layout, 0, buffer, PythonTaskFuture)
    assert lane_module.open_lane(layout, 0, buffer, PythonTaskFuture, emulated=True).submitted == 0


@pytest.mark.parametrize("count", [1, 3])
def test_no_word_of_an_old_copy_keeps_its_tag(make_ring: MakeRing, count: int) -> None:
    """Otherwise it would pass for a word of the copy 2^32 tasks later."""
    ring, [lane] = make_ring(capacity=8)
    lane.push(PLAIN, ())
    lane.push_many(1, b"", 0, count)
    assert not any(int(word) >> 32 == 1 for word in ring.copy[0])


def test_no_future_is_found_that_belongs_to_no_lane(make_ring: MakeRing) -> None:
    """One is set aside for the next push, out of the garbage collector's sight."""
    ring, [lane] = make_ring()
    kept = lane.push(PLAIN, ())
    kind = type(kept)
    found = [one for one in gc.get_objects() if type(one) is kind and one.lane in (None, lane)]
    assert found == [kept]
    again = lane.push(PLAIN, ())
    assert (kept.sequence, again.sequence, again.lane) == (0, 1, lane)
    ring.done[0] = 2
    assert kept.ready() and again.ready()


def test_a_push_in_the_middle_of_a_push_gets_its_own_future(make_ring: MakeRing) -> None:
    """Making a future may collect garbage, and a finalizer may push."""
    _, [lane] = make_ring(capacity=64)
    if isinstance(lane, PythonLane):
        pytest.skip("the twin in Python takes a lock, so finalizers must not use it")
    futures: list[Any] = []

    class Pushes:
        def __del__(self) -> None:
            futures.append(lane.push(PLAIN, ()))

    threshold = gc.get_threshold()
    gc.set_threshold(1, 1, 1)
    try:
        for _ in range(20):
            garbage = Pushes()
            garbage.itself = garbage  # type: ignore[attr-defined]
            del garbage
            futures.append(lane.push(PLAIN, ()))
    finally:
        gc.set_threshold(*threshold)
    gc.collect()
    assert sorted(one.sequence for one in futures) == list(range(40)) == list(range(lane.submitted))
    assert len({id(one) for one in futures}) == 40
