"""The fake device's own parts: kernels in C as Python, kernels in Python, and failures on order."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import kernelkeep as kk
from kernelkeep.testing import FakeDevice


@pytest.fixture
def device() -> Iterator[FakeDevice]:
    with FakeDevice() as opened:
        yield opened


def compute(device: FakeDevice, body: str, items: int = 4, dtype: str = "i4", **fields: Any) -> list[Any]:
    """What a body with the array y leaves in it, which is 0, 1, … before."""
    kernel = kk.PortableKernel(
        "body", params=[kk.Buffer("y", dtype, "rw"), kk.Scalar("n", "i4")], body=body, group=items, **fields
    )
    y = device.array(np.arange(items, dtype=dtype))
    device.load(device.compile(kernel.source(device))).kernel().launch(1, (y, items))
    found: list[Any] = y.numpy().tolist()
    return found


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("int i = kk_local_id(0); y[i] = i < 2 ? -i : i * 10;", [0, -1, 20, 30]),
        ("int i = kk_local_id(0); if (i == 1) y[i] = 7; else if (i == 2) { y[i] = 8; } else y[i] += 1;", [1, 7, 8, 4]),
        ("int s = 0; for (int k = 0; k < 5; k++) { if (k == 3) continue; s += k; } y[kk_local_id(0)] = s;", [7] * 4),
        ("int s = 0; while (true) { s++; if (s > 4) break; } y[kk_local_id(0)] = s;", [5] * 4),
        ("int s = 9; do { s -= 2; } while (s > 4); y[kk_local_id(0)] = s;", [3] * 4),
        ("y[kk_local_id(0)] = -7 / n * 10 + -7 % n;", [-13] * 4),
        ("uint v = 4000000000u; v = v * 3u; y[kk_local_id(0)] = kk_int(v >> 16);", [12000000000 % 2**32 >> 16] * 4),
        ("kk_shared(int, t, 4); int i = kk_local_id(0); t[3 - i] = y[i]; kk_barrier(); y[i] = t[i];", [3, 2, 1, 0]),
        ("kk_atomic_add(y[0], 5);", [20, 1, 2, 3]),
        ("#define TWICE(v) (2 * (v))\n#if 1\ny[kk_local_id(0)] = TWICE(n + 1);\n#endif", [10] * 4),
        ("y[kk_local_id(0)] = TERM;", [42] * 4),
    ],
)  # fmt: skip
def test_c_is_computed_as_c(device: FakeDevice, body: str, expected: list[int]) -> None:
    assert compute(device, body, defines={"TERM": 42}) == expected


def test_floats_are_single_precision(device: FakeDevice) -> None:
    body = "float v = 1.0f / 3.0f; y[kk_local_id(0)] = sqrt(v) + 16777216.0f + 1.0f;"
    assert compute(device, body, dtype="f4") == [16777216.0] * 4


@pytest.mark.parametrize(
    ("body", "line"), [("y[0] = 1;\ny[0] = nothing;", 2), ("y[0] = (1;", 1), ("for (int i = 0; i < 3; i++) {", 1)]
)
def test_what_is_no_c_is_a_compile_error_with_its_line(device: FakeDevice, body: str, line: int) -> None:
    with pytest.raises(kk.CompileError) as caught:
        compute(device, body)
    assert caught.value.line == line


def test_a_python_kernel_is_called_once_for_a_launch(device: FakeDevice) -> None:
    text = 'def fill(y: "i4[]", a: "i4", *, launch):\n    y[:2] = launch.grid[0], a * FACTOR\n'
    source = kk.Source(text, name="fill", language="python", defines={"FACTOR": 3})
    y = device.array(np.zeros(4, "i4"))
    device.load(device.compile(source)).kernel("fill").launch(5, (y, 7), 2)
    assert y.numpy().tolist() == [5, 21, 0, 0]


def test_python_that_names_what_is_not_there_is_a_compile_error(device: FakeDevice) -> None:
    source = kk.Source('def fill(y: "i4[]"):\n    y[:] = nothing\n', name="fill", language="python")
    with pytest.raises(kk.CompileError, match="fill, line 2: nothing is not defined"):
        device.compile(source)


def test_faults_come_in_their_turn(device: FakeDevice) -> None:
    device.faults.fail("allocate", after=1, times=2)
    device.empty(1)
    for _ in range(2):
        with pytest.raises(kk.OutOfMemory):
            device.empty(1)
    device.empty(1)
    assert device.faults.counts["allocate"] == 4
    with pytest.raises(kk.ArgumentError, match="call must be one of compile"):
        device.faults.fail("dance")


def test_a_slow_call_takes_its_time(device: FakeDevice) -> None:
    device.faults.delay("upload", 0.05)
    start = time.perf_counter()
    device.array([1.0])
    assert time.perf_counter() - start >= 0.05


def test_memory_is_bounded_and_given_back() -> None:
    with FakeDevice(memory_bytes=1000) as device:
        first = device.empty(200)
        with pytest.raises(kk.OutOfMemory, match="800 are in use"):
            device.empty(100)
        first.close()
        del first
        device.empty(200).close()
