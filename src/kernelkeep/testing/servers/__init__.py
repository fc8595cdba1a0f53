"""Real servers for tests: redis-server, nginx with WebDAV, moto's S3 server, Prometheus, and a proxy that breaks connections.

    with RedisServer() as server, Proxy(server.port) as proxy:
        proxy.latency_seconds = 0.3
        kk.Remote(f"redis://127.0.0.1:{proxy.port}/0")

A server listens on a free port of 127.0.0.1, keeps what it has in a temporary folder, and ends with this process, however that
ends. `NotInstalled` says what is missing on this machine.
"""

from __future__ import annotations

from .nginx import NginxServer
from .prometheus import PrometheusServer
from .proxy import Proxy
from .redis import RedisServer
from .s3 import S3Server
from .server import NotInstalled, Server, free_port

__all__ = ["NginxServer", "NotInstalled", "PrometheusServer", "Proxy", "RedisServer", "S3Server", "Server", "free_port"]
