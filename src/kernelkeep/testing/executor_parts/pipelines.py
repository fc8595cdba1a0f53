"""Pipelines: jobs one after the other on the device, and only what is asked for comes back."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ...cache.program_cache import ProgramCache
from ...devices.base import Device
from ...devices.lanes import Block, Lanes
from ...execution.executor import Executor
from ...execution.job import Job
from ...execution.pipeline import Pipeline
from ..device_parts.common import GROUP, groups, handwritten_saxpy
from .common import ITEMS, TIMEOUT, saxpy_batch, saxpy_result
from .pipeline_jobs import ADD, PAIRS, PIXELS, SHAPE, PipelinePart, blurred, edges, images

__all__ = ["PipelineTests"]


class PipelineTests(PipelinePart):
    """A pipeline is its jobs one after the other, without the way over the host."""

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
