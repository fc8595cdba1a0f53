"""A checkpoint proves itself: what is changed in it is not accepted, and others can read it by its document alone."""

from __future__ import annotations

import hashlib
import io
import json
import math
import struct
import sys
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernelkeep.continuous.checkpoints import format as checkpoint_format
from kernelkeep.continuous.checkpoints.checkpoint import Checkpoint
from kernelkeep.continuous.checkpoints.files import read_checkpoint, read_header, write_checkpoint
from kernelkeep.continuous.checkpoints.header import DTYPES, CheckpointHeader, ScalarValue
from kernelkeep.errors import CheckpointError

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

MAGIC = b"\x89KKPT\r\n\x1a"
SCALARS = {
    "k": ScalarValue.of(np.float32(0.1)),
    "n": ScalarValue.of(np.uint64(2**64 - 1)),
    "worst": ScalarValue.of(-math.inf),
    "none": ScalarValue.of(np.float16("nan")),
    "on": ScalarValue.of(True),
}


def header(**fields: Any) -> CheckpointHeader:
    known: dict[str, Any] = dict(
        program="heat",
        program_digest="ab" * 32,
        layout_digest="cd" * 32,
        coupling="neighbours",
        items=1000,
        iteration=1234,
        generation=56,
        phase=-3,
        queue_head=7,
        queue_tail=9,
        scalars=SCALARS,
        device="opencl:0",
        device_name="ein Gerät",
        created=1.7e9,
    )
    return CheckpointHeader(**known | fields)


def sample(seed: int = 1) -> Checkpoint:
    rng = np.random.default_rng(seed)
    arrays = {
        "zeros": np.zeros(5000, "f4"),
        "noise": rng.integers(0, 256, 600).astype("u1"),
        "grid": np.arange(24, dtype="i8").reshape(2, 3, 4),
        "one": np.float64(math.pi) * np.ones(()),
        "empty": np.zeros((3, 0), "i2"),
        "waves": np.exp(1j * np.arange(5)).astype("c8"),
        "flags": np.arange(9) % 2 == 0,
    }
    return Checkpoint(header(), arrays)


def as_bytes(checkpoint: Checkpoint, sequence: int = 1) -> bytes:
    file = io.BytesIO()
    checkpoint_format.write(file, checkpoint.header, checkpoint.arrays, sequence)
    return file.getvalue()


def read_bytes(folder: Path, data: bytes) -> Checkpoint:
    path = folder / "x.kkpt"
    path.write_bytes(data)
    return read_checkpoint(path)


def same(one: Checkpoint, other: Checkpoint) -> bool:
    return facts(one) == facts(other)


def facts(checkpoint: Checkpoint) -> tuple[Any, ...]:
    fields = {name: getattr(checkpoint.header, name) for name in CheckpointHeader.__struct_fields__ if name != "arrays"}
    arrays = [(name, a.dtype.str, a.shape, a.tobytes()) for name, a in checkpoint.arrays.items()]
    return fields, arrays


# --- round trips


def test_a_checkpoint_is_read_as_it_was_written(tmp_path: Path) -> None:
    checkpoint = sample()
    back = read_bytes(tmp_path, as_bytes(checkpoint))
    assert same(back, checkpoint)
    assert [(info.name, info.dtype, info.shape) for info in back.header.arrays][2] == ("grid", "<i8", (2, 3, 4))
    assert back.arrays["one"].shape == ()


def test_arrays_of_a_checkpoint_are_writeable(tmp_path: Path) -> None:
    back = read_bytes(tmp_path, as_bytes(sample()))
    back.arrays["zeros"][3] = 1
    assert back.arrays["zeros"][3] == 1


def test_scalars_keep_their_value_and_type(tmp_path: Path) -> None:
    scalars = read_bytes(tmp_path, as_bytes(sample())).header.scalars
    assert scalars["k"].numpy() == np.float32(0.1) and scalars["k"].numpy().dtype == np.float32
    assert scalars["n"].numpy() == np.uint64(2**64 - 1)
    assert scalars["worst"].numpy() == -math.inf
    assert np.isnan(scalars["none"].numpy()) and scalars["none"].dtype == "<f2"
    assert scalars["on"].numpy() is np.True_


@pytest.mark.parametrize("dtype", ["?", "i1", "u1", "i2", "u2", "f2", "i4", "u4", "f4", "i8", "u8", "f8", "c8", "c16"])
def test_arrays_of_every_dtype_and_order(tmp_path: Path, dtype: str) -> None:
    array = np.arange(60).reshape(3, 4, 5).astype(dtype)
    swapped = array.astype(array.dtype.newbyteorder(">"))
    arrays = {"c": array, "fortran": np.asfortranarray(array), "sliced": array[::-1, ::2], "big-endian": swapped}
    back = read_bytes(tmp_path, as_bytes(Checkpoint(header(), arrays)))
    for name, expected in arrays.items():
        assert np.array_equal(back.arrays[name], expected)
        assert back.arrays[name].dtype == np.dtype(dtype)


@pytest.mark.parametrize("dtype", ["O", "M8[s]", "U3", "S3", "i4,f4", "g"])
def test_write_rejects_what_a_checkpoint_cannot_hold(tmp_path: Path, dtype: str) -> None:
    path = tmp_path / "x.kkpt"
    with pytest.raises(CheckpointError, match=r"x\.kkpt cannot be written: the array 'odd' has dtype"):
        write_checkpoint(path, Checkpoint(header(), {"odd": np.zeros(3, dtype)}))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"iteration": -1},
        {"iteration": "many"},
        {"items": 2.5},
        {"program": "\ud800"},
        {"created": math.inf},
        {"generation": 2**63},
        {"scalars": {"k": ScalarValue(300, "|i1")}},
        {"scalars": {"k": ScalarValue("much", "<f4")}},
        {"scalars": {"k": ScalarValue(1, "O")}},
    ],
)
def test_an_invalid_header_is_not_written(tmp_path: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(CheckpointError, match="cannot be written"):
        write_checkpoint(tmp_path / "x.kkpt", Checkpoint(header(**wrong), {}))
    assert list(tmp_path.iterdir()) == []


def test_numpy_numbers_in_a_header_are_numbers(tmp_path: Path) -> None:
    made = header(iteration=np.int64(5), generation=np.uint32(6), finished=np.bool_(True))
    assert read_bytes(tmp_path, as_bytes(Checkpoint(made, {}))).header.iteration == 5


def test_what_does_not_shrink_is_stored_as_it_is_in_frames(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    frame = 1 << 22
    noise = rng.integers(0, 256, 3 * frame + 17, dtype="u1")
    mixed = np.concatenate([np.zeros(frame, "u1"), noise[:frame], np.zeros(3 * frame, "u1")])
    checkpoint = Checkpoint(header(), {"noise": noise, "mixed": mixed})
    data = as_bytes(checkpoint)
    assert noise.nbytes < len(data) < noise.nbytes + mixed.nbytes
    assert same(read_bytes(tmp_path, data), checkpoint)
    smooth = as_bytes(Checkpoint(header(), {"zeros": np.zeros(10 * frame, "u1")}))
    assert len(smooth) < 10_000


def test_memory_is_bounded_by_a_frame(tmp_path: Path) -> None:
    arrays = {"noise": np.random.default_rng(5).random(4 << 20), "zeros": np.zeros(4 << 20)}  # 32 MiB each
    tracemalloc.start()
    try:
        write_checkpoint(tmp_path / "x.kkpt", Checkpoint(header(), arrays))
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


# --- a reader from the document alone


def read_by_the_document(data: bytes) -> tuple[dict[str, Any], int, dict[str, Any]]:
    """Uses nothing of kernelkeep and no NumPy: struct, json, zstd, hashlib and docs/checkpoint-format.md."""

    def digest_at(at: int) -> int:
        assert hashlib.sha256(data[:at]).digest() == data[at : at + 32]
        return at + 32

    magic, version, length, sequence, zero, crc = struct.unpack_from("<8sIIQII", data)
    assert (magic, version, zero) == (MAGIC, 2, 0)
    assert zlib.crc32(data[:28]) == crc
    head = json.loads(data[32 : 32 + length].decode())
    at = digest_at(32 + length)
    letters = {
        "|b1": "?",
        "|i1": "b",
        "|u1": "B",
        "<i2": "h",
        "<u2": "H",
        "<f2": "e",
        "<i4": "i",
        "<u4": "I",
        "<f4": "f",
    }
    letters |= {"<i8": "q", "<u8": "Q", "<f8": "d", "<c8": "ff", "<c16": "dd"}
    arrays = {}
    for info in head["arrays"]:
        count = math.prod(info["shape"])
        layout = "<" + letters[info["dtype"]] * count
        raw = b""
        while len(raw) < struct.calcsize(layout):
            stored, size = struct.unpack_from("<II", data, at)
            body = data[at + 8 : at + 8 + stored]
            body = body if stored == size else zstd.decompress(body)
            assert len(body) == size
            raw, at = raw + body, at + 8 + stored
        at = digest_at(at)
        arrays[info["name"]] = struct.unpack(layout, raw)
    mark, total = struct.unpack_from("<8sQ", data, at)
    assert (mark, total) == (b"KKPT-END", len(data))
    assert digest_at(at + 16) == len(data)
    return head, sequence, arrays


def test_a_reader_written_from_the_document(tmp_path: Path) -> None:
    checkpoint = sample()
    path = tmp_path / "heat.kkpt"
    write_checkpoint(path, checkpoint)
    write_checkpoint(path, checkpoint)
    head, sequence, arrays = read_by_the_document(path.read_bytes())
    assert sequence == 2
    assert (head["program"], head["iteration"], head["phase"]) == ("heat", 1234, -3)
    assert head["scalars"]["k"] == {"value": float(np.float32(0.1)), "dtype": "<f4"}
    assert head["scalars"]["worst"]["value"] == "-inf"
    for name, array in checkpoint.arrays.items():
        flat = array.reshape(-1)
        numbers = flat.view("f4") if array.dtype.kind == "c" else flat
        assert arrays[name] == tuple(numbers.tolist())


def test_the_document_names_every_field_and_type() -> None:
    text = (Path(__file__).parents[4] / "docs" / "checkpoint-format.md").read_text(encoding="utf-8")
    for name in CheckpointHeader.__struct_fields__:
        assert f"`{name}`" in text
    for dtype in DTYPES:
        assert f"`{dtype}`".replace("|", "\\|") in text


# --- damage


SMALL = Checkpoint(header(scalars={}), {"u": np.zeros(300, "f4"), "v": np.arange(5, dtype="u1")})


def test_a_file_cut_off_at_any_length_is_refused(tmp_path: Path) -> None:
    data = as_bytes(SMALL)
    path = tmp_path / "x.kkpt"
    for length in range(len(data)):
        path.write_bytes(data[:length])
        with pytest.raises(CheckpointError, match="is cut off after" if length else "is not a checkpoint"):
            read_checkpoint(path)
        with pytest.raises(CheckpointError, match="is cut off after" if length else "is not a checkpoint"):
            read_header(path)


def parts_of(data: bytes) -> dict[str, range]:
    length = struct.unpack_from("<I", data, 12)[0]
    stored = struct.unpack_from("<I", data, 32 + length + 32)[0]
    arrays = 32 + length + 32
    second = arrays + 8 + stored + 32
    return {
        "is not a checkpoint": range(8),
        "in its first 32 bytes": range(8, 32),
        "in its header": range(32, arrays),
        "in the array 'u'": range(arrays, second),
        "in the array 'v'": range(second, len(data) - 48),
        "in its last bytes": range(len(data) - 48, len(data)),
    }


def test_any_flipped_bit_is_reported_with_its_part(tmp_path: Path) -> None:
    data = as_bytes(SMALL)
    parts = parts_of(data)
    assert sum(map(len, parts.values())) == len(data)
    path = tmp_path / "x.kkpt"
    for part, places in parts.items():
        for place in places:
            changed = bytearray(data)
            changed[place] ^= 1 << place % 8
            path.write_bytes(changed)
            with pytest.raises(CheckpointError) as caught:
                read_checkpoint(path)
            assert str(caught.value).startswith(str(path)) and part in str(caught.value)


@pytest.mark.parametrize("tail", [b"\0", b"KKPT-END", as_bytes(SMALL)])
def test_bytes_after_the_end_are_refused(tmp_path: Path, tail: bytes) -> None:
    with pytest.raises(CheckpointError):
        read_bytes(tmp_path, as_bytes(SMALL) + tail)


@pytest.mark.parametrize(
    "data", [b"", b"\0" * 500, b"\x7fELF" + b"\1" * 500, b"KKEN" + b"x" * 500, b"{}", b"\x89PNG\r\n"]
)
def test_foreign_files_are_refused(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(CheckpointError, match=r"x\.kkpt is not a checkpoint$"):
        read_bytes(tmp_path, data)


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"^there is no checkpoint .*x\.kkpt$"):
        read_checkpoint(tmp_path / "x.kkpt")
    with pytest.raises(CheckpointError, match="not a regular file"):
        read_checkpoint(tmp_path)


# --- lies: whole by their digests, and still nonsense


def sealed(*parts: bytes) -> bytes:
    """Parts, each followed by a digest of everything before."""
    data = b""
    for part in parts:
        data += part
        data += hashlib.sha256(data).digest()
    return data


def prefix(header_bytes: int, version: int = 2, sequence: int = 1, zero: int = 0) -> bytes:
    start = struct.pack("<8sIIQI", MAGIC, version, header_bytes, sequence, zero)
    return start + struct.pack("<I", zlib.crc32(start))


def forged(facts: bytes, *arrays: bytes, start: Callable[[int], bytes] = prefix, length: int | None = None) -> bytes:
    body = sealed(start(len(facts)) + facts, *arrays)
    return sealed_more(body, b"KKPT-END" + struct.pack("<Q", len(body) + 48 if length is None else length))


def sealed_more(body: bytes, part: bytes) -> bytes:
    return body + part + hashlib.sha256(body + part).digest()


def forged_header(**changed: Any) -> bytes:
    known = json.loads(as_bytes(SMALL)[32 : 32 + struct.unpack_from("<I", as_bytes(SMALL), 12)[0]])
    return json.dumps(known | {"arrays": []} | changed).encode()


def frame(stored: bytes, size: int | None = None) -> bytes:
    return struct.pack("<II", len(stored), len(stored) if size is None else size) + stored


def u(*shape: int, dtype: str = "|u1") -> list[dict[str, Any]]:
    return [{"name": "u", "dtype": dtype, "shape": shape}]


def test_the_forger_of_these_tests_makes_valid_files(tmp_path: Path) -> None:
    """Guards the tests below: what they refuse, they refuse for the lie and not for the seal."""
    data = forged(forged_header(arrays=u(5)), frame(b"ab") + frame(b"cde"))
    assert read_bytes(tmp_path, data).arrays["u"].tobytes() == b"abcde"
    packed = forged(forged_header(arrays=u(100)), frame(zstd.compress(b"x" * 100), 100))
    assert read_bytes(tmp_path, packed).arrays["u"].tobytes() == b"x" * 100


def test_a_header_of_a_later_version_is_read(tmp_path: Path) -> None:
    data = forged(forged_header(strategies_tried=["mega"], iteration=77))
    assert read_bytes(tmp_path, data).header.iteration == 77


def test_a_later_format_is_reported(tmp_path: Path) -> None:
    data = forged(b"something else", start=lambda size: prefix(size, version=4))
    with pytest.raises(CheckpointError, match=r"has format 4, and this version of kernelkeep reads up to 3"):
        read_bytes(tmp_path, data)


ZSTD_100 = zstd.compress(b"x" * 100)
LIES = {
    "zero version": forged(forged_header(), start=lambda size: prefix(size, version=0)),
    "reserved": forged(forged_header(), start=lambda size: prefix(size, zero=1)),
    "sequence": forged(forged_header(), start=lambda size: prefix(size, sequence=2**64 - 1)),
    "sequence just above": forged(forged_header(), start=lambda size: prefix(size, sequence=2**48)),
    "lineage": forged(forged_header(lineage="../../x")),
    "scalar beyond its type": forged(forged_header(scalars={"k": {"value": 1e39, "dtype": "<f4"}})),
    "length": forged(forged_header(), length=5),
    "no json": forged(b"\xff\xfe"),
    "list": forged(b"[]"),
    "empty object": forged(b"{}"),
    "deep": forged(b"[" * 100_000),
    "deep object": forged(b'{"x":' * 100_000),
    "negative": forged(forged_header(iteration=-1)),
    "huge": forged(forged_header(iteration=10**30)),
    "text": forged(forged_header(items="5")),
    "moment": forged(forged_header(created=1e300)),
    "dtype": forged(forged_header(arrays=u(1, dtype="|O8")), frame(b"x" * 8)),
    "big-endian": forged(forged_header(arrays=u(1, dtype=">i4")), frame(b"x" * 4)),
    "not a dtype": forged(forged_header(arrays=u(1, dtype="[]")), frame(b"x")),
    "twice": forged(forged_header(arrays=u(1) + u(1)), frame(b"x"), frame(b"x")),
    "shape": forged(forged_header(arrays=u(2**62, 2**62)), frame(b"x")),
    "negative shape": forged(forged_header(arrays=u(-1)), frame(b"x")),
    "dimensions": forged(forged_header(arrays=u(*[1] * 100)), frame(b"x")),
    "promised": forged(forged_header(arrays=u(2**61)), frame(b"x")),
    "odd empty": forged(forged_header(arrays=u(0, 2**62, 2**62)), b""),
    "missing frame": forged(forged_header(arrays=u(3)), frame(b"ab")),
    "long frame": forged(forged_header(arrays=u(1)), frame(b"ab")),
    "empty frame": forged(forged_header(arrays=u(1)), frame(b"") + frame(b"a")),
    "grown frame": forged(forged_header(arrays=u(2)), frame(b"abc", 2)),
    "frames for nothing": forged(forged_header(arrays=u(0)), frame(b"a")),
    "no zstd": forged(forged_header(arrays=u(100)), frame(b"abc", 100)),
    "short zstd": forged(forged_header(arrays=u(101)), frame(ZSTD_100, 101)),
    "long zstd": forged(forged_header(arrays=u(99)), frame(ZSTD_100, 99)),
    "cut zstd": forged(forged_header(arrays=u(100)), frame(ZSTD_100[:-1], 100)),
    "more zstd": forged(forged_header(arrays=u(100)), frame(ZSTD_100 + b"x", 100)),
    "two zstd": forged(forged_header(arrays=u(200)), frame(ZSTD_100 + ZSTD_100, 200)),
    "array too many": forged(forged_header(), frame(b"x")),
    "array too few": forged(forged_header(arrays=u(1))),
    "scalar": forged(forged_header(scalars={"k": {"value": "x", "dtype": "<f4"}})),
    "scalar dtype": forged(forged_header(scalars={"k": {"value": 1, "dtype": "<f3"}})),
    "scalar range": forged(forged_header(scalars={"k": {"value": -1, "dtype": "|u1"}})),
    "scalar large": forged(forged_header(scalars={"k": {"value": 10**400, "dtype": "<f8"}})),
}


@pytest.mark.parametrize("lie", LIES)
def test_wrong_numbers_with_right_digests_are_refused(tmp_path: Path, lie: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        read_bytes(tmp_path, LIES[lie])
    assert "\n" not in str(caught.value)


def test_a_zstd_bomb_costs_no_memory(tmp_path: Path) -> None:
    bomb = zstd.compress(b"\0" * (256 << 20), level=1)
    data = forged(forged_header(arrays=u(50_000)), frame(bomb, 50_000))
    tracemalloc.start()
    try:
        with pytest.raises(CheckpointError, match="damaged in the array 'u'"):
            read_bytes(tmp_path, data)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


# --- mutations of any kind

LARGER = sample(2)
WHOLE = as_bytes(LARGER)
EDITS = st.lists(
    st.tuples(
        st.sampled_from(["flip", "set", "cut", "drop", "insert", "copy"]),
        st.floats(0, 1, exclude_max=True),
        st.binary(max_size=12),
        st.integers(0, 255),
    ),
    min_size=1,
    max_size=4,
)


def mutated(data: bytes, edits: list[tuple[str, float, bytes, int]]) -> bytes:
    changed = bytearray(data)
    for kind, where, text, number in edits:
        at = int(where * len(changed))
        if kind == "flip" and changed:
            changed[at] ^= 1 << number % 8
        elif kind == "set":
            changed[at : at + len(text)] = text
        elif kind == "cut":
            del changed[at:]
        elif kind == "drop":
            del changed[at : at + number]
        elif kind == "insert":
            changed[at:at] = text
        else:
            changed[at:at] = changed[at : at + number]
    return bytes(changed)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], database=None)
@given(edits=EDITS)
def test_no_mutation_is_accepted(tmp_path: Path, edits: list[tuple[str, float, bytes, int]]) -> None:
    changed = mutated(WHOLE, edits)
    if changed == WHOLE:
        return
    with pytest.raises(CheckpointError) as caught:
        read_bytes(tmp_path, changed)
    assert str(caught.value).startswith(str(tmp_path / "x.kkpt")) and "\n" not in str(caught.value)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], database=None)
@given(edits=EDITS, frames=EDITS)
def test_a_mutation_with_right_digests_is_refused_or_valid(
    tmp_path: Path, edits: list[tuple[str, float, bytes, int]], frames: list[tuple[str, float, bytes, int]]
) -> None:
    """Whoever makes the digests right again may write what he likes, but nothing that breaks a reader."""
    facts = mutated(forged_header(arrays=u(100)), edits)
    try:
        back = read_bytes(tmp_path, forged(facts, mutated(frame(ZSTD_100, 100), frames)))
    except CheckpointError:
        return
    for info in back.header.arrays:
        assert back.arrays[info.name].dtype.str == info.dtype
        assert back.arrays[info.name].shape == info.shape
