"""The conformance suites on WebGPU."""

from __future__ import annotations

import pytest

from kernelkeep.testing import CacheTests, DeviceTests, DispatchTests, ExecutorTests, StrategyTests, VariantTests

pytestmark = pytest.mark.webgpu


class TestDevice(DeviceTests):
    backend = "webgpu"


class TestCache(CacheTests):
    backend = "webgpu"


class TestDispatch(DispatchTests):
    backend = "webgpu"


class TestExecutor(ExecutorTests):
    backend = "webgpu"


class TestStrategies(StrategyTests):
    backend = "webgpu"


class TestVariants(VariantTests):
    backend = "webgpu"
    out_of_bounds_write = "wrong"
