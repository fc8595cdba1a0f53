"""Damaged files are never loaded and never raise: they are set aside, counted, and the programs compiled again."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from ...cache import entry as entries
from ...cache.entry import Entry
from ...cache.program_cache import ProgramCache
from ...devices.base import Device
from ...devices.binary import Binary
from ...errors import CacheWarning
from ...programs.source import Source
from .common import CachePart, OpenCache, adder, check_adder, entry_file

__all__ = ["DamageTests"]


def _truncated(path: Path, other: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _flipped(path: Path, other: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-20] ^= 1
    path.write_bytes(data)


def _exchanged(path: Path, other: Path) -> None:
    path.write_bytes(other.read_bytes())


def _foreign(path: Path, other: Path) -> None:
    path.write_bytes(b"\x89PNG" + bytes(5000))


def _folder(path: Path, other: Path) -> None:
    path.unlink()
    path.mkdir()


def _link(path: Path, other: Path) -> None:
    outside = path.parents[3] / "outside"
    path.rename(outside)
    path.symlink_to(outside)


_SPOILERS = (_truncated, _flipped, _exchanged, _foreign, _folder, _link)


class DamageTests(CachePart):
    """Nothing from a cache is trusted."""

    @pytest.mark.parametrize("spoil", _SPOILERS, ids=lambda spoil: spoil.__name__.strip("_"))
    def test_a_bad_file_is_rebuilt(
        self, device: Device, open_cache: OpenCache, spoil: Callable[[Path, Path], None]
    ) -> None:
        one, other = adder(device, 1), adder(device, 2)
        with open_cache() as cache:
            cache.get(one).release()
            cache.get(other).release()
        path, untouched = entry_file(cache, one), entry_file(cache, other)
        before = untouched.read_bytes()
        spoil(path, untouched)
        with open_cache() as cache:
            with cache.get(one) as lease:
                assert lease.origin == "compiled"
                check_adder(device, lease, 1)
            with cache.get(other) as lease:
                assert lease.origin == "disk"
                assert untouched.read_bytes() == before
                check_adder(device, lease, 2)
            stats = cache.stats()
            assert (stats.corrupt_entries, stats.compiles, stats.hits_disk, stats.on_disk) == (1, 1, 1, 2)
        assert len(list((cache.folder / "set-aside").iterdir())) == 1
        with open_cache() as cache, cache.get(one) as lease:
            assert lease.origin == "disk"
            check_adder(device, lease, 1)

    def test_two_exchanged_files_are_both_rejected(self, device: Device, open_cache: OpenCache) -> None:
        one, other = adder(device, 1), adder(device, 2)
        with open_cache() as cache:
            cache.get(one).release()
            cache.get(other).release()
        first, second = entry_file(cache, one), entry_file(cache, other)
        contents = first.read_bytes(), second.read_bytes()
        first.write_bytes(contents[1])
        second.write_bytes(contents[0])
        with open_cache() as cache:
            for term, source in ((1, one), (2, other)):
                with cache.get(source) as lease:
                    check_adder(device, lease, term)
            assert (cache.stats().corrupt_entries, cache.stats().compiles) == (2, 2)

    def test_a_meta_file_that_lies_changes_nothing(self, device: Device, open_cache: OpenCache) -> None:
        one, other = adder(device, 1), adder(device, 2)
        with open_cache() as cache:
            cache.get(one).release()
            cache.get(other).release()
        entry_file(cache, one).with_suffix(".meta").write_bytes(
            entry_file(cache, other).with_suffix(".meta").read_bytes()
        )
        entry_file(cache, other).with_suffix(".meta").write_text("{}")
        with open_cache() as cache:
            for term, source in ((1, one), (2, other)):
                with cache.get(source) as lease:
                    assert lease.origin == "disk"
                    check_adder(device, lease, term)
            assert cache.stats().corrupt_entries == 0

    def test_a_binary_the_driver_refuses_is_rebuilt(self, device: Device, open_cache: OpenCache) -> None:
        """A whole and unchanged entry whose payload the driver does not take."""
        source = adder(device, 1)
        with open_cache() as cache:
            cache.get(source).release()
        path = entry_file(cache, source)
        good = entries.decode(path.read_bytes(), cache.key(source).digest)
        payloads = [b"", b"no image", good.payload[: len(good.payload) // 2]]
        if self.refuses_damaged_binaries:
            image = Binary.decode(good.payload, device.backend)
            payloads.append(msgspec.structs.replace(image, payload=image.payload[:100]).encode())
            payloads.append(msgspec.structs.replace(image, payload=bytes(len(image.payload))).encode())
        for payload in payloads:
            path.write_bytes(entries.encode(Entry(good.facts, payload)))
            with open_cache() as cache:
                with cache.get(source) as lease:
                    assert lease.origin == "compiled"
                    check_adder(device, lease, 1)
                assert cache.stats().corrupt_entries == 1
            with open_cache() as cache, cache.get(source) as lease:
                assert lease.origin == "disk"

    def test_preloading_by_name_passes_over_a_bad_file(self, device: Device, open_cache: OpenCache) -> None:
        sources = [adder(device, term, name="twice", defines={"VERSION": term}) for term in range(2)]
        with open_cache() as cache:
            for source in sources:
                cache.get(source).release()
        _flipped(entry_file(cache, sources[0]), Path())
        with open_cache() as cache:
            report = cache.preload(["twice"])
            assert (report.disk, report.ok) == (1, True)
            assert cache.stats().corrupt_entries == 1
            entry_file(cache, sources[1]).unlink()
        with open_cache() as cache:
            assert not cache.preload(["twice"]).ok

    def test_a_program_with_an_undecodable_name_is_kept_in_memory_only(
        self, device: Device, cache: ProgramCache
    ) -> None:
        text = adder(device, 1).text
        source = Source(text, name="bad\udc80name", language=device.language)
        for origin in ("compiled", "memory"):
            with cache.get(source) as lease:
                assert lease.origin == origin
                check_adder(device, lease, 1)
        cache.persist()
        assert cache.preload([source, "bad\udc80name"]).memory == 1
        assert cache.explain(source).found == "memory"

    def test_a_file_in_the_place_of_the_cache_folder_warns_once(self, device: Device, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("precious")
        with pytest.warns(CacheWarning, match="memory only"):
            cache = ProgramCache(device, tmp_path / "file")
        with cache:
            for origin in ("compiled", "memory"):
                with cache.get(adder(device, 1)) as lease:
                    assert lease.origin == origin
                    check_adder(device, lease, 1)
            assert cache.persist() == 0
            assert (cache.stats().on_disk, cache.prune(0).entries) == (0, 0)
            assert cache.explain(adder(device, 1)).found == "memory"
            assert cache.lifetime_stats().compiles == 1
        assert (tmp_path / "file").read_text() == "precious"

    def test_a_removed_cache_folder_is_created_again(self, device: Device, cache: ProgramCache) -> None:
        import shutil

        cache.get(adder(device, 1)).release()
        cache.finish_saving()
        shutil.rmtree(cache.cache_dir)
        for term in (1, 2):
            with cache.get(adder(device, term)) as lease:
                check_adder(device, lease, term)
        cache.finish_saving()
        assert os.path.exists(entry_file(cache, adder(device, 2)))  # noqa: PTH110
