"""Test suites that ship with the package, for every backend, ours or yours.

    from kernelkeep.testing import DeviceTests

    class TestOpenCL(DeviceTests):
        backend = "opencl"

Importing this needs pytest. A backend that is not on the machine is skipped, and `skipped_backends()` says which and
why, so that a test run can print it at its end; one that KERNELKEEP_REQUIRE names fails instead.
"""

from __future__ import annotations

from .cache_tests import CacheTests
from .device_tests import DeviceTests
from .dispatch_tests import DispatchTests
from .executor_tests import ExecutorTests
from .fake import FakeDevice
from .faulty_tier import FaultyTier
from .process import run_python
from .resident_tests import ResidentTests
from .skipped import note_skipped, open_or_skip, skip_backend, skipped_backends
from .store_tests import StoreTests
from .strategy_tests import StrategyTests
from .tier_tests import TierTests
from .variant_tests import VariantTests

__all__ = [
    "CacheTests",
    "DeviceTests",
    "DispatchTests",
    "ExecutorTests",
    "FakeDevice",
    "FaultyTier",
    "ResidentTests",
    "StoreTests",
    "StrategyTests",
    "TierTests",
    "VariantTests",
    "note_skipped",
    "open_or_skip",
    "run_python",
    "skip_backend",
    "skipped_backends",
]
