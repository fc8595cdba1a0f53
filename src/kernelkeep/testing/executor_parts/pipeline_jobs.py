"""Kernels, jobs and a pipeline that the tests of pipelines use, and what must come out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ...cache.program_cache import ProgramCache
from ...execution.job import Job
from ...execution.pipeline import Pipeline
from ...programs.portable import Buffer, PortableKernel, Scalar
from ..device_parts.common import GROUP, groups
from .common import ExecutorPart

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


class PipelinePart(ExecutorPart):
    """What all tests of pipelines share: two jobs and a pipeline over images."""

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
