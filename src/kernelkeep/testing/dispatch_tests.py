"""`DispatchTests`: prepared launches and graphs, proved on the real driver.

    class TestOpenCL(DispatchTests):
        backend = "opencl"

Like `DeviceTests`, it is made of parts, in `kernelkeep.testing.dispatch_parts`.
"""

from __future__ import annotations

from .dispatch_parts.called_often import CalledOftenTests
from .dispatch_parts.copies import GraphCopyTests
from .dispatch_parts.graph import GraphTests
from .dispatch_parts.prepared import PreparedTests
from .dispatch_parts.revoked import RevokedTests
from .dispatch_parts.updates import UpdateTests

__all__ = ["DispatchTests"]


class DispatchTests(CalledOftenTests, GraphCopyTests, GraphTests, RevokedTests, UpdateTests, PreparedTests):
    """The conformance suite of dispatch. Subclass it in a test file and name the backend."""
