"""`CacheTests`: what the program cache does on every device, proved on the real driver.

    class TestOpenCL(CacheTests):
        backend = "opencl"

Like `DeviceTests`, it is made of parts, in `kernelkeep.testing.cache_parts`.
"""

from __future__ import annotations

from .cache_parts.damage import DamageTests
from .cache_parts.lifecycle import LifecycleTests
from .cache_parts.sharing import SharingTests

__all__ = ["CacheTests"]


class CacheTests(DamageTests, LifecycleTests, SharingTests):
    """The conformance suite of the program cache. Subclass it in a test file and name the backend."""
