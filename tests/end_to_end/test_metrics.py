"""Metrics as a real Prometheus reads them, and as prometheus_client's own parser does."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kernelkeep as kk
from kernelkeep.observe.metrics import all_metrics, metrics_of
from kernelkeep.testing import FakeDevice
from kernelkeep.testing.servers import NotInstalled, PrometheusServer
from kernelkeep.testing.skipped import skip_backend
from kernelkeep.testing.waiting import eventually

client = pytest.importorskip("prometheus_client", reason="prometheus_client is not installed")
openmetrics = pytest.importorskip("prometheus_client.openmetrics.parser")

PAGE = Path(__file__).parents[2] / "docs" / "observability.md"
ADD = kk.PortableKernel(
    "add",
    params=[kk.Buffer("x", "f4", "rw"), kk.Scalar("n", "i4")],
    body="int i = kk_global_id(0); if (i < n) x[i] = x[i] + 1.0f;",
    group=64,
)
COUNT = kk.StateProgram(
    "count", coupling="independent", items=64, state={"u": np.zeros(64, "f4")},
    body="int i = kk_item(); u_next[i] = u[i] + 1.0f;",
)  # fmt: skip


@pytest.fixture
def device() -> Iterator[kk.Device]:
    with FakeDevice() as device:
        yield device


def scrape(url: str, accept: str = "text/plain") -> tuple[str, str]:
    """The content type and the text of an answer."""
    with urllib.request.urlopen(urllib.request.Request(url, headers={"Accept": accept}), timeout=30) as answer:
        return answer.headers["Content-Type"], answer.read().decode()


def samples(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Every sample of an OpenMetrics text, by name and labels."""
    families = openmetrics.text_string_to_metric_families(text)
    return {(one.name, frozenset(one.labels.items())): one.value for family in families for one in family.samples}


def value(text: str, name: str, **labels: str) -> float:
    """The sum of the samples with these labels; those of other tests, on other devices, are not among them."""
    return sum(
        found for (sample, has), found in samples(text).items() if sample == name and has >= frozenset(labels.items())
    )


OPENMETRICS = "application/openmetrics-text; version=1.0.0"


def test_what_is_served(device: kk.Device, tmp_path: Path) -> None:
    with kk.serve_metrics(0) as server, kk.ProgramCache(device, tmp_path / "cache") as cache:
        here = {"device": device.spec}
        before = scrape(server.url, OPENMETRICS)[1]

        def grown(name: str, **labels: str) -> float:
            return value(scrape(server.url, OPENMETRICS)[1], name, **here, **labels) - value(
                before, name, **here, **labels
            )

        for _ in range(4):
            cache.get(ADD).release()
        with kk.Executor(device, depth=2) as executor:
            job = kk.Job(cache, ADD, grid=2, outputs={"x": ((128,), "f4")})
            for _ in range(3):
                executor.submit(job, x=np.zeros(128, "f4"), n=128).result()
            with pytest.raises(kk.ArgumentError):
                executor.submit(job, no_such=1).result()
        kk.run(cache, COUNT, iterations=50, strategy="redispatch", checkpoint=tmp_path / "c.kkpt").close()
        with kk.Resident.emulated(
            cache, tasks={"set": "(int k) { x[0] = k; }"}, arrays={"x": np.zeros(4, "i4")}
        ) as one:
            one.submit_many("set", np.arange(5).reshape(5, 1)).result()
            assert grown("kernelkeep_residents_alive") == 1
            assert grown("kernelkeep_resident_tasks_total") == 5
        kind, text = scrape(server.url, OPENMETRICS)
        assert kind.startswith("application/openmetrics-text") and text.endswith("# EOF\n")
        stats = cache.stats()
        assert grown("kernelkeep_cache_hits_total", tier="memory") == stats.hits_memory >= 3
        assert grown("kernelkeep_cache_misses_total") == stats.misses
        assert grown("kernelkeep_cache_compile_seconds_count") == stats.compiles
        assert grown("kernelkeep_cache_programs") == stats.programs
        assert grown("kernelkeep_cache_program_bytes") == stats.memory_bytes
        assert grown("kernelkeep_executor_batches_total", outcome="done") == 3
        assert grown("kernelkeep_executor_batches_total", outcome="failed") == 1
        assert grown("kernelkeep_executor_batch_seconds_bucket", le="+Inf") == 3
        assert grown("kernelkeep_executor_busy_seconds_total", engine="compute") > 0
        assert grown("kernelkeep_run_iterations_total", program="count") == 50
        assert grown("kernelkeep_run_checkpoints_total", program="count", outcome="written") >= 1
        assert grown("kernelkeep_run_checkpoint_bytes_total") >= (tmp_path / "c.kkpt").stat().st_size
        assert grown("kernelkeep_executors") == grown("kernelkeep_runs") == grown("kernelkeep_residents") == 0
    assert "MetricsServer, closed" in repr(server)
    with pytest.raises(OSError):
        scrape(server.url)


def test_every_metric_is_documented_and_named_by_the_rules() -> None:
    names = [name for name, *_ in all_metrics()]
    assert len(set(names)) == len(names)
    listed = PAGE.read_text(encoding="utf-8")
    for name, kind, labels, text in all_metrics():
        assert name.startswith("kernelkeep_") and (kind == "counter") == name.endswith("_total")
        assert "millisecond" not in text and not name.endswith(("_ms", "_us", "_mb", "_total_total"))
        assert labels[0] == "device" and text.endswith(".")
        assert f"| `{name}` | {kind} | {', '.join(labels)} | {text.rstrip('.')} |" in listed, (
            f"{PAGE.name} lacks {name}"
        )


def test_the_alert_of_the_page_is_one(tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        skip_backend("prometheus", "promtool is not installed; to get it: sudo apt-get install prometheus")
    for block in re.findall(r"^```yaml\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
        name = block.split()[1]
        (tmp_path / name).write_text(block, encoding="utf-8")
        what = "rules" if "rules" in name else "config"
        done = subprocess.run([promtool, "check", what, tmp_path / name], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


def test_there_is_one_logger() -> None:
    """The one that the page describes."""
    package = Path(kk.__file__).parent
    named = {
        found
        for path in package.rglob("*.py")
        if "testing" not in path.parts
        for found in re.findall(r"getLogger\(([^)]*)\)", path.read_text(encoding="utf-8"))
    }
    assert named == {'"kernelkeep"'}


def test_counts_stay_when_everything_is_closed_or_dropped(device: kk.Device, tmp_path: Path) -> None:
    registry = client.CollectorRegistry()
    registry.register(kk.PrometheusCollector())

    def read(name: str, **labels: str) -> float:
        return float(registry.get_sample_value(name, {"device": device.spec, **labels}) or 0)

    before = read("kernelkeep_cache_misses_total"), read("kernelkeep_cache_hits_total", tier="memory")
    seen = []
    for number in range(6):
        cache = kk.ProgramCache(device, tmp_path / str(number))
        for _ in range(3):
            cache.get(ADD).release()
        seen.append(read("kernelkeep_cache_hits_total", tier="memory") - before[1])
        if number % 2:
            cache.close()
        del cache
        seen.append(read("kernelkeep_cache_hits_total", tier="memory") - before[1])
    assert seen == [2, 2, 4, 4, 6, 6, 8, 8, 10, 10, 12, 12]
    assert read("kernelkeep_cache_misses_total") - before[0] == 6


def test_wrong_use_is_a_sentence(device: kk.Device) -> None:
    for bad in (-1, 65536, "80", True, None):
        with pytest.raises(kk.ArgumentError, match="port must be"):
            kk.serve_metrics(bad)  # type: ignore[arg-type]
    with pytest.raises(kk.ArgumentError, match="registry must be"):
        kk.serve_metrics(0, registry=3)
    with kk.serve_metrics(0) as server:
        with pytest.raises(kk.KernelKeepError, match=f"port {server.port}: .*in use"):
            kk.serve_metrics(server.port)
        server.close()
    registry = client.CollectorRegistry()
    client.Counter("mine", "Of the program itself.", registry=registry).inc()
    for _ in range(2):  # the same registry twice: nothing is there twice
        with kk.serve_metrics(0, registry=registry) as server:
            text = scrape(server.url)[1]
            assert text.count("# HELP kernelkeep_build_info") == 1 and "mine_total 1.0" in text


def test_the_mapping_takes_what_a_snapshot_may_have() -> None:
    made = {"device": "d", "name": "p"}
    snapshot: dict[str, Any] = {
        "process": {"program": "x"},
        "open": [
            {"kind": "run", "about": made, "counts": {"iterations": 3}, "now": {"iteration": 5, "goal": None}, "histograms": {}},
            {"kind": "run", "about": made, "counts": {"iterations": 4}, "now": {"iteration": 9}, "histograms": {}},
            {"kind": "of another version", "about": {}, "counts": {}, "now": {}, "histograms": {}},
        ],
        "closed": [{"kind": "run", "about": made, "counts": {"iterations": 10}, "histograms": {}}],
    }  # fmt: skip
    found = {one.name: one.values for one in metrics_of(snapshot)}
    assert found["kernelkeep_run_iterations"] == {("d", "p"): 17}
    assert found["kernelkeep_run_iteration"] == {("d", "p"): 9}, "the furthest of several with the same name"
    assert found["kernelkeep_runs"] == {("d", "p"): 2}
    assert "kernelkeep_run_goal_iterations" not in found


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs forks")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_leaves_the_port_alone() -> None:
    with kk.serve_metrics(0) as server:
        child = os.fork()
        if child == 0:
            os._exit(0 if "closed" in repr(server) else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert scrape(server.url)[1]


def test_prometheus_scrapes_it(device: kk.Device, tmp_path: Path) -> None:
    with kk.serve_metrics(0) as server:
        cache = kk.ProgramCache(device, tmp_path / "cache")
        cache.get(ADD).release()
        try:
            prometheus = PrometheusServer(f"127.0.0.1:{server.port}")
        except NotInstalled as missing:
            cache.close()
            skip_backend("prometheus", str(missing))
        with prometheus:
            here = f'{{device="{device.spec}"}}'

            def has(expression: str, wanted: float) -> bool:
                return [found for _, found in prometheus.query(expression)] == [wanted]

            hits = f'kernelkeep_cache_hits_total{{device="{device.spec}",tier="memory"}}'
            (before,) = (found for _, found in eventually(lambda: prometheus.query(hits)))
            for _ in range(7):
                cache.get(ADD).release()
            eventually(lambda: has(hits, before + 7))
            cache.close()
            eventually(lambda: has(f"kernelkeep_cache_programs{here} or vector(0)", 0))
            assert has(hits, before + 7), "closing the cache took nothing away"
            with kk.ProgramCache(device, tmp_path / "other") as other:
                for _ in range(3):
                    other.get(ADD).release()
                eventually(lambda: has(hits, before + 9))
            # Prometheus's own judgement: no counter was ever seen to go back.
            scraped = [name for name in prometheus.ask("label/__name__/values") if name.startswith("kernelkeep_")]
            counters = [name for name in scraped if name.endswith(("_total", "_bucket", "_count", "_sum"))]
            assert len(counters) > 20
            assert all(has(f"sum(resets({name}[5m]))", 0) for name in counters)
            (target,) = prometheus.ask("targets")["activeTargets"]
            assert target["health"] == "up" and not target["lastError"]
            known = {name: facts[0] for name, facts in prometheus.ask("metadata").items()}
            # A counter's name has no ending there: it was scraped as OpenMetrics.
            assert known["kernelkeep_cache_hits"]["type"] == "counter"
            assert known["kernelkeep_cache_programs"]["type"] == "gauge"
            assert known["kernelkeep_cache_compile_seconds"]["type"] == "histogram"
            quantile = f"histogram_quantile(0.5, kernelkeep_cache_compile_seconds_bucket{here})"
            (median,) = (found for _, found in prometheus.query(quantile))
            assert 0 < median < 60
        promtool = shutil.which("promtool")
        if promtool is not None:
            text = scrape(server.url)[1]
            done = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, text=True)
            assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
