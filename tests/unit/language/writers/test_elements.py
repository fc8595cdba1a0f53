"""Buffers of vectors and of structs have one layout on every device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelkeep as kk
from kernelkeep.devices.base import Device
from kernelkeep.language import writers
from kernelkeep.language.readers.c import read_body
from kernelkeep.language.tree import kernel_parameter
from kernelkeep.testing import open_or_skip

Array = np.ndarray[Any, Any]
PARTICLE = np.dtype(
    {"names": ["kind", "speed", "place", "past"], "formats": ["i4", ("f4", 2), ("f4", 4), ("i4", 3)], "offsets": [0, 8, 16, 32],
     "itemsize": 48}
)  # fmt: skip
STRUCT = "typedef struct { int kind; float2 speed; float4 place; int past[3]; } particle;\n"


@pytest.fixture(params=["opencl", "opengl", "reference"])
def device(request: pytest.FixtureRequest, pocl: str) -> Any:
    with open_or_skip(request.param, pocl if request.param == "opencl" else None) as device:
        yield device


def run(device: Device, body: str, elements: dict[str, str], **arrays: Array) -> list[Array]:
    """One group of 16 with the arrays, all read and written; `elements` has the types of those that are not of numbers."""
    params = [kk.Buffer(name, elements.get(name, array.dtype.str[1:])) for name, array in arrays.items()]
    kernel = kk.PortableKernel("k", params, body, 16)
    given = [device.array(array) for array in arrays.values()]
    with device.build(kernel.source(device)) as program:
        program.kernel("k").launch(1, tuple(given))
        return [array.numpy() for array in given]


def test_vectors(device: Device) -> None:
    x, y = np.arange(64, dtype="f4"), np.arange(32, dtype="u4")
    body = """int i = kk_global_id(0);
        float4 v = x[i];
        v.x += y[15 - i].y; kk_barrier(); x[i] = v * 2.0f; x[i].w = -1.0f; y[i / 2 * 2 + 1 - i % 2].x = i;"""
    out, words = run(device, body, {"x": "float4", "y": "uint2"}, x=x, y=y)
    expected = x.reshape(16, 4).copy()
    expected[:, 0] += 31 - 2 * np.arange(16)
    expected *= 2
    expected[:, 3] = -1
    assert out.tolist() == expected.ravel().tolist()
    assert words[1::2].tolist() == y[1::2].tolist()
    assert words[0::2].tolist() == [k + 1 - k % 2 * 2 for k in range(16)]


def test_structs(device: Device) -> None:
    given = np.zeros(16, PARTICLE)
    given["kind"], given["speed"][:, 1], given["past"][:, 2] = range(16), range(16), 7
    body = (
        STRUCT
        + """particle moved(particle p, float by) { p.place.y += by * p.speed.y; p.past[p.kind % 3] = p.kind; return p; }
        int i = kk_global_id(0);
        particle* mine = x + i;
        mine->speed.x = 3.0f; mine->place = (float4)(1.0f, 2.0f, 3.0f, i);
        x[i] = moved(*mine, 2.0f);
        x[i].kind++; n[i] = x[i].past[2];"""
    )
    x, n = run(device, body, {"x": "struct particle"}, x=given.view("i4"), n=np.zeros(16, "i4"))
    out = x.view(PARTICLE)
    assert out["kind"].tolist() == list(range(1, 17))
    assert out["speed"].tolist() == [[3, k] for k in range(16)]
    assert out["place"].tolist() == [[1, 2 + 2 * k, 3, k] for k in range(16)]
    assert out["past"].tolist() == [[k if k % 3 == at else 7 * (at == 2) for at in range(3)] for k in range(16)]
    assert n.tolist() == [k if k % 3 == 2 else 7 for k in range(16)]


def test_functions_take_arrays_of_vectors_and_structs(device: Device) -> None:
    given = np.zeros(16, PARTICLE)
    given["kind"] = range(16)
    body = (
        STRUCT
        + """void push(particle* p, float4 by[], int k) { p->place = p[0].place + by[k] * 2.0f; p->past[1]--; by[k].z = 9.0f; }
        float total(const float4* v, int n) { float sum = 0; for (int i = 0; i < n; i++) sum += v[i].x + (*v).w; return sum; }
        int i = kk_global_id(0);
        float* flat = (float*)v;
        push(&x[i], v, i);
        flat[4 * i + 1] = flat[4 * i + 2] + i; flat[4 * i] += 1.0f;
        kk_barrier();
        if (i == 0) x[3].speed.x = total(v + 2, 3);"""
    )
    v = np.arange(64, dtype="f4")
    x, out = run(device, body, {"x": "struct particle", "v": "float4"}, x=given.view("i4"), v=v)
    vectors = v.reshape(16, 4)
    expected = vectors.copy()
    expected[:, 0] += 1
    expected[:, 1], expected[:, 2] = 9 + np.arange(16), 9
    assert out.reshape(16, 4).tolist() == expected.tolist()
    found = x.view(PARTICLE)
    assert found["place"].tolist() == (2 * vectors).tolist()
    assert found["past"].tolist() == [[0, -1, 0]] * 16
    assert found["speed"][3, 0] == expected[2:5, 0].sum() + 3 * expected[2, 3]


def test_what_cannot_be_in_a_buffer_is_refused() -> None:
    for body, sentence in (
        ("struct s { float3 v; }; x[0].v.x = 1;", "buffer x must not have float3 in its elements"),
        ("int i = 0;", "type s of buffer x is not defined at the beginning of the body"),
    ):
        with pytest.raises(kk.CompileError, match=sentence):
            read_body("k", [kernel_parameter("x", "s", "rw")], body)
    small = read_body("k", [kernel_parameter("x", "s", "rw")], "struct s { int a; char b[4]; }; x[0].a = 1;").module
    for target in ("glsl", "wgsl"):
        with pytest.raises(kk.Unsupported, match="no structs with numbers of 8 or 16 bits in buffers, and x has them"):
            writers.write(target, small, writers.Entry("//", "k", (1, 1, 1)))
    assert "char b[4]" in writers.write("cuda", small, writers.Entry("//", "k", (1, 1, 1))).text


def test_an_array_of_vectors_has_the_type_of_their_numbers() -> None:
    kernel = kk.PortableKernel("k", [kk.Buffer("x", "float4"), kk.Buffer("y", "uint2", "r")], "x[0].x = y[0].y;", 1)
    with kk.open_device("reference") as device, device.build(kernel.source(device)) as program:
        launch = program.kernel().launch
        x, y = device.array(np.zeros(4, "f4")), device.array(np.arange(2, dtype="u4"))
        launch(1, (x, y))
        assert x.numpy()[0] == 1
        with pytest.raises(kk.ArgumentError, match=r"got uint32: device\.array\(.*astype"):
            launch(1, (y, y))


def test_other_types_of_buffers_are_refused() -> None:
    for dtype in ("float3", "double2", "node", "struct", "struct a b", [("a", "i4")]):
        with pytest.raises(kk.ArgumentError, match=r"dtype of parameter x must be one of i1, .*, float4, "):
            kk.Buffer("x", dtype)  # type: ignore[arg-type]
    with pytest.raises(kk.ArgumentError, match="dtype of parameter n must be one of"):
        kk.Scalar("n", "float4")


def test_halves_in_functions(device: Device) -> None:
    """A function takes the bits in a buffer as well as rounded floats in an array of its caller."""
    x, y = np.linspace(-3, 3, 16).astype("f2"), np.zeros(16, "f2")
    body = """half sum(const half v[], int from, int n) {
            half s = 0;
            for (int k = 0; k < n; k++) s += v[from + k];
            return s;
        }
        void put(half v[], int at, half value) { v[at] = value; }
        int i = kk_global_id(0);
        kk_shared(half, all, 16);
        half own[3] = {0.1, 0.2, 0.3};
        put(all, i, x[i]);
        kk_barrier();
        put(own, 1, sum(all, i / 4 * 4, 4));
        put(y, i, sum(own, 0, 3) + sum(x, i / 2 * 2, 2));"""
    _, out = run(device, body, {}, x=x, y=y)

    def total(values: Array) -> Any:
        s = np.float16(0)
        for value in values:
            s = s + np.float16(value)
        return s

    expected = [
        total(np.array([0.1, total(x[i // 4 * 4 : i // 4 * 4 + 4]), 0.3], "f2")) + total(x[i // 2 * 2 : i // 2 * 2 + 2])
        for i in range(16)
    ]
    assert out.tolist() == np.array(expected, "f2").tolist()
