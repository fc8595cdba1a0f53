"""Programs that come from elsewhere: compiled ahead for the device's architecture, or in a bundle."""

from __future__ import annotations

from pathlib import Path

import pytest

from ...cache.program_cache import ProgramCache
from ...devices.ahead import ahead_compilers
from ...devices.base import Device
from ...fleet.bundle import export_bundle, import_bundle
from ...fleet.compile_ahead import compile_ahead
from .common import CachePart, OpenCache, adder, check_adder

__all__ = ["SharingTests"]

_SECRET = b"a secret that two machines share"


class SharingTests(CachePart):
    """A start without a compile."""

    def test_what_was_compiled_ahead_is_not_compiled_again(
        self, device: Device, open_cache: OpenCache, tmp_path: Path
    ) -> None:
        if not device.architecture_fingerprints or device.backend not in ahead_compilers():
            pytest.skip("this device runs nothing that was compiled ahead")
        sources = [adder(device, term, name=f"add{term}") for term in range(3)]
        target = f"{device.backend}:{device.architecture_fingerprints[0].architecture}"
        assert compile_ahead(sources, target, tmp_path / "elsewhere").compiled == 3
        export_bundle(tmp_path / "elsewhere", tmp_path / "kernels.kkb", signing_key=_SECRET)
        cache = open_cache()
        assert import_bundle(cache, tmp_path / "kernels.kkb", signing_key=_SECRET).entries == 3
        for term, source in enumerate(sources):
            assert "compiled ahead" in cache.explain(source).note
            with cache.get(source) as lease:
                assert lease.origin == "disk"
                check_adder(device, lease, term)
        stats = cache.stats()
        assert (stats.compiles, stats.hits_disk, stats.corrupt_entries) == (0, 3, 0)

    def test_a_bundle_starts_another_cache(self, device: Device, cache: ProgramCache, tmp_path: Path) -> None:
        source = adder(device, 5)
        with cache.get(source) as lease:
            check_adder(device, lease, 5)
        cache.finish_saving()
        report = export_bundle(cache, tmp_path / "kernels.kkb", signing_key=_SECRET, driver_cache=False)
        assert report.entries == 1 and report.signed and not report.skipped
        with ProgramCache(device, tmp_path / "another") as other:
            assert import_bundle(other, tmp_path / "kernels.kkb", signing_key=_SECRET).entries == 1
            with other.get(source) as lease:
                assert lease.origin == "disk"
                check_adder(device, lease, 5)
            assert other.stats().compiles == 0
