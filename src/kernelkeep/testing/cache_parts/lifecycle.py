"""The life of a program: the origin of each lease, what is kept, and what is counted."""

from __future__ import annotations

import json
import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ...cache import key as cache_key
from ...cache.key import digest_of
from ...cache.program_cache import ProgramCache
from ...devices.base import Device, Program
from ...errors import ArgumentError, CompileError, DeviceError, OutOfMemory
from ...programs.languages import find_language, known_languages
from ...programs.source import Source
from ..device_parts.common import SAXPY, handwritten
from ..process import run_python
from .common import CachePart, OpenCache, adder, check_adder, entry_file

__all__ = ["LifecycleTests"]

FRESH = """
import json, sys
from pathlib import Path
import numpy as np
import kernelkeep as kk

spec, root, text, name, language = sys.argv[1:6]
with kk.open_device(spec) as device, kk.ProgramCache(device, root) as cache:
    with cache.get(kk.Source(text, name=name, language=language)) as lease:
        x, y = device.array(np.arange(100, dtype="i4")), device.array(np.zeros(100, "i4"))
        lease.kernel().launch(2, (x, y, np.int32(3), np.int32(100)), 64)
        result = y.numpy().tolist()
        ripeness = lease.program.ripeness
    stats = cache.stats()
print(json.dumps({
    "origin": lease.origin, "compiles": stats.compiles, "hits_disk": stats.hits_disk, "result": result,
    "ripeness": ripeness,
}))
"""


class LifecycleTests(CachePart):
    """Compile once, run forever."""

    def test_every_lease_says_where_it_came_from(self, device: Device, open_cache: OpenCache, tmp_path: Path) -> None:
        source = adder(device, 7)
        origins = []
        cache = open_cache()
        for _ in range(2):
            with cache.get(source) as lease:
                check_adder(device, lease, 7)
                origins.append(lease.origin)
        with cache.get(adder(device, 7)) as lease:  # an equal Source, not the same
            origins.append(lease.origin)
        cache.close()
        with open_cache().get(source) as lease:
            check_adder(device, lease, 7)
            origins.append(lease.origin)
        assert origins == ["compiled", "memory", "memory", "disk"]
        said = run_python(FRESH, device.spec, tmp_path / "cache", source.text, source.name, source.language)
        fresh = json.loads(said.stdout)
        assert (fresh["origin"], fresh["compiles"], fresh["hits_disk"]) == ("disk", 0, 1)
        assert fresh["result"] == [3 * i + 7 for i in range(100)]

    def test_a_source_is_hashed_once(
        self, device: Device, cache: ProgramCache, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        hashed = []

        def counted(source: Source, fingerprint: str) -> str:
            hashed.append(source)
            return digest_of(source, fingerprint)

        monkeypatch.setattr(cache_key, "digest_of", counted)
        source = adder(device, 1)
        for _ in range(3):
            cache.get(source).release()
        cache.finish_saving()
        cache.trim(0)
        cache.get(source).release()
        for_the_entry = 1  # when it is compiled, its readable key is made
        assert len(hashed) == 1 + len(device.architecture_fingerprints) + for_the_entry

    def test_a_portable_kernel_is_found_again(self, device: Device, cache: ProgramCache) -> None:
        for origin in ("compiled", "memory"):
            with cache.get(SAXPY) as lease:
                self.check_saxpy(device, lease.kernel("saxpy"))
                assert lease.origin == origin

    def test_a_changed_program_never_gets_the_old_binary(self, device: Device, cache: ProgramCache) -> None:
        for term in (1, 2, 1, 3):
            with cache.get(adder(device, term)) as lease:
                check_adder(device, lease, term)
        for value in (4, 5, 4):
            with cache.get(adder(device, "TERM", defines={"TERM": value})) as lease:
                check_adder(device, lease, value)
        assert cache.stats().compiles == 5

    def test_a_changed_header_never_gets_the_old_binary(
        self, device: Device, open_cache: OpenCache, tmp_path: Path
    ) -> None:
        header = tmp_path / "term.h"
        text = handwritten(
            device.language, "if (i < n) y[i] = a * x[i] + TERM;", name="adder", before='#include "term.h"\n'
        )
        origins = []
        for term in (1, 2, 1):
            header.write_text(find_language(device.language).constant("TERM", term))
            with open_cache() as cache:
                with cache.get(Source(text, name="adder", language=device.language, include_dirs=(tmp_path,))) as lease:
                    check_adder(device, lease, term)
                    origins.append(lease.origin)
        assert origins == ["compiled", "compiled", "disk"]

    def test_a_changed_option_never_gets_the_old_binary(self, device: Device, cache: ProgramCache) -> None:
        if not find_language(device.language).has_options:
            pytest.skip(f"{device.language} has no compiler options")
        for term in (1, 2, 1):
            with cache.get(adder(device, "TERM", options=(f"-DTERM={term}",))) as lease:
                check_adder(device, lease, term)
        assert cache.stats().compiles == 2

    def test_evicted_programs_come_back_from_disk(self, device: Device, open_cache: OpenCache) -> None:
        cache = open_cache(max_programs=2)
        sources = [adder(device, term) for term in range(4)]
        for source in sources:
            cache.get(source).release()
        cache.finish_saving()
        assert (cache.stats().programs, cache.stats().evictions) == (2, 2)
        with cache.get(sources[0]) as lease:
            assert lease.origin == "disk"
            check_adder(device, lease, 0)
        assert cache.stats().compiles == 4

    def test_a_program_in_use_outlives_eviction(self, device: Device, open_cache: OpenCache) -> None:
        cache = open_cache(max_programs=1)
        leases = [cache.get(adder(device, term)) for term in range(3)]
        stats = cache.stats()
        assert (stats.programs, stats.over_bound, stats.evictions) == (3, True, 0)
        cache.trim(0)
        for term, lease in enumerate(leases):
            check_adder(device, lease, term)
            lease.release()
        cache.finish_saving()
        stats = cache.stats()
        assert (stats.programs, stats.over_bound) == (1, False)

    def test_a_kernel_kept_past_its_lease_is_an_error_not_a_crash(self, device: Device, cache: ProgramCache) -> None:
        with cache.get(adder(device, 1)) as lease:
            kernel = lease.kernel()
        check_adder(device, kernel, 1)
        cache.finish_saving()
        assert cache.trim(0) > 0
        with pytest.raises(DeviceError, match="closed"):
            check_adder(device, kernel, 1)
        with pytest.raises(DeviceError, match="released"):
            lease.kernel()

    def test_trim_evicts_down_to_the_target(self, device: Device, cache: ProgramCache) -> None:
        for term in range(3):
            cache.get(adder(device, term)).release()
        before = cache.stats().memory_bytes
        assert before > 0
        one = cache.trim(before - 1)
        assert 0 < one < before and cache.stats().programs == 2
        assert cache.trim() == before - one
        assert (cache.stats().programs, cache.stats().memory_bytes) == (0, 0)
        cache.get(adder(device, 0)).release()
        assert cache.stats().hits_disk == 1

    def test_preload_loads_sources_and_names_and_reports_failures(
        self,
        device: Device,
        open_cache: OpenCache,
        capfd: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setenv("FORCE_COLOR", "1")  # as if standard error were a terminal
        wrong = Source("this is no program", name="wrong", language=device.language)
        sources = [adder(device, term, name=f"adder{term}") for term in range(3)]
        with open_cache() as cache:
            report = cache.preload([*sources, wrong, "never heard of", SAXPY], progress=True)
            assert (report.compiled, report.disk, report.memory) == (4, 0, 0)
            assert not report.ok and {failure.name for failure in report.failed} == {"wrong", "never heard of"}
            errors = {failure.name: failure.error for failure in report.failed}
            assert isinstance(errors["wrong"], CompileError) and isinstance(errors["never heard of"], ArgumentError)
            assert "wrong" in str(report) and "4 compiled" in str(report)
        shown = capfd.readouterr()
        assert "preloading" in shown.err and not shown.out
        with open_cache() as cache:
            start = time.perf_counter()
            report = cache.preload(["adder0", "adder1", sources[2], sources[2]])
            assert 0 < report.seconds <= time.perf_counter() - start
            assert (report.disk, report.memory, report.compiled, report.ok) == (3, 1, 0, True)
            assert not capfd.readouterr().err
            for term, source in enumerate(sources):
                with cache.get(source) as lease:
                    assert lease.origin == "memory"
                    check_adder(device, lease, term)
            assert cache.preload([]).loaded == 0

    def test_persist_writes_what_is_not_saved(self, device: Device, open_cache: OpenCache) -> None:
        sources = [adder(device, term) for term in range(2)]
        with open_cache(auto_save=False) as cache:
            for term, source in enumerate(sources):
                with cache.get(source) as lease:
                    check_adder(device, lease, term)
            assert cache.stats().on_disk == 0
            assert cache.persist() == 2
            assert cache.stats().on_disk == 2
            assert cache.persist() == 0
        with open_cache(auto_save=False) as cache:
            for source in sources:
                with cache.get(source) as lease:
                    assert lease.origin == "disk"

    def test_without_auto_save_nothing_is_written(self, device: Device, open_cache: OpenCache) -> None:
        with open_cache(auto_save=False) as cache:
            cache.get(adder(device, 1)).release()
        assert not list(cache.folder.glob("programs/*/*"))

    def test_explain_names_the_fields_that_differ(self, device: Device, open_cache: OpenCache, tmp_path: Path) -> None:
        cache = open_cache()
        source = adder(device, "TERM", defines={"TERM": 1})
        missing = cache.explain(source)
        assert missing.found is None and missing.nearest is None and "not found" in str(missing)
        cache.get(source).release()
        assert cache.explain(source).found == "memory"
        cache.finish_saving()
        cache.trim(0)
        assert cache.explain(source).found == "disk"
        changed = cache.explain(adder(device, "TERM", defines={"TERM": 2}))
        assert [(d.field, d.stored, d.asked) for d in changed.differences] == [("define TERM", "1", "2")]
        assert "define TERM: 1 there, 2 here" in str(changed)
        dropped = cache.explain(adder(device, "TERM", defines={"TERM": 1, "EXTRA": None}))
        assert [(d.field, d.stored, d.asked) for d in dropped.differences] == [("define EXTRA", None, "")]
        edited = cache.explain(adder(device, "TERM + 1", defines={"TERM": 1}))
        assert [d.field for d in edited.differences] == ["source"]
        assert cache.stats().compiles == 1, "explaining compiles nothing"

    def test_stats_count_every_lookup_exactly(self, device: Device, open_cache: OpenCache) -> None:
        sources = [adder(device, term) for term in range(3)]
        wrong = Source("this is no program", name="wrong", language=device.language)
        with open_cache() as cache:
            for source in sources:
                cache.get(source).release()
            for _ in range(5):
                cache.get(sources[0]).release()
            with pytest.raises(CompileError):
                cache.get(wrong)
            cache.finish_saving()
            cache.trim(0)
            cache.get(sources[1]).release()
            stats = cache.stats()
        assert (stats.hits_memory, stats.hits_disk, stats.hits_remote, stats.misses) == (5, 1, 0, 4)
        assert (stats.compiles, stats.compile_errors, stats.evictions, stats.corrupt_entries) == (3, 1, 3, 0)
        assert (stats.programs, stats.on_disk) == (1, 3)
        assert stats.hit_rate == 0.6
        assert stats.compile_seconds > 0 and stats.memory_bytes > 0
        assert stats.disk_bytes >= sum(p.stat().st_size for p in cache.folder.glob("programs/*/*.bin")) > 0
        with open_cache() as cache:
            cache.get(sources[0]).release()
            lifetime = cache.lifetime_stats()
        assert (lifetime.hits_memory, lifetime.hits_disk, lifetime.misses, lifetime.compiles) == (5, 2, 4, 3)
        kept = json.loads((cache.cache_dir / "cache_stats.json").read_text())
        assert (kept["hits_memory"], kept["hits_disk"], kept["misses"], kept["compiles"]) == (5, 2, 4, 3)

    def test_a_compile_error_reaches_all_who_wait(self, device: Device, cache: ProgramCache) -> None:
        text = handwritten(device.language, "\n\ny[i] = no_such_thing;", name="wrong")
        line = text[: text.index("no_such_thing")].count("\n") + 1
        sources = [Source(text, name="wrong", language=device.language) for _ in range(16)]
        together = threading.Barrier(16)

        def ask(source: Source) -> CompileError:
            together.wait()
            with pytest.raises(CompileError) as caught:
                cache.get(source)
            return caught.value

        with ThreadPoolExecutor(16) as pool:
            errors = list(pool.map(ask, sources))
        assert len(errors) == 16
        for error in errors:
            assert "no_such_thing" in error.log and error.line == line and "wrong" in str(error)
        assert not list(cache.folder.glob("programs/*/*")) and not list(cache.folder.glob("names/*"))
        assert cache.stats().programs == 0 and cache.stats().on_disk == 0
        with pytest.raises(CompileError):
            cache.get(sources[0])  # not remembered as good either
        assert not list((cache.folder / "locks").iterdir())

    def test_threads_that_ask_together_share_one_compile(self, device: Device, cache: ProgramCache) -> None:
        together = threading.Barrier(32)

        def ask(number: int) -> str:
            together.wait()
            with cache.get(adder(device, 11)) as lease:
                check_adder(device, lease, 11)
                return lease.origin

        with ThreadPoolExecutor(32) as pool:
            origins = list(pool.map(ask, range(32)))
        stats = cache.stats()
        assert sorted(origins) == ["compiled"] + ["memory"] * 31
        assert (stats.compiles, stats.misses, stats.hits_memory) == (1, 1, 31)

    def test_log_lines_name_thread_and_program(
        self, device: Device, open_cache: OpenCache, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO, logger="kernelkeep")
        for _ in range(2):
            with open_cache() as cache:
                worker = threading.Thread(
                    target=lambda: cache.get(adder(device, 5, name="logged")).release(), name="worker-7"
                )
                worker.start()
                worker.join()
        lines = [record.getMessage() for record in caplog.records if record.name == "kernelkeep"]
        for what in ("compiled in", "loaded from disk in"):
            assert any("worker-7" in line and "logged" in line and what in line for line in lines), lines

    def test_a_failed_allocation_evicts_idle_programs(self, device: Device, cache: ProgramCache) -> None:
        held = cache.get(adder(device, 1))
        cache.get(adder(device, 2)).release()
        cache.finish_saving()
        assert cache.stats().programs == 2
        too_much = 1 << 50
        with pytest.raises(OutOfMemory):
            device.empty(too_much, "u1")
        stats = cache.stats()
        assert (stats.programs, stats.evictions) == (1, 1), "the idle one went, the one in use stayed"
        check_adder(device, held, 1)
        held.release()

    def test_a_program_that_does_not_fit_evicts_idle_ones_and_is_tried_once_more(
        self, device: Device, cache: ProgramCache, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The driver's refusal is made up, since no test can fill a device with programs; the rest is real."""
        sources = [adder(device, term) for term in range(3)]
        cache.get(sources[0]).release()
        cache.finish_saving()
        real, tries = type(device).build, []

        def full(self: Device, source: Source) -> Program:
            tries.append(len(cache.loaded))
            if len(cache.loaded) > 0:
                raise OutOfMemory("no room for another program")
            return real(self, source)

        monkeypatch.setattr(type(device), "build", full)
        held = cache.get(sources[1])
        assert tries == [1, 0] and held.origin == "compiled"
        check_adder(device, held, 1)
        with pytest.raises(OutOfMemory):
            cache.get(sources[2])
        assert tries == [1, 0, 1], "nothing idle is left, so it is not tried again"
        held.release()

    def test_max_bytes_bounds_the_loaded_programs(self, device: Device, open_cache: OpenCache) -> None:
        with open_cache() as cache:
            cache.get(adder(device, 1)).release()
            cache.finish_saving()
            one = cache.stats().memory_bytes
        with open_cache(max_bytes=int(one * 2.5)) as cache:
            for term in range(1, 6):
                cache.get(adder(device, term)).release()
            cache.finish_saving()
            stats = cache.stats()
            assert stats.memory_bytes <= one * 2.5 and 1 <= stats.programs <= 3 and stats.evictions >= 2

    def test_every_call_after_close_raises(self, device: Device, open_cache: OpenCache) -> None:
        cache = open_cache()
        source = adder(device, 1)
        held = cache.get(source)
        kernel = held.kernel()
        cache.close()
        cache.close()
        for call in (
            lambda: cache.get(source),
            lambda: cache.preload([source]),
            cache.persist,
            cache.trim,
            cache.prune,
            lambda: cache.explain(source),
        ):
            with pytest.raises(DeviceError, match="closed"):
                call()
        with pytest.raises(DeviceError):
            check_adder(device, kernel, 1)
        held.release()
        assert not device.closed
        device.array(np.ones(3, "f4")).numpy()
        with open_cache().get(source) as lease:
            assert lease.origin == "disk"

    def test_wrong_arguments_raise_argument_error(self, device: Device, cache: ProgramCache, tmp_path: Path) -> None:
        for wrong in ("saxpy", None, 3):
            with pytest.raises(ArgumentError):
                cache.get(wrong)  # type: ignore[arg-type]
        other = next(name for name in known_languages() if name != device.language)
        with pytest.raises(ArgumentError, match=other):
            cache.get(Source("x", language=other))
        wrong_settings: tuple[dict[str, Any], ...] = (
            {"max_programs": 0},
            {"max_programs": 1.5},
            {"max_bytes": -1},
            {"max_disk_bytes": "much"},
        )
        for settings in wrong_settings:
            with pytest.raises(ArgumentError):
                ProgramCache(device, tmp_path / "other", **settings)
        for remote in ("nowhere", "ftp://host/x", 5, ["redis://host/0", 5]):
            with pytest.raises(ArgumentError, match="remote"):
                ProgramCache(device, tmp_path / "other", remote=remote)  # type: ignore[arg-type]

    def test_the_meta_file_has_the_facts_as_json(self, device: Device, cache: ProgramCache) -> None:
        source = adder(device, 1, name="readable", defines={"TILE": 16})
        cache.get(source).release()
        cache.finish_saving()
        meta = json.loads(entry_file(cache, source).with_suffix(".meta").read_text())
        assert meta["name"] == "readable" and meta["language"] == device.language
        assert meta["device"] == device.fingerprint.folder == cache.folder.name
        assert meta["key"]["fields"]["define TILE"] == "16"
        assert meta["compile_seconds"] > 0 and meta["kernels"] == ["readable"]
