"""`kk.Tuned` on a device without a driver: tuning, choosing and failures, fast and without a clock that matters."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kernelkeep as kk
from kernelkeep.testing import FakeDevice

PROBLEM = {"n": 100}
PARAMS: list[kk.Buffer | kk.Scalar] = [kk.Buffer("x", "f4", "r"), kk.Buffer("y", "f4", "w"), kk.Scalar("n", "i4")]
# FACTOR is the mistake of a variant: only 2 is right.
BODY = """int i = kk_global_id(0) * STEP;
for (int j = 0; j < STEP; j++) { if (i + j < n) y[i + j] = x[i + j] * FACTOR; }"""


@pytest.fixture
def device() -> Iterator[FakeDevice]:
    with FakeDevice() as opened:
        yield opened


@pytest.fixture
def cache(device: FakeDevice, tmp_path: Path) -> Iterator[kk.ProgramCache]:
    with kk.ProgramCache(device, tmp_path) as opened:
        yield opened


def double(name: str = "double", factors: tuple[int, ...] = (2,), **options: Any) -> kk.Tuned:
    template = kk.Template(BODY, PARAMS, group=8, grid=lambda v: -(-v["n"] // (8 * v["STEP"])))
    space = kk.VariantSpace(FACTOR=list(factors), STEP=[1, 4])
    return kk.Tuned(name, template, space, reference=lambda x: 2 * x, **options)


def check_run(tuned: kk.Tuned, cache: kk.ProgramCache) -> None:
    x = np.arange(100, dtype="f4")
    y = tuned.run(cache, PROBLEM, x=x)
    assert isinstance(y, kk.Array)
    np.testing.assert_array_equal(y.numpy(), 2 * x)


def test_tune_rejects_wrong_variants_and_chooses_a_right_one(cache: kk.ProgramCache) -> None:
    tuned = double(factors=(3, 2))
    report = tuned.tune(cache, PROBLEM, isolate=False)
    assert report.complete and report.failures == {"wrong": 2} and report.measured == 2
    assert report.best is not None and report.best["FACTOR"] == 2
    assert tuned.select(cache, PROBLEM).basis == "exact"
    check_run(tuned, cache)


def test_tuning_again_tries_nothing_unless_forced(cache: kk.ProgramCache) -> None:
    tuned = double()
    assert tuned.tune(cache, PROBLEM, isolate=False).measured == 2
    again = tuned.tune(cache, PROBLEM, isolate=False)
    assert (again.measured, again.remembered) == (0, 2)
    assert tuned.tune(cache, PROBLEM, isolate=False, force=True).measured == 2


def test_a_variant_that_does_not_compile_is_stored_as_failed(device: FakeDevice, cache: kk.ProgramCache) -> None:
    tuned = double()
    device.faults.fail("compile")
    report = tuned.tune(cache, PROBLEM, isolate=False)
    assert report.failures == {"compile": 1} and report.measured == 1
    check_run(tuned, cache)


def test_a_lack_of_memory_is_transient_and_not_stored(device: FakeDevice, cache: kk.ProgramCache) -> None:
    tuned = double()
    device.faults.fail("allocate")
    report = tuned.tune(cache, PROBLEM, isolate=False)
    assert report.failures == {"transient": 1} and report.measured == 1
    again = tuned.tune(cache, PROBLEM, isolate=False)
    assert again.measured + again.failures.get("slow", 0) == 1, "it is tried again"


def test_run_raises_where_every_variant_is_wrong(cache: kk.ProgramCache) -> None:
    tuned = double(factors=(3,))
    assert tuned.tune(cache, PROBLEM, isolate=False).best is None
    with pytest.raises(kk.VariantError, match="every variant of double failed for n=100") as caught:
        tuned.run(cache, PROBLEM, x=np.zeros(100, "f4"))
    assert len(caught.value.failures) == 2


def test_a_pin_is_chosen_until_unpin_and_never_a_failed_variant(cache: kk.ProgramCache) -> None:
    tuned = double(factors=(2, 3))
    tuned.tune(cache, PROBLEM, isolate=False)
    tuned.pin(cache, PROBLEM, {"FACTOR": 2, "STEP": 4})
    assert tuned.select(cache, PROBLEM).basis == "pinned"
    assert tuned.unpin(cache, PROBLEM) and tuned.select(cache, PROBLEM).basis == "exact"
    with pytest.raises(kk.ArgumentError, match="cannot be pinned: it failed"):
        tuned.pin(cache, PROBLEM, {"FACTOR": 3, "STEP": 1})


def test_deterministic_selects_the_default(cache: kk.ProgramCache) -> None:
    tuned = double(deterministic=True)
    tuned.tune(cache, PROBLEM, isolate=False)
    found = tuned.select(cache, PROBLEM)
    assert (dict(found.variant), found.basis) == ({"FACTOR": 2, "STEP": 1}, "deterministic")
    assert tuned.select(cache, PROBLEM, deterministic=False).basis == "exact"


def test_the_prepared_call_is_kept_until_forget(cache: kk.ProgramCache) -> None:
    tuned = double()
    call = tuned.call(cache, PROBLEM)
    assert tuned.call(cache, {"n": np.int64(100)}) is call
    tuned.forget(cache)
    assert tuned.call(cache, PROBLEM) is not call


def test_a_closed_cache_is_refused(device: FakeDevice, tmp_path: Path) -> None:
    with kk.ProgramCache(device, tmp_path) as cache:
        pass
    with pytest.raises(kk.KernelKeepError):
        double().select(cache, PROBLEM)


@pytest.mark.parametrize("dtype", ["u1", "i2", "f4"])
@pytest.mark.parametrize("n", [5, 8])
def test_arrays_of_small_elements_and_odd_sizes_are_verified(dtype: str, n: int, tmp_path: Path) -> None:
    params: list[kk.Buffer | kk.Scalar] = [kk.Buffer("x", dtype, "r"), kk.Buffer("y", dtype, "w"), kk.Scalar("n", "i4")]
    body = "int i = kk_global_id(0); if (i < n - LESS) y[i] = i < n ? x[i] : 0;"
    template = kk.Template(body, params, group=8, grid=2)
    space = kk.VariantSpace(LESS=[0, 1, -1])
    tuned = kk.Tuned("same", template, space, reference=lambda x: x, checks=[])
    with FakeDevice() as device, kk.ProgramCache(device, tmp_path) as cache:
        report = tuned.tune(cache, {"n": n}, isolate=False)
    found = {attempt.variant["LESS"]: (attempt.failure, attempt.detail) for attempt in report.attempts}
    assert found[0][0] == ""
    assert found[1] == ("wrong", f"y[{n - 1}] was never written instead of {found[1][1].rpartition(' ')[2]}")
    assert found[-1][0] == "guard"
