"""kernelkeep keeps GPU compute programs and their state alive: compile once, run forever.

Importing this package loads no GPU library and no NumPy; each name below is loaded at its first use.
"""

from __future__ import annotations

import sys

if sys.version_info < (3, 14) and "free-threading" in sys.version:  # the cache's counters are not atomic there
    raise ImportError(
        "kernelkeep needs Python 3.14 or newer, or one with the interpreter's lock: this is a free-threaded 3.13"
    )

TYPE_CHECKING = False  # what type checkers take for True; importing `typing` for it would take longest of all

if TYPE_CHECKING:
    from .cache.lease import Lease as Lease
    from .cache.program_cache import ProgramCache as ProgramCache
    from .cache.report import Explanation as Explanation
    from .cache.report import PreloadReport as PreloadReport
    from .cache.stats import CacheStats as CacheStats
    from .cache.sync import SyncReport as SyncReport
    from .cache.sync import pull_cache as pull_cache
    from .cache.sync import push_cache as push_cache
    from .continuous.checkpoints.checkpoint import Checkpoint as Checkpoint
    from .continuous.checkpoints.checkpoint import CheckpointWarning as CheckpointWarning
    from .continuous.checkpoints.files import read_checkpoint as read_checkpoint
    from .continuous.program import StateProgram as StateProgram
    from .continuous.report import DeadlineWarning as DeadlineWarning
    from .continuous.report import RunReport as RunReport
    from .continuous.run import Run as Run
    from .continuous.runner import resume as resume
    from .continuous.runner import run as run
    from .continuous.supervision.incident import SupervisedReport as SupervisedReport
    from .continuous.supervision.supervisor import run_supervised as run_supervised
    from .devices.arguments import groups as groups
    from .devices.array import Array as Array
    from .devices.base import Capabilities as Capabilities
    from .devices.base import Device as Device
    from .devices.base import DeviceInfo as DeviceInfo
    from .devices.base import Fence as Fence
    from .devices.base import Kernel as Kernel
    from .devices.base import LocalMemory as LocalMemory
    from .devices.base import Program as Program
    from .devices.fingerprint import Fingerprint as Fingerprint
    from .devices.prepared import Prepared as Prepared
    from .devices.registry import list_devices as list_devices
    from .devices.registry import open_device as open_device
    from .devices.registry import register_backend as register_backend
    from .errors import ArgumentError as ArgumentError
    from .errors import BinaryRejected as BinaryRejected
    from .errors import CacheWarning as CacheWarning
    from .errors import CheckpointError as CheckpointError
    from .errors import CompileError as CompileError
    from .errors import DeviceError as DeviceError
    from .errors import GraphError as GraphError
    from .errors import KernelFault as KernelFault
    from .errors import KernelKeepError as KernelKeepError
    from .errors import OutOfMemory as OutOfMemory
    from .errors import RemoteError as RemoteError
    from .errors import SupervisionError as SupervisionError
    from .errors import TaskSilent as TaskSilent
    from .errors import Unsupported as Unsupported
    from .errors import VariantError as VariantError
    from .execution.executor import Executor as Executor
    from .execution.graph import Graph as Graph
    from .execution.job import Job as Job
    from .execution.pipeline import Pipeline as Pipeline
    from .fleet.bundle import BundleReport as BundleReport
    from .fleet.bundle import export_bundle as export_bundle
    from .fleet.bundle import import_bundle as import_bundle
    from .fleet.compile_ahead import AheadReport as AheadReport
    from .fleet.compile_ahead import compile_ahead as compile_ahead
    from .observe.kernel_check import CheckReport as CheckReport
    from .observe.kernel_check import check as check
    from .observe.prometheus import MetricsServer as MetricsServer
    from .observe.prometheus import PrometheusCollector as PrometheusCollector
    from .observe.prometheus import serve_metrics as serve_metrics
    from .observe.report.report import Report as Report
    from .observe.report.report import report as report
    from .observe.tracing import OpenTelemetryTracing as OpenTelemetryTracing
    from .observe.tracing import trace_to_opentelemetry as trace_to_opentelemetry
    from .programs.portable import Buffer as Buffer
    from .programs.portable import PortableKernel as PortableKernel
    from .programs.portable import Scalar as Scalar
    from .programs.python_kernel import function as function
    from .programs.python_kernel import kernel as kernel
    from .programs.python_words import *  # noqa: F403
    from .programs.python_words import In as In
    from .programs.python_words import InOut as InOut
    from .programs.python_words import Out as Out
    from .programs.source import Source as Source
    from .progress.progress import Progress as Progress
    from .remote.address import Remote as Remote
    from .remote.keyring import Keyring as Keyring
    from .resident.future import TaskFuture as TaskFuture
    from .resident.resident import Resident as Resident
    from .resident.task import Task as Task
    from .variants.report import TuneReport as TuneReport
    from .variants.select import Selection as Selection
    from .variants.space import Variant as Variant
    from .variants.space import VariantSpace as VariantSpace
    from .variants.template import Template as Template
    from .variants.tuned import Tuned as Tuned

__version__ = "0.2.0"

_HOMES = {
    "AheadReport": "fleet.compile_ahead",
    "ArgumentError": "errors",
    "Array": "devices.array",
    "BinaryRejected": "errors",
    "Buffer": "programs.portable",
    "BundleReport": "fleet.bundle",
    "CacheStats": "cache.stats",
    "CacheWarning": "errors",
    "Capabilities": "devices.base",
    "CheckReport": "observe.kernel_check",
    "Checkpoint": "continuous.checkpoints.checkpoint",
    "CheckpointError": "errors",
    "CheckpointWarning": "continuous.checkpoints.checkpoint",
    "CompileError": "errors",
    "DeadlineWarning": "continuous.report",
    "Device": "devices.base",
    "DeviceError": "errors",
    "DeviceInfo": "devices.base",
    "Executor": "execution.executor",
    "Explanation": "cache.report",
    "Fence": "devices.base",
    "Fingerprint": "devices.fingerprint",
    "Graph": "execution.graph",
    "GraphError": "errors",
    "In": "programs.python_words",
    "InOut": "programs.python_words",
    "Job": "execution.job",
    "Kernel": "devices.base",
    "KernelFault": "errors",
    "KernelKeepError": "errors",
    "Keyring": "remote.keyring",
    "Lease": "cache.lease",
    "LocalMemory": "devices.base",
    "MetricsServer": "observe.prometheus",
    "OpenTelemetryTracing": "observe.tracing",
    "Out": "programs.python_words",
    "OutOfMemory": "errors",
    "Pipeline": "execution.pipeline",
    "PortableKernel": "programs.portable",
    "PreloadReport": "cache.report",
    "Prepared": "devices.prepared",
    "Program": "devices.base",
    "ProgramCache": "cache.program_cache",
    "Progress": "progress.progress",
    "PrometheusCollector": "observe.prometheus",
    "Remote": "remote.address",
    "RemoteError": "errors",
    "Report": "observe.report.report",
    "Resident": "resident.resident",
    "Run": "continuous.run",
    "RunReport": "continuous.report",
    "Scalar": "programs.portable",
    "Selection": "variants.select",
    "Source": "programs.source",
    "StateProgram": "continuous.program",
    "SupervisedReport": "continuous.supervision.incident",
    "SupervisionError": "errors",
    "SyncReport": "cache.sync",
    "Task": "resident.task",
    "TaskFuture": "resident.future",
    "TaskSilent": "errors",
    "Template": "variants.template",
    "TuneReport": "variants.report",
    "Tuned": "variants.tuned",
    "Unsupported": "errors",
    "Variant": "variants.space",
    "VariantError": "errors",
    "VariantSpace": "variants.space",
    "check": "observe.kernel_check",
    "compile_ahead": "fleet.compile_ahead",
    "export_bundle": "fleet.bundle",
    "function": "programs.python_kernel",
    "groups": "devices.arguments",
    "import_bundle": "fleet.bundle",
    "kernel": "programs.python_kernel",
    "list_devices": "devices.registry",
    "open_device": "devices.registry",
    "pull_cache": "cache.sync",
    "push_cache": "cache.sync",
    "read_checkpoint": "continuous.checkpoints.files",
    "register_backend": "devices.registry",
    "report": "observe.report.report",
    "resume": "continuous.runner",
    "run": "continuous.runner",
    "run_supervised": "continuous.supervision.supervisor",
    "serve_metrics": "observe.prometheus",
    "trace_to_opentelemetry": "observe.tracing",
}

_MODULES = (
    "errors",
    "settings",
)  # which modules here import by name: no words of Python kernels, so none is looked for

# What nearly every program with a device uses: imported while the driver starts, when that takes no time.
_WITH_A_DEVICE = ("kernelkeep.cache.program_cache",)

__all__ = [
    "AheadReport",
    "ArgumentError",
    "Array",
    "BinaryRejected",
    "Buffer",
    "BundleReport",
    "CacheStats",
    "CacheWarning",
    "Capabilities",
    "CheckReport",
    "Checkpoint",
    "CheckpointError",
    "CheckpointWarning",
    "CompileError",
    "DeadlineWarning",
    "Device",
    "DeviceError",
    "DeviceInfo",
    "Executor",
    "Explanation",
    "Fence",
    "Fingerprint",
    "Graph",
    "GraphError",
    "In",
    "InOut",
    "Job",
    "Kernel",
    "KernelFault",
    "KernelKeepError",
    "Keyring",
    "Lease",
    "LocalMemory",
    "MetricsServer",
    "OpenTelemetryTracing",
    "Out",
    "OutOfMemory",
    "Pipeline",
    "PortableKernel",
    "PreloadReport",
    "Prepared",
    "Program",
    "ProgramCache",
    "Progress",
    "PrometheusCollector",
    "Remote",
    "RemoteError",
    "Report",
    "Resident",
    "Run",
    "RunReport",
    "Scalar",
    "Selection",
    "Source",
    "StateProgram",
    "SupervisedReport",
    "SupervisionError",
    "SyncReport",
    "Task",
    "TaskFuture",
    "TaskSilent",
    "Template",
    "TuneReport",
    "Tuned",
    "Unsupported",
    "Variant",
    "VariantError",
    "VariantSpace",
    "check",
    "compile_ahead",
    "export_bundle",
    "function",
    "groups",
    "import_bundle",
    "kernel",
    "list_devices",
    "open_device",
    "pull_cache",
    "push_cache",
    "read_checkpoint",
    "register_backend",
    "report",
    "resume",
    "run",
    "run_supervised",
    "serve_metrics",
    "trace_to_opentelemetry",
]


def __getattr__(name: str) -> object:
    import importlib

    if name == "fleet":  # kk.fleet.warm, without an import of its own
        return importlib.import_module("kernelkeep.fleet")
    home = _HOMES.get(name)
    # kk.global_id, kk.f4 and the other words of Python kernels
    if home is None and not name.startswith("_") and name not in _MODULES:
        from .programs.python_words import find_word

        if (word := find_word(name)) is not None:
            globals()[name] = word
            return word
    if home is None:
        raise AttributeError(f"module 'kernelkeep' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"kernelkeep.{home}"), name)
    if name == "open_device":
        from .devices import meanwhile

        meanwhile.wanted = _WITH_A_DEVICE
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    from .programs.python_words import all_words

    return sorted({*globals(), *__all__, *all_words()})
