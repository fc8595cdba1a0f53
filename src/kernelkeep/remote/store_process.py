"""A store whose calls another process makes: for forked processes, where the threads of a store's library are missing.

The other process is started at the first call, and ends with this one. It is told the address through a pipe, because everybody
can read the arguments of a process. Requests and answers are lengths followed by MessagePack.
"""

from __future__ import annotations

import contextlib
import os
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from typing import IO, Any

import msgspec

from ..errors import RemoteError
from ..processes import python_environment
from .address import Remote, open_store
from .store import Store, Versioned

_LENGTH = struct.Struct("<Q")
_END_SECONDS = 2.0
_START = "from kernelkeep.remote.store_process import serve; serve()"


class ProcessStore(Store):
    """The store of an address, asked by a process of its own, one call after the other."""

    def __init__(self, remote: Remote, *, conditional: bool) -> None:
        self._remote = remote
        self.conditional = conditional
        self._process: subprocess.Popen[bytes] | None = None
        self._calling = threading.Lock()

    @property
    def location(self) -> str:
        """The address without its secrets."""
        return self._remote.location

    def prepare(self) -> None:
        """Start the process."""
        with self._calling:
            self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        process = self._process
        if process is None or process.poll() is not None:
            if process is not None:
                _close_pipes(process)
            pipe = subprocess.PIPE
            process = subprocess.Popen(
                [sys.executable, "-c", _START], stdin=pipe, stdout=pipe, env=python_environment(os.environ)
            )
            self._process = process
            remote = self._remote
            self._answer(process, [remote.url, remote.namespace, remote.timeout_seconds])
        return process

    def _ask(self, method: str, *arguments: Any) -> Any:
        with self._calling:
            process = self._start()
            return self._answer(process, [method, list(arguments)])

    def _answer(self, process: subprocess.Popen[bytes], question: Any) -> Any:
        try:
            _write(process.stdin, question)
            failure, value = _read(process.stdout)
        except (OSError, EOFError):
            self.abort()
            self.close()  # the next call starts another one
            raise RemoteError(f"{self.location}: the process that asks it has ended") from None
        if failure:
            raise RemoteError(failure)
        return value

    def get(self, name: str) -> bytes | None:
        """The bytes under a name."""
        data: bytes | None = self._ask("get", name)
        return data

    def get_many(self, names: Iterable[str]) -> dict[str, bytes]:
        """Several at a time."""
        found: dict[str, bytes] = self._ask("get_many", list(names))
        return found

    def put(self, name: str, data: bytes, ttl_seconds: float | None = None) -> None:
        """Keep bytes."""
        self._ask("put", name, data, ttl_seconds)

    def delete(self, name: str) -> None:
        """Remove what is under a name."""
        self._ask("delete", name)

    def list(self, prefix: str) -> Iterator[str]:
        """All at once."""
        return iter(self._ask("list", prefix))

    def create(self, name: str, data: bytes, ttl_seconds: float | None = None) -> str | None:
        """Where nothing is there yet."""
        version: str | None = self._ask("create", name, data, ttl_seconds)
        return version

    def get_versioned(self, name: str) -> Versioned | None:
        """With the version."""
        found = self._ask("get_versioned", name)
        return None if found is None else Versioned(*found)

    def replace(self, name: str, data: bytes, version: str, ttl_seconds: float | None = None) -> str | None:
        """Where the version is still the same."""
        new: str | None = self._ask("replace", name, data, version, ttl_seconds)
        return new

    def abort(self) -> None:
        """End the process, and with it the call that waits."""
        if self._process is not None:
            self._process.kill()

    def close(self) -> None:
        """Let the process end."""
        process, self._process = self._process, None
        if process is not None:
            _close_pipes(process)
            try:
                process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _close_pipes(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()


def serve() -> None:
    """The other process: answer until nobody can ask any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is for the process that asks
    questions, answers = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr  # whatever a library prints is no answer
    with contextlib.suppress(EOFError, BrokenPipeError):
        url, namespace, timeout_seconds = _read(questions)
        store = open_store(Remote(url, namespace=namespace, timeout_seconds=timeout_seconds))
        _write(answers, _result(store, "prepare", []))
        while True:
            method, arguments = _read(questions)
            _write(answers, _result(store, method, arguments))
    os._exit(0)


def _result(store: Store, method: str, arguments: list[Any]) -> tuple[str, Any]:
    """What went wrong, or nothing and the result. What a store's exception says holds no secret."""
    try:
        value = getattr(store, method)(*arguments)
        return "", list(value) if method == "list" else value
    except Exception as error:
        return str(error) or type(error).__name__, None


def _write(pipe: IO[bytes] | None, message: Any) -> None:
    assert pipe is not None
    data = msgspec.msgpack.encode(message)
    pipe.write(_LENGTH.pack(len(data)) + data)
    pipe.flush()


def _read(pipe: IO[bytes] | None) -> Any:
    assert pipe is not None
    return msgspec.msgpack.decode(_exactly(pipe, *_LENGTH.unpack(_exactly(pipe, _LENGTH.size))))


def _exactly(pipe: IO[bytes], size: int) -> bytes:
    data = pipe.read(size)
    if len(data) < size:
        raise EOFError
    return data
