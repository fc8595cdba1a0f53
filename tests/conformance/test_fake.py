"""The conformance suites on the device without a driver: a backend that kernelkeep knows only from its registration."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

import kernelkeep as kk
from kernelkeep.devices import registry
from kernelkeep.testing import CacheTests, DispatchTests
from kernelkeep.testing.device_parts.atomics import AtomicTests
from kernelkeep.testing.device_parts.errors import ErrorTests
from kernelkeep.testing.device_parts.forks import ForkTests
from kernelkeep.testing.device_parts.launches import LaunchTests
from kernelkeep.testing.device_parts.life import LifeTests
from kernelkeep.testing.device_parts.programs import ProgramTests
from kernelkeep.testing.executor_parts.failures import FailureTests
from kernelkeep.testing.executor_parts.mapping import MapTests
from kernelkeep.testing.executor_parts.pipeline_life import PipelineLifeTests
from kernelkeep.testing.executor_parts.pipelines import PipelineTests


@pytest.fixture(scope="module", autouse=True)
def _installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Registered for this file only; with an entry point, for the processes that the tests start."""
    folder = tmp_path_factory.mktemp("installed")
    metadata = folder / "fake_backend-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: fake-backend\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[kernelkeep.backends]\nfake = kernelkeep.testing.fake\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "_registered", dict(registry._registered))
        kk.register_backend("fake", "kernelkeep.testing.fake")
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH")))))
        yield


class TestDevice(ErrorTests, LifeTests, ForkTests, LaunchTests, AtomicTests, ProgramTests):
    backend = "fake"
    interprets = True


class TestDispatch(DispatchTests):
    backend = "fake"
    interprets = True


class TestCache(CacheTests):
    backend = "fake"
    interprets = True


class TestExecutor(FailureTests, MapTests, PipelineLifeTests, PipelineTests):
    backend = "fake"
    interprets = True
