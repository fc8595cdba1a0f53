"""The executor on every backend."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import kernelkeep as kk
from kernelkeep.testing import ExecutorTests
from kernelkeep.testing.device_parts.common import GROUP
from kernelkeep.testing.executor_parts.inputs import INVERT


@pytest.mark.opencl
class TestOpenCL(ExecutorTests):
    backend = "opencl"


@pytest.mark.opengl
class TestOpenGL(ExecutorTests):
    backend = "opengl"


@pytest.mark.cuda
class TestCUDA(ExecutorTests):
    backend = "cuda"


def test_images_and_views_on_the_reference_device(tmp_path: Path) -> None:
    """The whole suite would take minutes there."""
    images = np.arange(3 * 5 * 7, dtype="u1").reshape(3, 5, 7)
    with kk.open_device("reference") as device, kk.ProgramCache(device, cache_dir=tmp_path) as cache:
        job = kk.Job(cache, INVERT, grid=kk.groups(35, GROUP), outputs={"result": ((5, 7), "u1")})
        on_device = device.array(images)
        with kk.Executor(device) as executor:
            for batch in ([{"image": one} for one in images], [{"image": one} for one in on_device]):
                for image, result in zip(images, executor.map(job, batch, n=35), strict=True):
                    np.testing.assert_array_equal(result["result"], 255 - image)
