"""A checkpoint whose digests are right and whose contents lie: refused in one sentence, before anything is done with it."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import struct
import tracemalloc
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kernelkeep as kk
from kernelkeep.continuous.checkpoints import block_reading
from kernelkeep.continuous.checkpoints import format as checkpoint_format
from kernelkeep.continuous.checkpoints import reading as checkpoint_reading
from kernelkeep.continuous.checkpoints.checkpoint import Checkpoint
from kernelkeep.continuous.checkpoints.files import newest_checkpoint, write_checkpoint
from kernelkeep.continuous.checkpoints.free_memory import free_memory
from kernelkeep.continuous.checkpoints.header import CheckpointHeader, ScalarValue, new_lineage
from kernelkeep.continuous.checkpoints.match import check_fits, differences, start_from
from kernelkeep.continuous.initial_state import InitialState
from kernelkeep.continuous.mailbox import control_words

HEAT = kk.StateProgram(
    "heat",
    coupling="neighbours",
    state={"u": np.arange(64, dtype="f4"), "v": np.zeros((4, 16), "i8")},
    items=64,
    scalars={"k": np.float32(0.1), "n": np.int64(-3)},
    body="u_next[kk_item()] = u[kk_item()] * k;",
)
QUEUE = kk.StateProgram(
    "queue",
    coupling="queue",
    state={"total": np.zeros(1, "i4")},
    tasks={"row": [0, 1], "left": [5, 6]},
    body="if (left > 0) { kk_push(row, left - 1); }",
)


def header_of(program: kk.StateProgram, **changed: Any) -> CheckpointHeader:
    waiting = len(next(iter(program.tasks.values()), ()))
    known: dict[str, Any] = dict(
        program=program.name,
        program_digest=program.program_digest,
        layout_digest=program.layout_digest,
        coupling=program.coupling,
        items=program.items,
        iteration=12,
        generation=3,
        queue_head=7 if waiting else 0,
        queue_tail=7 + waiting if waiting else 0,
        scalars={key: ScalarValue.of(value[()]) for key, value in program.scalars.items()},
        body=program.body,
        lineage=new_lineage(),
        file="x.kkpt",
    )
    return CheckpointHeader(**known | changed)


def arrays_of(program: kk.StateProgram) -> dict[str, np.ndarray[Any, Any]]:
    return program.state | {f"task {key}": array for key, array in program.tasks.items()}


def as_bytes(program: kk.StateProgram, **changed: Any) -> bytes:
    file = io.BytesIO()
    checkpoint_format.write(file, header_of(program, **changed), arrays_of(program), 1)
    return file.getvalue()


def resealed(data: bytes, header: bytes, version: int = 2, sequence: int = 1) -> bytes:
    """The same arrays behind another header, with every digest right."""
    length = struct.unpack_from("<I", data, 12)[0]
    infos = json.loads(data[32 : 32 + length])["arrays"]
    start = struct.pack("<8sIIQI", data[:8], version, len(header), sequence, 0)
    made = start + struct.pack("<I", zlib.crc32(start)) + header
    made += hashlib.sha256(made).digest()
    at = 32 + length + 32
    for info in infos:
        left = int(np.prod(info["shape"])) * np.dtype(info["dtype"]).itemsize
        while left:
            stored, size = struct.unpack_from("<II", data, at)
            made += data[at : at + 8 + stored]
            at, left = at + 8 + stored, left - size
        at += 32
        made += hashlib.sha256(made).digest()
    made += struct.pack("<8sQ", b"KKPT-END", len(made) + 48)
    return made + hashlib.sha256(made).digest()


def facts_of(data: bytes) -> dict[str, Any]:
    known: dict[str, Any] = json.loads(data[32 : 32 + struct.unpack_from("<I", data, 12)[0]])
    return known


def lying(program: kk.StateProgram, /, **changed: Any) -> bytes:
    data = as_bytes(program)
    return resealed(data, json.dumps(facts_of(data) | changed).encode())


def resumed(folder: Path, data: bytes, program: kk.StateProgram) -> InitialState:
    path = folder / "x.kkpt"
    path.write_bytes(data)
    found = newest_checkpoint(path, lambda header: check_fits(path, header, program))
    return start_from(path, found.checkpoint, program)


def check_sound(start: InitialState, program: kk.StateProgram) -> None:
    """Everything that a session takes from it for granted."""
    for key, array in program.state.items():
        assert (start.arrays[key].shape, start.arrays[key].dtype) == (array.shape, array.dtype)
    lengths = {start.tasks[key].shape for key in program.tasks}
    assert len(lengths) <= 1 and all(len(shape) == 1 for shape in lengths)
    for key, array in program.tasks.items():
        assert start.tasks[key].dtype == array.dtype
    count = len(next(iter(start.tasks.values()), ()))
    control_words(start.generation, start.iteration, start.phase, start.taken, count)
    assert 0 <= start.iteration < 2**31


def test_a_valid_header_is_accepted(tmp_path: Path) -> None:
    """Guards the tests below: what they refuse, they refuse for the lie and not for the seal."""
    for program in (HEAT, QUEUE):
        start = resumed(tmp_path, lying(program), program)
        check_sound(start, program)
        assert start.iteration == 12
        np.testing.assert_array_equal(start.arrays[next(iter(program.state))], next(iter(program.state.values())))


def info(name: str, dtype: str, *shape: int) -> dict[str, Any]:
    return {"name": name, "dtype": dtype, "shape": shape}


U, V = info("u", "<f4", 64), info("v", "<i8", 4, 16)
ROW, LEFT, TOTAL = info("task row", "<i4", 2), info("task left", "<i4", 2), info("total", "<i4", 1)
ONE_ROW = info("task row", "<i4", 1)
LIES: dict[str, tuple[kk.StateProgram, dict[str, Any], str]] = {
    "an array of another name": (HEAT, {"arrays": [U, info("w", "<i8", 4, 16)]}, "v is not in the checkpoint; .*'w' is not in"),
    "no arrays": (HEAT, {"arrays": []}, "u is not in the checkpoint; v is not in the checkpoint"),
    "two axes exchanged": (HEAT, {"arrays": [U, info("v", "<i8", 16, 4)]}, r"shape of v: \(16, 4\) → \(4, 16\)"),
    "another type of the same size": (HEAT, {"arrays": [info("u", "<i4", 64), V]}, "dtype of u: <i4 → <f4"),
    "a field of tasks without a queue": (HEAT, {"arrays": [U, info("task v", "<i8", 64)]}, "v is not in the checkpoint"),
    "an iteration beyond 31 bits": (HEAT, {"iteration": 2**31}, "its iteration 2,147,483,648 is above"),
    "an iteration beyond 32 bits": (HEAT, {"iteration": 2**63 - 1}, "its iteration"),
    "a negative phase": (HEAT, {"phase": -1}, "its phase -1 is not between"),
    "a phase beyond a word": (HEAT, {"phase": 2**32}, "its phase"),
    "a queue where there is none": (HEAT, {"queue_tail": 5}, "it has a queue"),
    "other items": (HEAT, {"items": 63}, "items: 63 → 64"),
    "more tasks than promised": (QUEUE, {"queue_tail": 8}, "task field row has shape .* and 1 tasks wait"),
    "fewer tasks than promised": (QUEUE, {"queue_tail": 2**40}, "1,099,511,627,769 tasks cannot wait"),
    "a queue that ends before it begins": (QUEUE, {"queue_head": 10}, "-1 tasks cannot wait"),
    "fields of different lengths": (QUEUE, {"arrays": [TOTAL, ONE_ROW, info("task left", "<i4", 3)]}, "task field row has shape"),
    "a field of two dimensions": (QUEUE, {"arrays": [TOTAL, info("task row", "<i4", 2, 1), LEFT]}, "task field row has shape"),
    "a field that is missing": (QUEUE, {"arrays": [TOTAL, ROW]}, "task field left is not in the checkpoint"),
    "a field of another type": (QUEUE, {"arrays": [TOTAL, info("task row", "<f4", 2), LEFT]}, "dtype of task field row"),
    "another coupling": (QUEUE, {"coupling": "neighbours"}, "coupling: 'neighbours' → 'queue'"),
}  # fmt: skip


@pytest.mark.parametrize("lie", LIES)
def test_a_wrong_header_with_right_digests_is_refused(tmp_path: Path, lie: str) -> None:
    program, changed, words_of_it = LIES[lie]
    with pytest.raises(kk.CheckpointError, match=words_of_it) as caught:
        resumed(tmp_path, lying(program, **changed), program)
    assert "\n" not in str(caught.value) and str(tmp_path / "x.kkpt") in str(caught.value)


def test_an_array_shorter_than_the_programs_is_refused(tmp_path: Path) -> None:
    """With the digests of the right layout: a device would read beyond the end of what it was given."""
    short = {"u": np.arange(8, dtype="f4"), "v": HEAT.state["v"]}
    file = io.BytesIO()
    checkpoint_format.write(file, header_of(HEAT), short, 1)
    with pytest.raises(kk.CheckpointError, match=r"shape of u: \(8,\) → \(64,\)"):
        resumed(tmp_path, file.getvalue(), HEAT)


def test_a_file_that_claims_more_than_memory_costs_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.kkpt"
    tracemalloc.start()
    try:
        path.write_bytes(lying(HEAT, arrays=[info("u", "<f4", 2**58), V]))
        with pytest.raises(kk.CheckpointError, match="is damaged in the array 'u'"):
            kk.read_checkpoint(path)
        monkeypatch.setattr(block_reading, "free_memory", lambda: 700)
        path.write_bytes(as_bytes(HEAT))
        with pytest.raises(kk.CheckpointError, match=r"needs 768 bytes of memory for its arrays, and 700 are free"):
            kk.read_checkpoint(path)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
    monkeypatch.undo()
    free = free_memory()
    assert free is None or free > 0


def test_a_sequence_number_near_the_end_is_refused(tmp_path: Path) -> None:
    data = as_bytes(HEAT)
    header = json.dumps(facts_of(data)).encode()
    for sequence in (2**48, 2**63, 2**64 - 1):
        with pytest.raises(kk.CheckpointError, match="impossible sequence number"):
            resumed(tmp_path, resealed(data, header, sequence=sequence), HEAT)
    last = 2**48 - 1
    check_sound(resumed(tmp_path, resealed(data, header, sequence=last), HEAT), HEAT)
    with pytest.raises(kk.CheckpointError, match="sequence number"):
        write_checkpoint(tmp_path / "x.kkpt", Checkpoint(header_of(HEAT), arrays_of(HEAT)))


def test_names_in_a_file_are_shown_escaped(tmp_path: Path) -> None:
    evil = "x\x1b[2J\ny"
    data = lying(HEAT, program=evil, scalars={evil: {"value": 1, "dtype": "<i4"}}, coupling=evil)
    with pytest.raises(kk.CheckpointError) as caught:
        resumed(tmp_path, data, HEAT)
    assert str(caught.value).isprintable()
    assert repr(kk.read_checkpoint(tmp_path / "x.kkpt")).isprintable()
    data = lying(HEAT, arrays=[info(evil, "<f4", 64), V], body=evil)
    with pytest.raises(kk.CheckpointError) as caught:
        resumed(tmp_path, data, HEAT)
    assert str(caught.value).isprintable() and repr(kk.read_checkpoint(tmp_path / "x.kkpt")).isprintable()


# --- any lie at all

VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([-1, 0, 1, 2, 63, 64, 2**31 - 1, 2**31, 2**32, 2**48, 2**60, 2**63 - 1, 2**63, 2**64, 10**30]),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(["", "u", "v", "task row", "queue", "neighbours", "<f4", "<i8", "|O8", "nan", "\x1b[31m", "\u0000"]),
    st.lists(st.integers(-1, 70), max_size=3),
    st.dictionaries(st.sampled_from(["name", "dtype", "shape", "value"]), st.integers(-5, 5), max_size=3),
)  # fmt: skip


def places_in(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [*([at] if at else []), *(place for key, inner in items for place in places_in(inner, (*at, key)))]


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], database=None)
@given(st.data())
def test_any_header_is_refused_or_valid(tmp_path: Path, data: st.DataObject) -> None:
    program = data.draw(st.sampled_from([HEAT, QUEUE]))
    whole = as_bytes(program)
    facts = facts_of(whole)
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.sampled_from(places_in(facts)))
        inner: Any = facts
        for key in place[:-1]:
            inner = inner[key]
        if data.draw(st.booleans()) or isinstance(inner, list):
            inner[place[-1]] = data.draw(VALUES)
        else:
            del inner[place[-1]]
    forged = resealed(whole, json.dumps(facts).encode(), version=data.draw(st.sampled_from([1, 2])))
    with contextlib.suppress(kk.CheckpointError):
        check_sound(resumed(tmp_path, forged, program), program)
    try:
        found = kk.read_checkpoint(tmp_path / "x.kkpt")
    except kk.CheckpointError:
        return
    assert repr(found) and found.created and found.scalars is not None and found.state is not None


# --- what differs, and what does not


def test_differences_name_the_part() -> None:
    def like_heat(**changed: Any) -> kk.StateProgram:
        known: dict[str, Any] = dict(
            coupling="neighbours", state=HEAT.state, items=64, scalars=HEAT.scalars, body=HEAT.body
        )
        return kk.StateProgram("heat", **known | changed)

    assert differences(with_arrays(HEAT), HEAT) == ([], [])
    for changed, layout, meaning in (
        ({"scalars": {"k": np.float32(0.2), "n": np.int64(-3)}}, [], ["scalar k: 0.1 → 0.2"]),
        ({"scalars": {"k": np.float64(0.1), "n": np.int64(-3)}}, [], ["scalar k: 0.1 (float32) → 0.1 (float64)"]),
        ({"scalars": {"k": np.float32(0.1)}}, [], ["scalar n: -3 → not in the program"]),
        ({"scalars": {**HEAT.scalars, "m": 4}}, [], ["scalar m: not in the checkpoint → 4"]),
        ({"items": 60}, ["items: 64 → 60"], []),
        ({"coupling": "independent"}, ["coupling: 'neighbours' → 'independent'"], []),
        ({"scalars": dict(reversed(HEAT.scalars.items()))}, [], ["the order of its arrays or scalars differs"]),
        ({"body": HEAT.body + "\n;"}, [], ["the body differs, first in line 2: nothing → ';'"]),
    ):
        assert differences(with_arrays(HEAT), like_heat(**changed)) == (layout, meaning)
    zero = like_heat(scalars={"k": np.float32(0.0), "n": np.int64(-3)})
    minus = like_heat(scalars={"k": np.float32(-0.0), "n": np.int64(-3)})
    nan = like_heat(scalars={"k": np.float32("nan"), "n": np.int64(-3)})
    assert differences(with_arrays(zero), minus)[1] == ["scalar k: 0.0 → -0.0"]
    assert differences(with_arrays(nan), nan) == ([], [])


def with_arrays(program: kk.StateProgram, **changed: Any) -> CheckpointHeader:
    file = io.BytesIO(as_bytes(program, **changed))
    return checkpoint_reading.read_start(file)[0]


def old_file(program: kk.StateProgram) -> bytes:
    """As the format's first version was: no body, no lineage, no file name."""
    data = as_bytes(program)
    facts = {name: value for name, value in facts_of(data).items() if name not in ("body", "lineage", "file")}
    return resealed(data, json.dumps(facts).encode(), version=1, sequence=57)


def test_a_file_of_the_first_format_is_still_good(tmp_path: Path) -> None:
    old = old_file(HEAT)
    check_sound(resumed(tmp_path, old, HEAT), HEAT)
    found = kk.read_checkpoint(tmp_path / "x.kkpt")
    assert (found.iteration, found.body, found.lineage) == (12, "", "")
    other = kk.StateProgram(
        "heat", coupling="neighbours", state=HEAT.state, items=64, scalars=HEAT.scalars, body="u_next[kk_item()] = 1;"
    )
    with pytest.raises(kk.CheckpointError, match="does not fit heat: the body differs; to continue"):
        resumed(tmp_path, old, other)
    # It stands alone: what is beside it may be anybody's, and it is kept when a run goes on from it.
    (tmp_path / "x.kkpt.1").write_bytes(old)
    write_checkpoint(tmp_path / "x.kkpt", Checkpoint(header_of(HEAT, iteration=13), arrays_of(HEAT)), keep=1)
    assert (tmp_path / "x.kkpt.1").read_bytes() == old
    (aside,) = tmp_path.glob("x.kkpt.before-*")
    assert aside.read_bytes() == old
    (tmp_path / "x.kkpt").write_bytes(old[:-1])
    with pytest.raises(kk.CheckpointError, match="is cut off"):
        newest_checkpoint(tmp_path / "x.kkpt")
