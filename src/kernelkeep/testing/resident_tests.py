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
from .resident_parts.changing import ChangingTests
from .resident_parts.ending import EndingTests
from .resident_parts.journals import JournalTests
from .resident_parts.mixed import MixedTests
from .resident_parts.pausing import PausingTests
from .resident_parts.refusals import RefusalTests
from .resident_parts.silence import SilenceTests
from .resident_parts.submitting import SubmittingTests
from .resident_parts.wide import WideTests

__all__ = ["ResidentTests"]


class ResidentTests(
    EndingTests,
    SilenceTests,
    JournalTests,
    MixedTests,
    RefusalTests,
    PausingTests,
    ChangingTests,
    WideTests,
    BatchTests,
    SubmittingTests,
):
    """The conformance suite of resident grids. Subclass it in a test file, name the backend, and say whether it is emulated."""
