"""A ring in a file, between processes that are killed: nothing that was acknowledged is repeated, nothing else is lost."""

from __future__ import annotations

import mmap
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernelkeep.processes import python_environment
from kernelkeep.resident.future import TaskFuture
from kernelkeep.resident.lane import open_lane
from kernelkeep.resident.protocol import Layout, RingView, layout_of, pack_plan, row_dtype

pytestmark = pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64"),
    reason="a device in Python needs a machine that keeps stores in order",
)

LAYOUT = Layout(1, 16, 32)
TASKS, KILLS = 1500, 5

# A device that runs tasks of lane 0, one after the other: it counts each, doubles its argument, and acknowledges it.
DEVICE = """
import mmap, sys
path, head_at, done_at, results_at, slots_at, counts_at = sys.argv[1], *map(int, sys.argv[2:])
with open(path, "r+b") as file:
    ring = memoryview(mmap.mmap(file.fileno(), 0)).cast("Q")
head_at, done_at, results_at, slots_at, counts_at = (at // 8 for at in (head_at, done_at, results_at, slots_at, counts_at))
done = ring[done_at]
print("runs", flush=True)
while True:
    while ring[head_at] == done:
        pass
    value = ring[slots_at + done % 16 * 4 + 1]
    ring[counts_at + done] += 1
    tag = (done + 1 & 0xFFFFFFFF) << 32
    ring[done_at] = done + 1  # before the result: that is allowed, and happens
    ring[results_at + done % 16 * 2] = tag | 2 * value & 0xFFFFFFFF
    ring[results_at + done % 16 * 2 + 1] = tag | 2 * value >> 32
    done += 1
"""

# A host that submits as fast as it can: its number, and something that can be made of it.
HOST = """
import mmap, sys
from pathlib import Path
import numpy as np
from kernelkeep.resident.future import TaskFuture
from kernelkeep.resident.lane import open_lane
from kernelkeep.resident.protocol import layout_of, pack_plan, row_dtype
with Path(sys.argv[1]).open("r+b") as file:
    buffer = mmap.mmap(file.fileno(), 0)
lane = open_lane(layout_of(buffer), 0, buffer, TaskFuture)
plan = pack_plan(1, "", ["q", "q"])
rows = np.zeros(3, row_dtype("ab", "qq"))
print("runs", flush=True)
while True:
    number = lane.submitted
    if number % 2:
        lane.push(plan, (number, number ** 2)) or lane.wait_for_room(0, 10**9)
    else:
        rows["a"] = range(number, number + 3)
        rows["b"] = rows["a"] ** 2
        lane.push_many(1, rows, 16, 3)[0] or lane.wait_for_room(0, 10**9)
"""


def started(script: str, *arguments: object) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", script, *map(str, arguments)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env=python_environment(os.environ))
    assert process.stdout is not None and process.stdout.readline() == b"runs\n"
    return process


def kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


@pytest.fixture
def ring_file(tmp_path: Path) -> tuple[Path, Any]:
    path = tmp_path / "ring"
    path.write_bytes(bytes(LAYOUT.total_bytes + 8 * TASKS))
    with path.open("r+b") as file:
        buffer = mmap.mmap(file.fileno(), 0)
    LAYOUT.initialize(buffer)
    return path, buffer


def test_a_device_that_is_killed_repeats_only_what_it_did_not_acknowledge(ring_file: tuple[Path, Any]) -> None:
    """It may be killed between a task and its acknowledgement: that task, and no other, runs again.

    Between an acknowledgement and the result's words the result is lost: its future is never ready, and never wrong.
    """
    path, buffer = ring_file
    lane = open_lane(LAYOUT, 0, buffer, TaskFuture)
    arguments = (path, *LAYOUT.lane_offsets(0), LAYOUT.total_bytes)
    device = started(DEVICE, *arguments)
    plan = pack_plan(1, "q", ["q"])
    futures: list[Any] = []
    lost = 0
    try:
        for number in range(TASKS):
            if number and number % (TASKS // (KILLS + 1)) == 0:
                kill(device)
                if lane.done and not futures[lane.done - 1].ready():
                    lost += 1
                    lane = open_lane(LAYOUT, 0, buffer, TaskFuture)  # what another process would do
                device = started(DEVICE, *arguments)
            while (future := lane.push(plan, (number << 33,))) is None:
                assert lane.wait_for_room(0, 60_000_000_000)
            futures.append(future)
        while lane.done < TASKS:
            assert lane.wait(TASKS, 0, 60_000_000_000)
    finally:
        kill(device)
    counts = np.frombuffer(buffer, np.uint64, TASKS, LAYOUT.total_bytes)
    assert counts.min() == 1 and counts.max() <= 2 and int(counts.sum()) - TASKS <= KILLS
    ready = [number for number, future in enumerate(futures) if future.ready()]
    assert len(ready) >= TASKS - lost * LAYOUT.capacity
    assert [futures[number].result() for number in ready] == [number << 34 for number in ready]


def test_a_host_that_is_killed_leaves_whole_records_and_another_goes_on(ring_file: tuple[Path, Any]) -> None:
    path, buffer = ring_file
    assert layout_of(buffer) == LAYOUT
    view = RingView(LAYOUT, buffer)

    def acknowledge_one() -> None:
        done = int(view.done[0])
        a, b = view.slots[0, done % LAYOUT.capacity, 8:24].view(np.int64)
        assert (a, b) == (done, done**2)
        view.done[0] = done + 1

    for turn in range(3):
        host = started(HOST, path)
        end = time.monotonic() + 0.05
        while time.monotonic() < end or int(view.done[0]) < 100 * (turn + 1):
            if view.head[0] > view.done[0]:
                acknowledge_one()
        kill(host)
    lane = open_lane(LAYOUT, 0, buffer, TaskFuture)
    assert lane.submitted == int(view.head[0]) and lane.submitted - lane.done <= LAYOUT.capacity
    if not lane.wait_for_room(0, 0):
        acknowledge_one()
    number = lane.submitted
    rows = np.array([(number, number**2)], row_dtype("ab", "qq"))
    assert lane.push_many(1, rows, 16, 1)[0] == 1
    while lane.done < lane.submitted:
        acknowledge_one()
    assert lane.done == number + 1
