"""Metrics for Prometheus and whatever else reads OpenMetrics: `kk.PrometheusCollector`, and `kk.serve_metrics` to serve it.

Needs prometheus_client: the extra `metrics`. Everything is read when it is scraped; in between nothing is done.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType
from typing import Any, Self

from ..activity import live
from ..errors import ArgumentError, KernelKeepError, Unsupported
from ..installation import install_command
from ..platforms import system
from ..weak_set import WeakSet
from .metrics import Metric, metrics_of


class PrometheusCollector:
    """What kernelkeep does in this process, for a registry of prometheus_client.

        prometheus_client.REGISTRY.register(kk.PrometheusCollector())

    Counters keep the counts of caches, executors, runs and residents that were closed, so they never go back.
    """

    def __init__(self) -> None:
        self._core = _load("prometheus_client.core")

    def collect(self) -> Iterator[Any]:
        """The metrics of this moment. Asks no device, and waits for nothing."""
        for metric in metrics_of(live.snapshot()):
            yield _family(self._core, metric)

    def describe(self) -> list[Any]:
        """Nothing: names are not known before something is open, so a registry does not look for them."""
        return []


class MetricsServer:
    """An HTTP server that answers with the metrics of this process at /metrics. A context manager that closes it."""

    def __init__(self, port: int, address: str, registry: Any) -> None:
        client = _load("prometheus_client")
        try:
            server, self._thread = client.start_http_server(port, address, registry)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            raise KernelKeepError(f"metrics cannot be served at {address}, port {port}: {reason}") from None
        self._server: Any = server
        self.address = address
        self.port: int = server.server_port
        _servers.add(self)

    @property
    def url(self) -> str:
        """Where the metrics are."""
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"http://{host}:{self.port}/metrics"

    def close(self) -> None:
        """Stop answering, and free the port. Doing it twice is fine."""
        server, self._server = self._server, None
        if server is not None:
            _servers.discard(self)
            server.shutdown()
            server.server_close()
            self._thread.join()

    def close_inherited(self) -> None:
        """In a forked child: nobody answers here, and the port is the parent's."""
        server, self._server = self._server, None
        if server is not None:
            with contextlib.suppress(OSError):
                server.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<MetricsServer at {self.url}>" if self._server is not None else "<MetricsServer, closed>"


_servers: WeakSet[MetricsServer] = WeakSet()


def serve_metrics(port: int = 9464, address: str = "127.0.0.1", *, registry: Any = None) -> MetricsServer:
    """Serve the metrics of this process for Prometheus at `http://address:port/metrics`, in a thread of its own.

    Port 0 takes a free one, which `.port` tells. The address is this machine's own by default: whoever reaches it sees names of
    programs and devices. With `registry`, a `CollectorRegistry` of prometheus_client, what else is registered there is served
    too.
    """
    if not isinstance(port, int) or isinstance(port, bool) or not 0 <= port < 65536:
        raise ArgumentError(f"port must be a number from 0 to 65535, got {port!r}")
    if not isinstance(address, str) or not address:
        raise ArgumentError(f"address must be that of a network interface, such as 127.0.0.1, got {address!r}")
    collector = PrometheusCollector()
    if registry is None:
        registry = _load("prometheus_client").CollectorRegistry()
    if not hasattr(registry, "register") or not hasattr(registry, "collect"):
        raise ArgumentError(f"registry must be a prometheus_client.CollectorRegistry, got a {type(registry).__name__}")
    # What the registry has already of ours would be there twice, which Prometheus refuses.
    if not any(family.name.startswith("kernelkeep_") for family in registry.collect()):
        registry.register(collector)
    return MetricsServer(port, address, registry)


def _family(core: Any, metric: Metric) -> Any:
    if metric.type == "info":
        return core.InfoMetricFamily(metric.name, metric.help, value=metric.values[()])
    if metric.type == "histogram":
        family = core.HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
        for labels, value in metric.values.items():
            buckets, total = [], 0
            for bound, count in zip((*map(str, value.bounds), "+Inf"), value.counts, strict=True):
                total += count
                buckets.append((bound, total))
            family.add_metric(labels, buckets, value.sum)
        return family
    kind = core.CounterMetricFamily if metric.type == "counter" else core.GaugeMetricFamily
    family = kind(metric.name, metric.help, labels=metric.labels)
    for labels, value in metric.values.items():
        family.add_metric(labels, value)
    return family


def _load(name: str) -> ModuleType:
    try:
        return import_module(name)
    except ImportError as error:
        raise Unsupported(
            "prometheus_client",
            f"metrics need prometheus_client ({error}); install it with: {install_command('metrics')}",
        ) from None


def _in_child() -> None:
    for server in list(_servers):
        server.close_inherited()
    _servers.clear()


system.on_fork(after_in_child=_in_child)
