"""Every example in the table of docs/language.md is true on the reference device, OpenCL, OpenGL, WebGPU and CUDA.

Each is computed twice: as it is written, where a compiler may compute it, and with its constants hidden from the compiler.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import kernelkeep as kk
from kernelkeep.testing import open_or_skip

PAGE = (Path(__file__).parents[2] / "docs" / "language.md").read_text(encoding="utf-8")
EXAMPLE = re.compile(r"`([^`]+)` is ([^\s,|]+)")
# Constants whose value can be hidden without changing the type: decimal, those of limits.h, and floats with a suffix.
HIDDEN = re.compile(r"(?<![\w.'\[])(?:(INT_MAX|INT_MIN|[1-9]\d*|0)|(\d+u)|(NAN|INFINITY|[\d.]+(?:e\d+)?f))(?![\w.'])")


class Example(NamedTuple):
    code: str  # statements, and an expression at the end
    value: float
    is_float: bool

    def block(self, at: int, *, hidden: bool) -> str:
        """A block that stores the value."""
        code = HIDDEN.sub(_hidden, self.code) if hidden else self.code
        # Labels and sizes must stay constant.
        code = re.sub(r"case \((\d+) \+ zero\)", r"case \1", code)
        before, _, expression = code.rpartition(";") if "}" not in code else _after_brace(code)
        return f"{{ {before}; {'floats' if self.is_float else 'ints'}[{at}] = {expression}; }}"


def _hidden(found: re.Match[str]) -> str:
    return f"({found.group()} + {'zero' if found.group(1) else 'uzero' if found.group(2) else 'fzero'})"


def _after_brace(code: str) -> tuple[str, str, str]:
    at = max(code.rfind("}"), code.rfind(";")) + 1
    return code[:at], "", code[at:]


def examples() -> Iterator[Example]:
    table = PAGE[PAGE.index("## What it means") : PAGE.index("## Mistakes")]
    for line in table.splitlines():
        for code, value in EXAMPLE.findall(line.split(" | ")[-1]):
            words = {"false": 0, "true": 1, "INFINITY": math.inf}
            is_float = "." in value or value == "INFINITY"
            number = words[value] if value in words else float(value.rstrip("u"))
            yield Example(code.replace("\\|", "|"), number, is_float)


EXAMPLES = list(examples())


@pytest.fixture(scope="module", params=["reference", "opencl", "opengl", "webgpu", "cuda"])
def device(request: pytest.FixtureRequest, opencl_device: str) -> Iterator[kk.Device]:
    with open_or_skip(request.param, opencl_device if request.param == "opencl" else None) as device:
        yield device


def run(device: kk.Device, body: str, group: int = 1, **arguments: Any) -> list[np.ndarray[Any, Any]]:
    params: list[kk.Buffer | kk.Scalar] = [
        kk.Buffer(name, value.dtype.str[1:]) if isinstance(value, np.ndarray) else kk.Scalar(name, value.dtype.str[1:])
        for name, value in arguments.items()
    ]
    given = [device.array(value) if isinstance(value, np.ndarray) else value for value in arguments.values()]
    with device.build(kk.PortableKernel("rows", params, body, group).source(device)) as program:
        program.kernel().launch(1, tuple(given))
        return [value.numpy() for value in given if isinstance(value, kk.Array)]


def test_the_table_has_examples() -> None:
    assert len(EXAMPLES) > 50
    assert sum(one.block(0, hidden=True) != one.block(0, hidden=False) for one in EXAMPLES) > 40


@pytest.mark.parametrize("hidden", [False, True], ids=["constants", "values"])
def test_every_example_of_the_table_holds(device: kk.Device, hidden: bool) -> None:
    # NVIDIA's OpenGL makes NaN of a sum divided by a sum that is 0, as the page says.
    without = "1.0f / 0.0f" if hidden and device.info.is_gpu and device.backend == "opengl" else ""
    body = "\n".join(one.block(at, hidden=hidden) for at, one in enumerate(EXAMPLES))
    ints, floats = run(
        device, body, ints=np.zeros(len(EXAMPLES), "i4"), floats=np.zeros(len(EXAMPLES), "f4"),
        zero=np.int32(0), uzero=np.uint32(0), fzero=np.float32(0),
    )  # fmt: skip
    wrong = [
        f"{one.code} is {found}, not {one.value}"
        for one, i, f in zip(EXAMPLES, ints.tolist(), floats.tolist(), strict=True)
        if (found := f if one.is_float else i)
        != (float(np.float32(one.value)) if one.is_float else (int(one.value) + 2**31) % 2**32 - 2**31)
        and one.code != without
    ]
    assert not wrong


def test_neighbouring_bytes_are_written_by_different_work_items(device: kk.Device) -> None:
    body = "int i = kk_global_id(0); bytes[i] = bytes[i] + i; halves[i] -= i; kk_barrier(); if (i & 1) bytes[i] = 1;"
    given = np.full(64, 250, "u1"), np.full(64, -32750, "i2")
    found, halves = run(device, body, 64, bytes=given[0], halves=given[1])
    number = np.arange(64)
    assert found.tolist() == np.where(number & 1, 1, (250 + number) % 256).tolist()
    assert halves.tolist() == ((-32750 - number + 2**15) % 2**16 - 2**15).tolist()


def test_atomics_of_floats_and_the_own_copy_of_a_scalar(device: kk.Device) -> None:
    body = """n += kk_global_id(0); float v = n;
kk_atomic_add(x[0], v); kk_atomic_sub(x[1], v); kk_atomic_min(x[2], 5 - v); kk_atomic_max(x[3], v);
kk_atomic_exchange(x[4], 9.0f);"""
    (x,) = run(device, body, 32, x=np.zeros(5, "f4"), n=np.int32(1))
    assert x.tolist() == [528, -528, -27, 32, 9]


def test_a_sum_of_a_product_is_rounded_once_or_twice(device: kk.Device) -> None:
    a, c = np.float32(1 + 2**-12), np.float32(-1 - 2**-11)
    (x,) = run(device, "x[0] = a * a + c; x[1] = fma(a, a, c);", x=np.zeros(2, "f4"), a=a, c=c)
    once, twice = float(np.float64(a) * np.float64(a) + np.float64(c)), float(a * a + c)
    assert once != twice and set(x.tolist()) <= {once, twice}
    assert not device.info.is_interpreter or x.tolist() == [twice, once]


def test_the_smaller_of_a_number_and_nan_is_the_number(device: kk.Device) -> None:
    """With OpenGL it may be NaN."""
    body = "float nan = NAN + x[0]; x[1] = fmin(nan, 2.0f); x[2] = max(2.0f, nan); x[3] = fmax(nan, nan);"
    (x,) = run(device, body, x=np.zeros(4, "f4"))
    assert all(value == 2 or (np.isnan(value) and device.backend == "opengl") for value in x[1:3])
    assert np.isnan(x[3])


def test_longs_and_doubles_follow_the_same_rules(device: kk.Device) -> None:
    if not (device.capabilities.int64 and device.capabilities.float64):
        pytest.skip("this device has no 64-bit types")
    body = """wide[0] = LONG_MAX + zero + 1; wide[1] = (-7l - zero) / 2; wide[2] = (-7l + zero) % 2; wide[3] = (1l + zero) << 65;
wide[4] = (long)(1e30 + far[0]); wide[5] = (long)(NAN + far[0]); far[1] = 1.0 / 3 + far[0]; far[2] = 0.1 * (far[0] + 3);"""
    wide, far = run(device, body, wide=np.zeros(6, "i8"), far=np.zeros(3), zero=np.int32(0))
    assert wide.tolist() == [-(2**63), -3, -1, 2, 2**63 - 1, 0]
    assert far.tolist() == [0, 1 / 3, 0.1 * 3]


def test_a_division_without_a_result_does_not_end_the_program(device: kk.Device) -> None:
    """The reference device reports a division by zero as what it is, a bug."""
    lines = "ints[0] = (INT_MIN + zero) / (zero - 1); ints[1] = (INT_MIN + zero) % (zero - 1);"
    if not device.info.is_interpreter:
        lines += "ints[0] = 5 / zero; ints[1] = 5 % zero; ints[0] = 5u / (unsigned)zero; if (zero) ints[0] = 1 / 0;"
    (ints,) = run(device, lines + "ints[2] = 7;", ints=np.zeros(3, "i4"), zero=np.int32(0))
    assert ints[2] == 7
