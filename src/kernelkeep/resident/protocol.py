"""The ring between Python and a resident grid: its layout, and the protocol both sides keep.

The ring is host memory that the device can read and write: pinned memory, or a file that is mapped and registered (then it is
a journal too). It must be ordinary cacheable memory; write-combined memory would break the order of the host's stores. Each
block of the grid is a *lane* with a ring of its own. Tasks of a lane are numbered 0, 1, 2 … as long as the ring exists; task
`sequence` uses slot `sequence % capacity`. All words are little-endian.

    byte                                      written by  what
    0                                         host        u64 unused; u64 version; u64 lanes, capacity, slot
    LINE * (1 + 2 lane)                       host        u64 head: tasks submitted ever; u64 command (0 run, 1 exit);
                                                          14 words: a copy of the newest record, each tag << 32 | 4 bytes of it
    LINE * (2 + 2 lane)                       device      u64 done: tasks acknowledged ever; u64 beat: device ns of the last beat;
                                                          u64 running: sequence + 1 of the task that runs, 0 when idle;
                                                          u64 since: device ns when it began; u64 node: of a graph that runs,
                                                          its number << 32 | number of the node + 1, 0 for none; u64 since
                                                          when that is so
    results_at + (lane * capacity + i) * 16   device      two u64 words, each tag << 32 | 32 bits of the result
    slots_at + (lane * capacity + i) * slot   host        u32 task number, u32 tag, arguments at natural alignment from byte 8

What a block looks at all the time is one line that no other block reads: on an H200 a read over the bus takes 0.9 µs, and 132
blocks that read the same line take turns, which is 135 µs for each.

A line of the host and one of the device are never the same 128 bytes, so no side steals the other's line while it writes.
The counters have 64 bits and only grow. No operation reads and writes a word in one step across the bus.

Who does what, in which order
    Host, to submit task s:   1. wait until done > s - capacity, and the result of s - capacity is collected;
                              2. write the record, and see to old tags (below);  3. write its copy beside head, each word a
                              release, which may be left out: then the words of the copy get a tag that no block
                              expects, that of a task that is done;  4. store head = s + 1, release.
                              Many tasks: write all their records, no copy, then store head once.
    Device, reader:           load head, acquire at system scope; then read the records below it. Where one thread of a warp loads
                              head and others read records, a `__syncwarp` between them passes the order on. Where all
                              words of the copy (as many as a slot has, at most 14) carry the tag of the next task, low 32
                              bits of s + 1, and there is room for it in the block, they are its record, whatever head is: this
                              saves the second read. So head may be behind what the block has: then it says nothing.
    Device, worker:           run the tasks of the lane one after the other.
    Device, writer:           1. after the worker's part of task s: fence at system scope;
                              2. store the result words and done = s + 1, relaxed, in any order. Several tasks may share one fence
                              and one store of done.
    Host, to wait for s:      load done, acquire, until done > s. The task's effects are visible now. Its result is valid when the
                              tags of its words are the low 32 bits of s + 1; until then the words are on their way.

Why it is right
    - A record is complete when its number is below head: the host's release and the reader's acquire order them. On x86 a plain
      store is a release and a plain load an acquire; on ARM the host uses barriers of the outer shareable domain, since the
      device is an observer outside the processors. A reader that kept an old copy of a slot drops it with the acquire.
    - The words of a copy need no order among themselves: each is stored and loaded as a whole and says itself whose it is. All
      are written anew, or spoilt, by every submission, so a tag in them is never older than one submission and cannot return. To
      spoil the first word only is not enough: 2^32 tasks later the others pass for words of the next copy.
    - A copy comes after all that was stored before it. From then on the task may run, and its result arrive: a tag that is spoilt
      later is that of the result itself. And done is never more than one ahead of head.
    - A copy after head would be right too, and recovery would not have to know of it; but a block that sees the head first reads
      the slot. A host that never writes copies may spoil the first word only.
    - A slot is written again only after the task in it was acknowledged, so the reader has read it: the read comes before the
      run, the run before the fence, the fence before done.
    - What a task wrote is visible when done passes it: the fence stands between. Tasks of one lane see each other's writes
      because one block runs them in order.
    - Nothing orders result words and done, which saves a second fence on the way back (a round trip over the bus). So a word says
      itself whose result it is. A result of 32 bits or fewer uses the first word only, one of 64 bits both, low half first.
    - A result is taken out of the ring before its slot is used again, so a future that is kept never loses its value.

Tags wrap
    A tag returns after 2^32 tasks. A task without a result need not write words, so the last ones in a slot may be just that
    old, and fresh memory looks like tag 0. So from task 2^32 - 1 on the host looks, before it writes the copy, at the words of
    each task that has a result, and where a tag is already the expected one it stores another. At that time nobody waits for what
    the words hold: the result of the task before in that slot is collected. If that task had none and its words are still on
    their way, they have its own tag, which is another one, since there are more tags than slots. Otherwise only the device writes
    them.

Exit and takeover
    The host stores command = 1 in the line of each lane. Each block finishes the task that runs, and behind short tasks at most
    two more, forgets records it has fetched but not begun, acknowledges all it has run, and ends. The end of a grid completes its
    writes: done is then exactly the number of tasks run, and all result words have arrived. The host stores command = 0 and
    starts the next grid, whose blocks begin at their done. Nothing is lost and nothing runs twice. The host may submit all
    the time.

After a crash
    Of the host's process, with the ring in a file: the file's pages hold every store made, in the order above, so records below
    head are whole. (After a power failure they are not; nothing is promised then.) Of the device: some of the last words it wrote
    may be missing. In both cases the tasks done … head - 1 are the unacknowledged ones, and exactly they run again. Some of
    them may have run, and one in part: what a task must do once only, it must be able to repeat, or the arrays must come from a
    checkpoint made at the same `done`. A task below done does not run again; its result may be lost, which its tags tell.
    Where the process died between a copy and its head, the task was not submitted, but may have run. If it is acknowledged, done
    is head + 1, and is taken for head. Otherwise its number goes to another task. So before a grid starts, all words of the copy
    get a tag that no block expects, and so do the result words of task `head` where they have its tag.
    The tag of a record, low 32 bits of s + 1, is for recovery alone, and no block reads it: where head was damaged and is too
    large, the records below it are those of other tasks.

`tests/unit/resident/test_protocol_model.py` checks all this by exhaustive interleaving, and that leaving any part out is noticed.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from ..errors import ArgumentError

VERSION = 2
LINE = 128
RUN, EXIT = 0, 1
HEADER_BYTES = 8  # task number and tag, before the arguments of a record
RESULT_BYTES = 16
MAX_LANES = 4096
MAX_CAPACITY = 1 << 20
MAX_SLOT = 1024
COPY_AT = 16  # of the copy of the newest record, in the line of its lane
TAG_MASK = 0xFFFFFFFF
# A type's code is that of `struct` and of NumPy. NO_RESULT: the task gives nothing back.
NO_RESULT = ""
CODE_BYTES = {"?": 1, "b": 1, "B": 1, "h": 2, "H": 2, "i": 4, "I": 4, "q": 8, "Q": 8, "e": 2, "f": 4, "d": 8}
_PLAN_HEAD = struct.Struct("<IB")
_PLAN_ARGUMENT = struct.Struct("<BH")

Words = npt.NDArray[np.uint64]


class Layout(msgspec.Struct, frozen=True):
    """Where everything is in a ring of `lanes` lanes with `capacity` slots of `slot` bytes each."""

    lanes: int
    capacity: int = 1024
    slot: int = 64

    def __post_init__(self) -> None:
        if not 1 <= self.lanes <= MAX_LANES:
            raise ArgumentError(f"lanes must be 1 to {MAX_LANES}, got {self.lanes}")
        for name, least, most in (("capacity", 8, MAX_CAPACITY), ("slot", 16, MAX_SLOT)):
            value = getattr(self, name)
            if type(value) is not int or not least <= value <= most or value & (value - 1):
                raise ArgumentError(f"{name} must be a power of two from {least} to {most}, got {value!r}")

    @property
    def results_at(self) -> int:
        return LINE * (1 + 2 * self.lanes)

    @property
    def slots_at(self) -> int:
        return self.results_at + self.lanes * self.capacity * RESULT_BYTES

    @property
    def total_bytes(self) -> int:
        return self.slots_at + self.lanes * self.capacity * self.slot

    def lane_offsets(self, lane: int) -> tuple[int, int, int, int]:
        """(head_at, done_at, results_at, slots_at) of a lane."""
        if not 0 <= lane < self.lanes:
            raise ArgumentError(f"lane must be 0 to {self.lanes - 1}, got {lane}")
        before = lane * self.capacity
        return (
            LINE * (1 + 2 * lane),
            LINE * (2 + 2 * lane),
            self.results_at + before * RESULT_BYTES,
            self.slots_at + before * self.slot,
        )

    def initialize(self, buffer: Any) -> RingView:
        """Make an empty ring of `buffer`, and a view on it. No grid may run on it."""
        view = RingView(self, buffer)
        view.bytes[: self.total_bytes] = 0
        view.control[1:5] = (VERSION, self.lanes, self.capacity, self.slot)
        return view

    def attach(self, buffer: Any) -> RingView:
        """A view on a ring that `initialize` made, here or in another process; refused when it has another layout."""
        found = layout_of(buffer)
        if found != self:
            raise ArgumentError(f"the ring in this buffer has the layout {found}, not {self}")
        return RingView(self, buffer)


class RingView:
    """The words of a ring as NumPy arrays, without copies. The arrays are for looking, for tests and for emulated devices."""

    def __init__(self, layout: Layout, buffer: Any) -> None:
        raw = np.frombuffer(buffer, np.uint8)
        if raw.nbytes < layout.total_bytes:
            raise ArgumentError(f"buffer must have at least {layout.total_bytes} bytes, got {raw.nbytes}")
        if raw.ctypes.data % 8:
            raise ArgumentError("buffer must begin at a multiple of 8 bytes, better of 128")
        if not raw.flags.writeable:
            raise ArgumentError("buffer must be writable")
        self.layout = layout
        self.bytes: npt.NDArray[np.uint8] = raw[: layout.total_bytes]
        words: Words = self.bytes.view(np.uint64)
        line = LINE // 8
        lanes = words[line : layout.results_at // 8].reshape(layout.lanes, 2, line)
        self.control = words[:line]
        self.head, self.command, self.copy = lanes[:, 0, 0], lanes[:, 0, 1], lanes[:, 0, COPY_AT // 8 :]
        self.done, self.beat, self.running, self.since = (lanes[:, 1, word] for word in range(4))
        self.node, self.node_since = lanes[:, 1, 4], lanes[:, 1, 5]
        shape = (layout.lanes, layout.capacity)
        self.results = words[layout.results_at // 8 : layout.slots_at // 8].reshape(*shape, 2)
        self.slots = self.bytes[layout.slots_at :].reshape(*shape, layout.slot)

    def forget_copies(self) -> None:
        """Make sure that no block takes a copy which an earlier process left, nor the host its result. No grid may run."""
        for lane in range(self.layout.lanes):
            head, done = int(self.head[lane]), int(self.done[lane])
            self.copy[lane] = (done & TAG_MASK) << 32
            words = self.results[lane, head % self.layout.capacity]
            tag = (head + 1) & TAG_MASK
            words[words >> np.uint64(32) == tag] = (tag ^ TAG_MASK) << 32


def layout_of(buffer: Any) -> Layout:
    """The layout that a ring says it has; refused when it is no ring, or one of another version."""
    raw = np.frombuffer(buffer, np.uint8)
    if raw.nbytes < LINE:
        raise ArgumentError(f"this buffer of {raw.nbytes} bytes holds no ring")
    version, lanes, capacity, slot = (int(word) for word in raw[8:40].view(np.uint64))
    if version != VERSION:
        raise ArgumentError(f"the ring in this buffer has version {version}, this code needs {VERSION}")
    layout = Layout(lanes, capacity, slot)
    if raw.nbytes < layout.total_bytes:
        raise ArgumentError(f"the ring is cut short: it needs {layout.total_bytes} bytes, the buffer has {raw.nbytes}")
    return layout


def argument_offsets(codes: Sequence[str]) -> tuple[tuple[int, ...], int]:
    """(offset of each argument from the start of a slot, where the last one ends), at natural alignment from byte 8."""
    offsets = []
    at = HEADER_BYTES
    for code in codes:
        size = code_bytes(code)
        at = (at + size - 1) & ~(size - 1)
        offsets.append(at)
        at += size
    return tuple(offsets), at


def code_bytes(code: str) -> int:
    """How many bytes a value of the type has."""
    try:
        return CODE_BYTES[code]
    except KeyError:
        raise ArgumentError(f"a type's code must be one of {' '.join(CODE_BYTES)}, got {code!r}") from None


def pack_plan(task: int, result: str, arguments: Sequence[str]) -> bytes:
    """What `Lane.push` needs to know of a task: its number, the code of its result, and code and offset of each argument.

    u32 task, u8 code of the result (0: none), then for each argument u8 code, u16 offset from the start of the slot.
    """
    if result != NO_RESULT:
        code_bytes(result)
    offsets, _ = argument_offsets(arguments)
    places = (_PLAN_ARGUMENT.pack(ord(code), at) for code, at in zip(arguments, offsets, strict=True))
    return _PLAN_HEAD.pack(task, ord(result) if result else 0) + b"".join(places)


def unpack_plan(plan: bytes) -> tuple[int, str, list[tuple[str, int]]]:
    """The inverse of `pack_plan`: (task, result code, (code, offset) of each argument)."""
    if len(plan) < _PLAN_HEAD.size or (len(plan) - _PLAN_HEAD.size) % _PLAN_ARGUMENT.size:
        raise ValueError(f"a plan has 5 bytes and 3 for each argument, got {len(plan)}")
    task, result = _PLAN_HEAD.unpack_from(plan)
    places = [(chr(code), at) for code, at in _PLAN_ARGUMENT.iter_unpack(plan[_PLAN_HEAD.size :])]
    return task, chr(result) if result else NO_RESULT, places


def row_dtype(names: Sequence[str], codes: Sequence[str]) -> np.dtype[Any]:
    """The record type of the rows that `Lane.push_many` takes: the arguments as they lie in a slot from byte 8."""
    offsets, end = argument_offsets(codes)
    size = max((code_bytes(code) for code in codes), default=1)
    width = (end - HEADER_BYTES + size - 1) & ~(size - 1)
    return np.dtype(
        {
            "names": list(names),
            "formats": list(codes),
            "offsets": [at - HEADER_BYTES for at in offsets],
            "itemsize": width,
        }
    )


def result_words(sequence: int, code: str, value: float) -> tuple[int, int]:
    """The two words that the device writes for a result. Of types up to 32 bits the second says nothing."""
    bits = int.from_bytes(struct.pack("<" + code, value), "little")
    tag = ((sequence + 1) & TAG_MASK) << 32
    return tag | (bits & TAG_MASK), tag | (bits >> 32)
