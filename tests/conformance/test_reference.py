"""The conformance suites on the reference device."""

from __future__ import annotations

from kernelkeep.testing import CacheTests, DeviceTests, DispatchTests


class TestDevice(DeviceTests):
    backend = "reference"


class TestDispatch(DispatchTests):
    backend = "reference"


class TestCache(CacheTests):
    backend = "reference"
