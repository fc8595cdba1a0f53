"""The servers that tests of stores use, and the proxy that breaks connections."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import urllib.request

import pytest

from kernelkeep.processes import python_environment
from kernelkeep.testing.servers import NginxServer, Proxy, RedisServer, S3Server


def ask_through(proxy: Proxy, seconds: float = 5.0) -> bytes:
    with socket.create_connection(("127.0.0.1", proxy.port), seconds) as connection:
        connection.sendall(b"PING\r\n")
        return connection.recv(100)


def test_redis_can_be_paused_killed_and_started_again_empty(redis_server: RedisServer) -> None:
    with RedisServer() as server:
        server.ask("SET", "a", "b")
        server.pause()
        with socket.create_connection(("127.0.0.1", server.port), 5) as connection:
            connection.settimeout(0.2)
            connection.sendall(b"PING\r\n")
            with pytest.raises(TimeoutError):
                connection.recv(10)
        server.resume()
        assert server.ask("GET", "a") == b"$1\r\nb\r\n"
        server.kill()
        assert not server.takes_connections()
        server.start()
        assert server.ask("GET", "a") == b"$-1\r\n"


def test_nginx_keeps_what_is_put(nginx_server: NginxServer, namespace: str) -> None:
    address = f"{nginx_server.url}/{namespace}/a/b"
    urllib.request.urlopen(urllib.request.Request(address, b"bytes", method="PUT"), timeout=10).close()
    with urllib.request.urlopen(address, timeout=10) as answer:
        assert answer.read() == b"bytes"


def test_the_s3_server_has_a_bucket(s3_server: S3Server) -> None:
    with urllib.request.urlopen(f"{s3_server.endpoint}/{s3_server.bucket}", timeout=10) as answer:
        assert b"ListBucketResult" in answer.read()


def test_a_server_ends_with_the_process_that_started_it(redis_server: RedisServer) -> None:
    code = (
        "import os, signal; from kernelkeep.testing.servers import RedisServer; "
        "s = RedisServer(); print(s.port, flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", code], env=python_environment({}), stdout=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 30
    while True:
        try:
            socket.create_connection(("127.0.0.1", int(done.stdout)), 1).close()
        except OSError:
            return
        assert time.monotonic() < deadline, "the server is still there"
        time.sleep(0.05)


def test_the_proxy_breaks_what_it_is_told_to(redis_server: RedisServer) -> None:
    with Proxy(redis_server.port) as proxy:
        assert ask_through(proxy) == b"+PONG\r\n"
        proxy.garbage = b"\x00\xff"
        assert ask_through(proxy) == b"\x00\xff"
        proxy.heal()
        proxy.cut_after = 3
        assert ask_through(proxy) == b"+PO"
        proxy.heal()
        proxy.silent = True
        with pytest.raises(TimeoutError):
            ask_through(proxy, 0.2)
        proxy.heal()
        proxy.latency_seconds = 0.2
        begun = time.monotonic()
        assert ask_through(proxy) == b"+PONG\r\n" and time.monotonic() - begun >= 0.2
        proxy.heal()
        proxy.refusing = True
        try:
            assert ask_through(proxy) == b""
        except ConnectionError:
            pass  # the other way in which a closed connection shows
        proxy.heal()
        proxy.half_close = True
        with socket.create_connection(("127.0.0.1", proxy.port), 5) as connection:
            connection.sendall(b"PING\r\n")
            assert connection.recv(100) == b"+PONG\r\n"
            connection.sendall(b"PING\r\n")
            assert connection.recv(100) == b""
        assert proxy.connections == 7
