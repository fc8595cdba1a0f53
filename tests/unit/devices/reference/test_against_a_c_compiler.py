"""The reference device computes what gcc computes: random programs, bit for bit."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.language.test_against_a_c_compiler import HELPER, NAMES, VALUES, Generator

import kernelkeep as kk
from kernelkeep.devices.reference import ReferenceDevice

PROGRAMS = 40
LENGTH = 99
DTYPES = {kind: "u1" if kind == "b1" else kind for kind in NAMES}  # no kernel takes bools


class _Program:
    """One program, its inputs, and its text for both."""

    def __init__(self, seed: int) -> None:
        generator = Generator(seed)
        statements = [generator.statement(2) for _ in range(12)]
        stores = [f"o{kind}[{at}] = {name};" for at, (name, kind) in enumerate(generator.variables.items())]
        self.body = "\n".join([*statements, *stores])
        self.given: dict[str, Any] = {kind: generator.random.choice(values) for kind, values in VALUES.items()}

    def kernel(self) -> kk.PortableKernel:
        scalars = [kk.Scalar(f"q{at}", dtype) for at, dtype in enumerate(DTYPES.values())]
        arrays = [kk.Buffer(f"o{kind}", dtype) for kind, dtype in DTYPES.items()]
        copies = " ".join(f"{name} p{at} = q{at};" for at, name in enumerate(NAMES.values()))
        return kk.PortableKernel("k", params=[*scalars, *arrays], body=f"{HELPER}\n{copies}\n{self.body}", group=1)

    def c_function(self, number: int) -> str:
        head = ", ".join(f"{name} p{at}" for at, name in enumerate(NAMES.values()))
        head += "".join(f", {name}* o{kind}" for kind, name in NAMES.items())
        return f"static void k{number}({head}) {{\n{self.body}\n}}"

    def c_call(self, number: int) -> str:
        values = [
            f"({NAMES[kind]}){value}{'ull' if kind == 'u8' else '' if kind[0] == 'f' else 'll'}"
            for kind, value in self.given.items()
        ]
        arrays = [f"o{kind}" for kind in NAMES]
        clear = "".join(f"memset(o{kind}, 0, sizeof o{kind});" for kind in NAMES)
        write = "".join(f"fwrite(o{kind}, sizeof o{kind}, 1, stdout);" for kind in NAMES)
        return f"{clear} k{number}({', '.join([*values, *arrays])}); {write}"


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
def test_random_programs_compute_what_gcc_computes(tmp_path: Path) -> None:
    programs = [_Program(5000 + at) for at in range(PROGRAMS)]
    arrays = "".join(f"static {name} o{kind}[{LENGTH}];\n" for kind, name in NAMES.items())
    functions = "\n".join(program.c_function(at) for at, program in enumerate(programs))
    calls = "\n".join(program.c_call(at) for at, program in enumerate(programs))
    text = (
        f"#include <stdio.h>\n#include <string.h>\nstatic {HELPER}\n{arrays}{functions}\nint main() {{\n{calls}\n}}\n"
    )
    (tmp_path / "all.c").write_text(text)
    command = ["gcc", "-w", "-O0", "-fwrapv", "-ffp-contract=off", "-std=gnu11", "-o", "all", "all.c"]
    built = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr[:2000]
    expected = subprocess.run([tmp_path / "all"], capture_output=True, check=True, timeout=60).stdout
    at = 0
    with ReferenceDevice() as device:
        for number, program in enumerate(programs):
            kernel = program.kernel()
            loaded = device.load(device.compile(kernel.source(device))).kernel()
            outputs = {kind: device.array(np.zeros(LENGTH, dtype)) for kind, dtype in DTYPES.items()}
            scalars = [np.dtype(DTYPES[kind]).type(value) for kind, value in program.given.items()]
            loaded.launch(1, (*scalars, *outputs.values()))
            for kind, output in outputs.items():
                found = output.numpy()
                right = np.frombuffer(expected, found.dtype, LENGTH, at)
                at += found.nbytes
                np.testing.assert_array_equal(found, right, f"program {number}, {kind}:\n{program.body}")
