"""Every portable body of this repository is valid: samples, ready kernels, tests, examples, benchmarks and docs."""

from __future__ import annotations

import ast
import importlib
import itertools
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kernelkeep as kk
from kernelkeep.kernels.conv2d.operation import CONV2D
from kernelkeep.kernels.gemm.operation import GEMM
from kernelkeep.language.builtins import state_builtins
from kernelkeep.language.guarantees import violations
from kernelkeep.language.readers.c import Reading, read_body
from kernelkeep.language.tree import Variable, kernel_parameter
from kernelkeep.language.types import SCALARS
from kernelkeep.samples import basic, startup, states

ROOT = Path(__file__).parents[3]
# Bodies with a mistake, so that a test can see how it is reported.
MISTAKES = re.compile(
    r"no_such|nonsense|\bmissing\b|\bnothing\b|\bbroken\b|\bwrong\b|%\s*3\.0f|5\.5f\s*%|oops|\bnn\b|#error"
)


def kept(reading: Reading) -> Reading:
    assert violations(reading.module) == []
    return reading


def read_kernel(kernel: Any, *, is_template: bool = False) -> Reading:
    parameters = [kernel_parameter(p.name, p.dtype, getattr(p, "access", None)) for p in kernel.params]
    defines = kk.Source("", kernel.name, "opencl", (), kernel.defines).macros
    if is_template:  # a tuner gives its macros their values
        names = set(re.findall(r"\b[A-Z][A-Z_0-9]+\b", kernel.body))
        declared = set(re.findall(r"\bconst \w+ (\w+)", kernel.body))
        defines = dict.fromkeys(names - declared, "4") | defines
    return kept(read_body(kernel.name, parameters, kernel.body, defines=defines, group=kernel.signature.group))


def read_state_program(program: Any) -> Reading:
    def kind(value: Any) -> str:
        return str(value.dtype.str[1:])

    parameters: list[Variable] = []
    for key, array in program.state.items():
        if program.coupling == "queue":
            parameters.append(kernel_parameter(key, kind(array), "rw"))
        else:
            parameters += [kernel_parameter(key, kind(array), "r"), kernel_parameter(f"{key}_next", kind(array), "rw")]
    parameters += [kernel_parameter(key, kind(value)) for key, value in (program.tasks | program.scalars).items()]
    tasks = [SCALARS[kind(array)] for array in program.tasks.values()] or None
    return kept(read_body(program.name, parameters, program.body, extra=state_builtins(tasks)))


# --- samples and ready kernels

SAMPLES = [value for value in vars(basic).values() if isinstance(value, basic.Sample)] + list(startup.STARTUP_SAMPLES)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.kernel.name)
def test_samples(sample: Any) -> None:
    assert read_kernel(sample.kernel).warnings == ()


@pytest.mark.parametrize("sample", states.STATE_SAMPLES, ids=lambda sample: sample.name)
def test_state_samples(sample: Any) -> None:
    assert read_state_program(sample.program(sample.size)).warnings == ()


def variants(template: Any, most: int) -> list[dict[str, int]]:
    """Some of the allowed variants, from all over the space."""
    names = list(template.VALUES)
    all_of_them = [dict(zip(names, values, strict=True)) for values in itertools.product(*template.VALUES.values())]
    allowed = [variant for variant in all_of_them if template.allowed(variant)]
    return [template.DEFAULT, *allowed[:: max(1, len(allowed) // most)]]


# `vectors` is written in OpenCL C for CPUs, with pointers: no portable body.
@pytest.mark.parametrize(
    ("kernel", "kind"),
    [(GEMM, "tiled"), (GEMM, "sliced"), (GEMM, "plain"), (CONV2D, "tiled"), (CONV2D, "plain")],
    ids=lambda part: getattr(part, "name", part),
)
def test_ready_kernels(kernel: Any, kind: str) -> None:
    template = importlib.import_module(f"{kernel.package}.{kind}")
    for factor in (1, 3, 4):
        odd = int(kernel is GEMM and factor == 3)
        problem = {name: size * factor + odd for name, size in kernel.example.items()}
        constants = template.constants({**problem, **kernel.derived(problem)})
        for variant in variants(template, 8):
            group = template.group({**problem, **constants, **variant})
            made = kk.PortableKernel(kernel.name, template.PARAMS, template.BODY, group, {**constants, **variant})
            assert read_kernel(made).warnings == ()


# --- what is written out in files


def texts() -> Iterator[tuple[str, str]]:
    """(name, Python text) of every file, and of every block of Python in the docs."""
    for folder in ("src", "tests", "examples", "benchmarks"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if "language" not in path.relative_to(ROOT).parts:
                yield str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        for at, block in enumerate(re.findall(r"```python\n(.*?)```", path.read_text(encoding="utf-8"), re.DOTALL)):
            yield f"{path.name}, block {at}", block


def written_kernels(text: str) -> Iterator[Any]:
    """The kernels and state programs of a text whose arguments can be evaluated without running it."""
    names: dict[str, Any] = {"kk": kk, "np": np, "Buffer": kk.Buffer, "Scalar": kk.Scalar}
    names |= {"PortableKernel": kk.PortableKernel, "StateProgram": kk.StateProgram}
    tree = ast.parse(text)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    inside = {id(node) for function in functions for node in ast.walk(function)}
    yield from calls_in([node for node in ast.walk(tree) if id(node) not in inside], names)
    for function in functions:
        yield from calls_in(list(ast.walk(function)), dict(names))


def calls_in(nodes: list[ast.AST], names: dict[str, Any]) -> Iterator[Any]:
    for node in nodes:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and is_harmless(node.value):
            names[node.targets[0].id] = evaluated(node.value, names)
    for node in nodes:
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in (
            "PortableKernel",
            "StateProgram",
        ):
            yield evaluated(node, names)


def is_harmless(node: ast.expr) -> bool:
    """Whether evaluating an expression opens no device and runs nothing."""
    calls = [ast.unparse(call.func) for call in ast.walk(node) if isinstance(call, ast.Call)]
    return all(
        re.fullmatch(r"(kk\.)?(Buffer|Scalar|PortableKernel)|np\.\w+|range|list|tuple|dict", call) for call in calls
    )


def evaluated(node: ast.expr, names: Mapping[str, Any]) -> Any:
    """The value of an expression, None where it needs more than is known."""
    try:
        return eval(compile(ast.Expression(node), "<body>", "eval"), dict(names))
    except Exception:
        return None


def test_bodies_in_files_and_docs() -> None:
    read = 0
    for name, text in texts():
        if "PortableKernel" not in text and "StateProgram" not in text:
            continue
        for made in written_kernels(text):
            if made is None or MISTAKES.search(made.body) or getattr(made, "functions", None) is not None:
                continue
            try:
                if isinstance(made, kk.PortableKernel):
                    read_kernel(made, is_template=True)
                else:
                    read_state_program(made)
            except kk.CompileError as error:
                pytest.fail(f"{name}: {error}")
            read += 1
    assert read >= 60, "the search finds no bodies"


def test_the_example_of_the_docs() -> None:
    text = (ROOT / "docs" / "language.md").read_text(encoding="utf-8")
    (body,) = re.findall(r"```c\n(.*?)```", text, re.DOTALL)
    parameters = [kernel_parameter("x", "f4", "r"), kernel_parameter("n", "i4")]
    assert kept(read_body("best", parameters, body)).warnings == ()
