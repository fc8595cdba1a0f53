"""The variant that runs is the best one known for the device and the problem, and `select` gives the reason."""

from __future__ import annotations

import contextlib
import sqlite3
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from ...cache.program_cache import ProgramCache
from ...devices.base import Device
from ...devices.registry import list_devices, open_device
from ...errors import ArgumentError, DeviceError, Unsupported
from ...variants.definition import source_digest
from ...variants.record import Choice, Record, encode_line
from ...variants.records import Records
from ...variants.tuned import Tuned
from ..process import run_python
from .common import PROBLEM, VariantPart, twice

__all__ = ["ChoosingTests"]

_ELSEWHERE = """
import sys
from kernelkeep.testing.variant_parts.common import PROBLEM, VariantPart, twice
import kernelkeep as kk

with kk.open_device(sys.argv[1]) as device, kk.ProgramCache(device, sys.argv[2]) as cache:
    tuned = twice("restarted", [5, 1, 3])
    found = tuned.select(cache, PROBLEM)
    VariantPart.check_run(tuned, cache)
    print(found.variant["STEPS"], found.basis, cache.stats().compiles, found.reason)
"""


class ChoosingTests(VariantPart):
    """`select`, `pin` and what they do to `run`. Records are made up, so that nothing depends on the clock."""

    @staticmethod
    def measured(tuned: Tuned, device: Device, steps: int, ms: float, items: int = 4096) -> Record:
        """A record of one variant, as if it had been measured."""
        variant, problem = {"STEPS": steps}, {"n": items}
        source = tuned.definition.source(device, variant, problem)
        return tuned.definition.record(device, problem, variant, source, [ms, ms, ms])

    def test_select_prefers_exact_then_nearest_then_default(self, device: Device, programs: ProgramCache) -> None:
        tuned = twice("steps", [5, 1, 3])
        found = tuned.select(programs, PROBLEM)
        assert (dict(found.variant), found.basis) == ({"STEPS": 5}, "default")
        assert found.expected_ms is None and found.distance is None
        assert "STEPS=5 is the default" in found.reason and device.info.name in found.reason

        tuned.records(programs).add_all(
            [self.measured(tuned, device, 1, 0.5), self.measured(tuned, device, 3, 0.7),
             self.measured(tuned, device, 3, 9.0, items=64)]
        )  # fmt: skip
        assert tuned.select(programs, PROBLEM) == found, "what is known is looked up once"
        tuned.forget(programs)
        exact = tuned.select(programs, PROBLEM)
        assert (dict(exact.variant), exact.basis, exact.expected_ms, exact.distance) == ({"STEPS": 1}, "exact", 0.5, 0)
        assert exact.reason == "STEPS=1 was the fastest for this problem on this device: 0.5 ms over 3 samples"
        near = tuned.select(programs, {"n": 8192})
        assert (dict(near.variant), near.basis) == ({"STEPS": 1}, "nearest")
        assert near.expected_ms == pytest.approx(1.0) and near.distance == pytest.approx(1, abs=0.01)
        assert "the nearest problem measured (n=4096) on this device" in near.reason
        assert dict(tuned.select(programs, {"n": 100}).variant) == {"STEPS": 3}
        for items in (4096, 8192, 100):
            self.check_run(tuned, programs, items)

    def test_the_work_scales_the_expected_time(self, device: Device, programs: ProgramCache) -> None:
        tuned = twice("work", [5, 1], work=lambda problem: float(problem["n"]) ** 2)
        tuned.records(programs).add(self.measured(tuned, device, 1, 0.5))
        assert tuned.select(programs, {"n": 8192}).expected_ms == pytest.approx(2.0)

    def test_select_compiles_nothing(self, device: Device, open_cache: Callable[..., ProgramCache]) -> None:
        tuned, cache = twice("idle", [5, 1]), open_cache()
        for items in (1, 100, 4096):
            tuned.select(cache, {"n": items})
        assert cache.stats().misses == 0 and cache.stats().programs == 0

    def test_records_of_the_same_architecture_are_used(
        self, device: Device, programs: ProgramCache, tmp_path: Path
    ) -> None:
        tuned = twice("alike", [5, 1, 3])
        theirs = [
            msgspec.structs.replace(record, device="0" * 64, device_name="somebody's machine")
            for record in (self.measured(tuned, device, 1, 0.5), self.measured(tuned, device, 3, 0.4))
        ]
        with Records(tmp_path / "theirs") as records:
            records.add_all(theirs)
            assert records.export(tmp_path / "theirs.jsonl") == 2
        assert tuned.records(programs).load(tmp_path / "theirs.jsonl") == 2
        found = tuned.select(programs, PROBLEM)
        assert (dict(found.variant), found.basis, found.expected_ms) == ({"STEPS": 3}, "architecture", 0.4)
        assert "on somebody's machine, which is " in found.reason and found.reason.count("as this one") == 1
        near = tuned.select(programs, {"n": 8192})
        assert near.basis == "architecture" and near.expected_ms == pytest.approx(0.8) and near.distance
        # Shipped with a kernel they count as much; those of another architecture do not.
        shipped = twice("alike", [5, 1, 3], shipped=[tmp_path / "theirs.jsonl"])
        with ProgramCache(device, tmp_path / "empty") as cache:
            assert shipped.select(cache, PROBLEM).variant == {"STEPS": 3}
            foreign = [msgspec.structs.replace(record, architecture="another") for record in theirs]
            tuned.records(cache).add_all(foreign)
            assert tuned.select(cache, PROBLEM).basis == "default"

    def test_records_and_pins_of_another_backend_do_not_count(
        self, device: Device, open_cache: Callable[..., ProgramCache]
    ) -> None:
        others = [info.spec for info in list_devices() if info.backend != device.backend]
        if not others:
            pytest.skip("there is one kind of device here")
        tuned, cache = twice("local", [5, 1]), open_cache()
        tuned.records(cache).add(self.measured(tuned, device, 1, 0.5))
        tuned.pin(cache, {"n": 100}, {"STEPS": 1})
        assert tuned.select(cache, PROBLEM).variant == {"STEPS": 1}
        with open_device(others[0]) as second, open_cache(second) as beside:
            assert beside.cache_dir == cache.cache_dir
            for items in (4096, 100):
                assert tuned.select(beside, {"n": items}).basis == "default"
                self.check_run(tuned, beside, items)

    def test_near_ties_keep_the_variant_in_use(self, device: Device, programs: ProgramCache) -> None:
        tuned = twice("ties", [5, 1, 3])
        records = tuned.records(programs)
        records.add_all([self.measured(tuned, device, 1, 0.50), self.measured(tuned, device, 3, 0.51)])
        held = Choice(
            tuned="ties", device=device.fingerprint.digest, problem=dict(PROBLEM), variant={"STEPS": 3},
            reason="in use before, and a tie with STEPS=1 (0.5 ms)",
        )  # fmt: skip
        records.choose(held)
        found = tuned.select(programs, PROBLEM)
        assert (dict(found.variant), found.basis, found.expected_ms) == ({"STEPS": 3}, "exact", 0.51)
        assert "is kept for this problem" in found.reason and "a tie with STEPS=1" in found.reason

    def test_a_pin_holds_until_unpin(
        self, device: Device, programs: ProgramCache, open_cache: Callable[..., ProgramCache]
    ) -> None:
        tuned = twice("pinned", [5, 1, 3])
        tuned.records(programs).add(self.measured(tuned, device, 1, 0.5))
        tuned.pin(programs, PROBLEM, {"STEPS": 3})
        found = tuned.select(programs, PROBLEM)
        assert (dict(found.variant), found.basis) == ({"STEPS": 3}, "pinned")
        assert found.reason == "STEPS=3 was pinned for this problem"
        self.check_run(tuned, programs)
        assert tuned.select(programs, {"n": 100}).basis == "nearest", "a pin is for one problem"
        report = tuned.tune(programs, PROBLEM, isolate=False)
        assert report.best is not None and tuned.select(programs, PROBLEM).variant == {"STEPS": 3}
        assert tuned.unpin(programs, PROBLEM) and not tuned.unpin(programs, PROBLEM)
        assert tuned.select(programs, PROBLEM).basis == "exact"
        for wrong in ({"STEPS": 7}, {}, {"STEPS": 1, "TILE": 1}):
            with pytest.raises(ArgumentError, match="is not a variant of pinned"):
                tuned.pin(programs, PROBLEM, wrong)

    def test_measurements_and_pins_survive_a_restart(
        self, device: Device, open_cache: Callable[..., ProgramCache]
    ) -> None:
        with open_cache() as cache:
            folder, tuned = cache.cache_dir, twice("restarted", [5, 1, 3])
            tuned.records(cache).add(self.measured(tuned, device, 1, 0.5))
            self.check_run(tuned, cache)
        compiles = "0" if device.capabilities.program_binaries else "1"
        said = run_python(_ELSEWHERE, device.spec, folder).stdout.split(maxsplit=3)
        assert said[:3] == ["1", "exact", compiles] and "0.5 ms over 3 samples" in said[3]
        with open_cache() as cache:
            tuned.pin(cache, PROBLEM, {"STEPS": 3})
        assert run_python(_ELSEWHERE, device.spec, folder).stdout.split()[:2] == ["3", "pinned"]

    @pytest.mark.parametrize("steps", [999, True, 1.0, "1", "1); evil(", 2**62, -1, None, ...], ids=repr)
    def test_variants_outside_the_space_never_reach_the_compiler(
        self, device: Device, open_cache: Callable[..., ProgramCache], steps: Any, tmp_path: Path
    ) -> None:
        """Records and choices of a file that somebody made for this very kernel, imported or edited by hand."""
        foreign: dict[str, Any] = {} if steps is None else {"STEPS": 1, "MORE": 1} if steps is ... else {"STEPS": steps}
        tuned, here = twice("crafted", [5, 1, 3]), device.fingerprint.digest

        def crafted(items: int, on: str = here) -> Record:
            record = self.measured(tuned, device, 1, 0.001, items)
            try:  # the hash that it would have
                source = source_digest(tuned.definition.source(device, foreign, {"n": items}))
            except (ArgumentError, Unsupported):
                source = "0" * 64
            return msgspec.structs.replace(record, variant=foreign, source=source, device=on)

        pins = [
            Choice(
                tuned="crafted", device=here, problem={"n": items}, variant=foreign, pinned=items == 4096, created=9e9
            )
            for items in (4096, 8192)
        ]
        records = [crafted(8192), crafted(4000), crafted(4096), crafted(4096, "e" * 64)]
        file = tmp_path / "crafted.jsonl"
        lines: list[Record | Choice] = [*records, *pins]
        file.write_bytes(b"".join(map(encode_line, lines)))
        shipping = twice("crafted", [5, 1, 3], shipped=file)
        with open_cache() as cache, warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            tuned.records(cache).load(file)
            # Some of these values no import takes: they are written into the table.
            with contextlib.closing(sqlite3.connect(cache.cache_dir / "tuning.sqlite")) as table, table:
                for record in records:
                    body = msgspec.json.encode(msgspec.structs.replace(record, problem=dict(PROBLEM))).decode()
                    row = ("crafted", here, '{"n":4096}', "f4", record.source, record.architecture, "", "", 9e9, body)
                    table.execute("INSERT OR REPLACE INTO records VALUES (?,?,?,?,?,?,?,?,?,?)", row)
                body = msgspec.json.encode(pins[0]).decode()
                table.execute(
                    "INSERT OR REPLACE INTO choices VALUES (?,?,?,?,?)", ("crafted", here, '{"n":4096}', "f4", body)
                )
            for one in (tuned, shipping):
                for deterministic in (False, True):
                    for items in (4096, 8192, 4001, 5):
                        found = one.select(cache, {"n": items}, deterministic=deterministic)
                        assert [type(value) for value in found.variant.values()] == [int], found
                        assert (dict(found.variant), found.expected_ms) == ({"STEPS": 5}, None), found
                        assert ("is ignored" in found.reason) == (items == 4096), found
                self.check_run(one, cache)
                self.check_run(one, cache, deterministic=True)
                self.check_run(one, cache, explore=0.01)
            assert cache.stats().programs == 1, "nothing but the default was ever loaded"
            assert one.tune(cache, PROBLEM, isolate=False).best in ({"STEPS": 5}, {"STEPS": 1}, {"STEPS": 3})
            said = [str(w.message) for w in warned if "crafted" in str(w.message) and "is ignored" in str(w.message)]
            assert len(said) == 1 and "evil" not in said[0]

    def test_invented_problems_in_records_break_no_call(self, device: Device, open_cache: Callable[..., Any]) -> None:
        tuned = twice("odd", [5, 1, 3], work=lambda problem: 1 / (problem["n"] - 7) + 0 * len(range(problem["n"])))
        record = self.measured(tuned, device, 1, 0.5)
        cache = open_cache()
        for items in (7, 0, -1, 1.5, "many", 2**62, True):
            tuned.records(cache).add(msgspec.structs.replace(record, problem={"n": items}, source=f"{items}"))
        with contextlib.closing(sqlite3.connect(cache.cache_dir / "tuning.sqlite")) as table, table:
            table.execute("UPDATE records SET body = replace(body, ?, ?)", (str(2**62), "9" * 400))
        assert tuned.select(cache, PROBLEM).basis == "default"
        assert tuned.select(cache, {"n": 7}).basis == "default"
        self.check_run(tuned, cache)

    def test_deterministic_ignores_measurements(self, device: Device, programs: ProgramCache) -> None:
        tuned = twice("steady", [5, 1, 3])
        tuned.records(programs).add(self.measured(tuned, device, 1, 0.5))
        assert tuned.select(programs, PROBLEM).variant == {"STEPS": 1}
        found = tuned.select(programs, PROBLEM, deterministic=True)
        assert (dict(found.variant), found.basis) == ({"STEPS": 5}, "deterministic")
        assert "measurements do not count" in found.reason
        self.check_run(tuned, programs, deterministic=True, explore=0.5)
        always = twice("steady", [5, 1, 3], deterministic=True)
        assert always.select(programs, PROBLEM, deterministic=False).variant == {"STEPS": 1}
        assert always.select(programs, PROBLEM).variant == {"STEPS": 5}
        self.check_run(always, programs, explore=0.5)
        always.pin(programs, PROBLEM, {"STEPS": 3})
        assert always.select(programs, PROBLEM).basis == "pinned"

    def test_a_closed_cache_is_an_error(self, open_cache: Callable[..., ProgramCache]) -> None:
        tuned, cache = twice("closed", [1]), open_cache()
        cache.close()
        for use in (
            lambda: tuned.select(cache, PROBLEM),
            lambda: tuned.tune(cache, PROBLEM),
            lambda: tuned.pin(cache, PROBLEM, {"STEPS": 1}),
            lambda: tuned.unpin(cache, PROBLEM),
            lambda: tuned.run(cache, PROBLEM, x=np.zeros(4096, "f4")),
            lambda: tuned.run(cache, PROBLEM, x=np.zeros(4096, "f4"), explore=0.5),
        ):
            with pytest.raises(DeviceError, match=r"the cache for .* is closed: use it inside its with block"):
                use()
