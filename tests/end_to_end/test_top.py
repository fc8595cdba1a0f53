"""`kernelkeep top` beside real processes: what it shows of them, and what it does with those that die or lie."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

import kernelkeep as kk
from kernelkeep.cli.top_view import TopView
from kernelkeep.observe.live_processes import LiveProcess, live_processes
from kernelkeep.observe.live_rates import rates_between
from kernelkeep.testing.waiting import eventually

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Python has no sockets with a path on Windows")

SOURCES = str(Path(kk.__file__).parents[1])
PROGRAM = Path(__file__).with_name("watched_program.py")
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
# A process with something open in it, without a device: it is there within a second.
SMALL = """
import sys
from kernelkeep.activity import live
from kernelkeep.activity.facts import Facts
class Thing: pass
thing = Thing()
live.add("cache", thing, lambda one: Facts({"device": sys.argv[1]}, {"hits_memory": 3, "misses": 1}, {"programs": 2}))
print("running", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of this test alone, whose path is too long for a socket."""
    path = tmp_path / ("long" * 30) / "live"
    monkeypatch.setenv("KERNELKEEP_LIVE", str(path))
    return path


@contextlib.contextmanager
def started(command: list[str], **environment: str) -> Iterator[subprocess.Popen[str]]:
    """A process that has printed that it runs; it ends when its input does."""
    env = {**os.environ, "PYTHONPATH": SOURCES, **environment}
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
    assert process.stdin is not None and process.stdout is not None
    try:
        assert process.stdout.readline() == "running\n"
        yield process
    finally:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        try:
            process.wait(60)
        finally:
            process.kill()
            process.stdout.close()


def small(*, name: str = "opencl:0", **environment: str) -> contextlib.AbstractContextManager[subprocess.Popen[str]]:
    return started([sys.executable, "-c", SMALL, name], **environment)


def seen(pid: int) -> LiveProcess | None:
    return next((one for one in live_processes(pid) if one.snapshot is not None), None)


def top(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": SOURCES, "NO_COLOR": "1", **environment}
    return subprocess.run(
        [sys.executable, "-m", "kernelkeep", "top", *arguments], capture_output=True, text=True, timeout=120, env=env
    )


class Terminal:
    """A command in a terminal of its own."""

    def __init__(self, *arguments: str, columns: int = 100, lines: int = 40) -> None:
        import fcntl
        import pty
        import struct
        import termios

        self._screen, inner = pty.openpty()
        fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        env = {**os.environ, "PYTHONPATH": SOURCES, "TERM": "xterm-256color"}
        for name in ("COLUMNS", "LINES", "NO_COLOR"):
            env.pop(name, None)
        command = [sys.executable, "-m", "kernelkeep", "top", *arguments]
        # A session with this terminal, so that Ctrl-C reaches it as it would a user's.
        self.process = subprocess.Popen(
            command, stdin=inner, stdout=inner, stderr=inner, env=env, start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )  # fmt: skip
        os.close(inner)
        self.text = ""

    def read(self) -> str:
        """All that was printed so far, without colours."""
        while select.select([self._screen], [], [], 0.05)[0]:
            try:
                data = os.read(self._screen, 1 << 16)
            except OSError:  # the other end is closed
                break
            if not data:
                break
            self.text += data.decode(errors="replace")
        return ESCAPES.sub("", self.text)

    def press(self, key: bytes) -> None:
        os.write(self._screen, key)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._screen)


def test_a_program_that_does_everything_is_seen_and_then_gone(
    opencl_device: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with started([sys.executable, str(PROGRAM)], KERNELKEEP_DEVICE=opencl_device) as program:
        pid = str(program.pid)
        eventually(lambda: seen(program.pid))

        def checkpointed() -> bool:
            found = seen(program.pid)
            assert found is not None and found.snapshot is not None
            return any(one.counts.get("checkpoints") for one in found.snapshot.open)

        eventually(checkpointed)
        done = top(pid, "--once", "--json")
        assert done.returncode == 0, done.stderr
        (process,) = json.loads(done.stdout)["processes"]
        assert process["pid"] == program.pid
        assert process["snapshot"]["process"]["program"] == "watched_program.py"
        found = {one["kind"]: one for one in process["snapshot"]["open"]}
        assert set(found) == {"cache", "executor", "run", "resident"}
        assert all(one["about"]["device"] == opencl_device for one in found.values())
        cache, executor, run, resident = (found[kind] for kind in ("cache", "executor", "run", "resident"))
        assert cache["now"]["programs"] >= 3 and cache["now"]["memory_bytes"] > 0
        assert sum(cache["counts"][f"hits_{tier}"] for tier in ("memory", "disk")) + cache["counts"]["misses"] >= 3
        assert executor["counts"]["batches"] > 0 and executor["about"]["depth"] == 2
        assert executor["rates"]["batches"] > 0 and executor["counts"]["compute_busy_seconds"] > 0
        assert sum(executor["histograms"]["batch_seconds"]["counts"]) == executor["counts"]["batches"]
        assert run["counts"]["iterations"] > 0 and run["now"]["goal"] == 10**9 and run["rates"]["iterations"] > 0
        assert run["now"]["checkpoint_iteration"] > 0 and run["now"]["checkpoint_age_seconds"] >= 0
        assert run["about"]["strategy"] == "redispatch"
        assert resident["now"]["alive"] and resident["about"]["blocks"] == 2 and resident["rates"]["tasks"] > 0

        text = top(pid, "--once", COLUMNS="150").stdout
        for word in ("watched_program.py", "count", "redispatch", "ago at", "alive emulated", "batches/s"):
            assert word in text, text
        assert not any(line.rstrip() != line for line in text.splitlines())
        widths = (40, 60, 80, 100)
        with ThreadPoolExecutor(len(widths)) as pool:  # each watches for a while
            texts = list(pool.map(lambda columns: top(pid, "--once", COLUMNS=str(columns)).stdout, widths))
        for columns, text in zip(widths, texts, strict=True):
            lines = text.splitlines()
            assert max(map(len, lines)) <= columns
            words = " ".join(line.strip("│ ") for line in lines)
            assert "iteration" in words and "redispatch" in words and ", left  " not in words, words

        terminal = Terminal(pid, "--interval", "0.1")
        try:
            eventually(lambda: "iterations/s" in terminal.read() and "alive" in terminal.read())
            program.send_signal(signal.SIGKILL)
            eventually(lambda: f"Process {pid} has ended." in terminal.read())
            assert terminal.process.wait() == 0
            assert "Traceback" not in terminal.read()
        finally:
            terminal.close()
    assert not live_processes()
    assert not list(folder.iterdir()), "the socket of the killed process was removed"


def test_ctrl_c_ends_it_with_one_word(folder: Path) -> None:
    with small() as program:
        eventually(lambda: seen(program.pid))
        terminal = Terminal("--interval", "0.2", columns=60, lines=12)
        try:
            eventually(lambda: "lookups/s" in terminal.read())
            terminal.press(b"\x03")
            eventually(lambda: terminal.read().rstrip().endswith("kernelkeep: interrupted"))
            assert terminal.process.wait() == 130
            assert "Traceback" not in terminal.read()
        finally:
            terminal.close()


def test_many_processes(folder: Path) -> None:
    with contextlib.ExitStack() as stack:
        programs = [stack.enter_context(small(name=f"opencl:{number}")) for number in range(8)]
        eventually(lambda: len(live_processes()) == 8)
        done = json.loads(top("--once", "--json").stdout)
        assert [one["pid"] for one in done["processes"]] == sorted(one.pid for one in programs)
        only = json.loads(top("--once", "--json", "--device", "opencl:3").stdout)
        assert [one["pid"] for one in only["processes"]] == [programs[3].pid]
        found = live_processes()
        # A screen that is too small for all of them has a line for each.
        console = Console(file=StringIO(), width=80, height=12)
        with console.capture() as captured:
            console.print(TopView(found, rates_between((), found), lines=12))
        lines = captured.get().splitlines()
        assert len(lines) <= 12 and all(any(str(one.pid) in line for line in lines) for one in programs)
        terminal = Terminal("--interval", "0.2", columns=80, lines=12)
        try:
            eventually(lambda: all(f"{one.pid} " in terminal.read() for one in programs))
        finally:
            terminal.close()
        for one in programs[::2]:
            one.kill()
            one.wait()
        eventually(lambda: len(live_processes()) == 4)
    assert not list(folder.iterdir())


def test_a_process_that_is_stopped_is_said_not_to_answer(folder: Path) -> None:
    with small() as program:
        eventually(lambda: seen(program.pid))
        program.send_signal(signal.SIGSTOP)
        try:
            done = top(str(program.pid), "--once")
        finally:
            program.send_signal(signal.SIGCONT)
        assert done.returncode == 0 and "does not answer" in done.stdout
        assert seen(program.pid), "it is there again"


def test_nothing_to_see_is_one_sentence(folder: Path) -> None:
    done = top()
    assert (done.returncode, done.stdout) == (0, "No process of this user with kernelkeep is running.\n")
    assert json.loads(top("--once", "--json").stdout)["processes"] == []
    done = top("1", "--once")
    assert done.returncode == 1 and done.stderr.startswith("kernelkeep: no process 1 ") and done.stderr.count("\n") == 1
    assert top("--interval", "0").returncode == 2
    with small(KERNELKEEP_LIVE="0"):
        assert "No process" in top("--once").stdout


def test_a_forked_child_does_not_answer_for_its_parent(folder: Path) -> None:
    code = SMALL.replace(
        "sys.stdin.read()",
        "import os, time\nfrom kernelkeep.activity import live_server\n"
        "while live_server._listening is None: time.sleep(0.01)\n"
        "child = os.fork()\n"
        "if child == 0:\n    time.sleep(600)\n"
        "print(child, flush=True)\nsys.stdin.read()",
    )
    with started([sys.executable, "-c", code, "opencl:0"]) as program:
        assert program.stdout is not None
        child = int(program.stdout.readline())
        try:
            assert [one.pid for one in live_processes()] == [program.pid]
            program.kill()
            program.wait()
            eventually(lambda: not live_processes())
            assert not list(folder.iterdir())
        finally:
            os.kill(child, signal.SIGKILL)


def answering(folder: Path, pid: int, answer: bytes | None) -> socket.socket:
    """A socket as a process would have it, with an answer of any kind waiting; None: it never answers."""
    import threading

    from kernelkeep.platforms import system

    listener: socket.socket = system.listen_locally(str(folder), f"other.{pid}.00000000.sock")

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                if answer is None:
                    held.append(connection)
                    continue
                with connection, contextlib.suppress(OSError):
                    for _ in range(10_000 if answer.startswith(b"endless") else 1):
                        connection.sendall(answer)

    held: list[socket.socket] = []
    threading.Thread(target=serve, daemon=True).start()
    return listener


def test_hostile_files_in_the_folder(folder: Path) -> None:
    from kernelkeep.storage.private import make_private_folder

    make_private_folder(folder)
    os.mkfifo(folder / "h.1.00000000.sock")
    (folder / "h.2.00000000.sock").write_text("no socket")
    (folder / "h.3.00000000.sock").mkdir()
    (folder / "h.4.00000000.sock").symlink_to("/dev/zero")
    (folder / "no number.sock").write_text("")
    hostile = {
        "process": {"pid": 20, "program": "\x1b[2J\x1b]0;evil\x07[red]x[/red] [/] \u202e"},
        "time": float(2**70),
        "open": [
            {"id": 1, "kind": "cache", "seconds": -1, "about": {"device": "[/]\n\x1b[31m"}, "now": {"compiling": [1, {}]}},
            {"id": 2, "kind": "run", "seconds": 1, "now": {"goal": 10**400, "iteration": "x", "checkpoint_age_seconds": 1e308}},
            {"id": 3, "kind": "resident", "seconds": 1, "about": {"blocks": []}, "counts": {"tasks": 1e308}},
            {"id": 4, "kind": "executor", "seconds": 1, "now": {"queued": None}},
            {"id": 5, "kind": "tuning", "seconds": 1, "now": {"total": 0, "done": 1}},
            {"id": 6, "kind": "never heard of", "seconds": 1},
        ],
    }  # fmt: skip
    listeners = [
        answering(folder, 10, None),
        answering(folder, 11, b"not JSON"),
        answering(folder, 12, b'{"process": {"pid": "x"}}'),
        answering(folder, 13, b"endless " * 10_000),
        answering(folder, 14, b"[" * 500_000),
        answering(folder, 15, b""),
        answering(folder, 20, json.dumps(hostile).encode()),
    ]
    try:
        found = {one.pid: one for one in live_processes()}
        assert sorted(found) == [10, 11, 12, 13, 14, 20]
        assert "does not answer" in found[10].problem
        assert all("not understand" in found[pid].problem for pid in (11, 12, 14))
        done = top("--once", COLUMNS="120")
        assert done.returncode == 0, done.stderr
        assert "\\x1b[2J" in done.stdout and "[red]x[/red]" in done.stdout
        assert all(one.isprintable() or one == "\n" for one in done.stdout)
        console = Console(file=StringIO(), width=40)
        with console.capture() as captured:
            console.print(TopView(list(found.values()), rates_between((), found.values())))
        assert all(one.isprintable() or one == "\n" for one in captured.get())
    finally:
        for one in listeners:
            one.close()
    assert (folder / "h.2.00000000.sock").read_text() == "no socket", "what is no socket is left alone"


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can act as another user")
def test_another_user_is_told_nothing(reachable_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = reachable_path / "live"
    monkeypatch.setenv("KERNELKEEP_LIVE", str(folder))
    code = """
import os, socket, sys
os.setuid(65534)
with socket.socket(socket.AF_UNIX) as connection:
    try:
        connection.connect(sys.argv[1])
        print(repr(connection.recv(100)))
    except OSError as error:
        print(type(error).__name__)
"""

    def asked_by_another_user() -> str:
        (path,) = folder.iterdir()
        return subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True).stdout.strip()

    with small() as program:
        eventually(lambda: seen(program.pid))
        assert asked_by_another_user() == "PermissionError"
        # Even if the modes were all changed: the other end is looked at.
        for path in (folder, *folder.iterdir()):
            path.chmod(0o777)
        assert asked_by_another_user() in ("b''", "ConnectionResetError")
        folder.chmod(0o700)
        assert seen(program.pid)


def test_a_folder_that_is_open_to_others_is_not_used(folder: Path) -> None:
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    with small() as program, small(KERNELKEEP_LIVE=str(folder.parent / "other")):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("KERNELKEEP_LIVE", str(folder.parent / "other"))
            eventually(live_processes)  # the other one had its time, and so had this one
        assert not list(folder.iterdir())
        assert program.poll() is None
    listener = answering(folder, 10, b"{}")
    try:
        assert not live_processes(), "nor does anybody ask a socket that another user may have put there"
    finally:
        listener.close()
