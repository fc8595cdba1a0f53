"""Damaged, foreign and hostile bundles: one sentence, and nothing of them reaches the cache."""

from __future__ import annotations

import hashlib
import io
import itertools
import os
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

import kernelkeep as kk
from kernelkeep.cache.entry import encode
from kernelkeep.devices.fingerprint import Fingerprint
from kernelkeep.fleet.bundle_format import BundleWriter
from kernelkeep.processes import python_environment
from kernelkeep.testing.entries import sample_entry

SECRET = b"a shared secret of enough bytes for a key"
GPU = Fingerprint("sample", "V", "model", "1.0", "c", "a")
ENTRY = sample_entry(1, size=300)
DIGEST = ENTRY.facts.key.digest


@pytest.fixture(autouse=True)
def own_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELKEEP_KEYS_DIR", str(tmp_path / "keys"))


def bundle_of(*parts: Callable[[BundleWriter], object]) -> bytes:
    file = io.BytesIO()
    writer = BundleWriter(file)
    for part in parts:
        part(writer)
    writer.end()
    return file.getvalue()


def whole() -> bytes:
    return bundle_of(
        lambda w: w.folder(GPU), lambda w: w.entry(DIGEST, encode(ENTRY)), lambda w: w.file("a/b", b"the driver's")
    )


def record(head: dict[str, object], data: bytes = b"", *, length: int | None = None) -> bytes:
    encoded = msgspec.json.encode(head)
    return struct.pack("<IQ", len(encoded), len(data) if length is None else length) + encoded + data


START = b"KKBN\x01\0\0\0"
FOLDER = record({"kind": "folder", "fingerprint": {k: v for k, v in GPU.facts.items() if k != "digest"}})
END = record({"kind": "end", "folders": 1, "entries": 0, "files": 0})


def driver_file(path: str, data: bytes = b"x", sha256: str | None = None) -> bytes:
    return record({"kind": "file", "path": path, "sha256": sha256 or hashlib.sha256(data).hexdigest()}, data)


def refused(tmp_path: Path, data: bytes) -> str:
    """Import it unsigned; the sentence that says why it is refused. Nothing may have been written."""
    path, root = tmp_path / "a.kkb", tmp_path / "cache"
    path.write_bytes(data)
    with pytest.raises(kk.RemoteError) as caught:
        kk.import_bundle(root, path, allow_unsigned=True)
    assert not root.exists(), "something was written"
    said = str(caught.value)
    assert said.startswith(f"{path} is not imported: ") and "\n" not in said
    return said


def test_a_whole_one_is_imported(tmp_path: Path) -> None:
    (tmp_path / "a.kkb").write_bytes(whole())
    report = kk.import_bundle(tmp_path / "cache", tmp_path / "a.kkb", allow_unsigned=True)
    assert (report.entries, report.driver_files) == (1, 1)


def kinds() -> Iterator[tuple[str, bytes, str]]:
    entry = encode(ENTRY)
    yield "empty", b"", "it is not a bundle"
    yield "text", b"hello, this is no bundle", "it is not a bundle"
    yield "zeros", bytes(4096), "it is not a bundle"
    yield "a tar file", b"kernels/" + bytes(1016), "it is not a bundle"
    yield "an entry", entry, "it is not a bundle"
    yield "only its start", START, "it is cut off"
    yield "another version", b"KKBN\x02\0\0\0" + whole()[8:], "version 2"
    yield "no end", whole()[: -len(END)], "it is cut off"
    yield "something behind its end", whole() + b"x", "after its end"
    yield "two in one file", whole() + whole(), "after its end"
    yield "wrong counts", START + FOLDER + record({"kind": "end", "folders": 1, "entries": 7, "files": 0}), "counts"
    yield "a huge length", START + record({"kind": "end"}, length=1 << 62), "makes no sense"
    yield (
        "a length beyond the file",
        START + FOLDER + record({"kind": "entry", "digest": DIGEST}, entry, length=9999),
        "cut",
    )
    yield "a huge head", START + struct.pack("<IQ", 1 << 31, 0), "makes no sense"
    yield "not JSON", START + struct.pack("<IQ", 4, 0) + b"\xff{}x", "cannot be read"
    yield "deep JSON", START + struct.pack("<IQ", 40000, 0) + b"[" * 40000, "cannot be read"
    yield "an unknown kind", START + record({"kind": "script"}), "cannot be read"
    yield "an entry without a folder", START + record({"kind": "entry", "digest": DIGEST}, entry) + END, "no folder"
    yield (
        "a damaged entry",
        START + FOLDER + record({"kind": "entry", "digest": DIGEST}, entry[:-1] + b"x") + END,
        "damaged",
    )
    yield (
        "an entry of another key",
        START + FOLDER + record({"kind": "entry", "digest": "0" * 64}, entry) + END,
        "damaged",
    )
    yield "a changed file", START + FOLDER + driver_file("a", sha256="0" * 64) + END, "checksum"
    for path in ("../a", "/etc/passwd", "a/../../b", "", ".", "a//b", "a/./b", "a\nb", "a\\b", "x" * 300, "a\0b"):
        yield f"a path {path[:9]!r}", START + FOLDER + driver_file(path) + END, "not one for a driver's cache"
    for field, value in (("backend", "../.."), ("backend", ""), ("backend", "x" * 500), ("backend", "é")):
        wrong = {k: v for k, v in GPU.facts.items() if k != "digest"} | {field: value}
        yield f"a folder {field}={value!r}", START + record({"kind": "folder", "fingerprint": wrong}) + END, "folder"
    lines = b"no tuning\n"
    tuning = record({"kind": "tuning", "sha256": hashlib.sha256(lines).hexdigest()}, lines)
    yield (
        "bad tuning results",
        START + tuning + record({"kind": "end", "folders": 0, "entries": 0, "files": 0}),
        "tuning",
    )


@pytest.mark.parametrize(("data", "said"), [pytest.param(d, s, id=n) for n, d, s in kinds()])
def test_every_kind_of_damage_is_refused(tmp_path: Path, data: bytes, said: str) -> None:
    assert said in refused(tmp_path, data)


def test_a_folder_cannot_leave_the_cache(tmp_path: Path) -> None:
    """Whatever its strings are, its name is made of them, and has only letters, digits, dots and dashes."""
    wild = {
        "backend": "gl",
        "vendor": "..",
        "model": "../../x",
        "driver": "/etc",
        "compiler": "..",
        "architecture": "/",
    }
    head = record({"kind": "folder", "fingerprint": wild})
    end = record({"kind": "end", "folders": 1, "entries": 1, "files": 0})
    entry = record({"kind": "entry", "digest": DIGEST}, encode(ENTRY))
    (tmp_path / "a.kkb").write_bytes(START + head + entry + end)
    kk.import_bundle(tmp_path / "cache", tmp_path / "a.kkb", allow_unsigned=True)
    (folder,) = (tmp_path / "cache").iterdir()
    assert folder.name.startswith("gl_") and {path.name for path in tmp_path.iterdir()} == {"a.kkb", "cache"}


def test_a_folder_of_the_driver_is_never_replaced_by_a_file(tmp_path: Path) -> None:
    (tmp_path / "a.kkb").write_bytes(bundle_of(lambda w: w.folder(GPU), lambda w: w.file("a/b", b"1")))
    kk.import_bundle(tmp_path / "cache", tmp_path / "a.kkb", allow_unsigned=True)
    (tmp_path / "a.kkb").write_bytes(bundle_of(lambda w: w.folder(GPU), lambda w: w.file("a", b"2")))
    report = kk.import_bundle(tmp_path / "cache", tmp_path / "a.kkb", allow_unsigned=True)
    assert report.driver_files == 0 and (tmp_path / "cache" / GPU.folder / "driver" / "a" / "b").read_bytes() == b"1"


def test_cut_off_anywhere_it_is_refused(tmp_path: Path) -> None:
    data = whole()
    for length in itertools.chain(range(0, 200), range(200, len(data), 37)):
        assert "cut off" in (said := refused(tmp_path, data[:length])) or "not a bundle" in said


def test_a_flipped_bit_of_a_signed_bundle_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    from kernelkeep.remote.signing import make_keys

    data = make_keys(SECRET).seal("bundle", "bundle", whole())
    path, root = tmp_path / "a.kkb", tmp_path / "cache"
    for at in range(len(data)):
        path.write_bytes(data[:at] + bytes([data[at] ^ (1 << at % 8)]) + data[at + 1 :])
        with pytest.raises(kk.RemoteError, match="is not imported"):
            kk.import_bundle(root, path, signing_key=SECRET)
    assert not root.exists()
    for kind, name in (("program", "bundle"), ("bundle", "another")):  # signed by us, as something else
        path.write_bytes(make_keys(SECRET).seal(kind, name, whole()))
        with pytest.raises(kk.RemoteError, match="signature does not hold"):
            kk.import_bundle(root, path, signing_key=SECRET)
    path.write_bytes(data)
    assert kk.import_bundle(root, path, signing_key=SECRET).signed


def test_a_flipped_bit_of_an_unsigned_bundle_never_reaches_an_entry(tmp_path: Path) -> None:
    """Nobody vouches for it, so other folders or files may come out of it; a program that is not whole may not."""
    from kernelkeep.cache.upkeep import verify_root

    data = whole()
    path = tmp_path / "a.kkb"
    for number, at in enumerate(range(0, len(data), 11)):
        path.write_bytes(data[:at] + bytes([data[at] ^ (1 << at % 8)]) + data[at + 1 :])
        root = tmp_path / f"cache{number}"
        try:
            kk.import_bundle(root, path, allow_unsigned=True)
        except kk.RemoteError:
            assert not root.exists()
        else:
            assert verify_root(root).ok
            assert {p.name for p in tmp_path.iterdir() if not p.name.startswith("cache")} == {"a.kkb"}


def test_a_full_disk_leaves_a_cache_that_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kernelkeep.cache.gpu_folder import GpuFolder
    from kernelkeep.cache.upkeep import list_entries, survey_root, verify_root

    several = [sample_entry(number) for number in range(5)]
    parts = [lambda w, e=entry: w.entry(e.facts.key.digest, encode(e)) for entry in several]
    (tmp_path / "a.kkb").write_bytes(bundle_of(lambda w: w.folder(GPU), *parts))
    write = GpuFolder.write
    written: list[str] = []

    def full(self: GpuFolder, digest: str, data: bytes, **options: bool) -> None:
        if len(written) == 2:
            raise OSError(28, "No space left on device")
        written.append(digest)
        write(self, digest, data, **options)

    with monkeypatch.context() as patched:
        patched.setattr(GpuFolder, "write", full)
        with pytest.raises(kk.ArgumentError, match="No space left on device"):
            kk.import_bundle(tmp_path / "cache", tmp_path / "a.kkb", allow_unsigned=True)
    assert survey_root(tmp_path / "cache").lifetime.on_disk == 2
    assert verify_root(tmp_path / "cache").ok and len(list(list_entries(tmp_path / "cache"))) == 2
    again = kk.import_bundle(tmp_path / "cache", tmp_path / "a.kkb", allow_unsigned=True)
    assert (again.entries, again.already_there) == (3, 2)


IMPORT = """
import sys, kernelkeep as kk
print("begin", flush=True)
kk.import_bundle(sys.argv[1], sys.argv[2], allow_unsigned=True)
"""


def test_a_killed_import_leaves_whole_programs_and_is_done_again(tmp_path: Path) -> None:
    from kernelkeep.cache.upkeep import list_entries, survey_root, verify_root

    several = [sample_entry(number) for number in range(400)]
    parts = [lambda w, e=entry: w.entry(e.facts.key.digest, encode(e)) for entry in several]
    bundle, root = tmp_path / "a.kkb", tmp_path / "cache"
    bundle.write_bytes(bundle_of(lambda w: w.folder(GPU), *parts))
    process = subprocess.Popen(
        [sys.executable, "-c", IMPORT, root, bundle], stdout=subprocess.PIPE, env=python_environment(os.environ)
    )
    assert process.stdout is not None and process.stdout.readline()
    end = time.monotonic() + 60
    while not len(list((root / GPU.folder / "programs").glob("*/*.bin"))) > 20 and time.monotonic() < end:
        time.sleep(0.001)
    process.kill()
    process.communicate()
    there = len(list(list_entries(root)))
    assert there > 20 and verify_root(root).ok
    again = kk.import_bundle(root, bundle, allow_unsigned=True)
    assert (again.entries, again.already_there) == (400 - there, there)
    assert survey_root(root).lifetime.on_disk == 400 and verify_root(root).ok
