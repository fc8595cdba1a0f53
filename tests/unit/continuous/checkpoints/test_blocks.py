"""Files of version 3: every byte is checked, only what changed is written, and nothing that is needed is overwritten."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import math
import os
import struct
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kernelkeep as kk
from kernelkeep.continuous.checkpoints import format as checkpoint_format
from kernelkeep.continuous.checkpoints import host_copy
from kernelkeep.continuous.checkpoints.arriving import Arriving
from kernelkeep.continuous.checkpoints.block_digest import BLOCK_BYTES
from kernelkeep.continuous.checkpoints.blocks import BlockContent
from kernelkeep.continuous.checkpoints.checkpoint import Checkpoint, Written
from kernelkeep.continuous.checkpoints.claim import CheckpointClaim
from kernelkeep.continuous.checkpoints.files import newest_checkpoint, read_checkpoint, read_header
from kernelkeep.continuous.checkpoints.header import CheckpointHeader
from kernelkeep.continuous.checkpoints.reading import check_whole
from kernelkeep.continuous.checkpoints.run_claim import claim_to_continue
from kernelkeep.errors import CheckpointError
from kernelkeep.platforms import system
from kernelkeep.storage.files import Damaged
from kernelkeep.storage.large_file import LargeFile, aligned_bytes

LINEAGE = "00112233445566778899aabbccddeeff"
WORDS = 400_000  # 1.5 MiB: 25 blocks
patches = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells who has a file open")


def some_bytes(count: int, seed: int = 1) -> bytes:
    return np.random.default_rng(seed).integers(0, 256, count, dtype="u1").tobytes()


def header(iteration: int = 1, **fields: Any) -> CheckpointHeader:
    return CheckpointHeader(
        program="heat", program_digest="p", layout_digest="l", coupling="neighbours", items=8, iteration=iteration,
        generation=iteration, **fields,
    )  # fmt: skip


def arrays() -> dict[str, np.ndarray[Any, Any]]:
    return {
        "u": np.frombuffer(some_bytes(70_000), "<f2"),
        "empty": np.zeros((3, 0), "i8"),
        "v": np.arange(5, dtype="u1"),
        "w": np.frombuffer(some_bytes(BLOCK_BYTES, 2), "<c16"),
    }


def file_bytes(folder: Path, made: dict[str, np.ndarray[Any, Any]] | None = None) -> bytes:
    path = folder / "made.kkpt"
    with path.open("wb") as file:
        BlockContent(header(lineage=LINEAGE), arrays() if made is None else made).fill(file, 3)
    return path.read_bytes()


def read_bytes(folder: Path, data: bytes) -> Checkpoint:
    path = folder / "x.kkpt"
    path.write_bytes(data)
    return read_checkpoint(path)


# --- the bytes


def test_a_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    back = read_bytes(tmp_path, file_bytes(tmp_path))
    for name, expected in arrays().items():
        found = back.arrays[name]
        assert (found.dtype, found.shape, found.tobytes()) == (expected.dtype, expected.shape, expected.tobytes())
        assert found.flags.writeable
    assert read_header(tmp_path / "x.kkpt").arrays == back.header.arrays


def test_any_flipped_bit_is_reported_with_its_part(tmp_path: Path) -> None:
    data = file_bytes(tmp_path)
    start = 64 + struct.unpack_from("<I", data, 12)[0]
    v = start + -(-70_000 // 4096) * 4096
    table = v + 4096 + BLOCK_BYTES
    parts = {
        "is not a checkpoint": range(8),
        "in its first 32 bytes": range(8, 32),
        "in its header": range(32, start),
        "in the array 'u'": range(start, start + 70_000),
        "behind the array 'u'": range(start + 70_000, v),
        "in the array 'v'": range(v, v + 5),
        "behind the array 'v'": range(v + 5, v + 4096),
        "in the array 'w'": range(v + 4096, table),
        "in its last bytes": range(table, len(data)),
    }
    assert sum(map(len, parts.values())) == len(data)
    path = tmp_path / "x.kkpt"
    for part, places in parts.items():
        for place in {*places[:3], *places[:: max(1, len(places) // 20)], *places[-3:]}:
            changed = bytearray(data)
            changed[place] ^= 1 << place % 8
            path.write_bytes(changed)
            with pytest.raises(CheckpointError) as caught:
                read_checkpoint(path)
            assert part in str(caught.value), place
            with path.open("rb") as file, pytest.raises(Damaged):
                check_whole(file)


def test_a_file_of_any_other_length_is_refused(tmp_path: Path) -> None:
    data = file_bytes(tmp_path)
    path = tmp_path / "x.kkpt"
    for length in {*range(1, len(data), 997), *range(len(data) - 60, len(data))}:
        path.write_bytes(data[:length])
        with pytest.raises(CheckpointError, match="is cut off after"):
            read_checkpoint(path)
    for tail in (b"\0", b"KKPT-END", data):
        path.write_bytes(data + tail)
        with pytest.raises(CheckpointError):
            read_checkpoint(path)


def test_sizes_that_lie_cost_no_memory(tmp_path: Path) -> None:
    """A header with a right digest that tells of far more than the file has."""
    data = bytearray(file_bytes(tmp_path))
    length = struct.unpack_from("<I", data, 12)[0]
    head = json.loads(data[32 : 32 + length])
    for shape in ([2**50], [2**60, 0, 2**40], [10_000]):
        head["arrays"][0]["shape"] = shape
        data[32 : 32 + length] = json.dumps(head).encode().ljust(length)
        data[32 + length : 64 + length] = hashlib.sha256(data[: 32 + length]).digest()
        with pytest.raises(CheckpointError):
            read_bytes(tmp_path, bytes(data))


# --- what is written


class Writing:
    """One claim, and a state of which a little changes."""

    def __init__(self, folder: Path, keep: int = 2) -> None:
        self.path = folder / "heat.kkpt"
        self.claim: CheckpointClaim = claim_to_continue(self.path)
        self.keep = keep
        self.iteration = 0
        self.u = np.random.default_rng(0).integers(0, 2**31, WORDS, dtype="i4")

    def write(self, changed: slice = slice(0, 0)) -> Written:
        self.iteration += 1
        self.u[changed] += 1
        written = self.claim.write(Checkpoint(header(self.iteration), {"u": self.u}), self.keep)
        self.check()
        return written

    def check(self) -> None:
        found = read_checkpoint(self.path)
        assert found.iteration == self.iteration
        np.testing.assert_array_equal(found.arrays["u"], self.u)

    @property
    def names(self) -> list[str]:
        return sorted(path.name for path in self.path.parent.iterdir() if not path.name.startswith("."))


@pytest.fixture
def writing(tmp_path: Path) -> Writing:
    made = Writing(tmp_path)
    for _ in range(2):
        made.write(slice(None))
    return made


@patches
def test_only_what_changed_since_the_older_file_is_written(writing: Writing) -> None:
    assert writing.write(slice(0, 10)).written_bytes > 1_500_000, "all blocks differ from those of the first file"
    for number in range(5):
        before = {path.name: path.stat().st_ino for path in writing.path.parent.glob("heat.kkpt*")}
        written = writing.write(slice(60_000 * number, 60_000 * number + 10))
        assert written.nbytes > 1_600_000 and (written.written_bytes < 300_000 or number == 0), number
        assert writing.names == ["heat.kkpt", f"heat.kkpt.{writing.iteration - 1}"]
        if number:
            older = next(name for name in before if name != "heat.kkpt")
            assert writing.path.stat().st_ino == before[older]


@patches
def test_the_next_run_overwrites_little_too(writing: Writing) -> None:
    for _ in range(3):
        writing.write(slice(0, 10))
    writing.claim.release()
    writing.claim = claim_to_continue(writing.path)
    assert writing.write(slice(7, 9)).written_bytes < 300_000


@pytest.mark.parametrize("keep", [1, 2, 3])
def test_the_newest_file_is_never_overwritten(tmp_path: Path, keep: int) -> None:
    writing = Writing(tmp_path, keep)
    for _ in range(6):
        before = writing.path.read_bytes() if writing.iteration else b""
        inode = writing.path.stat().st_ino if writing.iteration else 0
        written = writing.write(slice(0, 10))
        assert len(writing.names) == min(keep, writing.iteration)
        if keep == 1:
            assert written.written_bytes > 1_500_000, "there is no other file to overwrite"
        elif writing.iteration > 1:
            older = tmp_path / f"heat.kkpt.{writing.iteration - 1}"
            assert (older.stat().st_ino, older.read_bytes()) == (inode, before)


@patches
def test_a_file_with_a_second_name_is_not_overwritten(writing: Writing) -> None:
    for _ in range(3):
        writing.write(slice(0, 10))
    backup = writing.path.with_name("backup.kkpt")
    os.link(writing.path.with_name(f"heat.kkpt.{writing.iteration - 1}"), backup)
    before = backup.read_bytes()
    assert writing.write(slice(0, 10)).written_bytes > 1_500_000
    assert backup.read_bytes() == before
    assert writing.write(slice(0, 10)).written_bytes < 300_000


@patches
def test_a_file_that_somebody_reads_is_not_overwritten(writing: Writing) -> None:
    for _ in range(3):
        writing.write(slice(0, 10))
    with writing.path.open("rb") as file:
        before = file.read()
        writing.write(slice(0, 10))  # now it is the older one, with another name
        assert writing.write(slice(0, 10)).written_bytes > 1_500_000
        file.seek(0)
        assert file.read() == before


@patches
def test_a_reader_that_comes_while_a_file_is_overwritten_gets_the_one_that_has_the_name(
    writing: Writing, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        writing.write(slice(0, 10))
    seen = []
    plainly = LargeFile.write

    def write(self: LargeFile, data: memoryview, offset: int) -> None:
        seen.append(newest_checkpoint(writing.path).checkpoint.iteration)
        plainly(self, data, offset)

    monkeypatch.setattr(LargeFile, "write", write)
    writing.write(slice(0, 10))
    assert len(seen) > 2 and set(seen) == {writing.iteration - 1}


def _lose_a_byte(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 1)


def _change_the_table(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(-100, os.SEEK_END)
        file.write(b"?")


def _other_lineage(path: Path) -> None:
    with path.open("wb") as file:
        BlockContent(header(1, lineage=LINEAGE), {"u": np.zeros(WORDS, "i4")}).fill(file, 1)


def _other_arrays(path: Path) -> None:
    found = read_header(path)
    with path.open("wb") as file:
        BlockContent(found, {"v": np.zeros(WORDS, "i4")}).fill(file, int(path.suffix[1:]))


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


@patches
@pytest.mark.parametrize("harm", [_lose_a_byte, _change_the_table, _other_lineage, _other_arrays, _pipe, _link])
def test_a_file_that_is_not_as_it_was_written_is_not_overwritten(
    writing: Writing, harm: Callable[[Path], None]
) -> None:
    for _ in range(3):
        writing.write(slice(0, 10))
    harm(writing.path.with_name(f"heat.kkpt.{writing.iteration - 1}"))
    assert writing.write(slice(0, 10)).written_bytes > 1_500_000
    elsewhere = writing.path.with_name("elsewhere")
    assert not elsewhere.exists() or read_checkpoint(elsewhere).iteration == writing.iteration - 2


@patches
def test_a_full_disk_in_the_middle_leaves_the_newest_file(writing: Writing, monkeypatch: pytest.MonkeyPatch) -> None:
    plainly = LargeFile.write
    for most in range(3):  # the block, the table, the header
        for _ in range(3):
            writing.write(slice(0, 10))
        before = writing.path.read_bytes()
        overwritten = writing.path.with_name(f"heat.kkpt.{writing.iteration - 1}")
        count = 0

        def write(self: LargeFile, data: memoryview, offset: int, most: int = most) -> None:
            nonlocal count
            count += 1
            if count > most:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            plainly(self, data, offset)

        monkeypatch.setattr(LargeFile, "write", write)
        state = writing.u.copy()
        state[:10] += 1
        with pytest.raises(CheckpointError, match="cannot be written: No space left on device"):
            writing.claim.write(Checkpoint(header(99), {"u": state}), 2)
        monkeypatch.setattr(LargeFile, "write", plainly)
        assert count == most + 1 and not overwritten.exists()
        assert writing.path.read_bytes() == before
        assert newest_checkpoint(writing.path).checkpoint.iteration == writing.iteration
        assert not [path for path in writing.path.parent.iterdir() if path.suffix == ".tmp"]
    for _ in range(3):
        writing.write(slice(0, 10))
    assert len(writing.names) == 2


def test_a_state_that_changes_its_size_gets_a_new_file(writing: Writing) -> None:
    for size in (WORDS + 5, WORDS, 2 * WORDS, 100, WORDS):
        writing.u = np.arange(size, dtype="i4")
        writing.write()
    assert len(writing.names) == 2


@pytest.mark.parametrize("refusal", ["no such descriptor", "no such write", "only some memory"])
def test_a_disk_without_direct_writes_gets_the_same_bytes(
    tmp_path: Path, refusal: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plainly = system.write_at

    def refuse(descriptor: int, data: Any, offset: int) -> int:
        if refusal == "no such write" and hasattr(os, "O_DIRECT"):
            import fcntl

            if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_DIRECT:
                raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return plainly(descriptor, data, offset)

    expected = file_bytes(tmp_path)
    if refusal == "no such descriptor":
        monkeypatch.setattr(system, "reopen_direct", lambda descriptor: None)
    monkeypatch.setattr(system, "write_at", refuse)
    made = {name: _unaligned(array) for name, array in arrays().items()} if refusal == "only some memory" else None
    data = file_bytes(tmp_path, made)
    start = 64 + struct.unpack_from("<I", data, 12)[0]
    assert data[start:-32] == expected[start:-32]  # the header tells when it was made
    read_bytes(tmp_path, data)


def _unaligned(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    memory = aligned_bytes(array.nbytes + 16)[16:]
    memory[:] = array.reshape(-1).view("u1")
    made: np.ndarray[Any, Any] = memory.view(array.dtype).reshape(array.shape)
    return made


@pytest.mark.parametrize("reserved", [True, False])
def test_arrays_beside_zeros_are_written_whole(tmp_path: Path, reserved: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not reserved:
        monkeypatch.setattr(system, "reserve", lambda descriptor, nbytes: False)
    made = {
        name: np.frombuffer(data, "u1")
        for name, data in {
            "zeros": bytes(70_000),  # ends in the middle of a block: what follows is not part of it
            "some": some_bytes(200_000),
            "none": bytes(3 * BLOCK_BYTES),
            "gaps": some_bytes(BLOCK_BYTES) + bytes(BLOCK_BYTES) + some_bytes(5, 2),
        }.items()
    }
    found = read_bytes(tmp_path, file_bytes(tmp_path, made)).arrays
    for name, array in made.items():
        np.testing.assert_array_equal(found[name], array)


@pytest.mark.skipif(sys.platform != "linux", reason="not every file system has sparse files")
def test_blocks_of_zeros_take_no_room(tmp_path: Path) -> None:
    u = np.zeros(8 << 20, "u1")
    u[5 << 20] = 1
    claim = claim_to_continue(tmp_path / "x.kkpt")
    written = claim.write(Checkpoint(header(), {"u": u}))
    claim.release()
    found = (tmp_path / "x.kkpt").stat()
    assert written.nbytes == found.st_size > 8 << 20
    assert written.written_bytes < 100_000 and found.st_blocks * 512 < 1 << 20
    np.testing.assert_array_equal(read_checkpoint(tmp_path / "x.kkpt").arrays["u"], u)


# --- older versions


def _first_format(data: bytes) -> bytes:
    """A file of version 2 as version 1 had it: without lineage, file and body, and with the other number."""
    length = struct.unpack_from("<I", data, 12)[0]
    facts = json.loads(data[32 : 32 + length])
    for name in ("lineage", "file", "body"):
        facts.pop(name)
    text = json.dumps(facts).encode()
    prefix = struct.pack("<8sIIQI", b"\x89KKPT\r\n\x1a", 1, len(text), 7, 0)
    out = prefix + struct.pack("<I", zlib.crc32(prefix)) + text
    out += hashlib.sha256(out).digest()
    at = 32 + length + 32
    for info in facts["arrays"]:
        done, nbytes = 0, math.prod(info["shape"]) * np.dtype(info["dtype"]).itemsize
        while done < nbytes:
            stored, size = struct.unpack_from("<II", data, at)
            out += data[at : at + 8 + stored]
            at, done = at + 8 + stored, done + size
        out, at = out + hashlib.sha256(out).digest(), at + 32
    out += struct.pack("<8sQ", b"KKPT-END", len(out) + 48)
    return out + hashlib.sha256(out).digest()


@pytest.mark.parametrize("version", [1, 2])
def test_large_files_of_earlier_versions_are_resumed_from(version: int, tmp_path: Path) -> None:
    program = kk.StateProgram(
        "grow", coupling="independent", items=WORDS, state={"u": np.zeros(WORDS, "i4")},
        body="int i = kk_item(); u_next[i] = u[i] + i;",
    )  # fmt: skip
    path = tmp_path / "grow.kkpt"
    made = CheckpointHeader(
        program="grow", program_digest=program.program_digest, layout_digest=program.layout_digest,
        coupling="independent", items=WORDS, iteration=3, generation=3, body=program.body, lineage=LINEAGE,
        file="grow.kkpt",
    )  # fmt: skip
    file = io.BytesIO()
    u = 3 * np.arange(WORDS, dtype="i4")
    checkpoint_format.write(file, made, {"u": u}, 7)
    data = file.getvalue() if version == 2 else _first_format(file.getvalue())
    path.write_bytes(data)
    assert struct.unpack_from("<I", path.read_bytes(), 8) == (version,)
    with kk.open_device("opencl") as device, kk.ProgramCache(device, tmp_path / "cache") as cache:
        for end in (5, 6, 7):
            with kk.resume(path, cache, program, end) as run:
                np.testing.assert_array_equal(run.state["u"].numpy(), end * np.arange(WORDS, dtype="i4"))
    assert struct.unpack_from("<I", path.read_bytes(), 8) == (3,)
    kept = {one.name: struct.unpack_from("<I", one.read_bytes(), 8)[0] for one in tmp_path.glob("grow.kkpt.*")}
    if version == 1:  # it has no lineage, so it is kept as another run's
        assert any(".before-" in name and found == 1 for name, found in kept.items())
    else:
        assert kept == {"grow.kkpt.9": 3}


# --- a run


def test_a_run_goes_on_where_there_is_no_memory_for_a_copy_of_its_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    items = 5 << 20
    program = kk.StateProgram(
        "grow", coupling="independent", items=items, state={"u": np.zeros(items, "i4")}, body="u_next[kk_item()] = 7;"
    )
    monkeypatch.setattr(host_copy, "free_memory", lambda: 16 << 20)
    with kk.open_device("opencl") as device, kk.ProgramCache(device, tmp_path / "cache") as cache:
        said = r"not enough memory for a copy of the state \(it needs 20,971,520 bytes, and 16,777,216 are free\)"
        with pytest.warns(kk.CheckpointWarning, match=said):
            run = kk.run(cache, program, 5, checkpoint=tmp_path / "x.kkpt")
        assert (run.report.checkpoints, run.report.checkpoint_failures) == (0, 1)
        assert (run.state["u"].numpy() == 7).all()
    assert not (tmp_path / "x.kkpt").exists()


def test_a_state_that_never_comes_leaves_the_file_before_it(writing: Writing) -> None:
    arriving = Arriving()
    arriving.reach("u", BLOCK_BYTES)
    arriving.fail(kk.DeviceError("the device is lost"))
    with pytest.raises(CheckpointError, match="the state did not come from the device: the device is lost"):
        writing.claim.write(Checkpoint(header(9), {"u": writing.u + 1}), 2, arriving)
    writing.check()
    assert not [path for path in writing.path.parent.iterdir() if path.suffix == ".tmp"]
