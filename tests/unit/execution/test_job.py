"""Jobs: what they take, what they refuse, and what they say of a batch."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import kernelkeep as kk
from kernelkeep.execution.job import check_outputs

KERNEL = kk.PortableKernel(
    "fill",
    params=[kk.Buffer("x", "f4", "r"), kk.Buffer("y", "f4", "rw"), kk.Scalar("n", "i4")],
    body="int i = kk_global_id(0); if (i < n) y[i] = x[i];",
    group=64,
)
SOURCE = kk.Source("__kernel void fill(__global float* y) { y[0] = 1; }", name="fill")


class NoCache(kk.ProgramCache):
    """A job never asks its cache for anything: an executor does."""

    def __init__(self) -> None:
        self.closed = True
        self.device = SimpleNamespace(spec="none:0")  # type: ignore[assignment]


@pytest.fixture
def cache() -> kk.ProgramCache:
    return NoCache()


def make(cache: kk.ProgramCache, outputs: Any = ("y",), **fields: Any) -> kk.Job:
    return kk.Job(cache, KERNEL, fields.pop("grid", 4), outputs, **fields)


@pytest.mark.parametrize("outputs", ["y", ["y"], ("y",), {"y"}, iter(["y"]), {"y": None}])
def test_outputs_may_be_names_alone(cache: kk.ProgramCache, outputs: Any) -> None:
    job = make(cache, outputs)
    assert job.outputs == {"y": None}
    assert job.output_for("y", {}) is None


@pytest.mark.parametrize(
    ("wanted", "shape"),
    [
        ((5, "f4"), (5,)),
        (((5,), "f4"), (5,)),
        (([2, 3], np.float32), (2, 3)),
        (((), ">f4"), ()),
        ((np.int64(5), "f"), (5,)),
    ],
)
def test_outputs_may_have_shape_and_dtype(cache: kk.ProgramCache, wanted: Any, shape: tuple[int, ...]) -> None:
    for outputs in ({"y": wanted}, {"y": lambda batch: wanted}):
        assert make(cache, outputs).output_for("y", {}) == (shape, np.dtype("f4"))


def test_grid_and_outputs_may_be_functions_of_the_batch(cache: kk.ProgramCache) -> None:
    job = make(cache, {"y": lambda batch: (batch["n"], "f4")}, grid=lambda batch: (batch["n"], 2))
    assert job.grid_for({"n": 3}) == (3, 2)
    assert job.output_for("y", {"n": 3}) == ((3,), np.dtype("f4"))
    assert make(cache, grid=(4, 2)).grid_for({"n": 3}) == (4, 2)


@pytest.mark.parametrize(
    ("outputs", "said"),
    [
        ([], "at least one buffer"), ({}, "at least one buffer"), (None, "got a NoneType"), (5, "got a int"),
        (["z"], "'z' of job fill must be a buffer of its kernel, which has: x, y"), ({"n": (1, "i4")}, "'n'"),
        ({"y": 5}, "pair of shape and dtype"), ({"y": (1, 2, 3)}, "pair of shape and dtype"),
        ({"y": (4, 5)}, r"'y' must be a pair of shape and dtype, as in \(\(4, 5\), 'f4'\)"),
        ({"y": (-1, "f4")}, "negative"), ({"y": (1.5, "f4")}, "shape"), ({"y": (5, "nonsense")}, "must be a NumPy dtype"),
        ({"y": (5, object)}, "must be made of numbers"), ({"y": (5, "f8")}, "must be float32 as in the kernel, got float64"),
    ],
)  # fmt: skip
def test_a_job_rejects_wrong_outputs(cache: kk.ProgramCache, outputs: Any, said: str) -> None:
    with pytest.raises(kk.ArgumentError, match=said):
        make(cache, outputs)


def test_a_job_rejects_an_output_that_its_kernel_only_reads(cache: kk.ProgramCache) -> None:
    with pytest.raises(kk.ArgumentError, match="output 'x' of job fill is only read by its kernel, which writes: y"):
        make(cache, ["x"])


@pytest.mark.parametrize("grid", [0, 2.5, (1, 2, 3, 4), "4"])
def test_a_job_rejects_a_wrong_grid(cache: kk.ProgramCache, grid: Any) -> None:
    with pytest.raises(kk.ArgumentError, match="grid of job fill must be one to three positive integers, got "):
        make(cache, grid=grid)


def test_outputs_of_a_function_are_checked_as_well(cache: kk.ProgramCache) -> None:
    with pytest.raises(kk.ArgumentError, match="pair of shape and dtype"):
        make(cache, {"y": lambda batch: 5}).output_for("y", {})


def test_outputs_of_a_source_are_checked_against_its_buffers(cache: kk.ProgramCache) -> None:
    job = kk.Job(cache, SOURCE, 1, ["whatever"])
    with pytest.raises(kk.ArgumentError, match="which has: y"):
        check_outputs(job, {"y"})
    with pytest.raises(kk.ArgumentError, match="which has: none"):
        check_outputs(job, set())


def test_a_job_is_named_after_its_kernel(cache: kk.ProgramCache) -> None:
    assert make(cache).name == "fill"
    assert kk.Job(cache, SOURCE, 1, ["y"], kernel="other").name == "other"
    job = kk.Job(cache, SOURCE, 1, ["y"], kernel="other", name="mine")
    assert job.name == "mine"
    assert repr(job) == "<Job mine on none:0: y>"


@pytest.mark.parametrize("wrong", [None, "cache", 1])
def test_a_job_rejects_what_is_not_a_cache(wrong: Any) -> None:
    with pytest.raises(kk.ArgumentError, match="ProgramCache"):
        kk.Job(wrong, KERNEL, 1, ["y"])


@pytest.mark.parametrize("wrong", [None, "__kernel void f() {}", 1])
def test_a_job_rejects_what_is_not_a_source(cache: kk.ProgramCache, wrong: Any) -> None:
    with pytest.raises(kk.ArgumentError, match=r"Source or kk\.PortableKernel"):
        kk.Job(cache, wrong, 1, ["y"])
