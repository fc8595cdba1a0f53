"""`StrategyTests`: state programs under every strategy, proved on the real driver.

    class TestOpenCL(StrategyTests):
        backend = "opencl"

Like `DeviceTests`, it is made of parts, in `kernelkeep.testing.strategy_parts`.
"""

from __future__ import annotations

from .strategy_parts.chains import ChainTests
from .strategy_parts.deadlines import DeadlineTests
from .strategy_parts.helper_functions import HelperFunctionTests
from .strategy_parts.large_states import LargeStateTests
from .strategy_parts.layouts import LayoutTests
from .strategy_parts.queues import QueueTests
from .strategy_parts.refusals import RefusalTests
from .strategy_parts.reports import ReportTests
from .strategy_parts.samples import SampleTests
from .strategy_parts.states import StateTests
from .strategy_parts.steering import SteeringTests

__all__ = ["StrategyTests"]


class StrategyTests(
    ChainTests,
    DeadlineTests,
    RefusalTests,
    ReportTests,
    QueueTests,
    LargeStateTests,
    LayoutTests,
    HelperFunctionTests,
    StateTests,
    SteeringTests,
    SampleTests,
):
    """The conformance suite of continuous execution. Subclass it in a test file and name the backend."""
