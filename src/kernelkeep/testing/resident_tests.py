"""`ResidentTests`: resident grids, on the device itself or emulated.

    class TestOpenCL(ResidentTests):
        backend = "opencl"

    class TestCUDA(ResidentTests):
        backend = "cuda"
        emulated = False

Like `DeviceTests`, it is made of parts, in `kernelkeep.testing.resident_parts`.
"""

from __future__ import annotations

from .resident_parts.batches import BatchTests
from .resident_parts.submitting import SubmittingTests

__all__ = ["ResidentTests"]


class ResidentTests(BatchTests, SubmittingTests):
    """The conformance suite of resident grids. Subclass it in a test file, name the backend, and say whether it is emulated."""
