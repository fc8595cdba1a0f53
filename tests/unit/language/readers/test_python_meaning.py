"""What a kernel in Python computes is what Python computes: the same text is run by both."""

from __future__ import annotations

import json
import math
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kernelkeep as kk
from kernelkeep.devices.base import Device
from kernelkeep.language.guarantees import violations
from kernelkeep.language.readers.python_kernel import read_kernel
from kernelkeep.language.tree import kernel_parameter
from kernelkeep.programs.python_kernel import PythonKernel
from kernelkeep.testing import open_or_skip

SIZE = 40
NAMES = {"kk": "module kernelkeep", "math": "module math", "N": "int 5", "HALF": "float 0x1p-1", "ON": "bool True"}
FUZZ = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


class _Words:
    """What stands for `kk` where Python itself runs a kernel."""

    i4 = f4 = int
    f8 = staticmethod(float)
    sqrt = math.sqrt
    floor = staticmethod(lambda x: float(math.floor(x)))
    unroll = staticmethod(lambda rounds, count=0: rounds)
    array = staticmethod(lambda kind, size: [0] * size if isinstance(size, int) else list(size))

    @staticmethod
    def atomic_add(z: list[int], at: int, value: int) -> int:
        z[at] += value
        return z[at] - value

    @staticmethod
    def global_id(dimension: int) -> int:
        return 0


def in_python(body: str, n: int, m: int, a: float) -> tuple[list[int], list[float]]:
    z, y = [0] * SIZE, [0.0] * SIZE
    scope: dict[str, Any] = {"kk": _Words, "math": math, "N": 5, "HALF": 0.5, "ON": True}
    exec(_function(body), scope)
    scope["k"](z, y, n, m, a)
    return z, y


def _function(body: str) -> str:
    return "def k(z, y, n, m, a):\n" + "\n".join(f"    {line}" for line in body.split("\n"))


def kernel(body: str) -> PythonKernel:
    params: list[kk.Buffer | kk.Scalar] = [
        kk.Buffer("z", "i4"),
        kk.Buffer("y", "f4"),
        kk.Scalar("n", "i4"),
        kk.Scalar("m", "i4"),
        kk.Scalar("a", "f4"),
    ]
    return PythonKernel("k", params, _function(body), 1, outside=(json.dumps([["k", "", NAMES]]), "k.py"))


@cache
def device() -> Device:
    return open_or_skip("reference")


def in_kernel(body: str, n: int, m: int, a: float) -> tuple[list[int], list[float]]:
    z, y = device().array(np.zeros(SIZE, "i4")), device().array(np.zeros(SIZE, "f4"))
    with device().build(kernel(body).source(device())) as program:
        program.kernel().launch(1, (z, y, n, m, a))
    return z.numpy().tolist(), y.numpy().tolist()


CASES = {
    "floor division": "z[0], z[1], z[2], z[3] = n // 3, n // -3, n // 4, n // m\nz[4] = n\nz[4] //= -2",
    "remainders": "z[0], z[1], z[2], z[3] = n % 3, n % -3, n % 4, n % m\nz[4] = n\nz[4] %= -5\nz[5] = -7 % N",
    "floor division of floats": "y[0], y[1], y[2], y[3] = a // 0.5, a % 0.75, -a // 0.25, a % -0.5\ny[4] = 1.5 // m",
    "true division": "y[0], y[1], y[2] = n / 4, 1 / 2, n / m\ny[3] = a\ny[3] /= 2",
    "powers": "z[0], z[1], z[2], z[3] = n ** 2, n ** 3, (n + 1) ** 2, n ** 0\ny[0], y[1], y[2] = a ** 2, a ** 5, 2.0 ** m",
    "a range forwards": "s = 0\nfor i in range(n * n % 7):\n    s = s * 3 % 1000 + i\nz[0] = s",
    "a range backwards": "s = 0\nfor i in range(9, m, -2):\n    s = s * 3 % 1000 + i\nz[0] = s",
    "a range with a step that is not known": "s = 0\nfor i in range(-9, 9, abs(m) + 1):\n    s += i\n"
    "for i in range(0, m * 10, m):\n    s += 10 * i\nz[0] = s",
    "the variable behind a loop": "i = 7\nfor i in range(4):\n    if i == 2:\n        break\nz[0] = i\n"
    "for j in range(0):\n    pass\nfor j in range(3):\n    pass\nz[1] = j",
    "a loop does not see what its body assigns": "s = 0\nfor i in range(5):\n    s += 1\n    i = i + 3\n    z[4] = i\nz[0] = s",
    "bounds are computed once": "e = 4\ns = 0\nfor i in range(e):\n    e = e + 5\n    s += 1\nz[0], z[1] = s, e",
    "loops in loops": "s = 0\nfor i in range(4):\n    for j in range(i, 5):\n        if j == 3:\n            continue\n"
    "        s += i * j\nfor i in kk.unroll(range(2)):\n    s += i\nz[0] = s",
    "while": "k = abs(n)\nc = 0\nwhile k > 0:\n    k //= 2\n    c += 1\n    if c > 30:\n        break\nz[0] = c",
    "swaps": "p, q, r = n, m, 3\np, q, r = r, p, q\nz[0], z[1], z[2] = p, q, r\nz[0], z[1] = z[1], z[0]\np = q = r\nz[3] = p + q",
    "chains": "z[0] = 1 if -3 < n <= m < 50 else 2\nz[1] = int(0 < abs(n) != abs(m) < 9)",
    "and, or, not": "z[0] = 1 if n and m or not n else 2\nb = n > 0 and m > 0\nz[1] = int(b or n == m)\nz[2] = int(not b)",
    "bools": "p = n > 0\nq = m > 0\nz[0], z[1], z[2] = int(p & q), int(p | q), int(p ^ q)\nz[3] = p + q + True\n"
    "p = p == q\nz[4] = int(p)",
    "a variable of a branch": "if n > 0:\n    v = 1\nelse:\n    v = 2\nz[0] = v",
    "a variable of an earlier round": "last = 0\ns = 0\nfor i in range(5):\n    if i > 0:\n        s += last\n"
    "    last = i * 3\nz[0] = s",
    "a variable that only some rounds assign": "for i in range(6):\n    if i % 4 == 0:\n        w = i\n    z[i] = w",
    "own functions": "z[0], z[1], z[2] = min(n, m), max(n, m, 3), abs(n)\nz[3], z[4], z[5] = int(a), round(a), int(a > 0)\n"
    "y[0], y[1] = float(n), math.sqrt(abs(a))\nz[6] = math.floor(-a) + math.ceil(a)\ny[2] = math.pi",
    "arrays": "w = kk.array('i4', [3, 1, 2])\nv = kk.array('f4', 4)\nfor i in range(4):\n    v[i] = i * HALF\n"
    "z[0], z[1] = w[abs(n) % 3], len(w)\ny[0] = v[abs(m) % 4]",
    "constants decide": "if ON:\n    t = 3\nelse:\n    t = nothing\nz[0] = t\nif not ON and n > 0:\n    z[1] = 1\n"
    "z[2] = N if ON else n",
    "annotations": "t: kk.i4 = 3\nu: kk.i4\nif n > 0:\n    u = 1\nelse:\n    u = 2\nz[0] = t + u",
    "shifts and bits": "z[0], z[1], z[2] = n << 3, n >> 1, ~n\nz[3], z[4], z[5] = n & 6, n | 9, n ^ m\nt = n\n"
    "t <<= 2\nt |= 1\nz[6] = t",
    "the value before the index": "z[0] = 1\nz[kk.atomic_add(z, 0, 1) + 3] = z[0]\nz[9] = z[0]",
    "return": "if n > 2:\n    z[0] = 1\n    return\nz[0] = 2\nfor i in range(9):\n    if i == abs(m):\n"
    "        return\n    z[1] += 1",
}  # fmt: skip


@pytest.mark.parametrize("body", CASES.values(), ids=CASES.keys())
@pytest.mark.parametrize(("n", "m", "a"), [(7, 3, 2.5), (-7, 2, -2.25), (5, -3, 0.375), (0, 1, 1.0)])
def test_a_kernel_computes_what_python_computes(body: str, n: int, m: int, a: float) -> None:
    expected_z, expected_y = in_python(body, n, m, a)
    found_z, found_y = in_kernel(body, n, m, a)
    assert found_z == expected_z
    np.testing.assert_allclose(found_y, expected_y, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("spec", ["opencl", "opengl"])
@pytest.mark.parametrize(
    "name",
    ["floor division", "remainders", "floor division of floats", "powers", "a range with a step that is not known"],
)
def test_drivers_compute_what_python_computes(spec: str, name: str, pocl: str) -> None:
    with open_or_skip(spec, pocl if spec == "opencl" else None) as other:
        with other.build(kernel(CASES[name]).source(other)) as program:
            for n, m, a in ((7, 3, 2.5), (-7, 2, -2.25), (5, -3, 0.375), (-12, -4, -0.75)):
                z, y = other.array(np.zeros(SIZE, "i4")), other.array(np.zeros(SIZE, "f4"))
                program.kernel().launch(1, (z, y, n, m, a))
                expected_z, expected_y = in_python(CASES[name], n, m, a)
                assert z.numpy().tolist() == expected_z
                np.testing.assert_allclose(y.numpy(), expected_y, rtol=1e-6, atol=1e-7)


# --- programs that nobody wrote

NUMBERS = st.integers(-20, 20).map(str)
LEAVES = st.one_of(st.sampled_from(["p", "q", "r", "n", "m"]), NUMBERS)
COMPARES = st.sampled_from(["<", "<=", "==", "!=", ">", ">="])


def _conditions(numbers: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    one = st.builds("({} {} {})".format, numbers, COMPARES, numbers)
    chain = st.builds("({} {} {} {} {})".format, numbers, COMPARES, numbers, COMPARES, numbers)
    return st.one_of(
        one,
        chain,
        st.builds("({} {} {})".format, one, st.sampled_from(["and", "or"]), chain),
        st.builds("(not {})".format, one),
    )


def _expressions(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    # Every operand is small, so that nothing leaves 32 bits; divisors are odd, so never 0.
    small = inner.map("({} & 1023)".format)
    divisor = inner.map("({} % 2048 - 1024 | 1)".format)
    return st.one_of(
        st.builds("({} {} {})".format, small, st.sampled_from(["+", "-", "*", "&", "|", "^"]), small),
        st.builds("({} {} {})".format, inner, st.sampled_from(["//", "%"]), divisor),
        st.builds(
            "({} {} {})".format, inner, st.sampled_from(["//", "%"]), st.sampled_from(["3", "4", "-4", "-7", "16", "1"])
        ),
        st.builds("({} >> {})".format, inner, st.integers(0, 12)),
        st.builds("({} if {} else {})".format, inner, _conditions(inner), inner),
        st.builds("{}({}, {})".format, st.sampled_from(["min", "max"]), inner, inner),
        st.builds("abs({})".format, small),
        st.builds("(-{})".format, small),
    )


EXPRESSIONS = st.recursive(LEAVES, _expressions, max_leaves=5)
TARGETS = st.sampled_from(["p", "q", "r"])


def _indented(lines: list[str]) -> str:
    return "\n".join("    " + line for one in lines for line in one.split("\n"))


def _statements(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    block = st.lists(inner, min_size=1, max_size=3).map(_indented)
    ends = st.sampled_from(["    pass", "    if p > q:\n        break", "    if q % 3 == 1:\n        continue"])
    step = st.sampled_from(["1", "2", "-1", "-3", "abs(m) + 1"])
    small = EXPRESSIONS.map("{} % 12".format)
    return st.one_of(
        st.builds("if {}:\n{}\nelse:\n{}".format, _conditions(LEAVES), block, block),
        st.builds("if {}:\n{}".format, _conditions(LEAVES), block),
        st.builds(
            "for i in range({}, {}, {}):\n{}\n{}\n    p = (p + i) & 4095".format, small, small, step, ends, block
        ),
        st.builds("for p in range({}):\n{}".format, small, block),
        st.builds("t = {}\nwhile t > 0 and s < 60:\n    t -= 1\n    s += 1\n{}\n{}".format, small, ends, block),
    )


SIMPLE = st.one_of(
    st.builds("{} = {}".format, TARGETS, EXPRESSIONS.map("({}) % 100000".format)),
    st.builds(
        "{} {}= {}".format, TARGETS, st.sampled_from(["+", "-", "^", "//", "%"]), st.sampled_from(["1", "3", "8", "-5"])
    ),
    st.just("p, q = q, p"),
    st.just("p, q, r = r, p, q"),
    st.builds("z[{} % 40] = {}".format, TARGETS, TARGETS),
)
PROGRAMS = st.lists(st.recursive(SIMPLE, _statements, max_leaves=6), min_size=1, max_size=5).map("\n".join)
START = "p, q, r = n, m, 1\nt, s = 0, 0  # s bounds loops in loops\n"
END = "\np, q, r = p % 100000, q % 100000, r % 100000\nz[37], z[38], z[39] = p, q, r"


@FUZZ
@given(PROGRAMS, st.integers(-50, 50), st.integers(-50, 50))
def test_programs_compute_what_python_computes(program: str, n: int, m: int) -> None:
    body = START + program + END
    assert in_kernel(body, n, m, 0.0)[0] == in_python(body, n, m, 0.0)[0], body


@FUZZ
@given(PROGRAMS)
def test_trees_of_programs_keep_what_trees_promise(program: str) -> None:
    made = kernel(START + program + END)
    parameters = [kernel_parameter(one.name, one.dtype, getattr(one, "access", None)) for one in made.params]
    module = read_kernel("k", parameters, made.body, functions=made.uses[0]).module
    assert not violations(module)
