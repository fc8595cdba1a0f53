"""`benchmarks/fleet_simulation.py`: the same seed gives the same figures, and a lease saves the compiles."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "fleet_simulation.py"


def simulate(*options: str) -> list[dict[str, Any]]:
    command = [
        sys.executable,
        str(SCRIPT),
        "--machines",
        "200",
        "--programs",
        "3",
        "--compile-ms",
        "2000",
        "--json",
        *options,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_the_simulation_is_deterministic_and_one_machine_compiles() -> None:
    once, again, other = simulate(), simulate(), simulate("--seed", "2")
    assert once == again != other
    without, leased, _, preloaded = once
    assert [row["lease"] for row in once] == ["no", "yes", "no", "yes"]
    assert without["compiles/program"] > 2
    assert leased["compiles/program"] == leased["at most"] == 1
    assert leased["MB read"] > without["MB read"]
    assert preloaded["at most"] == 1
    assert preloaded["start p99 s"] < leased["start p99 s"]


def test_machines_that_die_while_they_compile_are_replaced() -> None:
    without, leased, *_ = simulate("--deaths", "0.8")
    assert leased["died"] > 0
    assert leased["at most"] == 1
    assert leased["wait p99 ms"] > 1000
    assert without["compiles/program"] > 2
