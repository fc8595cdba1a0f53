"""`VariantTests`: templates, tuning and the choice of a variant, proved on the real driver.

    class TestOpenCL(VariantTests):
        backend = "opencl"

Like `DeviceTests`, it is made of parts, in `kernelkeep.testing.variant_parts`.
"""

from __future__ import annotations

from .variant_parts.calls import CallTests
from .variant_parts.choosing import ChoosingTests
from .variant_parts.exploring import ExploringTests
from .variant_parts.failures import TrialFailureTests
from .variant_parts.forms import FormTests
from .variant_parts.tuning import TuningTests

__all__ = ["VariantTests"]


class VariantTests(ExploringTests, TrialFailureTests, ChoosingTests, TuningTests, CallTests, FormTests):
    """The conformance suite of variants. Subclass it in a test file and name the backend."""
