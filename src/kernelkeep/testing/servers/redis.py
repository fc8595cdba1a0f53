"""redis-server, or valkey-server where only that is installed. It keeps nothing when it ends."""

from __future__ import annotations

import socket

from .server import NotInstalled, Server, program


class RedisServer(Server):
    """`arguments` are options of redis-server, such as "--requirepass", "secret"."""

    def __init__(self, *arguments: str) -> None:
        self._arguments = arguments
        super().__init__()

    def command(self) -> list[str]:
        """No persistence; a socket in the folder too."""
        try:
            path = program("redis-server", "redis-server")
        except NotInstalled:
            path = program("valkey-server", "redis-server")
        options = ["--port", str(self.port), "--bind", "127.0.0.1", "--unixsocket", str(self.socket_path)]
        return [path, *options, "--save", "", "--appendonly", "no", "--dir", str(self.folder), *self._arguments]

    @property
    def socket_path(self) -> str:
        """The path of its Unix socket."""
        return str(self.folder / "socket")

    @property
    def url(self) -> str:
        """Its first database."""
        return f"redis://127.0.0.1:{self.port}/0"

    def ask(self, *words: str) -> bytes:
        """Send a command, such as "FLUSHALL", and return the beginning of the answer."""
        with socket.create_connection(("127.0.0.1", self.port), 10) as connection:
            parts = [f"${len(word.encode())}\r\n{word}\r\n" for word in words]
            connection.sendall(f"*{len(words)}\r\n{''.join(parts)}".encode())
            return connection.recv(65536)

    def takes_connections(self) -> bool:
        """Whether it answers."""
        try:
            return self.ask("PING")[:1] in (b"+", b"-")  # an error where it wants a password
        except OSError:
            return False

    def empty(self) -> None:
        """Forget everything."""
        self.ask("FLUSHALL")
