"""The conformance suites on the reference device. Those that measure time, or compute for seconds on a driver, are left out."""

from __future__ import annotations

from kernelkeep.testing import CacheTests, DeviceTests, DispatchTests
from kernelkeep.testing.executor_parts.failures import FailureTests
from kernelkeep.testing.executor_parts.mapping import MapTests
from kernelkeep.testing.executor_parts.pipeline_life import PipelineLifeTests
from kernelkeep.testing.executor_parts.pipelines import PipelineTests
from kernelkeep.testing.strategy_parts.helper_functions import HelperFunctionTests
from kernelkeep.testing.strategy_parts.layouts import LayoutTests
from kernelkeep.testing.strategy_parts.states import StateTests


class TestDevice(DeviceTests):
    backend = "reference"


class TestDispatch(DispatchTests):
    backend = "reference"


class TestCache(CacheTests):
    backend = "reference"


class TestExecutor(FailureTests, MapTests, PipelineLifeTests, PipelineTests):
    backend = "reference"


class TestStrategies(StateTests, LayoutTests, HelperFunctionTests):
    backend = "reference"
