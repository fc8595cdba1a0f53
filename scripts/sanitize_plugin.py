"""For pytest under compute-sanitizer: memory that is there before a grid is launched, and reports that name lines.

memcheck knows the allocations that were made before a kernel was launched (`late_memory.cu` shows that), so the memory of a graph
is allocated while the grid is out of the way.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from kernelkeep.programs.task_program import TaskProgramSource
from kernelkeep.resident.graph_layout import GraphLayout
from kernelkeep.resident.grid import DeviceGrid


def pytest_configure(config: pytest.Config) -> None:
    load, make = DeviceGrid.load_graph, TaskProgramSource.__init__

    def load_out_of_the_way(grid: DeviceGrid, layout: GraphLayout) -> Any:
        with grid.out_of_the_way():
            return load(grid, layout)

    def make_with_lines(source: TaskProgramSource, *args: Any) -> None:
        make(source, *args)
        object.__setattr__(source, "options", ("-lineinfo",))
        if folder := os.environ.get("KERNELKEEP_SANITIZE_TEXTS"):
            name = f"{source.name}-{len(source.program.tasks)}-{source.program.constants['THREADS']}.cu"
            Path(folder, name).write_text(source.text)

    monkeypatch = pytest.MonkeyPatch()  # for as long as the process lives
    monkeypatch.setattr(DeviceGrid, "load_graph", load_out_of_the_way)
    monkeypatch.setattr(TaskProgramSource, "__init__", make_with_lines)
