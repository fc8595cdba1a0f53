"""A server as a child process that can be killed, paused and started again."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Self

_READY_SECONDS = 60.0  # a busy machine starts a Python server in ten
# A shell would not pass the parent's death on: this sets it and becomes the server.
_END_WITH_PARENT = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
os.getppid() == int(sys.argv[1]) or os._exit(1)
os.execv(sys.argv[2], sys.argv[2:])
"""


class NotInstalled(Exception):
    """This machine lacks the server; the text says what to install."""


_ONLY_ON_LINUX = "kernelkeep starts servers on Linux only"


def _require_linux() -> None:
    if sys.platform != "linux":
        raise NotInstalled(_ONLY_ON_LINUX)


def free_port() -> int:
    """A port of 127.0.0.1 on which nobody listens now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def program(name: str, package: str) -> str:
    """The path of a server's program; `NotInstalled` names Debian's package."""
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin:/usr/bin")
    if found is None:
        raise NotInstalled(f"{name} is not installed; to get it: sudo apt-get install {package}")
    return found


class Server(ABC):
    """A server on a free port with a temporary folder. A context manager. `start` gives it the same port again."""

    def __init__(self) -> None:
        _require_linux()
        self.folder = Path(tempfile.mkdtemp(prefix="kernelkeep-server-"))
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self.start()
        except BaseException:
            self.close()
            raise

    @abstractmethod
    def command(self) -> list[str]:
        """What starts it."""

    @property
    def pid(self) -> int:
        """The number of its process."""
        assert self._process is not None, "the server does not run"
        return self._process.pid

    def start(self) -> None:
        """Start it, and wait until it takes connections."""
        with (self.folder / "output").open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-S", "-E", "-c", _END_WITH_PARENT, str(os.getpid()), *self.command()],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C at the terminal ends the tests, which end the server
            )
        deadline = time.monotonic() + _READY_SECONDS
        while not self.takes_connections():
            if self._process.poll() is not None or time.monotonic() > deadline:
                said = (self.folder / "output").read_text(errors="replace")[-2000:]
                raise RuntimeError(f"{type(self).__name__} did not start: {said}")
            time.sleep(0.02)

    def takes_connections(self) -> bool:
        """Whether somebody listens on the port."""
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        except OSError:
            return False
        return True

    def pause(self) -> None:
        """SIGSTOP: connections are taken by the kernel, and nobody answers. Returns when it has really stopped."""
        if sys.platform != "linux":
            raise NotInstalled(_ONLY_ON_LINUX)
        self._signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        """SIGCONT."""
        if sys.platform != "linux":
            raise NotInstalled(_ONLY_ON_LINUX)
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None, "the server does not run"
        self._process.send_signal(number)

    def close(self) -> None:
        """Kill it and remove its folder."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
