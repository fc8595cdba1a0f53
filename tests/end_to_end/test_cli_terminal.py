"""The command in a real terminal: completion in three shells, Ctrl-C at any moment, and tables in narrow windows."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import select
import shutil
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rich.cells import cell_len

import kernelkeep as kk
from kernelkeep.cli import main
from kernelkeep.cli.commands import COMMANDS, SUMMARIES, overview
from kernelkeep.testing import note_skipped

Command = Callable[..., subprocess.CompletedProcess[str]]
SOURCES = str(Path(kk.__file__).parents[1])


class Terminal:
    """A program in a terminal of its own."""

    def __init__(self, command: list[str], env: dict[str, str], cwd: Path, columns: int = 80) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 30, columns, 0, 0))
        self.process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, env=env, cwd=cwd, start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )  # fmt: skip
        os.close(slave)
        self.text = ""

    def type(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def read_until(self, pattern: str, seconds: float = 120.0) -> str:
        """Read until it matches; what was read is in `text`. The limit is for a test that would hang, not for a slow machine."""
        end = time.monotonic() + seconds
        while not re.search(pattern, self.text) and time.monotonic() < end:
            if not self._read_some(end - time.monotonic()):
                break
        assert re.search(pattern, self.text), f"{pattern} is not in {self.text!r}"
        return self.text

    def wait(self) -> int:
        """Read to the end; the exit code."""
        while self._read_some(120.0):
            pass
        return self.process.wait(60)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(60)
        os.close(self._master)

    def _read_some(self, seconds: float) -> bool:
        if not select.select([self._master], [], [], max(seconds, 0.0))[0]:
            return False
        try:
            data = os.read(self._master, 65536)
        except OSError:  # Linux: the other side was closed
            return False
        self.text += data.decode(errors="replace")
        return bool(data)


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": SOURCES, "TERM": "dumb", **more}


@contextlib.contextmanager
def terminal(command: list[str], env: dict[str, str], cwd: Path, columns: int = 80) -> Iterator[Terminal]:
    opened = Terminal(command, env, cwd, columns)
    try:
        yield opened
    finally:
        opened.close()


# --- help


@pytest.mark.parametrize("width", [80, 60])
def test_the_help_has_a_line_for_every_command_and_fits(width: int) -> None:
    lines = overview(width).splitlines()
    assert all(len(line) <= width for line in lines)
    for name, summary in SUMMARIES.items():
        assert any(line.split()[:1] == [name] for line in lines)
        if width == 80:
            assert any(line.split(maxsplit=1) == [name, summary] for line in lines), f"{name} takes more than one line"


WITHOUT_A_DEVICE = ("guests",)  # which asks only what is installed


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_and_the_three_options(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "-h"]) == 0
    text = capsys.readouterr().out
    assert "-h, --help" in text
    if subcommands := re.findall(r"^  ([a-z]+)  ", text.partition("Commands:")[2], re.MULTILINE):
        for one in subcommands:
            assert main([command, one, "-h"]) == 0
            text = capsys.readouterr().out
            assert all(option in text for option in ("--cache-dir", "--json", "--help"))
    else:
        wanted = ("--cache-dir", "--json") if command in WITHOUT_A_DEVICE else ("--cache-dir", "--device", "--json")
        assert all(option in text for option in wanted)


# --- completion

SHELLS = {
    "bash": (["bash", "--norc", "--noprofile", "-i"], 'eval "$(kernelkeep completion bash)"'),
    "zsh": (["zsh", "-f", "-i"], 'autoload -U compinit; compinit -D -u; eval "$(kernelkeep completion zsh)"'),
}
# Real for what completion asks, and for anything else a file with the words that it was called with.
STAND_IN = """#!/bin/sh
case $1 in
    completion | --complete) exec {python} -m kernelkeep "$@" ;;
    *) echo "$@" >>{said}; echo heard it ;;
esac
"""


@pytest.fixture(scope="module")
def shell_folder(opencl_device: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a command `kernelkeep` that says what it heard, a cache with one program, and its source."""
    folder = tmp_path_factory.mktemp("shells")
    (folder / "kernelkeep").write_text(STAND_IN.format(python=sys.executable, said=folder / "said"))
    (folder / "kernelkeep").chmod(0o755)
    (folder / "only_one.cl").write_text("__kernel void k(__global float* x) { x[0] = 1; }\n")
    warm = ["warm", "--device", opencl_device, "--cache-dir", "cache", "only_one.cl"]
    subprocess.run([sys.executable, "-m", "kernelkeep", *warm], env=environment(), cwd=folder, check=True)
    return folder


def shell_environment(folder: Path) -> dict[str, str]:
    return environment(
        PATH=f"{folder}{os.pathsep}{os.environ['PATH']}", KERNELKEEP_CACHE_DIR=str(folder / "cache"),
        HOME=str(folder), PS1="$ ", PROMPT="$ ", INPUTRC="/dev/null",
    )  # fmt: skip


def need_shell(shell: str) -> None:
    if shutil.which(shell) is None:
        note_skipped(shell, f"not installed, so completion in it is not tested: apt-get install {shell}")
        pytest.skip(f"{shell} is not installed")


@pytest.mark.parametrize("shell", SHELLS)
def test_tab_completes_commands_devices_programs_and_files(shell: str, opencl_device: str, shell_folder: Path) -> None:
    need_shell(shell)
    said = shell_folder / "said"
    said.unlink(missing_ok=True)
    command, setup = SHELLS[shell]
    with terminal(command, shell_environment(shell_folder), shell_folder) as window:
        window.type(f"{setup}; echo set'_'up\n")
        window.read_until("set_up")
        for words in ("doct", f"ls --device={opencl_device[:-1]}", "show only", "warm only_one."):
            window.text = ""
            window.type(f"kernelkeep {words}\t\n")
            window.read_until("heard it")
    assert [line.strip() for line in said.read_text().splitlines()] == [
        "doctor",
        f"ls --device={opencl_device}",
        "show only_one",
        "warm only_one.cl",
    ]


def test_fish_completes_commands_devices_programs_and_files(opencl_device: str, shell_folder: Path) -> None:
    need_shell("fish")
    asked = ["doct", f"ls --device {opencl_device[:-1]}", "show only", "warm only_one."]
    script = "kernelkeep completion fish | source\n" + "".join(f'complete -C "kernelkeep {one}"\n' for one in asked)
    done = subprocess.run(
        ["fish", "--no-config", "-c", script],
        env=shell_environment(shell_folder), cwd=shell_folder, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    words = [line.partition("\t")[0] for line in done.stdout.splitlines() if line.strip()]
    assert words == ["doctor", opencl_device, "only_one", "only_one.cl"]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ([""], set(COMMANDS)),
        (["--"], {"--help", "--version"}),
        (["dance", ""], set()),
        (["keys", ""], {"new", "trust", "list", "revoke", "rotate"}),
        (["keys", "rev"], {"revoke"}),
        (["keys", "new", "--"], {"--label", "--shared", "--cache-dir", "--device", "--json", "--help"}),
        (["ls", "--json", "--"], {"--cache-dir", "--device", "--help"}),
        (["ls", "--cache-dir", ""], {":folders"}),
        (["export", ""], {":files"}),
        (["export", "file.kkb", ""], set()),
        (["export", "file.kkb", "--name", ""], set()),
        (["tune", "g"], {"gemm", "gemm-float16", "gemm-bfloat16", "gemm-tf32", ":files"}),
        (["check", "--target", ""], {"cuda", "opencl", "glsl", "wgsl"}),
        (["completion", ""], {"bash", "zsh", "fish"}),
        (["devices", "--device", "web"], {"webgpu"}),
    ],
)
def test_candidates(
    words: list[str],
    found: set[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("KERNELKEEP_CACHE_DIR", str(tmp_path))
    assert main(["--complete", *words]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert {line.partition("\t")[0] for line in lines if line} == found


# --- Ctrl-C

# Sends the signal when a module is imported, at the end of the process, or where Python would ignore what is raised.
INTERRUPTS = """
import atexit, os, signal, sys

def interrupt(*_):
    os.kill(os.getpid(), signal.SIGINT)
    for _ in range(1000):
        pass

class Interrupts:
    def find_spec(self, name, path=None, target=None):
        if name == os.environ["INTERRUPTED_AT"]:
            interrupt()

class Destructor:
    def __del__(self):
        interrupt()

if os.environ["INTERRUPTED_AT"] == "exit":
    atexit.register(interrupt)
elif os.environ["INTERRUPTED_AT"] == "destructor":
    class AtImport:
        def find_spec(self, name, path=None, target=None):
            if name == "numpy":
                Destructor()
    sys.meta_path.insert(0, AtImport())
else:
    sys.meta_path.insert(0, Interrupts())
"""


@pytest.mark.parametrize(
    "moment",
    [
        "kernelkeep.cli", "kernelkeep.cli.commands", "typer", "rich.console", "kernelkeep.cli.devices", "msgspec", "numpy",
        "pyopencl", "destructor", "exit",
    ],
)  # fmt: skip
def test_ctrl_c_is_one_line_and_130_at_any_moment(moment: str, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(INTERRUPTS)
    env = environment(PYTHONPATH=f"{tmp_path}{os.pathsep}{SOURCES}", INTERRUPTED_AT=moment)
    command = [sys.executable, "-m", "kernelkeep", "devices"]
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (130, "kernelkeep: interrupted\n")


def test_ctrl_c_at_a_question_in_a_terminal(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "kernelkeep", "clear", "--cache-dir", str(tmp_path / "cache")]
    with terminal(command, environment(), tmp_path) as window:
        window.read_until(r"\[y/N\]")
        window.type("\x03")
        assert window.wait() == 130
    assert window.text.replace("^C", "").splitlines()[-1].endswith("kernelkeep: interrupted")


def test_ctrl_c_that_a_shell_ignores_stays_ignored(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(INTERRUPTS)
    env = environment(PYTHONPATH=f"{tmp_path}{os.pathsep}{SOURCES}", INTERRUPTED_AT="typer")
    command = ["sh", "-c", f"trap '' INT; exec {sys.executable} -m kernelkeep keys list --json"]
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")


# --- tables


FOLDER = "cuda_an-accelerator-with-a-rather-long-name_driver-580.95.05_nvrtc-13.4-and-more_0123456789ab"


@pytest.fixture(scope="module")
def long_names(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache folder with programs of long names for the interpreter, and a copy of them for a GPU that is not here."""
    root = tmp_path_factory.mktemp("long") / "cache"
    with kk.open_device("reference") as device, kk.ProgramCache(device, root) as cache:
        for name in ("a_kernel_whose_name_says_everything_about_what_it_does", "short"):
            cache.get(kk.PortableKernel(name, [kk.Buffer("x", "f4", "w")], "x[kk_global_id(0)] = 1.0f;")).release()
        here = root / device.fingerprint.folder
    shutil.copytree(here, root / FOLDER)
    for folder in (root / FOLDER, *(path for path in (root / FOLDER).rglob("*") if path.is_dir())):
        folder.chmod(0o700)
    return root


EVERYTHING = (
    ["ls"],
    ["stats"],
    ["devices"],
    ["doctor", "--device", "reference"],
    ["show", "short", "--device", "cuda"],
)


@pytest.mark.parametrize(("columns", "commands"), [(80, EVERYTHING[:2]), (60, EVERYTHING)])
def test_what_is_printed_fits_the_terminal(
    long_names: Path, columns: int, commands: tuple[list[str], ...], tmp_path: Path
) -> None:
    env = environment(KERNELKEEP_CACHE_DIR=str(long_names), TERM="xterm")
    for words in commands:
        with terminal([sys.executable, "-m", "kernelkeep", *words], env, tmp_path, columns) as window:
            assert window.wait() == 0, window.text
        lines = re.sub(r"\x1b\[[0-9;]*m", "", window.text).replace("\r", "").splitlines()
        paths = [line for line in lines if str(long_names) in line]  # to be copied as a whole
        assert all(cell_len(line) <= columns for line in lines if line not in paths), words
        if words[0] in ("ls", "stats"):
            assert any("…" in line and "0123456789ab" in line for line in lines)


def test_piped_output_has_whole_names(long_names: Path, run_here: Command) -> None:
    for words in (["ls"], ["stats"]):
        done = run_here(*words, "--cache-dir", long_names)
        assert FOLDER in done.stdout and "…" not in done.stdout
    assert "a_kernel_whose_name_says_everything_about_what_it_does" in run_here("ls", "--cache-dir", long_names).stdout


@pytest.mark.parametrize("spec", ["cuda", FOLDER, "cuda_an-acc", "0123456789ab", "012345"])
def test_the_folder_of_a_device_that_is_gone_is_selected(long_names: Path, run_here: Command, spec: str) -> None:
    def entries(command: str, *words: str) -> set[str]:
        done = run_here(command, *words, "--device", spec, "--cache-dir", long_names, "--json")
        assert done.returncode == 0, done.stderr
        return {one["folder"] for one in json.loads(done.stdout)["entries" if command != "stats" else "folders"]}

    assert entries("ls") == entries("show", "short") == entries("stats") == {FOLDER}


def test_what_was_kept_for_a_device_that_is_gone_is_exported_and_removed(
    long_names: Path, run_here: Command, tmp_path: Path
) -> None:
    root = tmp_path / "cache"
    shutil.copytree(long_names, root)
    root.chmod(0o700)
    assert run_here("verify", "--device", "cuda", "--cache-dir", root).stdout.startswith("2 programs")
    done = run_here("prune", "--device", "012345", "--max-bytes", "0", "--cache-dir", root)
    assert done.stdout.startswith("2 programs")
    done = run_here("clear", "--yes", "--device", "cuda", "--cache-dir", root)
    assert done.returncode == 0, done.stderr
    assert not (root / FOLDER).exists()
    assert "2 programs" in run_here("ls", "--cache-dir", root).stdout
    done = run_here("export", tmp_path / "out.kkb", "--device", "reference", "--cache-dir", root)
    assert done.returncode == 0 and done.stdout.startswith("2 programs")


@pytest.mark.parametrize(
    ("spec", "code", "words"),
    [
        ("cuda_nothing", 2, "no folder has that name"),
        ("abacus", 2, "is not a device"),
        ("cuda:7", 1, "cuda without a number names what was kept for it"),
    ],
)
def test_a_folder_that_is_not_there_is_said(
    long_names: Path, run_here: Command, spec: str, code: int, words: str
) -> None:
    done = run_here("ls", "--device", spec, "--cache-dir", long_names)
    assert done.returncode == code
    assert words in done.stderr and done.stderr.count("\n") == 1
