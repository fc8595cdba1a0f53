"""How much memory this process may still take: of the machine, and of the container it runs in."""

from __future__ import annotations

import contextlib
from pathlib import Path

_MACHINE = Path("/proc/meminfo")
# A container's limit, by the two versions of control groups. What it uses is left out: most of it may be cached files,
# which make room when they must.
_CONTAINERS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def free_memory() -> int | None:
    """Bytes that can still be had at most, swap included; None where the system does not say."""
    known = []
    with contextlib.suppress(OSError, ValueError, KeyError, IndexError):
        facts = dict(line.split(":", 1) for line in _MACHINE.read_text().splitlines() if ":" in line)
        known.append(1024 * sum(int(facts[name].split()[0]) for name in ("MemAvailable", "SwapFree")))
    for limit in _CONTAINERS:
        with contextlib.suppress(OSError, ValueError):  # "max" is no number, and no limit
            known.append(int(limit.read_text()))
    return min(known, default=None)
