"""Four processes that start the same `torch.compile` model together, for `guest_hits.py together`.

Each cell is one start of all four: with our cache or with Inductor's own, with empty caches or with those that the cell before
has filled. What the C++ compiler makes for a CPU is in Inductor's folder on both sides, where a lock of its own keeps it to one.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from common import row

PROCESSES = 4
MODEL = """
import json, sys
import torch
if sys.argv[1] == "ours":
    import kernelkeep.guests.inductor as guest
    guest.turn_on()
from torch._dynamo.utils import counters

class Block(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = torch.nn.LayerNorm(width)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)
    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
model = torch.nn.Sequential(*(Block(64) for _ in range(4))).to(device)
x = torch.randn(32, 64, device=device)
with torch.no_grad():
    assert torch.allclose(torch.compile(model)(x), model(x), atol=1e-3)
print(json.dumps({"compiles": counters["inductor"]["fxgraph_cache_miss"]}))
"""
_LONGEST_SECONDS = 20.0  # for what a process leaves behind
_BECOME_REAPER = 36  # PR_SET_CHILD_SUBREAPER: the compilers that a process leaves behind are counted, too


class Start(NamedTuple):
    """One start of all four."""

    seconds: float
    processor_seconds: float
    compiles: int


def start_all(whose: str, folder: Path) -> Start:
    """Start all at once, and wait until the last one and everything that they started has ended."""
    own = {"TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"), "TRITON_CACHE_DIR": str(folder / "triton")}
    environment = os.environ | own | {"KERNELKEEP_CACHE_DIR": str(folder / "ours")}
    if whose == "ours":
        environment["TRITON_CACHE_MANAGER"] = "kernelkeep.guests.triton:KernelkeepCacheManager"
    command = [sys.executable, "-W", "ignore", "-c", MODEL, whose]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    pipe = subprocess.PIPE
    started = [
        subprocess.Popen(command, env=environment, stdout=pipe, stderr=subprocess.DEVNULL, text=True)
        for _ in range(PROCESSES)
    ]
    said = [process.communicate()[0] for process in started]
    seconds = time.perf_counter() - began
    if any(process.returncode for process in started):
        raise RuntimeError(f"the processes with {whose} cache failed: {[process.returncode for process in started]}")
    _reap()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Start(seconds, used, sum(json.loads(one.splitlines()[-1])["compiles"] for one in said))


def _reap() -> None:
    """Wait for what the processes left behind, unless it stays for long."""
    deadline = time.monotonic() + _LONGEST_SECONDS
    try:
        while time.monotonic() < deadline:
            if os.waitpid(-1, os.WNOHANG) == (0, 0):
                time.sleep(0.05)
    except ChildProcessError:
        return


def measure_together(rounds: int) -> None:
    """Print the rows: medians of rounds in which the two took turns."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_BECOME_REAPER, 1, 0, 0, 0)
    cells: dict[tuple[str, str], list[Start]] = {}
    for number in range(rounds):
        for whose in ("ours", "theirs") if number % 2 else ("theirs", "ours"):
            with tempfile.TemporaryDirectory(prefix="kernelkeep-together-") as folder:
                for state in ("cold", "warm"):
                    start = start_all(whose, Path(folder))
                    cells.setdefault((whose, state), []).append(start)
                    print(f"{whose} {state}: {start.seconds:.1f} s, {start.compiles} graphs compiled", file=sys.stderr)
    peer = "Inductor's folder"
    for state in ("cold", "warm"):
        ours, theirs = cells["ours", state], cells["theirs", state]
        what = f"torch.compile by {PROCESSES} processes at once, {state}"
        most, its_most = max(one.compiles for one in ours), max(one.compiles for one in theirs)
        note = f"graphs compiled: {most}, with Inductor's folder {its_most}"
        goal = "≤ 1.1"
        mine, its = (statistics.median(one.seconds for one in side) for side in (ours, theirs))
        row(what, mine, "s", peer=peer, its=its, goal=goal, note=note)
        mine, its = (statistics.median(one.processor_seconds for one in side) for side in (ours, theirs))
        row(f"{what}: processor time", mine, "s", peer=peer, its=its, goal=goal)
        row(f"{what}: compiles", most, "graphs", goal="≤ 1" if state == "cold" else "≤ 0")
