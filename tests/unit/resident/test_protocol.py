"""The layout of the ring, plans and rows."""

from __future__ import annotations

import itertools
import mmap
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelkeep.errors import ArgumentError
from kernelkeep.resident.protocol import (
    CODE_BYTES,
    HEADER_BYTES,
    LINE,
    TAG_MASK,
    VERSION,
    Layout,
    argument_offsets,
    layout_of,
    pack_plan,
    result_words,
    row_dtype,
    unpack_plan,
)


@given(st.integers(1, 40), st.integers(3, 8), st.integers(4, 10))
def test_no_two_words_share_bytes_and_no_two_writers_share_a_line(lanes: int, capacity: int, slot: int) -> None:
    layout = Layout(lanes, 1 << capacity, 1 << slot)
    regions = [(0, LINE, "host")]
    for lane in range(lanes):
        head, done, results, slots = layout.lane_offsets(lane)
        regions += [(head, 8, "host"), (done, 32, "device")]
        regions += [(results, layout.capacity * 16, "device"), (slots, layout.capacity * layout.slot, "host")]
    regions.sort()
    for (at, size, writer), (after, _, other) in itertools.pairwise(regions):
        assert at + size <= after
        assert writer == other or (at + size - 1) // LINE < after // LINE
    assert regions[-1][0] + regions[-1][1] == layout.total_bytes


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ((0,), "lanes must be 1 to"),
        ((5000,), "lanes must be 1 to"),
        ((1, 12), "capacity must be a power of two"),
        ((1, 4), "capacity must be a power of two from 8"),
        ((1, 2 << 20), "capacity must be"),
        ((1, 8, 8), "slot must be a power of two from 16"),
        ((1, 8, 48), "slot must be a power of two"),
        ((1, 8, 2048), "slot must be"),
    ],
)
def test_a_layout_that_cannot_work_is_refused(arguments: tuple[int, ...], complaint: str) -> None:
    with pytest.raises(ArgumentError, match=complaint):
        Layout(*arguments)


def test_views_lie_where_the_offsets_say() -> None:
    layout = Layout(3, 8, 32)
    buffer = np.zeros(layout.total_bytes // 8, np.uint64)
    ring = layout.initialize(buffer)
    head, done, results, slots = layout.lane_offsets(2)
    ring.head[2], ring.done[2], ring.beat[2], ring.running[2], ring.since[2] = 1, 2, 3, 4, 5
    ring.results[2, 7, 1] = 6
    ring.slots[2, 7, 31] = 7
    raw = buffer.tobytes()
    assert struct.unpack_from("<Q", raw, head) == (1,)
    assert struct.unpack_from("<4Q", raw, done) == (2, 3, 4, 5)
    assert struct.unpack_from("<Q", raw, results + 7 * 16 + 8) == (6,)
    assert raw[slots + 8 * 32 - 1] == 7 and slots + 8 * 32 == layout.total_bytes
    assert struct.unpack_from("<5Q", raw) == (0, VERSION, 3, 8, 32)


def test_a_ring_in_a_file_is_found_again(tmp_path: Path) -> None:
    layout = Layout(2, 16, 64)
    path = tmp_path / "ring"
    path.write_bytes(bytes(layout.total_bytes))
    with path.open("r+b") as file:
        layout.initialize(mmap.mmap(file.fileno(), 0)).head[1] = 5
    with path.open("r+b") as file:
        again = mmap.mmap(file.fileno(), 0)
        assert layout_of(again) == layout
        assert list(layout.attach(again).head) == [0, 5]
        with pytest.raises(ArgumentError, match="has the layout"):
            Layout(2, 32, 64).attach(again)


def test_what_is_no_ring_is_refused() -> None:
    layout = Layout(1, 8, 16)
    with pytest.raises(ArgumentError, match="holds no ring"):
        layout_of(bytearray(64))
    with pytest.raises(ArgumentError, match="version 0"):
        layout_of(bytearray(4096))
    whole = np.zeros(layout.total_bytes // 8, np.uint64)
    layout.initialize(whole)
    with pytest.raises(ArgumentError, match="cut short"):
        layout_of(whole[:-1])
    with pytest.raises(ArgumentError, match="at least"):
        layout.initialize(whole[:-1])
    with pytest.raises(ArgumentError, match="multiple of 8"):
        layout.initialize(np.zeros(layout.total_bytes + 8, np.uint8)[1:])
    with pytest.raises(ArgumentError, match="writable"):
        layout.initialize(bytes(layout.total_bytes))


@given(st.lists(st.sampled_from(sorted(CODE_BYTES)), max_size=20))
def test_arguments_lie_as_in_a_struct_of_c(codes: list[str]) -> None:
    """NumPy's aligned records follow the rules of C."""
    offsets, end = argument_offsets(codes)
    names = [f"a{number}" for number in range(len(codes))]
    rows = row_dtype(names, codes)
    if codes:
        aligned = np.dtype(list(zip(names, codes, strict=True)), align=True)
        assert [aligned.fields[name][1] + HEADER_BYTES for name in names] == list(offsets)  # type: ignore[index]
        assert rows.itemsize == aligned.itemsize and end <= HEADER_BYTES + rows.itemsize
    assert unpack_plan(pack_plan(7, "d", codes)) == (7, "d", list(zip(codes, offsets, strict=True)))


def test_types_that_the_ring_does_not_know_are_refused() -> None:
    for codes in (["x"], ["ff"], ["l"]):
        with pytest.raises(ArgumentError, match="code must be one of"):
            pack_plan(0, "", codes)
    with pytest.raises(ArgumentError, match="code must be one of"):
        pack_plan(0, "s", [])
    with pytest.raises(ValueError, match="5 bytes and 3"):
        unpack_plan(b"1234567")


def test_result_words_have_the_tag_of_their_task() -> None:
    assert result_words(0, "i", -1) == (1 << 32 | 0xFFFFFFFF, 1 << 32)
    assert result_words((1 << 32) - 1, "Q", 5 << 32 | 6) == (6, 5)
    assert result_words((1 << 32) + 6, "B", 3) == (7 << 32 | 3, 7 << 32)


@pytest.mark.parametrize("head", [5, (1 << 32) - 1, (1 << 32) + 3])
def test_a_copy_that_a_dead_process_left_is_forgotten(head: int) -> None:
    """Task `head` was written as a copy, run, and never submitted: neither its record nor its result may pass for another's."""
    layout = Layout(2, capacity=8)
    ring = layout.initialize(bytearray(layout.total_bytes))
    ring.head[:], ring.done[:] = head, head - 2
    tag = (head + 1) & TAG_MASK
    ring.copy[:] = tag << 32 | 0xBAD
    ring.results[:, head % 8] = tag << 32 | 0xBAD
    ring.results[:, (head - 1) % 8] = result_words(head - 1, "q", 7)
    ring.forget_copies()
    expected = {(number + 1) & TAG_MASK for number in range(head - 2, head + 1)}
    assert not expected & {int(word) >> 32 for word in ring.copy.ravel()}
    assert {int(word) >> 32 for word in ring.results[:, head % 8].ravel()} == {tag ^ TAG_MASK}
    assert tuple(ring.results[0, (head - 1) % 8]) == result_words(head - 1, "q", 7)
