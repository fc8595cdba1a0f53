"""Kernels that nobody should write: on every device the same numbers, or one clear error."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import kernelkeep as kk
from kernelkeep.testing import open_or_skip


@pytest.fixture(scope="module", params=["reference", "opencl", "opengl"])
def device(request: pytest.FixtureRequest) -> Iterator[kk.Device]:
    with open_or_skip(request.param) as device:
        yield device


def computed(device: kk.Device, body: str) -> list[int]:
    kernel = kk.PortableKernel("k", [kk.Buffer("y", "i4"), kk.Scalar("n", "i4")], body, group=1)
    y = device.array(np.zeros(4, "i4"))
    with device.build(kernel.source(device)) as program:
        program.kernel().launch(1, (y, 3))
    return [int(value) for value in y.numpy()]


def test_any_name_is_fine(device: kk.Device) -> None:
    names = """é 变量 ﬁ fi constant CLK_LOCAL_MEM_FENCE FLT_DIG M_PI_2 GL_core_profile CL_VERSION_1_0 POCL_DEVICE_ADDRESS_BITS
    image2d_array_t memory_order atomic_int convert_int""".split()
    variables = "".join(f"int {name} = {1 << at};\n" for at, name in enumerate(names))
    assert computed(device, f"{variables}y[0] = {' + '.join(names)};")[0] == (1 << len(names)) - 1
    functions = "".join(f"int {name}(int a) {{ return a + {at}; }}\n" for at, name in enumerate(names))
    total = " + ".join(f"{name}(n)" for name in names)
    assert computed(device, f"{functions}y[0] = {total};")[0] == sum(range(len(names))) + 3 * len(names)


def test_a_struct_may_be_named_like_a_variable(device: kk.Device) -> None:
    body = "struct y { int y; }; struct n { int n; }; struct y q = {n}; struct n r = {2}; y[0] = q.y; y[1] = r.n;"
    assert computed(device, body) == [3, 2, 0, 0]


@pytest.mark.parametrize("body", ["if (n)" * 150 + "y[0] = 1;", "y[0] = " + "n + " * 2000 + "n;"])
def test_what_is_nested_too_deeply_is_no_recursion_error(device: kk.Device, body: str) -> None:
    try:
        found = str(computed(device, body)[0] > 0)
    except kk.CompileError as error:
        found = str(error)
    assert found == "True" or "nested too deeply" in found


def test_bool_counts_to_one(device: kk.Device) -> None:
    assert computed(device, "bool t = n; t++; y[0] = t; y[1] = t--; y[2] = t; --t; y[3] = t;") == [1, 1, 0, 1]


def test_abs_of_the_least_integer_wraps(device: kk.Device) -> None:
    values = "y[0] = abs(m); y[1] = abs(INT_MIN) + 1; y[2] = abs(v).y; y[3] = abs(m) < 0;"
    assert computed(device, f"int m = INT_MIN + n - 3; int4 v = (int4)(m); {values}") == [
        -(1 << 31),
        1 - (1 << 31),
        -(1 << 31),
        1,
    ]


@pytest.mark.parametrize(
    ("until", "said"),
    [
        ("c[0] >=", "an expression is missing"),
        ("missing > 1", "unknown name missing"),
        ("c[0] > 1) { kk_stop(); } //", "an expression is missing, got )"),
    ],
)
def test_a_mistake_in_until_shows_the_condition(device: kk.Device, tmp_path: Path, until: str, said: str) -> None:
    body = "int i = kk_item(); c_next[i] = c[i] + 1;"
    program = kk.StateProgram("count", coupling="independent", state={"c": np.zeros(4, "i4")}, body=body)
    with kk.ProgramCache(device, tmp_path) as cache, pytest.raises(kk.CompileError) as caught:
        kk.run(cache, program, iterations=3, until=until)
    assert said in str(caught.value) and "until=" in str(caught.value)


def test_a_comment_behind_until_is_fine(device: kk.Device, tmp_path: Path) -> None:
    body = "int i = kk_item(); c_next[i] = c[i] + 1;"
    program = kk.StateProgram("count", coupling="independent", state={"c": np.zeros(4, "i4")}, body=body)
    with kk.ProgramCache(device, tmp_path) as cache:
        assert kk.run(cache, program, iterations=9, until="c[0] >= 2 // enough").report.iterations == 3
