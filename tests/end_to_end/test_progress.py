"""Progress as a person sees it: on a real terminal, in a real log, and in a real notebook."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path
from typing import Any

import pytest

import kernelkeep as kk
from kernelkeep.testing import note_skipped

SOURCES = str(Path(kk.__file__).parents[1])
# Every long call, on a device without a driver. Each of them shows a frame: the pauses are longer than the display's.
PROGRAM = """
import os, sys, time
import numpy as np
import kernelkeep as kk
from kernelkeep.testing import FakeDevice

if os.environ.get("WITHOUT_RICH"):
    sys.modules["rich"] = None

def kernels(count):
    for number in range(count):
        yield kk.PortableKernel(
            f"kernel_{number}", params=[kk.Buffer("x", "i4", "rw")], body=f"x[kk_global_id(0)] += {number};", group=16)

def slowly(count):
    for number in range(count):
        time.sleep(0.12)
        yield {"x": np.zeros(16, "i4")}

turns = 0

def until(run):
    global turns
    turns += 1
    time.sleep(0.12)
    return turns > 4

def show(cache, progress):
    cache.preload([*kernels(12)], progress=progress, workers=1)
    job = kk.Job(cache, next(kernels(1)), grid=1, outputs=["x"])
    with kk.Executor(cache.device) as executor:
        for _ in executor.map(kk.Pipeline([job, job]), slowly(4), progress=progress):
            pass
    count = kk.StateProgram(
        "count", coupling="independent", items=1, state={"n": np.zeros(1, "i4")}, body="n_next[0] = n[0] + 1;")
    kk.run(cache, count, iterations=1_000_000, strategy="redispatch", until=until, progress=progress)
"""
MAIN = """
import tempfile
with FakeDevice() as device, kk.ProgramCache(device, tempfile.mkdtemp()) as cache:
    show(cache, True)
"""
ENDS = (
    r"preloading: 12 of 12 programs in [\d.]+ s",
    r"kernel_0\+kernel_0: 4 batches in [\d.]+ s",
    r"count: [\d,]+ of 1,000,000 iterations in [\d.]+ s",
)


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": SOURCES, "TERM": "xterm", "KERNELKEEP_PROGRESS": "", "COLUMNS": "", **more}


def on_a_terminal(code: str, columns: int = 80, **more: str) -> str:
    """All that a program writes to a terminal of its own."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 30, columns, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=slave, stdout=slave, stderr=slave, env=environment(**more)
    )
    os.close(slave)
    written = b""
    while True:
        try:
            data = os.read(master, 65536)
        except OSError:  # Linux: the other side was closed
            break
        if not data:
            break
        written += data
    os.close(master)
    assert process.wait(120) == 0, written.decode(errors="replace")
    return written.decode()


def frames(written: str) -> list[str]:
    """What stood on the line, one after the other, without what moves the cursor."""
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", written)
    return [frame.rstrip() for frame in re.split(r"[\r\n]+", plain) if frame.strip()]


@pytest.mark.parametrize("without_rich", ["", "1"], ids=["rich", "plain"])
def test_a_terminal_gets_a_bar_and_keeps_the_last_line(without_rich: str) -> None:
    written = on_a_terminal(PROGRAM + MAIN, columns=110, WITHOUT_RICH=without_rich)
    seen = frames(written)
    assert any(re.search(r"preloading.*[━#].* [1-9]\d* of 12 programs.* now kernel_\d+", frame) for frame in seen), seen
    assert any(re.search(r"kernel_0\+kernel_0.* [1-4] batches", frame) for frame in seen), seen
    assert any(re.search(r"count.* [\d,]+ of 1,000,000 iterations.*redispatch", frame) for frame in seen), seen
    # What stays is what is followed by a new line and not drawn over.
    for end in ENDS:
        assert len([frame for frame in seen if re.fullmatch(end, frame)]) == 1, end


def test_a_narrow_terminal_gets_one_line() -> None:
    written = on_a_terminal(PROGRAM + MAIN, columns=40, WITHOUT_RICH="1")
    drawn = [frame for frame in re.split(r"[\r\n]", written) if frame]
    assert len(drawn) > 6 and max(len(frame) for frame in drawn) < 40


def test_a_log_gets_lines() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM + MAIN], capture_output=True, text=True, env=environment(), timeout=120
    )
    assert done.returncode == 0 and done.stdout == "", done.stderr
    assert "\x1b" not in done.stderr and "\r" not in done.stderr
    ends = [line for line in done.stderr.splitlines() if re.search(r" in [\d.]+ s$", line)]
    assert len(ends) == 3
    for end, line in zip(ENDS, ends, strict=True):
        assert re.fullmatch(end, line)


def test_nothing_is_shown_where_nobody_asks() -> None:
    assert on_a_terminal(PROGRAM + MAIN.replace("True", "False")) == ""


def test_a_reader_that_goes_away_does_not_end_the_work() -> None:
    """`program 2>&1 | head -1`: the first line breaks the pipe."""
    code = PROGRAM + MAIN + "print('done', file=sys.__stdout__, flush=True)\n"
    reading, writing = os.pipe()
    os.close(reading)
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=writing, text=True, env=environment()
    )
    os.close(writing)
    out, _ = process.communicate(timeout=120)
    assert out == "done\n"


# --- notebooks


@pytest.fixture(scope="module")
def notebook() -> Any:
    """The outputs of the cells of a notebook that a real kernel ran."""
    try:
        import nbclient
        import nbformat
    except ImportError as error:
        note_skipped("progress in notebooks", f"{error}; pip install ipykernel nbclient")
        pytest.skip(str(error))
    cells = [
        PROGRAM + "cache = kk.ProgramCache(FakeDevice(), __import__('tempfile').mkdtemp())",
        "show(cache, True)",
        "from kernelkeep.progress.reporter import reported\n"
        "with reported('<b>bad\\x1b[2J', 4, True, unit='items') as report:\n"
        "    for n in range(4):\n        time.sleep(0.25); report.step('<script>')",
        "cache.preload([*kernels(3)], progress=False)\nNone",
        "heard = []\ncache.preload([*kernels(3)], progress=heard.append)\nprint(len(heard), heard[-1].done)",
    ]
    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    messages: list[Any] = []
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment().items():
            patch.setenv(name, value)
        client = nbclient.NotebookClient(
            made, timeout=120, kernel_name="python3", resources={"metadata": {"path": SOURCES}},
            on_cell_executed=None,
        )  # fmt: skip
        process = client.process_message

        def keep(message: Any, cell: Any, index: int) -> Any:
            messages.append((index, message["msg_type"], message["content"]))
            return process(message, cell, index)

        patch.setattr(client, "process_message", keep)
        client.execute()
    return [cell.outputs for cell in made.cells], messages


def test_a_notebook_gets_a_bar_that_is_updated_in_place(notebook: Any) -> None:
    outputs, messages = notebook
    shown = outputs[1]
    assert [one.output_type for one in shown] == ["display_data"] * 3, (
        "one bar for each call, and nothing on standard error"
    )
    for end, one in zip(ENDS, shown, strict=True):
        assert re.fullmatch(end, one.data["text/plain"])
        assert ("progressbar" in one.data["text/html"]) == (" of " in one.data["text/plain"])
    updates = [
        content["data"]["text/plain"]
        for index, kind, content in messages
        if kind == "update_display_data" and index == 1
    ]
    assert any(re.match(r"kernel_0\+kernel_0: [1-4] batches", text) for text in updates)
    assert len(updates) < 60, "a message for each frame, not for each item"


def test_names_are_escaped_in_a_notebook(notebook: Any) -> None:
    outputs, messages = notebook
    (bad,) = outputs[2]
    assert r"&lt;b&gt;bad\x1b[2J" in bad.data["text/html"]
    for _, kind, content in messages:
        if kind in ("display_data", "update_display_data"):
            assert "<script>" not in content["data"].get("text/html", "") and "\x1b" not in str(content["data"])


def test_a_notebook_shows_nothing_unasked(notebook: Any) -> None:
    outputs, _ = notebook
    assert outputs[3] == []
    assert outputs[4][0].text == "3 3\n"
