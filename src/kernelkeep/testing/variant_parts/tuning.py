"""Tuning finds the fastest variant that is right, remembers all it tried, and tries nothing twice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ...cache.program_cache import ProgramCache
from ...devices.base import Device
from ...errors import ArgumentError, Unsupported, VariantError
from ...programs.portable import PortableKernel
from ...variants.space import VariantSpace
from ...variants.template import Template
from ...variants.tuned import Tuned
from .common import BODY, PARAMS, PROBLEM, Listener, VariantPart, doubled, twice

__all__ = ["TuningTests"]


class _Stop(Exception):
    """The user's Ctrl-C."""


class TuningTests(VariantPart):
    """`tune` without failures; in this process, which is faster."""

    def test_all_variants_are_tried_and_the_fastest_is_chosen(self, device: Device, programs: ProgramCache) -> None:
        heavy = self.heavy(device)
        tuned = twice("fastest", [heavy, 1, heavy + 1])
        told = Listener()
        report = tuned.tune(programs, PROBLEM, isolate=False, listen=told)
        assert report.complete and report.size == 3 and report.measured == 3 and report.failures == {}
        assert [dict(attempt.variant) for attempt in told.attempts] == told.new and len(told.new) == 3
        assert report.best == {"STEPS": 1}, str(report)
        assert report.default == {"STEPS": heavy}
        assert report.best_ms is not None and report.default_ms is not None and report.best_ms < report.default_ms
        assert report.seconds_to_best is not None and report.seconds_to_best <= report.seconds
        assert "STEPS=1" in str(report) and "3 of 3 variants" in str(report)
        found = tuned.select(programs, PROBLEM)
        assert found.variant == report.best and found.basis == "exact" and found.reason == report.reason
        assert found.expected_ms == pytest.approx(report.best_ms) and found.distance == 0
        self.check_run(tuned, programs)
        for record in tuned.records(programs).of_device("fastest", device.fingerprint.digest):
            assert record.verified and record.tolerance == tuned.definition.tolerance and len(record.samples_ms) >= 3
            assert record.problem == PROBLEM and record.device_name == device.fingerprint.folder

    def test_tuning_again_compiles_and_measures_nothing(
        self, device: Device, open_cache: Callable[..., ProgramCache]
    ) -> None:
        tuned, told = twice("again", [1, self.heavy(device)]), Listener()
        with open_cache() as cache:
            first = tuned.tune(cache, PROBLEM, isolate=False)
            before = tuned.records(cache).of_device("again", device.fingerprint.digest)
            compiles = cache.stats().compiles
            assert compiles > 0
            again = tuned.tune(cache, PROBLEM, isolate=False, listen=told)
            assert cache.stats().compiles == compiles
            assert told.new == [] and again.measured == 0 and again.remembered == 2
            assert again.best == first.best and again.complete
            assert tuned.records(cache).of_device("again", device.fingerprint.digest) == before
        with open_cache() as cache:
            assert twice("again", [1, self.heavy(device)]).tune(cache, PROBLEM, isolate=False).best == first.best
            assert cache.stats().compiles == 0 and cache.stats().programs == 0

    def test_only_an_added_value_is_measured(self, device: Device, programs: ProgramCache) -> None:
        heavy = self.heavy(device)
        twice("grown", [heavy, heavy + 1]).tune(programs, PROBLEM, isolate=False)
        told = Listener()
        larger = twice("grown", [heavy, heavy + 1, 1])
        report = larger.tune(programs, PROBLEM, isolate=False, listen=told)
        assert told.new == [{"STEPS": 1}] and report.complete
        assert report.best == {"STEPS": 1}

    def test_an_edited_template_is_measured_again(self, device: Device, programs: ProgramCache) -> None:
        steps = [1, self.heavy(device)]
        assert twice("edited", steps).tune(programs, PROBLEM, isolate=False).best == {"STEPS": 1}
        edited = twice("edited", steps[::-1], BODY.replace("2.0f * x[i]", "x[i] + x[i]"))
        found = edited.select(programs, PROBLEM)
        assert found.basis == "default" and found.variant == {"STEPS": steps[1]}
        told = Listener()
        assert edited.tune(programs, PROBLEM, isolate=False, listen=told).best == {"STEPS": 1}
        assert len(told.new) == 2

    def test_an_interrupted_tuning_continues(self, device: Device, programs: ProgramCache) -> None:
        steps = [1, self.heavy(device), self.heavy(device) + 1]
        tuned, told = twice("interrupted", steps), Listener()

        def stop(attempt: Any) -> None:
            told(attempt)
            if len(told.attempts) == 2:
                raise _Stop

        with pytest.raises(_Stop):
            tuned.tune(programs, PROBLEM, isolate=False, listen=stop)
        assert tuned.select(programs, PROBLEM).basis == "exact", "what is known already is used"
        tried, told = told.new, Listener()
        report = tuned.tune(programs, PROBLEM, isolate=False, listen=told)
        assert report.complete and len(told.new) == 1 and told.new[0] not in tried
        assert report.best == {"STEPS": 1}

    def test_a_budget_ends_a_tuning_and_the_next_one_continues(self, device: Device, programs: ProgramCache) -> None:
        tuned = twice("budget", [1, self.heavy(device)])
        short = tuned.tune(programs, PROBLEM, budget_seconds=1e-6, isolate=False)
        assert not short.complete and short.size == 2
        self.check_run(tuned, programs)
        assert tuned.tune(programs, PROBLEM, budget_seconds=600, isolate=False).complete
        for wrong in (0, -1, float("nan")):
            with pytest.raises(ArgumentError, match="budget_seconds must be a positive number"):
                tuned.tune(programs, PROBLEM, budget_seconds=wrong)

    def test_a_variant_that_skips_the_remainder_is_wrong(self, device: Device, programs: ProgramCache) -> None:
        """Right for the size that is tuned, wrong for ragged ones."""
        cut = BODY.replace("if (i < n)", "if (i < (STEPS == 1 ? n / 16 * 16 : n))")
        report = twice("cut", [1, self.heavy(device)], cut).tune(programs, PROBLEM, isolate=False)
        self.check_failures(report, {"1": "wrong", str(self.heavy(device)): ""}, "STEPS")
        (failed,) = [attempt for attempt in report.attempts if attempt.failure]
        assert failed.detail.startswith("y[64] was never written instead of")
        assert report.best == {"STEPS": self.heavy(device)} and report.failures == {"wrong": 1}

    def test_conditions_apply_to_the_ragged_problem(self, device: Device, programs: ProgramCache) -> None:
        """A variant is not tried with a size that the space does not allow for it."""
        cut = BODY.replace("if (i < n)", "if (i < n / 16 * 16)")
        space = VariantSpace(STEPS=[1, self.heavy(device)]).where(lambda v: v.get("n", 16) % 16 == 0)
        tuned = twice("sixteens", None, cut, space=space)
        assert tuned.tune(programs, PROBLEM, isolate=False).measured == 2
        with pytest.raises(ArgumentError, match="no variant of the space is allowed for"):
            tuned.select(programs, {"n": 100})

    def test_a_variant_that_is_right_for_some_numbers_only_loses(self, device: Device, programs: ProgramCache) -> None:
        """The winner is verified again with other numbers: seed 1 instead of 0."""

        def inputs(values: Any, rng: np.random.Generator) -> dict[str, Any]:
            return {"x": rng.random() + np.arange(values["n"]) % 7}

        limit = (np.random.default_rng(0).random() + np.random.default_rng(1).random()) / 2
        assert np.random.default_rng(0).random() > limit
        cheat = BODY.replace("2.0f * x[i]", f"(STEPS > 1 || x[0] > {limit:.6f}f ? 2.0f : 3.0f) * x[i]")
        tuned = twice("cheat", [1, self.heavy(device)], cheat, inputs=inputs)
        report = tuned.tune(programs, PROBLEM, isolate=False)
        self.check_failures(report, {"1": "wrong", str(self.heavy(device)): ""}, "STEPS")
        assert report.best == {"STEPS": self.heavy(device)} == tuned.select(programs, PROBLEM).variant
        assert tuned.tune(programs, PROBLEM, isolate=False).best == report.best

    def test_a_variant_the_device_does_not_support_is_refused(self, device: Device, programs: ProgramCache) -> None:
        most = device.capabilities.max_group_items
        template = Template("int i = kk_global_id(0);\nif (i < n) y[i] = 2.0f * x[i];", PARAMS, group="GROUP")
        tuned = Tuned("groups", template, VariantSpace(GROUP=[64, 2 * most]), reference=doubled)
        report = tuned.tune(programs, PROBLEM, isolate=False)
        self.check_failures(report, {"64": "", str(2 * most): "refused"}, "GROUP")
        assert report.complete and report.best == {"GROUP": 64} and f"at most {most:,}" in str(report)
        hopeless = Tuned("groups", template, VariantSpace(GROUP=[2 * most]), reference=doubled)
        with pytest.raises(Unsupported, match=f"at most {most:,}"):
            hopeless.tune(programs, PROBLEM, isolate=False)

    def test_nothing_is_chosen_where_every_variant_fails(self, programs: ProgramCache) -> None:
        tuned = twice("hopeless", [1], BODY.replace("2.0f", "3.0f"))
        report = tuned.tune(programs, PROBLEM, isolate=False)
        assert report.best is None and report.best_ms is None and report.failures == {"wrong": 1}
        assert "every variant failed" in str(report)
        # And nothing of it is run, however it is asked for.
        x = np.ones(PROBLEM["n"], "f4")
        compiles = programs.stats().compiles
        for use in (
            lambda: tuned.select(programs, PROBLEM),
            lambda: tuned.select(programs, PROBLEM, deterministic=True),
            lambda: tuned.run(programs, PROBLEM, x=x),
            lambda: tuned.run(programs, PROBLEM, x=x, explore=0.5),
            lambda: tuned.run(programs, PROBLEM, x=x, deterministic=True),
            lambda: tuned.preload(programs, [PROBLEM]),
        ):
            with pytest.raises(VariantError, match=r"failed for n=4096 on .*1 wrong \(STEPS=1: y\[\d+\] is ") as caught:
                use()
            assert [failure for _, failure, _ in caught.value.failures] == ["wrong"]
        assert programs.stats().compiles == compiles
        with pytest.raises(ArgumentError, match="STEPS=1 cannot be pinned: it failed"):
            tuned.pin(programs, PROBLEM, {"STEPS": 1})
        # A variant that was never tried is left, and a mended kernel is another one.
        wider = twice("hopeless", [1, 2], BODY.replace("2.0f", "3.0f"))
        assert wider.select(programs, PROBLEM).basis == "untried"
        assert tuned.tune(programs, PROBLEM, isolate=False).failures == {"wrong": 1}, "it can be tuned again"
        self.check_run(twice("hopeless", [1]), programs)

    def test_tune_rejects_wrong_arguments(self, programs: ProgramCache) -> None:
        kernel = PortableKernel("twice", PARAMS, BODY, group=64)
        with pytest.raises(ArgumentError, match="unverified has no reference"):
            Tuned("unverified", kernel, VariantSpace(STEPS=[1])).tune(programs, PROBLEM)
        with pytest.raises(ArgumentError, match="scalar n has no value"):
            twice("nameless", [1]).tune(programs, {"m": 4096}, isolate=False)
        with pytest.raises(ArgumentError, match="problem must be a dict"):
            twice("nameless", [1]).tune(programs, 4096, isolate=False)  # type: ignore[arg-type]

    def test_a_corrected_reference_makes_a_variant_be_tried_again(self, programs: ProgramCache) -> None:
        kernel, space = PortableKernel("twice", PARAMS, BODY, group=64), VariantSpace(STEPS=[1, 2])
        first = Tuned("mended", kernel, space, reference=lambda x: 3 * x).tune(programs, PROBLEM, isolate=False)
        assert first.failures == {"wrong": 2} and first.best is None
        mended = Tuned("mended", kernel, space, reference=lambda x: 2 * x)
        assert "failed (wrong" in mended.select(programs, PROBLEM).reason
        assert mended.tune(programs, PROBLEM, isolate=False).failures == {}

    def test_a_stricter_tolerance_makes_variants_be_tried_again(self, programs: ProgramCache) -> None:
        kernel, space = PortableKernel("twice", PARAMS, BODY, group=64), VariantSpace(STEPS=[1])
        lax = Tuned("strict", kernel, space, reference=lambda x: 2 * x + 1e-3, tolerance=10.0)
        assert lax.tune(programs, PROBLEM, isolate=False).best is not None
        strict = Tuned("strict", kernel, space, reference=lambda x: 2 * x + 1e-3, tolerance=1e-7)
        assert strict.select(programs, PROBLEM).basis == "default"
        assert strict.tune(programs, PROBLEM, isolate=False).failures == {"wrong": 1}

    def test_workers_import_no_module_of_the_current_folder(
        self, programs: ProgramCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A file in the current folder that is named like a module is not run by the workers."""
        monkeypatch.chdir(tmp_path)
        (tmp_path / "msgspec.py").write_text("open('was-run', 'w')")
        assert twice("strangers", [1, 2]).tune(programs, PROBLEM).measured == 2
        assert not (tmp_path / "was-run").exists()
