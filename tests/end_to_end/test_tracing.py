"""Spans as OpenTelemetry's own SDK exports them: what is there, what belongs to what, what failed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kernelkeep as kk
from kernelkeep.activity import spans
from kernelkeep.testing.servers import RedisServer

sdk = pytest.importorskip("opentelemetry.sdk.trace", reason="opentelemetry-sdk is not installed")
exporting = pytest.importorskip("opentelemetry.sdk.trace.export")
memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")

SAXPY = kk.PortableKernel(
    "saxpy",
    params=[kk.Buffer("x", "f4", "r"), kk.Buffer("y", "f4", "rw"), kk.Scalar("a", "f4"), kk.Scalar("n", "i4")],
    body="int i = kk_global_id(0); if (i < n) y[i] = a * x[i] + y[i];",
    group=256,
)
TWICE = kk.Tuned(
    "twice",
    kk.Template(
        "int i = kk_global_id(0); if (i < n) y[i] = x[i] + x[i];",
        params=[kk.Buffer("x", "f4", "r"), kk.Buffer("y", "f4", "w"), kk.Scalar("n", "i4")],
        group=lambda v: v["GROUP"],
        grid=lambda v: kk.groups(v["n"], v["GROUP"]),
    ),
    kk.VariantSpace(GROUP=[32, 64]),
    reference=lambda x: x + x,
)


class Exported:
    """What was exported so far."""

    def __init__(self) -> None:
        self.provider = sdk.TracerProvider()
        self._exporter = memory.InMemorySpanExporter()
        self.provider.add_span_processor(exporting.SimpleSpanProcessor(self._exporter))
        self.tracer = self.provider.get_tracer("test")

    def all(self, name: str = "") -> list[Any]:
        found = self._exporter.get_finished_spans()
        return [one for one in found if not name or one.name == f"kernelkeep.{name}"]

    def one(self, name: str) -> Any:
        (found,) = self.all(name)
        return found

    def clear(self) -> None:
        self._exporter.clear()


@pytest.fixture
def exported() -> Iterator[Exported]:
    made = Exported()
    with kk.trace_to_opentelemetry(made.provider):
        yield made


@pytest.fixture
def device(opencl_device: str) -> Iterator[kk.Device]:
    with kk.open_device(opencl_device) as device:
        yield device


def parent_of(span: Any) -> int | None:
    return None if span.parent is None else span.parent.span_id


def is_inside(inner: Any, outer: Any) -> bool:
    same_trace: bool = inner.context.trace_id == outer.context.trace_id
    return same_trace and bool(parent_of(inner) == outer.context.span_id)


def test_a_program_from_the_compiler_from_disk_and_from_memory(
    device: kk.Device, exported: Exported, tmp_path: Path
) -> None:
    for origin in ("compiled", "disk"):
        exported.clear()
        with kk.ProgramCache(device, tmp_path) as cache:
            with exported.tracer.start_as_current_span("request"):
                cache.get(SAXPY).release()
            get = exported.one("cache.get")
            work = exported.one("cache.compile" if origin == "compiled" else "cache.load")
            (request,) = (one for one in exported.all() if one.name == "request")
            assert is_inside(get, request) and is_inside(work, get)
            said = dict(get.attributes)
            assert said["kernelkeep.program"] == "saxpy" and said["kernelkeep.device"] == device.spec
            assert said["kernelkeep.origin"] == origin and said["kernelkeep.bytes"] > 0
            assert work.start_time >= get.start_time and work.end_time <= get.end_time
            before = len(exported.all())
            cache.get(SAXPY).release()
            assert len(exported.all()) == before, "a hit in memory is no span"


def test_a_compile_that_fails_is_an_error(device: kk.Device, exported: Exported, tmp_path: Path) -> None:
    with kk.ProgramCache(device, tmp_path) as cache, pytest.raises(kk.CompileError):
        cache.get(kk.Source("not a kernel", name="bad", language=device.language))
    for name in ("cache.get", "cache.compile"):
        span = exported.one(name)
        assert span.status.status_code.name == "ERROR" and "CompileError" in span.status.description
        (event,) = span.events
        assert event.name == "exception" and event.attributes["exception.type"].endswith("CompileError")


def test_a_preload_is_the_parent_of_what_its_threads_do(device: kk.Device, exported: Exported, tmp_path: Path) -> None:
    with kk.ProgramCache(device, tmp_path) as cache:
        report = cache.preload([SAXPY, "no such name"], workers=2)
    assert report.compiled == 1 and len(report.failed) == 1
    preload = exported.one("preload")
    assert preload.attributes["kernelkeep.compiled"] == 1 and preload.attributes["kernelkeep.failed"] == 1
    good, bad = sorted(exported.all("preload.program"), key=lambda one: one.attributes["kernelkeep.program"] != "saxpy")
    assert is_inside(good, preload) and is_inside(bad, preload)
    assert is_inside(exported.one("cache.get"), good)
    assert bad.status.status_code.name == "ERROR"


def test_a_remote_lookup(redis_server: RedisServer, namespace: str, device: kk.Device, tmp_path: Path) -> None:
    remote = kk.Remote(redis_server.url, namespace=namespace, timeout_seconds=10)
    options: Any = {"remote": remote, "signing_key": b"secret" * 8, "remote_timeout": 10.0}
    with kk.ProgramCache(device, tmp_path / "one", **options) as cache:
        cache.get(SAXPY).release()
        cache.persist()
    exported = Exported()
    with kk.trace_to_opentelemetry(exported.provider), kk.ProgramCache(device, tmp_path / "two", **options) as cache:
        lease = cache.get(SAXPY)
        assert lease.origin == "remote"
        lease.release()
    get = exported.one("cache.get")
    fetch = next(one for one in exported.all("cache.fetch") if one.attributes["kernelkeep.found"])
    assert is_inside(fetch, get) and fetch.attributes["kernelkeep.bytes"] > 0
    assert get.attributes["kernelkeep.origin"] == "remote"


def test_batches_belong_to_whoever_submitted_them(device: kk.Device, exported: Exported, tmp_path: Path) -> None:
    n = 1 << 16
    with kk.ProgramCache(device, tmp_path) as cache, kk.Executor(device, depth=2) as executor:
        job = kk.Job(cache, SAXPY, grid=n // 256, outputs={"y": ((n,), "f4")})
        batch: dict[str, Any] = {"x": np.ones(n, "f4"), "y": np.ones(n, "f4"), "a": 2.0, "n": n}

        def submit(name: str) -> None:
            with exported.tracer.start_as_current_span(name):
                executor.submit(job, **batch).result()

        threads = [threading.Thread(target=submit, args=(name,)) for name in ("left", "right")]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        with exported.tracer.start_as_current_span("wrong"), pytest.raises(kk.ArgumentError):
            executor.submit(job, **batch, no_such_argument=1).result()
    batches = exported.all("executor.batch")
    asked = {one.context.span_id: one for one in exported.all() if one.name in ("left", "right", "wrong")}
    assert sorted(asked[parent_of(one) or 0].name for one in batches) == ["left", "right", "wrong"]
    for batch_span in batches:
        if asked[parent_of(batch_span) or 0].name == "wrong":
            assert batch_span.status.status_code.name == "ERROR"
            continue
        stages = {one.name.rpartition(".")[2]: one for one in exported.all() if is_inside(one, batch_span)}
        assert set(stages) == {"upload", "compute", "download"}
        assert stages["upload"].start_time <= stages["compute"].end_time <= stages["download"].end_time
        assert all(batch_span.start_time <= one.start_time <= one.end_time for one in stages.values())
        assert all(one.end_time <= batch_span.end_time for one in stages.values())
        assert batch_span.attributes["kernelkeep.job"] == "saxpy"


def test_a_run_and_its_checkpoints(device: kk.Device, exported: Exported, tmp_path: Path) -> None:
    program = kk.StateProgram(
        "count", coupling="independent", items=64, state={"u": np.zeros(64, "f4")},
        body="int i = kk_item(); u_next[i] = u[i] + 1.0f;",
    )  # fmt: skip
    file = tmp_path / "count.kkpt"
    with kk.ProgramCache(device, tmp_path / "cache") as cache, exported.tracer.start_as_current_span("job"):
        kk.run(cache, program, iterations=100, strategy="redispatch", checkpoint=file).close()
    run = exported.one("run")
    (job,) = (one for one in exported.all() if one.name == "job")
    assert is_inside(run, job)
    said = dict(run.attributes)
    assert said["kernelkeep.iterations"] == 100 and said["kernelkeep.stopped"] == "done"
    assert said["kernelkeep.strategy"] == "redispatch"
    last = exported.all("checkpoint.write")[-1]
    assert is_inside(last, run), "though another thread wrote it"
    assert last.attributes["kernelkeep.iteration"] == 100
    assert last.attributes["kernelkeep.bytes"] == file.stat().st_size
    exported.clear()
    with kk.ProgramCache(device, tmp_path / "cache") as cache, pytest.raises(ZeroDivisionError):
        kk.run(cache, program, iterations=100, strategy="redispatch", on_progress=lambda step: 1 // 0)
    assert exported.one("run").status.status_code.name == "ERROR"


def test_a_resident_and_a_tuning(device: kk.Device, exported: Exported, tmp_path: Path) -> None:
    with kk.ProgramCache(device, tmp_path) as cache:
        arrays = {"x": np.zeros(16, "i4")}
        with kk.Resident.emulated(cache, tasks={"one": "(int k) { x[0] = k; }"}, arrays=arrays) as resident:
            exported.clear()
            resident.add("two", "(int k) { x[1] = k; }")
        add = exported.one("resident.add")
        assert add.attributes["kernelkeep.task"] == "two" and add.attributes["kernelkeep.paused_seconds"] >= 0
        assert any(is_inside(one, add) for one in exported.all("cache.get"))
        exported.clear()
        report = TWICE.tune(cache, {"n": 1000}, isolate=False)
        tune = exported.one("tune")
        assert tune.attributes["kernelkeep.kernel"] == "twice" and report.best is not None
        assert tune.attributes["kernelkeep.attempts"] == 2 and tune.attributes["kernelkeep.best"] == str(report.best)


def test_nothing_is_traced_after_close(device: kk.Device, tmp_path: Path) -> None:
    first, second = Exported(), Exported()
    one = kk.trace_to_opentelemetry(first.provider)
    two = kk.trace_to_opentelemetry(second.provider)
    one.close()  # it was replaced, so this changes nothing
    with kk.ProgramCache(device, tmp_path) as cache:
        cache.get(SAXPY).release()
    assert second.all("cache.get") and not first.all()
    two.close()
    two.close()
    assert not spans.is_on()
    with pytest.raises(kk.ArgumentError, match="tracer_provider"):
        kk.trace_to_opentelemetry("no provider")


def test_a_provider_that_fails_breaks_nothing(device: kk.Device, tmp_path: Path) -> None:
    class Broken:
        def get_tracer(self, *names: object, **others: object) -> Any:
            return self

        def start_span(self, *words: object, **others: object) -> Any:
            raise OSError("no exporter")

    with kk.trace_to_opentelemetry(Broken()), kk.ProgramCache(device, tmp_path) as cache:
        with cache.get(SAXPY) as lease:
            assert lease.origin == "compiled"
