"""`ExecutorTests`: the executor and its jobs, proved on the real driver.

    class TestOpenCL(ExecutorTests):
        backend = "opencl"

Like `DeviceTests`, it is made of parts, in `kernelkeep.testing.executor_parts`.
"""

from __future__ import annotations

from .executor_parts.aio import AsyncTests
from .executor_parts.backlog import BacklogTests
from .executor_parts.ending import EndingTests
from .executor_parts.failures import FailureTests
from .executor_parts.inputs import InputTests
from .executor_parts.mapping import MapTests
from .executor_parts.outputs import OutputTests
from .executor_parts.pipeline_life import PipelineLifeTests
from .executor_parts.pipelines import PipelineTests
from .executor_parts.tracing import TraceTests

__all__ = ["ExecutorTests"]


class ExecutorTests(
    EndingTests,
    TraceTests,
    AsyncTests,
    BacklogTests,
    FailureTests,
    MapTests,
    PipelineLifeTests,
    PipelineTests,
    OutputTests,
    InputTests,
):
    """The conformance suite of the executor. Subclass it in a test file and name the backend."""
