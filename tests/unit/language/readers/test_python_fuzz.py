"""Whatever the text, the reader returns a tree that keeps its promises or raises `CompileError`; nothing of the text runs."""

from __future__ import annotations

import ast
import colorsys
import difflib
import fractions
import heapq
import inspect
import json
import random
import statistics
import textwrap
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kernelkeep as kk
from kernelkeep.language.guarantees import violations
from kernelkeep.language.readers.python_kernel import read_kernel
from kernelkeep.language.tree import kernel_parameter

FUZZ = settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
PARAMETERS = [
    kernel_parameter("x", "f4", "r"), kernel_parameter("y", "f4", "rw"), kernel_parameter("z", "i4", "rw"),
    kernel_parameter("b", "u1", "rw"), kernel_parameter("n", "i4"), kernel_parameter("u", "u4"), kernel_parameter("l", "i8"),
]  # fmt: skip
NAMES = {
    "kk": "module kernelkeep",
    "math": "module math",
    "np": "module numpy",
    "N": "int 4",
    "f": "function 1",
    "t": "other a list",
}
HELPER = "def f(v: kk.f4, w: kk.InOut['f4']) -> kk.f4:\n    w[0] = v\n    return v"
# Snippets that are right, so that a part of what is mixed is read far.
RIGHT = """
i = kk.global_id(0)
s = 0.0
p = kk.float4(1, 2, 3, s)
w = kk.array("f4", 3)
tile = kk.shared("i4", N, 4)
y[i] = f(x[i], y) + p.x
z[i % 4] += n // 3 ** 2
for k in range(n, -3, -2):
    tile[k & 3, 1] = kk.atomic_add(z, k & 3, 1)
    if k == 7:
        continue
    s += w[k % 3] if n > u else math.sqrt(s)
while 0 < n < 9 and not s > 3:
    n -= 1
    kk.barrier()
a, c = n, i
a, c = c, a
b[0] = kk.u1(a)
s: kk.f4
return
kk.print("s", s)
v = (n < 3) & (l == 2) or n in (1, 2)
l <<= 3
""".strip()


def read(text: str) -> None:
    functions = json.dumps([["k", "", NAMES], ["f", HELPER, {"kk": "module kernelkeep"}]])
    try:
        module = read_kernel(
            "k", PARAMETERS, text, functions=functions, group=(4,), first_line=3, file="a.py\n1 a.py"
        ).module
    except kk.CompileError:
        return
    assert not violations(module), text


@cache
def library() -> list[ast.FunctionDef]:
    """Functions that nobody wrote for a GPU."""
    found = []
    for module in (statistics, heapq, colorsys, random, textwrap, fractions, difflib, json.decoder, inspect):
        tree = ast.parse(inspect.getsource(module))
        found += [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    return found


def test_functions_of_the_standard_library_are_read_or_refused() -> None:
    assert len(library()) > 300
    for function in library():
        function.decorator_list = []
        read(ast.unparse(function))


@cache
def parts(kind: type, is_right: bool) -> list[Any]:
    """Statements or expressions, of texts that are right or of the library."""
    trees: list[ast.AST] = [ast.parse(RIGHT)] if is_right else list(library())
    found = [node for tree in trees for node in ast.walk(tree) if isinstance(node, kind)]
    return [node for node in found if not _is_stored(node) and not isinstance(node, ast.Starred | ast.Slice)]


def part(kind: type, chosen: random.Random) -> Any:
    return chosen.choice(parts(kind, chosen.random() < 0.9))


def _is_stored(node: ast.AST) -> bool:
    return not isinstance(getattr(node, "ctx", ast.Load()), ast.Load)


class _Mixed(ast.NodeTransformer):
    """Puts other expressions in place of some."""

    def __init__(self, chosen: random.Random) -> None:
        self._chosen = chosen

    def generic_visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.JoinedStr):  # its parts are no expressions like others
            return node
        if isinstance(node, ast.expr) and not _is_stored(node) and self._chosen.random() < 0.06:
            return part(ast.expr, self._chosen)  # type: ignore[no-any-return]
        return super().generic_visit(node)


@FUZZ
@given(st.randoms(use_true_random=False), st.integers(1, 9))
def test_mixed_texts_are_read_or_refused(chosen: random.Random, count: int) -> None:
    lines = []
    for _ in range(count):
        statement = ast.parse(ast.unparse(part(ast.stmt, chosen)))
        lines += ast.unparse(_Mixed(chosen).visit(statement)).split("\n")
    read("def k(x, y, z, b, n, u, l):\n" + "\n".join(f"    {line}" for line in lines))


@FUZZ
@given(st.text(alphabet="xyz[](){}:=+-*/%<>., \n\t01.'\"kidefforinrange", max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    read(f"def k(x, y, z, b, n, u, l):\n    {text}")


def test_nothing_of_a_text_runs(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(kk.CompileError):
        read_kernel("k", [], "def k(x=print('default')):\n    __import__('os')._exit(3)\n    print('body')")
    assert capsys.readouterr().out == ""
