"""What other libraries pay for a hit in our cache, beside their own cache on disk; and four processes that start together.

    python benchmarks/guest_hits.py [GUEST…] [--json FILE] [--long]        # triton inductor jax cupy cuda_core pyopencl moderngl
    python benchmarks/guest_hits.py together --long [--rounds N]           # four processes with the same torch.compile model

A hit of ours is verified; of theirs only CuPy's is. Each guest has processes of its own (`guest_hit_child.py`), whose caches
an earlier one has filled. In most of them the two caches take turns; where a driver keeps something in memory too, processes take
turns. On a GPU, Triton, CuPy and cuda.core are measured to a loaded kernel as well. Guests that are not installed are left out.

`together` starts four processes with the same model at once, with our cache and with Inductor's own, with empty caches and with
full ones. It takes some minutes, so it needs --long.
"""

from __future__ import annotations

import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from common import end_unmeasured, long_run, row
from guest_together import measure_together

CHILD = Path(__file__).with_name("guest_hit_child.py")
Samples = dict[str, dict[str, list[float]]]

# What to import, what its own cache is called, and how its processes are started to measure once.
GUESTS = {
    "triton": ("triton", "Triton's folder", ("both",)),
    "inductor": ("torch", "Inductor's folder", ("both",)),
    "jax": ("jax", "JAX's folder", ("both",)),
    "cupy": ("cupy", "CuPy's folder", ("both",)),
    "cuda_core": ("cuda.core", "FileStreamProgramCache", ("both",)),
    "pyopencl": ("pyopencl", "PyOpenCL and PoCL's folder", ("theirs", "ours")),
    "moderngl": ("moderngl", "the driver's own folder", ("theirs", "ours")),
}
ROUNDS = {"inductor": 1, "jax": 1, "pyopencl": 4, "moderngl": 5}  # of processes, 3 for the others
GOAL = "≤ 1.1"


def is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ImportError:
        return False


def child(guest: str, do: str, folder: Path) -> tuple[Samples, str]:
    """The samples of one process, and why something was left out."""
    command = [sys.executable, "-W", "ignore", str(CHILD), guest, do, str(folder)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KERNELKEEP_REMOTE")}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise RuntimeError((ended.stderr.strip() or f"exit status {ended.returncode}").splitlines()[-1])
    said = json.loads(ended.stdout.splitlines()[-1])
    return said["samples"], said["missing"]


def measure(guest: str, folder: Path) -> bool:
    """Print the rows of a guest; whether there are any."""
    _, peer, processes = GUESTS[guest]
    samples: Samples = {}
    missing = ""
    fills = ("fill",) if processes == ("both",) else processes
    rounds = ROUNDS.get(guest, 3) * (3 if long_run() else 1)
    for number, do in enumerate([*fills, *processes * rounds]):
        found, missing = child(guest, do, folder)
        if missing and not found:
            break
        for what, sides in found.items() if number >= len(fills) else ():
            for who, seconds in sides.items():
                samples.setdefault(what, {}).setdefault(who, []).extend(seconds)
    if missing:
        print(f"{guest}: {missing}", file=sys.stderr)
    for what, sides in samples.items():
        if "theirs" in sides:
            theirs, ours = (statistics.median(sides[who]) for who in ("theirs", "ours"))
            unit, factor = ("ms", 1e3) if theirs > 2e-3 else ("µs", 1e6)
            note = NOTES[what](samples) if what in NOTES else ""
            row(what, ours * factor, unit, peer=peer, its=theirs * factor, goal=GOAL, note=note)
    return bool(samples)


def _triton_note(samples: Samples) -> str:
    return "Triton reads seven files by their paths; ours are read and verified before it reads them"


def _graph_note(samples: Samples) -> str:
    ours = statistics.median(samples["bytes of a graph"]["ours"]) * 1e6
    return f"{ours:.0f} µs of it are ours: the bytes, found, read and verified"


NOTES = {
    "Triton: a kernel from the cache, by triton.compile": _triton_note,
    "torch.compile: a graph, decoded and unpickled": _graph_note,
}


def main() -> None:
    named = [one for one in sys.argv[1:] if one in GUESTS]
    chosen = named or [guest for guest in GUESTS if "together" not in sys.argv]
    measured = False
    for guest in chosen:
        if not is_installed(GUESTS[guest][0]):
            print(f"{guest}: {GUESTS[guest][0]} is not installed", file=sys.stderr)
            continue
        with tempfile.TemporaryDirectory(prefix="kernelkeep-guest-hits-") as folder:
            try:
                measured = measure(guest, Path(folder)) or measured
            except RuntimeError as error:
                print(f"{guest}: {error}", file=sys.stderr)
    if "together" in sys.argv:
        if not is_installed("torch"):
            end_unmeasured("torch is not installed")
        if not long_run():
            end_unmeasured("four processes take some minutes: add --long")
        measure_together(int(sys.argv[sys.argv.index("--rounds") + 1]) if "--rounds" in sys.argv else 3)
        measured = True
    if not measured:
        end_unmeasured("no guest is installed")


if __name__ == "__main__":
    main()
