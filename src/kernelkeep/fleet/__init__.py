"""Programs for many machines: compiled ahead of time, bundled, and made, tuned and run by a cluster.

from kernelkeep import fleet

fleet.warm(sources, targets=["cuda:sm_90"], remote="redis://host/0")
fleet.tune("gemm", remote="redis://host/0")
fleet.run("jobs.json")
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .jobs import FleetJob as FleetJob
    from .jobs import run as run
    from .report import FleetReport as FleetReport
    from .tuning import tune as tune
    from .warming import warm as warm

_WHERE = {"FleetJob": "jobs", "FleetReport": "report", "run": "jobs", "tune": "tuning", "warm": "warming"}

__all__ = ["FleetJob", "FleetReport", "run", "tune", "warm"]


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(importlib.import_module(f".{_WHERE[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
