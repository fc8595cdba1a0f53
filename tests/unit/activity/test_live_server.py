"""Forks at the worst moment, and folders that cannot be used."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernelkeep.activity import live, live_folder, live_server

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs forks")


def test_a_fork_waits_for_the_thread_that_imports() -> None:
    """A child could never import a module that a thread of its parent was importing."""
    code = """
import os, sys, threading, time
from kernelkeep.activity import live
live._IMPORT_SECONDS = 50.0  # however slow this machine is
holding = threading.Event()

def hold():
    with live._importing:
        holding.set()
        time.sleep(0.3)
        print("imported", flush=True)

threading.Thread(target=hold).start()
holding.wait()
child = os.fork()
if child == 0:
    with live._importing:  # a new one
        os._exit(0)
print("forked", os.waitpid(child, 0)[1], flush=True)
assert live._importing.acquire(blocking=False)
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("imported\nforked 0\n", "")


def test_without_a_usable_folder_nothing_but_a_line_for_debugging(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("KERNELKEEP_LIVE", str(tmp_path / "file"))
    with caplog.at_level(logging.DEBUG, "kernelkeep"), pytest.raises(OSError):
        live_server.listen()
    assert "cannot see this process" in caplog.text
    monkeypatch.setattr(live, "_LISTEN_AFTER_SECONDS", 0)
    live._listen()  # what the thread does: it just ends


def test_where_sockets_may_be(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("KERNELKEEP_LIVE")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    found = live_folder.folders()
    assert found[0] == tmp_path / "kernelkeep" and tmp_path / "cache" / "kernelkeep-live" in found
    assert str(os.geteuid()) in found[-1].name
    monkeypatch.setenv("XDG_RUNTIME_DIR", "relative")
    assert all(path.is_absolute() for path in live_folder.folders())


def test_the_socket_of_another_machine_is_not_taken_for_stale(tmp_path: Path) -> None:
    """The folder may be on a disk that machines share."""
    import socket

    for name in ("elsewhere.7.00000000.sock", f"{live_folder._host()}.7.00000000.sock"):
        with socket.socket(socket.AF_UNIX) as dead:
            here = Path.cwd()
            os.chdir(tmp_path)  # the path is too long
            try:
                dead.bind(name)
            finally:
                os.chdir(here)
    elsewhere, ours = sorted(live_folder.sockets_in(tmp_path), key=lambda path: not path.name.startswith("elsewhere"))
    assert not live_folder.is_stale(elsewhere)
    assert live_folder.is_stale(ours)
