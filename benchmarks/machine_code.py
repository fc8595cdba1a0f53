"""What NVRTC makes of the same kernels as two versions of kernelkeep write them. Needs no GPU.

    python benchmarks/machine_code.py BEFORE [AFTER] --tools FOLDER [--architecture sm_90] [--json]

BEFORE and AFTER are folders with a checkout each; without AFTER it is this one. FOLDER has nvdisasm and cuobjdump, as the
packages nvidia-cuda-nvdisasm and nvidia-cuda-cuobjdump on PyPI bring them.

The kernels are the variants of gemm and conv2d that have shipped records for CUDA, and the samples. A row says for each:
registers, bytes of the stack (spilled registers), shared memory, all instructions, and those of the loops, each before → after.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import kernelkeep as kk
from common import show
from kernelkeep.devices.base import Capabilities
from kernelkeep.devices.binary import Binary
from kernelkeep.devices.cuda.compiler import compile_for
from kernelkeep.kernels.conv2d.operation import CONV2D
from kernelkeep.kernels.gemm.operation import GEMM
from kernelkeep.programs.translation_unit import translation_unit
from kernelkeep.samples import basic, startup

ROOT = Path(__file__).parents[1]
TARGET: Any = SimpleNamespace(
    language="cuda", capabilities=Capabilities(float_atomics=True, float64=True, int64=True, int8=True)
)


class Code(NamedTuple):
    """The machine code of a kernel."""

    instructions: list[str]
    loops: list[int]  # their lengths, the inner ones first
    registers: int
    stack: int
    shared: int


def write_texts() -> None:
    """Print what this version writes as JSON: texts by their titles."""
    texts: dict[str, str] = {}
    for family in (GEMM, CONV2D):
        definition = family.tuned("tiled", 1 << 20).definition
        for record in definition.shipped_records:
            if record.architecture.startswith(TARGET.language):
                values = definition.template.values(record.problem)
                compiled_in = {**definition.template.compiled_in(values), **record.variant}
                title = f"{family.name} {' '.join(f'{name}={value}' for name, value in compiled_in.items())}"
                launch = definition.template.launch(family.name, TARGET, values, record.variant)
                texts[title] = translation_unit(launch.source)
    for sample in (basic.SAXPY, basic.STENCIL, *startup.STARTUP_SAMPLES):
        texts[sample.name] = translation_unit(sample.kernel.source(TARGET.language))
    json.dump(texts, sys.stdout)


def texts_of(checkout: Path) -> dict[str, str]:
    """The texts that a checkout writes, in a process of its own."""
    path = f"{checkout / 'src'}{os.pathsep}{ROOT / 'benchmarks'}"
    command = [sys.executable, __file__, str(checkout), "--write-texts"]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{checkout} wrote no texts:\n{done.stderr[-2000:]}")
    found: dict[str, str] = json.loads(done.stdout)
    return found


def code_of(text: str, name: str, architecture: str, tools: Path) -> Code:
    """Compile a text and take it apart."""
    source = kk.Source(text, name, TARGET.language)
    binary = Binary.decode(compile_for(source, architecture), TARGET.language)
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(binary.payload)
        file.flush()
        listing = _printed(tools / "nvdisasm", "-c", file.name)
        usage = dict(re.findall(r"\b(REG|STACK|SHARED):(\d+)", _printed(tools / "cuobjdump", "-res-usage", file.name)))
    lines = re.findall(r"^(?:\s+/\*[0-9a-f]{4,}\*/\s+(.*?)\s*;|(\.L\w+):)", listing, re.MULTILINE)
    places: dict[str, int] = {}
    instructions: list[str] = []
    loops = []
    for instruction, label in lines:
        if label:
            places[label] = len(instructions)
            continue
        instructions.append(instruction)
        branch = re.search(r"BRA.*`\((\.L\w+)\)", instruction)
        if branch and branch.group(1) in places and len(instructions) - places[branch.group(1)] > 1:
            loops.append(len(instructions) - places[branch.group(1)])
    return Code(instructions, loops, int(usage["REG"]), int(usage["STACK"]), int(usage["SHARED"]))


def _printed(*command: str | Path) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


COLUMNS = ["kernel", "same", "registers", "stack", "shared", "instructions", "loops"]


def main() -> None:
    parser = argparse.ArgumentParser(description="Two versions' kernels as machine code.")
    parser.add_argument("before", type=Path, help="a folder with a checkout")
    parser.add_argument("after", type=Path, nargs="?", default=ROOT)
    parser.add_argument("--tools", type=Path, help="the folder of nvdisasm and cuobjdump")
    parser.add_argument("--architecture", default="sm_90")
    parser.add_argument("--json", action="store_true", help="JSON lines in place of a table")
    parser.add_argument("--write-texts", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.write_texts:
        write_texts()
        return
    if options.tools is None:
        parser.error("--tools must name the folder of nvdisasm and cuobjdump")
    texts = [texts_of(one.resolve()) for one in (options.before, options.after)]
    rows = []
    worst = 1.0
    for title in texts[0].keys() & texts[1].keys():
        before, after = (code_of(one[title], title.split()[0], options.architecture, options.tools) for one in texts)
        pairs = [
            (before.registers, after.registers),
            (before.stack, after.stack),
            (before.shared, after.shared),
            (len(before.instructions), len(after.instructions)),
            (before.loops, after.loops),
        ]
        same = "yes" if before.instructions == after.instructions else "no"
        rows.append([title, same, *(str(a) if a == b else f"{a} → {b}" for a, b in pairs)])
        ratios = [b / a for a, b in zip(before.loops, after.loops, strict=False)]
        worst = max([worst, *ratios]) if len(before.loops) == len(after.loops) else float("inf")
    show("The same kernels as machine code", COLUMNS, sorted(rows))
    unchanged = sum(row[1] == "yes" for row in rows)
    print(f"\n{unchanged} of {len(rows)} are the same; the longest loop after ÷ before is {worst:.3f}")


if __name__ == "__main__":
    main()
