"""`DeviceTests`: what every device must do, proved on the real driver.

The suite is made of parts, one file per question, in `kernelkeep.testing.device_parts`. A device's test is a subclass
that names its backend; a subclass may also set `spec` to test one device of several ("opencl:1").
"""

from __future__ import annotations

from .device_parts.arithmetic import ArithmeticTests
from .device_parts.arrays import ArrayTests
from .device_parts.atomics import AtomicTests
from .device_parts.closing import ClosingTests
from .device_parts.compilers import CompilerTests
from .device_parts.errors import ErrorTests
from .device_parts.forks import ForkTests
from .device_parts.halves import HalfTests
from .device_parts.helpers import HelperTests
from .device_parts.launches import LaunchTests
from .device_parts.leaks import LeakTests
from .device_parts.life import LifeTests
from .device_parts.programs import ProgramTests
from .device_parts.synchronization import SynchronizationTests
from .device_parts.threads import ThreadTests
from .device_parts.vectors import VectorTests
from .device_parts.views import ViewTests

__all__ = ["DeviceTests"]


class DeviceTests(
    LeakTests,
    ThreadTests,
    LifeTests,
    ForkTests,
    ClosingTests,
    SynchronizationTests,
    ErrorTests,
    AtomicTests,
    ArithmeticTests,
    HalfTests,
    CompilerTests,
    HelperTests,
    ArrayTests,
    VectorTests,
    ViewTests,
    LaunchTests,
    ProgramTests,
):
    """The conformance suite of devices. Subclass it in a test file and name the backend."""
