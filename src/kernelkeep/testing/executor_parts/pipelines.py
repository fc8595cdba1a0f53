"""Pipelines: jobs one after the other on the device, and only what is asked for comes back."""

from __future__ import annotations

import asyncio
import gc
import itertools
import json
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ...cache.program_cache import ProgramCache
from ...devices.base import Device
from ...devices.lanes import Block, Lanes
from ...errors import ArgumentError, CompileError, DeviceError
from ...execution.executor import Executor
from ...execution.job import Job
from ...execution.pipeline import Pipeline
from ...programs.portable import Buffer, PortableKernel, Scalar
from ..device_parts.common import GROUP, groups, handwritten_saxpy
from .common import ITEMS, TIMEOUT, ExecutorPart, saxpy_batch, saxpy_result, stalled

__all__ = ["PipelineTests"]

SHAPE = (13, 21)
PIXELS = SHAPE[0] * SHAPE[1]

# Images of bytes: what a camera gives.
BLUR = PortableKernel(
    "blur",
    params=[Buffer("image", "u1", "r"), Buffer("blurred", "u1", "w"), Scalar("width", "i4"), Scalar("n", "i4")],
    body="""int i = kk_global_id(0);
            if (i < n) {
                int x = i % width;
                int left = x > 0 ? i - 1 : i;
                int right = x < width - 1 ? i + 1 : i;
                blurred[i] = (image[left] + image[i] + image[right]) / 3;
            }""",
    group=GROUP,
)
EDGES = PortableKernel(
    "edges",
    params=[Buffer("image", "u1", "r"), Buffer("edges", "u1", "w"), Scalar("width", "i4"), Scalar("n", "i4")],
    body="""int i = kk_global_id(0);
            if (i < n) {
                int right = i % width < width - 1 ? i + 1 : i;
                int step = (int)image[right] - (int)image[i];
                edges[i] = step < 0 ? -step : step;
            }""",
    group=GROUP,
)
THRESHOLD = PortableKernel(
    "threshold",
    params=[Buffer("image", "u1", "rw"), Scalar("limit", "i4"), Scalar("n", "i4")],
    body="int i = kk_global_id(0);\nif (i < n) image[i] = image[i] > limit ? 255 : 0;",
    group=GROUP,
)
# y = a * x + b, with names that every one of them has.
AFFINE = PortableKernel(
    "affine",
    params=[
        Buffer("x", "i4", "r"),
        Buffer("result", "i4", "w"),
        Scalar("a", "i4"),
        Scalar("b", "i4"),
        Scalar("n", "i4"),
    ],
    body="int i = kk_global_id(0);\nif (i < n) result[i] = a * x[i] + b;",
    group=GROUP,
)
ADD = PortableKernel(
    "add",
    params=[Buffer("total", "i4", "rw"), Buffer("x", "i4", "r"), Scalar("n", "i4")],
    body="int i = kk_global_id(0);\nif (i < n) total[i] = total[i] + x[i];",
    group=GROUP,
)
# The sums of pairs: half as many numbers come out.
PAIRS = PortableKernel(
    "pairs",
    params=[Buffer("result", "i4", "w"), Buffer("x", "i4", "r"), Scalar("n", "i4")],
    body="int i = kk_global_id(0);\nif (i < n / 2) result[i] = x[2 * i] + x[2 * i + 1];",
    group=GROUP,
)
BROKEN = PortableKernel(
    "broken", params=[Buffer("result", "i4", "rw")], body="int i = 0;\nresult[i] = no_such_thing;", group=GROUP
)


def blurred(image: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    wide = np.pad(image.astype("i4"), ((0, 0), (1, 1)), mode="edge")
    return np.asarray((wide[:, :-2] + wide[:, 1:-1] + wide[:, 2:]) // 3, "u1")


def edges(image: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    wide = np.pad(image.astype("i4"), ((0, 0), (0, 1)), mode="edge")
    return np.asarray(np.abs(np.diff(wide, axis=1)), "u1")


def images(count: int, shape: tuple[int, ...] = SHAPE) -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(3)
    return [rng.integers(0, 256, shape, "u1") for _ in range(count)]


class PipelineTests(ExecutorPart):
    """A pipeline is its jobs one after the other, without the way over the host."""

    @pytest.fixture(scope="class")
    @classmethod
    def affine(cls, cache: ProgramCache) -> Job:
        """Any number of numbers."""
        return Job(
            cache,
            AFFINE,
            grid=lambda batch: groups(max(batch["n"], 1)),
            outputs={"result": lambda batch: (batch["x"].shape, "i4")},
        )

    @pytest.fixture(scope="class")
    @classmethod
    def add(cls, cache: ProgramCache) -> Job:
        return Job(cache, ADD, grid=lambda batch: groups(batch["n"]), outputs={"total": lambda b: (b["n"], "i4")})

    @pytest.fixture(scope="class")
    @classmethod
    def image_pipeline(cls, cache: ProgramCache) -> Pipeline:
        """image → blurred → edges → threshold, in bytes."""
        blur = Job(cache, BLUR, grid=groups(PIXELS), outputs={"blurred": (SHAPE, "u1")})
        edges = Job(cache, EDGES, grid=groups(PIXELS), outputs={"edges": (SHAPE, "u1")})
        threshold = Job(cache, THRESHOLD, grid=groups(PIXELS), outputs=["image"])
        return Pipeline([blur, (edges, {"image": "blurred"}), (threshold, {"image": "edges", "limit": 40})])

    # --- results

    @pytest.mark.parametrize("depth", [1, 3])
    def test_images_of_bytes_go_through_three_kernels(
        self, device: Device, image_pipeline: Pipeline, depth: int
    ) -> None:
        frames = images(12)
        with Executor(device, depth) as executor:
            futures = [executor.submit(image_pipeline, image=f, width=SHAPE[1], n=PIXELS) for f in frames]
            results = [future.result(TIMEOUT) for future in futures]
            mapped = executor.map(image_pipeline, [{"image": frame} for frame in frames], width=SHAPE[1], n=PIXELS)
            for frame, result, again in zip(frames, results, mapped, strict=True):
                assert list(result) == ["edges"]
                assert (result["edges"].shape, result["edges"].dtype) == (SHAPE, np.uint8)
                expected = np.where(edges(blurred(frame)) > 40, 255, 0)
                np.testing.assert_array_equal(result["edges"], expected)
                np.testing.assert_array_equal(again["edges"], expected)

    def test_a_pipeline_of_one_job_is_the_job(self, executor: Executor, job: Job) -> None:
        pipeline = Pipeline([job])
        for number in range(5):
            result = executor.submit(pipeline, **saxpy_batch(number)).result(TIMEOUT)
            assert list(result) == ["y"]
            np.testing.assert_array_equal(result["y"], saxpy_result(number))

    def test_a_job_may_come_several_times(self, executor: Executor, affine: Job) -> None:
        steps = [(affine, {"x": "result", "b": n}) for n in range(1, 6)]
        pipeline = Pipeline([(affine, {"b": 0}), *steps])
        for number in range(8):
            x = np.arange(number, number + 100, dtype="i4")
            expected = x * 2
            for n in range(1, 6):
                expected = 2 * expected + n
            result = executor.submit(pipeline, x=x, a=2, n=100).result(TIMEOUT)
            np.testing.assert_array_equal(result["result"], expected)

    def test_arrays_go_back_and_forth(self, executor: Executor, affine: Job) -> None:
        there, back = {"x": "one", "result": "other"}, {"x": "other", "result": "one"}
        pipeline = Pipeline([(affine, there), (affine, back), (affine, there)], returns=["one", "other"])
        one = np.arange(50, dtype="i4")
        result = executor.submit(pipeline, one=one, a=2, b=1, n=50).result(TIMEOUT)
        assert list(result) == ["one", "other"]
        np.testing.assert_array_equal(result["one"], 4 * one + 3)
        np.testing.assert_array_equal(result["other"], 8 * one + 7)

    def test_scalars_are_shared_or_named_apart(self, executor: Executor, affine: Job) -> None:
        pipeline = Pipeline([(affine, {"b": "first"}), (affine, {"x": "result", "b": "second", "a": 10})])
        x = np.arange(70, dtype="i4")
        result = executor.submit(pipeline, x=x, a=3, first=1, second=np.int32(2), n=70).result(TIMEOUT)
        np.testing.assert_array_equal(result["result"], 10 * (3 * x + 1) + 2)

    def test_an_array_is_changed_in_place_and_starts_as_zeros(self, executor: Executor, affine: Job, add: Job) -> None:
        pipeline = Pipeline([affine, add, (add, {"x": "result"})])  # total = 0 + x + (2 x + 1)
        x = np.arange(90, dtype="i4")
        for _ in range(4):  # the memory of a batch is used again, and must be cleared
            result = executor.submit(pipeline, x=x, a=2, b=1, n=90).result(TIMEOUT)
            assert list(result) == ["total"]
            np.testing.assert_array_equal(result["total"], 3 * x + 1)
        total = np.full(90, 100, "i4")
        result = executor.submit(pipeline, x=x, total=total, a=2, b=1, n=90).result(TIMEOUT)
        np.testing.assert_array_equal(result["total"], 3 * x + 101)
        assert (total == 100).all(), "the caller's own array is left alone"

    def test_intermediate_arrays_start_as_zeros_too(self, executor: Executor, affine: Job, add: Job) -> None:
        pipeline = Pipeline([add, (affine, {"x": "total"})])
        x = np.arange(90, dtype="i4")
        for _ in range(4):
            result = executor.submit(pipeline, x=x, a=2, b=1, n=90).result(TIMEOUT)
            np.testing.assert_array_equal(result["result"], 2 * x + 1)

    def test_a_pipeline_uses_device_arrays_in_place(
        self, device: Device, executor: Executor, affine: Job, add: Job
    ) -> None:
        pipeline = Pipeline([affine, (add, {"x": "result"})])
        x, total = device.array(np.arange(ITEMS, dtype="i4")), device.zeros(ITEMS, "i4")
        futures = [executor.submit(pipeline, x=x, total=total, a=1, b=1, n=ITEMS) for _ in range(6)]
        for turn, future in enumerate(futures, start=1):
            np.testing.assert_array_equal(future.result(TIMEOUT)["total"], turn * (np.arange(ITEMS) + 1))
        np.testing.assert_array_equal(total.numpy(), 6 * (np.arange(ITEMS) + 1))
        np.testing.assert_array_equal(x.numpy(), np.arange(ITEMS))

    def test_grids_and_shapes_follow_the_arrays_of_earlier_jobs(self, executor: Executor, cache: ProgramCache) -> None:
        pairs = Job(
            cache,
            PAIRS,
            grid=lambda batch: groups(batch["x"].size // 2),
            outputs={"result": lambda batch: (len(batch["x"]) // 2, batch["x"].dtype)},
        )
        pipeline = Pipeline(
            [(pairs, {"n": "n0"}), (pairs, {"x": "result", "n": "n1"}), (pairs, {"x": "result", "n": "n2"})]
        )
        for count in (8, 1024, 64, 8):
            x = np.arange(count, dtype="i4")
            result = executor.submit(pipeline, x=x, n0=count, n1=count // 2, n2=count // 4).result(TIMEOUT)["result"]
            np.testing.assert_array_equal(result, x.reshape(-1, 8).sum(axis=1))

    def test_several_results_come_back_where_they_are_named(
        self, executor: Executor, cache: ProgramCache, image_pipeline: Pipeline
    ) -> None:
        pipeline = Pipeline(image_pipeline.stages[:2], returns=["blurred", "edges"])
        for frame in images(4):
            result = executor.submit(pipeline, image=frame, width=SHAPE[1], n=PIXELS).result(TIMEOUT)
            np.testing.assert_array_equal(result["blurred"], blurred(frame))
            np.testing.assert_array_equal(result["edges"], edges(blurred(frame)))

    def test_a_result_is_not_overwritten_by_later_kernels(self, executor: Executor, affine: Job) -> None:
        steps = [(affine, {"x": one, "result": other}) for one, other in itertools.pairwise("uvwxyz")]
        pipeline = Pipeline(
            steps, returns=["v", "x", "z"]
        )  # no kernel needs "v" and "x" any more when "y" and "z" are made
        x = np.arange(ITEMS, dtype="i4")
        for number in range(4):
            result = executor.submit(pipeline, u=x, a=1, b=number, n=ITEMS).result(TIMEOUT)
            for name, count in (("v", 1), ("x", 3), ("z", 5)):
                np.testing.assert_array_equal(result[name], x + count * number)

    def test_a_handwritten_kernel_has_its_place(self, device: Device, executor: Executor, cache: ProgramCache) -> None:
        source = handwritten_saxpy(device.language)
        job = Job(cache, source, grid=groups(ITEMS), outputs=["y"], kernel="saxpy", group=GROUP, name="by hand")
        pipeline = Pipeline([job, job], name="twice")
        assert "twice" in repr(pipeline)
        batch = saxpy_batch(3) | {"a": np.float32(2), "n": np.int32(ITEMS)}
        result = executor.submit(pipeline, **batch).result(TIMEOUT)["y"]
        np.testing.assert_array_equal(result, 2 * saxpy_result(3) - 3)

    @pytest.mark.parametrize("copy", [True, False], ids=["copied", "borrowed"])
    def test_host_arrays_are_copied_or_borrowed(self, device: Device, cache: ProgramCache, copy: bool) -> None:
        job = Job(cache, ADD, grid=groups(ITEMS), outputs=["total"], copy=copy)
        pipeline = Pipeline([job, job, job])
        assert pipeline.copy is copy
        x = np.arange(ITEMS, dtype="i4")
        totals = [np.full(ITEMS, number, "i4") for number in range(9)]
        with Executor(device) as executor:
            futures = [executor.submit(pipeline, x=x, total=total, n=ITEMS) for total in totals]
            for number, future in enumerate(futures):
                np.testing.assert_array_equal(future.result(TIMEOUT)["total"], 3 * x + number)

    def test_empty_arrays_go_through(self, executor: Executor, affine: Job) -> None:
        pipeline = Pipeline([affine, (affine, {"x": "result"})])
        result = executor.submit(pipeline, x=np.empty((0, 3), "i4"), a=1, b=1, n=0).result(TIMEOUT)["result"]
        assert result.shape == (0, 3) and result.dtype == np.int32

    # --- what moves

    def test_intermediate_arrays_never_cross_to_the_host(
        self, device: Device, image_pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Counted where the driver is called, and in the timeline."""
        came: list[int] = []
        open_lanes = device.open_lanes

        def counting(**options: Any) -> Lanes:
            lanes = open_lanes(**options)
            for lane in lanes.all:  # a small batch is downloaded on the lane of its kernels
                monkeypatch.setattr(lane, "download", counted(lane.download))
            shared.append(lanes.shares_memory)
            return lanes

        def counted(download: Callable[[Any, Block], Any]) -> Callable[[Any, Block], Any]:
            def count(handle: Any, block: Block) -> Any:
                came.append(block.nbytes)
                return download(handle, block)

            return count

        shared: list[bool] = []
        monkeypatch.setattr(device, "open_lanes", counting)
        shape = (64, 64)
        frames = images(5, shape)
        blur, other, threshold = image_pipeline.jobs
        wide: list[Job | tuple[Job, dict[str, Any]]] = [
            Job(blur.cache, blur.source, groups(64 * 64), {"blurred": (shape, "u1")}),
            (Job(blur.cache, other.source, groups(64 * 64), {"edges": (shape, "u1")}), {"image": "blurred"}),
            (Job(blur.cache, threshold.source, groups(64 * 64), ["image"]), {"image": "edges", "limit": 40}),
        ]
        with Executor(device) as executor:
            for frame, result in zip(
                frames,
                executor.map(Pipeline(wide), [{"image": f} for f in frames], width=64, n=64 * 64),
                strict=True,
            ):
                np.testing.assert_array_equal(result["edges"], np.where(edges(blurred(frame)) > 40, 255, 0))
            spans = executor.timeline.spans
        # Where host and device have one memory, the block that held the input is handed back as well.
        assert came == [64 * 64] * (10 if shared[0] else 5)
        for engine in ("upload", "download"):
            assert [span.nbytes for span in spans if span.engine == engine] == [64 * 64] * 5
        assert sum(span.nbytes for span in spans) == 2 * 5 * 64 * 64

    def test_memory_of_intermediate_arrays_is_used_again(
        self, device: Device, affine: Job, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        if not device.lanes_class.reuses_memory:
            pytest.skip(f"{device.spec} gives every batch memory of its own")
        made: list[int] = []
        empty = device.empty

        def counting(shape: Any, *rest: Any, **options: Any) -> Any:
            made.append(1)
            return empty(shape, *rest, **options)

        pipeline = Pipeline([affine, *[(affine, {"x": "result"})] * 9])
        x = np.arange(ITEMS, dtype="i4")
        with Executor(device, 2) as executor:
            monkeypatch.setattr(device, "empty", counting)
            for turn in range(20):
                result = executor.submit(pipeline, x=x, a=1, b=turn, n=ITEMS).result(TIMEOUT)["result"]
                np.testing.assert_array_equal(result, x + 10 * turn)
        # Two arrays in turn are enough for ten kernels; where memory is not shared, the input and the result have one each.
        assert len(made) <= 4, "allocated for each kernel or for each batch"

    def test_memory_of_many_arrays_at_once_is_used_again(
        self, device: Device, affine: Job, add: Job, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        if not device.lanes_class.reuses_memory:
            pytest.skip(f"{device.spec} gives every batch memory of its own")
        made: list[int] = []
        empty = device.empty

        def counting(shape: Any, *rest: Any, **options: Any) -> Any:
            made.append(1)
            return empty(shape, *rest, **options)

        chain = [(affine, {"x": one, "result": other}) for one, other in itertools.pairwise("uvwxyz")]
        pipeline = Pipeline([*chain, *((add, {"x": name}) for name in "uvwxyz")])  # all of them are needed to the end
        u = np.arange(ITEMS, dtype="i4")
        with Executor(device, 2) as executor:
            monkeypatch.setattr(device, "empty", counting)
            for result in executor.map(pipeline, [{"b": number} for number in range(30)], u=u, a=1, n=ITEMS):
                assert int(result["total"][0]) % 15 == 0
        assert len(made) <= 2 * 8, "in each of two slots: six arrays, the sum, and one that another batch was given"

    def test_the_timeline_shows_each_kernel_under_its_own_name(
        self, device: Device, image_pipeline: Pipeline, tmp_path: Path
    ) -> None:
        with Executor(device) as executor:
            for frame in images(6):
                executor.submit(image_pipeline, image=frame, width=SHAPE[1], n=PIXELS).result(TIMEOUT)
            spans = executor.timeline.spans
            executor.save_trace(tmp_path / "trace.json")
        for batch in range(6):
            mine = [span for span in spans if span.batch == batch]
            kernels = [span for span in mine if span.engine == "compute"]
            assert [span.job for span in kernels] == ["blur", "edges", "threshold"]
            assert {span.job for span in mine if span.engine != "compute"} == {"blur+edges+threshold"}
            for before, after in itertools.pairwise(kernels):
                assert before.end <= after.start <= after.end
        events = json.loads((tmp_path / "trace.json").read_text(encoding="utf-8"))["traceEvents"]
        computed = {event["name"].split()[0] for event in events if event.get("cat") == "compute"}
        assert computed == {"blur", "edges", "threshold"}

    def test_the_timeline_shows_which_kernel_takes_long(self, device: Device, chain: Job) -> None:
        if not device.capabilities.timestamps:
            pytest.skip(f"{device.spec} does not tell when a kernel ended")
        if device.capabilities.max_loop_rounds is not None:
            pytest.skip(f"{device.spec} cuts the long loops that this test needs")
        pipeline = Pipeline([(chain, {"steps": 1}), (chain, {"steps": 1_000_000}), (chain, {"steps": 1})])
        with Executor(device) as executor:
            for _ in range(6):
                executor.submit(pipeline, y=np.arange(GROUP, dtype="u4")).result(TIMEOUT)
            spans = [span for span in executor.timeline.spans if span.engine == "compute"]
        first, second, third = (min(span.end - span.start for span in spans[number::3]) for number in range(3))
        assert second > max(first, third), f"{first}, {second}, {third}"

    def test_a_pipeline_runs_without_a_timeline(self, device: Device, image_pipeline: Pipeline) -> None:
        with Executor(device, trace=False) as executor:
            for frame in images(4):
                result = executor.submit(image_pipeline, image=frame, width=SHAPE[1], n=PIXELS).result(TIMEOUT)
                np.testing.assert_array_equal(result["edges"], np.where(edges(blurred(frame)) > 40, 255, 0))

    # --- life

    def test_pipelines_can_be_awaited_and_streamed(self, executor: Executor, affine: Job) -> None:
        pipeline = Pipeline([affine, (affine, {"x": "result"})])
        x = np.arange(100, dtype="i4")

        async def main() -> None:
            results = await asyncio.gather(*(executor.run(pipeline, x=x, a=1, b=n, n=100) for n in range(20)))
            for number, result in enumerate(results):
                np.testing.assert_array_equal(result["result"], x + 2 * number)
            number = 0
            async for result in executor.stream(pipeline, ({"b": n} for n in range(9)), x=x, a=1, n=100):
                np.testing.assert_array_equal(result["result"], x + 2 * number)
                number += 1
            assert number == 9

        asyncio.run(asyncio.wait_for(main(), TIMEOUT))

    def test_a_pipeline_that_waits_can_be_cancelled(self, device: Device, job: Job, tally: Job) -> None:
        total = device.zeros(GROUP, "i4")
        pipeline = Pipeline([tally, tally])
        with Executor(device, 2) as executor:
            with stalled(executor, job, **saxpy_batch(0)):
                running = [executor.submit(pipeline, total=total, by=by, n=GROUP) for by in (1, 10)]
                waiting = executor.submit(pipeline, total=total, by=100, n=GROUP)
                assert waiting.cancel() and not any(future.cancel() for future in running)
            assert [int(future.result(TIMEOUT)["total"][0]) for future in running] == [2, 22]
            with pytest.raises(CancelledError):
                waiting.result(TIMEOUT)
        assert (total.numpy() == 22).all()

    def test_closing_finishes_what_was_submitted(self, device: Device, affine: Job) -> None:
        pipeline = Pipeline([affine, (affine, {"x": "result"})])
        x = np.arange(ITEMS, dtype="i4")
        executor = Executor(device, 3)
        futures = [executor.submit(pipeline, x=x, a=1, b=n, n=ITEMS) for n in range(6)]
        executor.close(timeout=TIMEOUT)
        for number, future in enumerate(futures):
            np.testing.assert_array_equal(future.result(0)["result"], x + 2 * number)
        with pytest.raises(DeviceError, match="closed"):
            executor.submit(pipeline, x=x, a=1, b=1, n=ITEMS)

    def test_jobs_and_pipelines_share_an_executor(self, executor: Executor, affine: Job, job: Job) -> None:
        pipeline = Pipeline([affine, (affine, {"x": "result"})])
        x = np.arange(ITEMS, dtype="i4")
        for number in range(10):  # the pipeline's job on its own as well: it is bound once
            three = [
                executor.submit(pipeline, x=x, a=1, b=number, n=ITEMS),
                executor.submit(affine, x=x, a=3, b=number, n=ITEMS),
                executor.submit(job, **saxpy_batch(number)),
            ]
            first, second, third = (future.result(TIMEOUT) for future in three)
            np.testing.assert_array_equal(first["result"], x + 2 * number)
            np.testing.assert_array_equal(second["result"], 3 * x + number)
            np.testing.assert_array_equal(third["y"], saxpy_result(number))

    def test_a_pipeline_that_nobody_holds_is_collected(self, executor: Executor, cache: ProgramCache) -> None:
        job = Job(cache, AFFINE, grid=groups(10), outputs={"result": (10, "i4")})
        pipeline = Pipeline([job, (job, {"x": "result"})])
        executor.submit(pipeline, x=np.arange(10, dtype="i4"), a=1, b=1, n=10).result(TIMEOUT)
        gone = weakref.ref(pipeline), weakref.ref(job)
        del pipeline, job
        gc.collect()
        executor.submit(Pipeline([Job(cache, AFFINE, 1, {"result": (10, "i4")})]), x=[1], a=1, b=1, n=1).result(TIMEOUT)
        assert [one() for one in gone] == [None, None]

    # --- errors

    def test_an_error_in_the_middle_is_that_batch_alone(
        self, executor: Executor, cache: ProgramCache, affine: Job
    ) -> None:
        good = Pipeline([affine, (affine, {"x": "result"})])
        grid = Job(cache, AFFINE, grid=lambda batch: 2**40 if batch["b"] == 7 else 1, outputs={"result": (10, "i4")})
        bad = Pipeline([affine, (grid, {"x": "result"}), (affine, {"x": "result"})])
        x = np.arange(10, dtype="i4")
        assert (executor.submit(bad, x=x, a=1, b=1, n=10).result(TIMEOUT)["result"] == x + 3).all()
        futures = []
        for number in range(9):
            futures.append(executor.submit(bad, x=x, a=1, b=number, n=10))
            futures.append(executor.submit(good, x=x, a=1, b=number, n=10))
        for number in range(9):
            first, second = futures[2 * number], futures[2 * number + 1]
            if number == 7:
                assert isinstance(first.exception(TIMEOUT), ArgumentError)
            else:
                np.testing.assert_array_equal(first.result(TIMEOUT)["result"], x + 3 * number)
            np.testing.assert_array_equal(second.result(TIMEOUT)["result"], x + 2 * number)

    def test_a_job_that_does_not_compile_fails_the_batches_of_its_pipeline(
        self, executor: Executor, cache: ProgramCache, affine: Job
    ) -> None:
        broken = Job(cache, BROKEN, grid=1, outputs=["result"])
        pipeline = Pipeline([affine, broken])
        x = np.arange(10, dtype="i4")
        problem = executor.submit(pipeline, x=x, a=1, b=1, n=10).exception(TIMEOUT)
        assert isinstance(problem, CompileError) and "broken, line 2" in str(problem)
        assert (executor.submit(affine, x=x, a=1, b=1, n=10).result(TIMEOUT)["result"] == x + 1).all()

    @pytest.mark.parametrize(
        ("changes", "said"),
        [
            ({"x": ...}, "job affine needs its argument 'x'; pass it with the batch"),
            ({"second": ...}, "job affine needs its argument 'b'; pass 'second' with the batch"),
            ({"z": 1}, "pipeline affine+affine has no argument 'z'; it has: x, result, a, b, n, second"),
            ({"x": np.zeros(10, "f4")}, "'x' of job affine must be int32, got float32"),
            ({"a": "2"}, "argument 2 (a)"), ({"second": None}, "argument 3 (b)"),
        ],
        ids=lambda value: value[:24] if isinstance(value, str) else "",
    )  # fmt: skip
    def test_wrong_arguments_of_a_pipeline_fail_the_future(
        self, executor: Executor, affine: Job, changes: Any, said: str
    ) -> None:
        pipeline = Pipeline([affine, (affine, {"x": "result", "b": "second"})])
        right = {"x": np.arange(10, dtype="i4"), "a": 1, "b": 1, "second": 2, "n": 10}
        wrong = {name: value for name, value in (right | changes).items() if value is not ...}
        problem = executor.submit(pipeline, **wrong).exception(TIMEOUT)
        assert type(problem) is ArgumentError and said in str(problem), repr(problem)
        assert (executor.submit(pipeline, **right).result(TIMEOUT)["result"] == np.arange(10) + 3).all()

    def test_a_failed_batch_leaves_the_iteration_of_map_alone(self, executor: Executor, affine: Job) -> None:
        pipeline = Pipeline([affine, (affine, {"x": "result"})])

        def batches() -> Iterator[dict[str, Any]]:
            for number in range(9):
                yield {"b": "no number" if number == 4 else number}

        x = np.arange(10, dtype="i4")
        results = list(executor.map(pipeline, batches(), x=x, a=1, n=10, return_exceptions=True))
        assert isinstance(results[4], ArgumentError)
        for number in {*range(9)} - {4}:
            np.testing.assert_array_equal(results[number]["result"], x + 2 * number)
