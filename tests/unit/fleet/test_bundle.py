"""Bundles: what goes in comes out, on another machine, and what is not trusted does not."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kernelkeep as kk
from kernelkeep.cache.upkeep import list_entries, verify_root
from kernelkeep.samples.basic import SAXPY
from kernelkeep.testing import FakeDevice
from kernelkeep.testing.cache_parts.common import adder, check_adder
from kernelkeep.variants.record import Record
from kernelkeep.variants.records import Records

SECRET = b"a shared secret of enough bytes for a key"


@pytest.fixture(autouse=True)
def own_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No key of this machine's user takes part."""
    monkeypatch.setenv("KERNELKEEP_KEYS_DIR", str(tmp_path / "keys"))


@pytest.fixture
def device() -> Iterator[FakeDevice]:
    with FakeDevice() as opened:
        yield opened


def filled(device: FakeDevice, root: Path, terms: range = range(3)) -> None:
    with kk.ProgramCache(device, root) as cache:
        for term in terms:
            cache.get(adder(device, term, name=f"add{term}")).release()


def exported(cache: Any, path: Path, **options: Any) -> kk.BundleReport:
    return kk.export_bundle(cache, path, signing_key=SECRET, **options)


def test_programs_come_out_as_they_went_in(device: FakeDevice, tmp_path: Path) -> None:
    there, here, bundle = tmp_path / "there", tmp_path / "here", tmp_path / "kernels.kkb"
    filled(device, there)
    with kk.ProgramCache(device, there) as cache:
        report = exported(cache, bundle)
    assert (report.entries, report.signed, report.skipped) == (3, True, ())
    assert report.bytes == bundle.stat().st_size and report.folders == (device.fingerprint.folder,)
    with kk.ProgramCache(device, here) as cache:
        added = kk.import_bundle(cache, bundle, signing_key=SECRET)
        assert (added.entries, added.already_there, added.signed) == (3, 0, True)
        for term in range(3):
            with cache.get(adder(device, term, name=f"add{term}")) as lease:
                assert lease.origin == "disk"
                check_adder(device, lease, term)
        assert cache.stats().compiles == 0 and cache.stats().on_disk == 3
        again = kk.import_bundle(cache, bundle, signing_key=SECRET)
        assert (again.entries, again.already_there) == (0, 3)
    before = {stored.path.name: stored.path.read_bytes() for stored in list_entries(there)}
    after = {stored.path.name: stored.path.read_bytes() for stored in list_entries(here)}
    assert before == after and verify_root(here).ok


def test_folders_need_no_device(device: FakeDevice, tmp_path: Path) -> None:
    filled(device, tmp_path / "there")
    report = exported(tmp_path / "there", tmp_path / "kernels.kkb")
    assert report.entries == 3
    assert kk.import_bundle(tmp_path / "here", tmp_path / "kernels.kkb", signing_key=SECRET).entries == 3
    filled(device, tmp_path / "here")
    assert len(list(list_entries(tmp_path / "here"))) == 3, "something was compiled again"


def test_what_is_loaded_and_not_saved_is_exported_too(device: FakeDevice, tmp_path: Path) -> None:
    with kk.ProgramCache(device, tmp_path / "there", auto_save=False) as cache:
        cache.get(adder(device, 1)).release()
        assert exported(cache, tmp_path / "kernels.kkb").entries == 1


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"names": ["add1"]}, {"add1"}),
        ({"names": ["add1", "add2"]}, {"add1", "add2"}),
        ({"digests": ["1"]}, None),
        ({"sources": True}, {"add0", "saxpy"}),
    ],
)
def test_a_part_of_the_programs(
    device: FakeDevice, tmp_path: Path, options: dict[str, Any], names: set[str] | None
) -> None:
    filled(device, tmp_path / "there")
    with kk.ProgramCache(device, tmp_path / "there") as cache:
        cache.get(SAXPY.kernel).release()
        if "sources" in options:
            options = {"sources": [adder(device, 0, name="add0"), SAXPY.kernel]}
        if "digests" in options:
            digest = next(stored.digest for stored in list_entries(tmp_path / "there"))
            options = {"digests": [digest[:12]]}
        for given in (cache, tmp_path / "there"):
            report = exported(given, tmp_path / "kernels.kkb", **options)
            assert report.entries == (len(names) if names else 1)
    kk.import_bundle(tmp_path / "here", tmp_path / "kernels.kkb", signing_key=SECRET)
    found = {stored.facts.name for stored in list_entries(tmp_path / "here") if stored.facts}
    assert names is None or found == names


def test_this_device_or_all_of_them(device: FakeDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import kernelkeep.testing.fake as fake
    from kernelkeep.devices import registry

    monkeypatch.setattr(registry, "_registered", dict(registry._registered))
    kk.register_backend("fake", fake)
    kk.compile_ahead(SAXPY.kernel, ["fake:any", "fake:other"], tmp_path)
    filled(device, tmp_path)
    with kk.ProgramCache(device, tmp_path) as cache:
        assert exported(cache, tmp_path / "a.kkb").entries == 4, "its own, and those for its architecture"
        assert exported(cache, tmp_path / "a.kkb", devices="all").entries == 5
        other = fake.ahead.fingerprint("other").folder
        assert exported(cache, tmp_path / "a.kkb", devices=[other]).folders == (other,)
    assert exported(tmp_path, tmp_path / "a.kkb").entries == 5


def test_tuning_results_travel(device: FakeDevice, tmp_path: Path) -> None:
    filled(device, tmp_path / "there")
    with Records(tmp_path / "there") as records:
        for name, digest in (("mine", device.fingerprint.digest), ("another's", "f" * 64)):
            records.add(Record(
                tuned=name, source="5" * 64, space="s", device=digest, device_name="x", architecture="x",
                problem={"n": 4}, variant={"T": 1}, samples_ms=[1.0, 1.1],
            ))  # fmt: skip
    with kk.ProgramCache(device, tmp_path / "there") as cache:
        assert exported(cache, tmp_path / "own.kkb").tuning_records == 1
    assert exported(tmp_path / "there", tmp_path / "all.kkb").tuning_records == 2
    assert exported(tmp_path / "there", tmp_path / "none.kkb", tuning=False).tuning_records == 0
    for name, names in (("own", ["mine"]), ("all", ["another's", "mine"]), ("none", [])):
        added = kk.import_bundle(tmp_path / name, tmp_path / f"{name}.kkb", signing_key=SECRET)
        assert added.tuning_records == len(names)
        with Records(tmp_path / name) as records:
            assert records.names() == names
    assert kk.import_bundle(tmp_path / "all", tmp_path / "all.kkb", signing_key=SECRET).tuning_records == 0
    assert kk.import_bundle(tmp_path / "x", tmp_path / "all.kkb", signing_key=SECRET, tuning=False).tuning_records == 0


def test_the_drivers_own_cache_travels_and_what_is_there_stays(device: FakeDevice, tmp_path: Path) -> None:
    filled(device, tmp_path / "there")
    driver = tmp_path / "there" / device.fingerprint.folder / "driver"
    for name, text in (("ab/one", "1"), ("GL/x/two.bin", "2"), ("GL/x/two.toc", "3")):
        (driver / name).parent.mkdir(parents=True, exist_ok=True)
        (driver / name).write_text(text)
    (driver / "link").symlink_to("/etc/passwd")
    os.mkfifo(driver / "pipe")
    report = exported(tmp_path / "there", tmp_path / "kernels.kkb")
    assert report.driver_files == 3 and len(report.skipped) == 2
    mine = tmp_path / "here" / device.fingerprint.folder / "driver"
    (mine / "GL" / "x").mkdir(parents=True, mode=0o700)
    for folder in (mine.parents[1], mine.parents[0], mine, mine / "GL", mine / "GL" / "x"):
        folder.chmod(0o700)
    (mine / "GL" / "x" / "two.toc").write_text("mine")
    added = kk.import_bundle(tmp_path / "here", tmp_path / "kernels.kkb", signing_key=SECRET)
    assert added.driver_files == 1 and len(added.skipped) == 1
    found = {path.relative_to(mine).as_posix(): path.read_text() for path in mine.rglob("*") if path.is_file()}
    assert found == {"ab/one": "1", "GL/x/two.toc": "mine"}, "a pair of files was torn apart"
    assert (mine / "ab" / "one").stat().st_mode & 0o077 == 0
    assert exported(tmp_path / "there", tmp_path / "kernels.kkb", driver_cache=False).driver_files == 0


def test_what_the_cache_has_stays_unless_it_is_damaged(device: FakeDevice, tmp_path: Path) -> None:
    filled(device, tmp_path / "there")
    exported(tmp_path / "there", tmp_path / "kernels.kkb")
    filled(device, tmp_path / "here", range(2))
    kept, broken = (stored.path for stored in list_entries(tmp_path / "here"))
    inode = kept.stat().st_ino
    broken.write_bytes(b"damaged")
    added = kk.import_bundle(tmp_path / "here", tmp_path / "kernels.kkb", signing_key=SECRET)
    assert (added.entries, added.already_there) == (2, 1) and kept.stat().st_ino == inode
    assert verify_root(tmp_path / "here").ok


def test_without_a_key_it_is_not_signed_and_needs_consent(device: FakeDevice, tmp_path: Path) -> None:
    filled(device, tmp_path / "there")
    report = kk.export_bundle(tmp_path / "there", tmp_path / "kernels.kkb")
    assert not report.signed and "not signed" in str(report)
    for options in ({}, {"signing_key": SECRET}):
        with pytest.raises(kk.RemoteError, match="it is not signed, and what is in a bundle is executed"):
            kk.import_bundle(tmp_path / "here", tmp_path / "kernels.kkb", **options)  # type: ignore[arg-type]
    assert not (tmp_path / "here").exists()
    added = kk.import_bundle(tmp_path / "here", tmp_path / "kernels.kkb", allow_unsigned=True)
    assert added.entries == 3 and not added.signed


def test_a_stranger_is_refused(device: FakeDevice, tmp_path: Path) -> None:
    filled(device, tmp_path / "there")
    exported(tmp_path / "there", tmp_path / "kernels.kkb")
    for options in ({}, {"signing_key": b"another secret, which is long enough"}, {"allow_unsigned": True}):
        with pytest.raises(kk.RemoteError, match=r"not trusted here; `kernelkeep keys trust`"):
            kk.import_bundle(tmp_path / "here", tmp_path / "kernels.kkb", **options)
    assert not (tmp_path / "here").exists()


def test_a_bundle_that_others_can_change_is_copied_before_it_is_checked(device: FakeDevice, tmp_path: Path) -> None:
    filled(device, tmp_path / "there")
    exported(tmp_path / "there", tmp_path / "kernels.kkb")
    (tmp_path / "kernels.kkb").chmod(0o666)
    assert kk.import_bundle(tmp_path / "here", tmp_path / "kernels.kkb", signing_key=SECRET).entries == 3


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"names": "add1"}, "names must be a list of texts"),
        ({"names": ["nothing"]}, "no program named 'nothing' is kept in"),
        ({"digests": ["ffffffffffff"]}, "no program with the key 'ffffffffffff' is kept in"),
        ({"sources": [SAXPY.kernel]}, "no program of the source 'saxpy' is kept in"),
        ({"devices": "mine"}, "devices must be 'this', 'all'"),
        ({"devices": "this"}, "devices must be 'all'"),
        ({"sources": [3]}, "sources must be a list of kk.Source"),
    ],
)
def test_wrong_arguments_write_nothing(device: FakeDevice, tmp_path: Path, options: dict[str, Any], said: str) -> None:
    filled(device, tmp_path / "there")
    with pytest.raises(kk.ArgumentError) as caught:
        exported(tmp_path / "there", tmp_path / "kernels.kkb", **options)
    assert said in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


def test_files_that_cannot_be_used(device: FakeDevice, tmp_path: Path) -> None:
    filled(device, tmp_path / "there")
    for path in (tmp_path, tmp_path / "no" / "folder.kkb", Path("/dev/null")):
        with pytest.raises(kk.ArgumentError, match="cannot be written"):
            exported(tmp_path / "there", path)
        with pytest.raises(kk.ArgumentError, match="cannot be read"):
            kk.import_bundle(tmp_path / "here", path)
    with pytest.raises(kk.ArgumentError, match="there is no cache folder"):
        exported(tmp_path / "nothing", tmp_path / "a.kkb")
    with pytest.raises(kk.ArgumentError, match="cache must be"):
        exported(3, tmp_path / "a.kkb")


def test_a_damaged_program_is_left_out_and_named(device: FakeDevice, tmp_path: Path) -> None:
    filled(device, tmp_path / "there")
    damaged = next(iter(list_entries(tmp_path / "there"))).path
    damaged.write_bytes(damaged.read_bytes()[:-1])
    report = exported(tmp_path / "there", tmp_path / "kernels.kkb")
    assert report.entries == 2 and len(report.skipped) == 1 and damaged.name in report.skipped[0]


def test_an_older_bundle_stays_when_a_new_one_cannot_be_written(device: FakeDevice, tmp_path: Path) -> None:
    filled(device, tmp_path / "there")
    exported(tmp_path / "there", tmp_path / "a.kkb")
    before = (tmp_path / "a.kkb").read_bytes()
    with pytest.raises(kk.ArgumentError):
        exported(tmp_path / "there", tmp_path / "a.kkb", names=["nothing"])
    assert (tmp_path / "a.kkb").read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.kkb", "there"]
