"""Pipelines: what does not fit together is said when they are made, and a failure on the way is that batch alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kernelkeep as kk
from kernelkeep.testing import FakeDevice

ITEMS = 16


def kernel(name: str, *params: Any) -> kk.PortableKernel:
    return kk.PortableKernel(name, params=list(params), body="", group=ITEMS)


COPY = kk.PortableKernel(
    "copied",
    params=[kk.Buffer("x", "i4", "r"), kk.Buffer("result", "i4", "w"), kk.Scalar("by", "i4")],
    body="int i = kk_global_id(0);\nresult[i] = x[i] + by;",
    group=ITEMS,
)
BLUR = kernel("blur", kk.Buffer("image", "u1", "r"), kk.Buffer("blurred", "u1", "w"), kk.Scalar("sigma", "f4"))
EDGES = kernel("edges", kk.Buffer("image", "u1", "r"), kk.Buffer("edges", "u1", "w"))
TOTAL = kernel("total", kk.Buffer("total", "i4", "rw"), kk.Buffer("x", "i4", "r"))


@pytest.fixture
def device() -> Iterator[FakeDevice]:
    with FakeDevice() as opened:
        yield opened


@pytest.fixture
def cache(device: FakeDevice, tmp_path: Path) -> Iterator[kk.ProgramCache]:
    with kk.ProgramCache(device, tmp_path / "cache") as opened:
        yield opened


@pytest.fixture
def copied(cache: kk.ProgramCache) -> kk.Job:
    return kk.Job(cache, COPY, grid=1, outputs={"result": (ITEMS, "i4")})


@pytest.fixture
def blur(cache: kk.ProgramCache) -> kk.Job:
    return kk.Job(cache, BLUR, grid=1, outputs={"blurred": ((4, 4), "u1")})


@pytest.fixture
def edges(cache: kk.ProgramCache) -> kk.Job:
    return kk.Job(cache, EDGES, grid=1, outputs={"edges": ((4, 4), "u1")})


def test_a_pipeline_shows_its_jobs(blur: kk.Job, edges: kk.Job) -> None:
    pipeline = kk.Pipeline([blur, (edges, {"image": "blurred"})])
    assert repr(pipeline) == "<Pipeline blur+edges on fake:0>"
    assert pipeline.jobs == (blur, edges)
    assert kk.Pipeline([blur], name="softly").name == "softly"


@pytest.mark.parametrize(
    ("jobs", "said"),
    [
        ([], "jobs must have at least one kk.Job, got none"),
        (None, "jobs must be a list of kk.Job, got a NoneType"),
        ("blur", "jobs must be a list of kk.Job, got a str"),
        ([None], "jobs must be kk.Job or (kk.Job, {\"parameter\": \"name\"}), got None"),
        ([(1, {})], "jobs must be kk.Job or (kk.Job, {\"parameter\": \"name\"}), got (1, {})"),
    ],
)  # fmt: skip
def test_what_is_not_a_list_of_jobs_is_refused(jobs: Any, said: str) -> None:
    with pytest.raises(kk.ArgumentError) as caught:
        kk.Pipeline(jobs)
    assert str(caught.value) == said


def test_a_job_or_a_pipeline_in_place_of_a_list_is_refused(blur: kk.Job) -> None:
    with pytest.raises(kk.ArgumentError, match=r"must be a list of kk\.Job, got a Job"):
        kk.Pipeline(blur)  # type: ignore[arg-type]
    with pytest.raises(kk.ArgumentError, match=r"got a kk\.Pipeline: list its jobs instead"):
        kk.Pipeline([kk.Pipeline([blur])])  # type: ignore[list-item]
    with pytest.raises(kk.ArgumentError, match="parameters of job blur must be named by strings, got 3"):
        kk.Pipeline([(blur, {3: "image"})])  # type: ignore[dict-item]


def test_an_output_that_no_later_job_reads_is_refused(blur: kk.Job, edges: kk.Job, copied: kk.Job) -> None:
    with pytest.raises(
        kk.ArgumentError, match=r"output 'blurred' of job blur \(number 1 of 2\) goes nowhere: pass it on"
    ):
        kk.Pipeline([blur, edges])  # edges would be those of the image
    with pytest.raises(kk.ArgumentError, match=r"output 'result' of job copied \(number 1 of 2\) goes nowhere"):
        kk.Pipeline([copied, copied])
    with pytest.raises(kk.ArgumentError, match=r"output 'edges' of job edges \(number 2 of 2\) goes nowhere"):
        kk.Pipeline([blur, (edges, {"image": "blurred"})], returns="blurred")
    kk.Pipeline([blur, edges], returns=["blurred", "edges"])


def test_a_parameter_that_a_job_does_not_have_is_refused(blur: kk.Job, edges: kk.Job) -> None:
    with pytest.raises(kk.ArgumentError, match="job edges has no parameter 'imge'; it has: image, edges"):
        kk.Pipeline([blur, (edges, {"imge": "blurred"})])


def test_dtypes_and_kinds_must_fit(cache: kk.ProgramCache, blur: kk.Job, copied: kk.Job) -> None:
    with pytest.raises(kk.ArgumentError) as caught:
        kk.Pipeline([blur, (copied, {"x": "blurred"})])
    assert str(caught.value) == (
        "parameter 'x' of job copied is int32, but 'blurred' is uint8 in parameter 'blurred' of job blur"
    )
    with pytest.raises(
        kk.ArgumentError, match="parameter 'by' of job copied is a scalar and parameter 'image' of job blur"
    ):
        kk.Pipeline([blur, (copied, {"by": "image"})], returns=["blurred", "result"])
    with pytest.raises(
        kk.ArgumentError, match="output 'edges' of job edges must be uint8 as in the kernel, got float32"
    ):
        kk.Job(cache, EDGES, grid=1, outputs={"edges": ((4, 4), "f4")})


def test_shapes_of_one_array_must_be_the_same(cache: kk.ProgramCache, copied: kk.Job) -> None:
    longer = kk.Job(cache, TOTAL, grid=1, outputs={"total": (ITEMS + 1, "i4")})
    with pytest.raises(kk.ArgumentError) as caught:
        kk.Pipeline([copied, (longer, {"total": "result"})])
    assert str(caught.value) == (
        "output 'total' of job total has the shape (17,) in outputs=, but the array comes from job copied, where its shape is "
        "(16,)"
    )
    with kk.Executor(cache.device) as executor:  # the same where shapes are known with the batch
        later = kk.Job(cache, TOTAL, grid=1, outputs={"total": lambda batch: (ITEMS + 1, "i4")})
        pipeline = kk.Pipeline([copied, (later, {"total": "result"})])
        problem = executor.submit(pipeline, x=np.zeros(ITEMS, "i4"), by=1).exception(30)
        assert isinstance(problem, kk.ArgumentError)
        assert "output 'total' of job total has the shape (17,)" in str(problem)


def test_a_kernel_does_not_write_to_what_it_reads_under_another_name(cache: kk.ProgramCache, copied: kk.Job) -> None:
    total = kk.Job(cache, TOTAL, grid=1, outputs={"total": (ITEMS, "i4")})
    with pytest.raises(kk.ArgumentError) as caught:
        kk.Pipeline([copied, (total, {"total": "result", "x": "result"})])
    assert str(caught.value) == (
        "parameters 'total' and 'x' of job total take the same array, and the kernel writes to it; give 'total' a name of its "
        "own"
    )


@pytest.mark.parametrize(
    ("returns", "said"),
    [
        ("edgs", "returns must name outputs of the jobs, got 'edgs'; there are: blurred, edges"),
        (["edges", "image"], "returns must name outputs of the jobs, got 'image'; there are: blurred, edges"),
        ([], "returns must name at least one output"), (3, "returns must be names of outputs, got a int"),
        ([3], "returns must be names of outputs, got 3"),
    ],
)  # fmt: skip
def test_returns_must_name_outputs(blur: kk.Job, edges: kk.Job, returns: Any, said: str) -> None:
    with pytest.raises(kk.ArgumentError) as caught:
        kk.Pipeline([blur, (edges, {"image": "blurred"})], returns=returns)
    assert str(caught.value).startswith(said)


def test_jobs_of_two_devices_are_refused(copied: kk.Job, tmp_path: Path) -> None:
    with FakeDevice(1) as other, kk.ProgramCache(other, tmp_path / "other") as cache:
        elsewhere = kk.Job(cache, COPY, grid=1, outputs={"result": (ITEMS, "i4")})
        with pytest.raises(kk.ArgumentError, match="job copied has a cache of fake:1, job copied one of fake:0"):
            kk.Pipeline([copied, (elsewhere, {"x": "result"})])


@pytest.mark.parametrize("call", ["launch", "run", "upload", "download"])
@pytest.mark.parametrize("after", [3, 4, 5])
def test_a_failure_on_the_way_is_that_batch_alone(device: FakeDevice, copied: kk.Job, call: str, after: int) -> None:
    pipeline = kk.Pipeline([copied, *[(copied, {"x": "result"})] * 2])
    x = np.arange(ITEMS, dtype="i4")
    with kk.Executor(device, depth=2) as executor:
        assert (executor.submit(pipeline, x=x, by=1).result(30)["result"] == x + 3).all()
        # Three launches for each batch: the first, second or third one of the second batch fails.
        device.faults.fail(call, after=after if call in ("launch", "run") else 1)
        futures = [executor.submit(pipeline, x=x, by=number) for number in range(6)]
        for number, future in enumerate(futures):
            problem = future.exception(30)
            if number == 1:
                assert isinstance(problem, kk.DeviceError)
            else:
                np.testing.assert_array_equal(future.result()["result"], x + 3 * number)


def test_functions_of_later_jobs_see_shapes_and_no_values(cache: kk.ProgramCache, copied: kk.Job) -> None:
    seen: list[Any] = []

    def shape(batch: Any) -> Any:
        seen.append(batch["x"])
        return batch["x"].shape, batch["x"].dtype

    later = kk.Job(cache, COPY, grid=1, outputs={"result": shape})
    pipeline = kk.Pipeline([copied, (later, {"x": "result", "by": 5})])
    with kk.Executor(cache.device) as executor:
        executor.submit(pipeline, x=np.arange(ITEMS, dtype="i4"), by=1).result(30)
    (array,) = seen
    assert (array.shape, array.dtype, array.ndim, array.size, array.nbytes, len(array)) == (
        (16,),
        np.int32,
        1,
        16,
        64,
        16,
    )
    assert repr(array) == "<array of (16,) int32 on the device>"
    with pytest.raises(TypeError):
        array[0]
