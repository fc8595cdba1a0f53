"""A TCP proxy that breaks connections on demand: slow, silent, cut off, garbled."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from typing import Self

_PIECE = 65536
_POLL_SECONDS = 0.02


class Proxy:
    """Passes connections on to a port of 127.0.0.1. The attributes may be changed at any time and hold for every connection.

    `connect_seconds`: how long a new connection takes. `latency_seconds`: added before each piece of an answer.
    `bytes_per_second`: how fast answers come; None is unlimited. `silent`: takes connections and requests, and passes nothing
    back. `garbage`: sends these bytes in place of answers. `cut_after`: closes a connection once it has passed that many bytes
    of answers; None never does. `half_close`: after a connection's first answer, says that no more will come, and takes what
    the client sends without an answer. `refusing`: closes each connection at once. `connections` counts those taken.
    """

    def __init__(self, target_port: int) -> None:
        self.target_port = target_port
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port: int = self._listener.getsockname()[1]
        self.connections = 0
        self._open: set[socket.socket] = set()
        self._closed = False
        self.heal()
        threading.Thread(target=self._accept, daemon=True, name="proxy").start()

    def heal(self) -> None:
        """Pass everything on as it is."""
        self.connect_seconds = 0.0
        self.latency_seconds = 0.0
        self.bytes_per_second: float | None = None
        self.silent = False
        self.garbage: bytes | None = None
        self.cut_after: int | None = None
        self.half_close = False
        self.refusing = False

    def drop(self) -> None:
        """Cut every connection there is."""
        for connection in list(self._open):
            _end(connection)

    def close(self) -> None:
        """Stop listening, and cut every connection."""
        self._closed = True
        _end(self._listener)
        self.drop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _accept(self) -> None:
        while not self._closed:
            try:
                client = self._listener.accept()[0]
            except OSError:
                return
            self.connections += 1
            if self.refusing:
                _end(client)
                continue
            try:
                server = socket.create_connection(("127.0.0.1", self.target_port), 10)
                server.settimeout(None)
            except OSError:
                _end(client)
                continue
            for one in (client, server):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._open |= {client, server}
            threading.Thread(target=self._requests, args=(client, server), daemon=True, name="proxy-up").start()
            threading.Thread(target=self._answers, args=(client, server), daemon=True, name="proxy-down").start()

    def _requests(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            time.sleep(self.connect_seconds)
            while data := client.recv(_PIECE):
                server.sendall(data)
        self._forget(client, server)

    def _answers(self, client: socket.socket, server: socket.socket) -> None:
        passed = 0
        with contextlib.suppress(OSError):
            while data := server.recv(_PIECE):
                while self.silent and not self._closed:
                    time.sleep(_POLL_SECONDS)
                if self.garbage is not None:
                    data = self.garbage
                if self.cut_after is not None:
                    data = data[: max(0, self.cut_after - passed)]
                self._pass(client, data)
                passed += len(data)
                if self.cut_after is not None and passed >= self.cut_after:
                    break
                if self.half_close:
                    client.shutdown(socket.SHUT_WR)
                    while server.recv(_PIECE):
                        pass
        self._forget(client, server)

    def _pass(self, client: socket.socket, data: bytes) -> None:
        if self.latency_seconds:
            time.sleep(self.latency_seconds)
        while data:
            rate = self.bytes_per_second
            size = len(data) if rate is None else max(1, int(rate * _POLL_SECONDS))
            client.sendall(data[:size])
            data = data[size:]
            if rate is not None:
                time.sleep(size / rate)

    def _forget(self, *connections: socket.socket) -> None:
        for connection in connections:
            self._open.discard(connection)
            _end(connection)


def _end(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
