"""The public surface: sorted, pinned, and every name there."""

from __future__ import annotations

import pytest

import kernelkeep as kk

PUBLIC = [
    "AheadReport", "ArgumentError", "Array", "BinaryRejected", "Buffer", "BundleReport", "CacheStats",
    "CacheWarning", "Capabilities", "CheckReport", "Checkpoint", "CheckpointError", "CheckpointWarning",
    "CompileError", "DeadlineWarning", "Device", "DeviceError", "DeviceInfo", "Executor", "Explanation", "Fence",
    "Fingerprint", "Graph", "GraphError", "In", "InOut", "Job", "Kernel", "KernelFault", "KernelKeepError",
    "Keyring", "Lease", "LocalMemory", "MetricsServer", "OpenTelemetryTracing", "Out", "OutOfMemory", "Pipeline",
    "PortableKernel", "PreloadReport", "Prepared", "Program", "ProgramCache", "Progress", "PrometheusCollector",
    "Remote", "RemoteError", "Report", "Resident", "Run", "RunReport", "Scalar", "Selection", "Source", "StateProgram",
    "SupervisedReport", "SupervisionError", "SyncReport", "Task", "TaskFuture", "TaskSilent", "Template",
    "TuneReport", "Tuned", "Unsupported", "Variant", "VariantError", "VariantSpace", "check", "compile_ahead",
    "export_bundle", "function", "groups", "import_bundle", "kernel", "list_devices", "open_device", "pull_cache",
    "push_cache", "read_checkpoint", "register_backend", "report", "resume", "run", "run_supervised",
    "serve_metrics",
    "trace_to_opentelemetry",
]  # fmt: skip


def test_all_is_pinned_and_sorted() -> None:
    assert kk.__all__ == PUBLIC
    assert sorted(kk.__all__) == kk.__all__


@pytest.mark.parametrize("name", PUBLIC)
def test_every_name_resolves_and_is_documented(name: str) -> None:
    value = getattr(kk, name)
    assert value.__name__ == name
    assert value.__doc__
    assert name in dir(kk)


def test_unknown_name() -> None:
    with pytest.raises(AttributeError, match="no attribute 'no_such_name'"):
        _ = kk.no_such_name


def test_version() -> None:
    assert kk.__version__.count(".") == 2
