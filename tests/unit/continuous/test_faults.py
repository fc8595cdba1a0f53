"""A bug in a state program that the reference device finds is told in the words of the body."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import kernelkeep as kk
from kernelkeep.words import StrategyName


@pytest.mark.parametrize(
    ("body", "kind", "message"),
    [
        ("int i = kk_item();\nu_next[i] = u[i + 1];", "out of bounds", r"u\[8\] is out of bounds: u has 8 elements"),
        ("int i = kk_item();\nu_next[0] = u[i] + i;", "race", r"work-item 1 writes u\[0\], and work-item 0 wrote it"),
    ],
)
@pytest.mark.parametrize("strategy", ["redispatch", "buffered"])
def test_a_fault_names_the_program_and_its_state(
    tmp_path: Path, body: str, kind: str, message: str, strategy: StrategyName
) -> None:
    program = kk.StateProgram("waves", coupling="neighbours", items=8, state={"u": np.zeros(8, "f4")}, body=body)
    with kk.open_device("reference") as device, kk.ProgramCache(device, cache_dir=tmp_path) as cache:
        with pytest.raises(kk.KernelFault, match=f"^state program waves, line 2: {message}") as caught:
            kk.run(cache, program, iterations=3, strategy=strategy)
    fault = caught.value
    assert (fault.kind, fault.kernel, fault.array, fault.line) == (kind, "waves", "u", 2)
    assert "_s0" not in str(fault) and body.split("\n")[1] in str(fault)
