"""A tree written as C, and read again, is the same tree."""

from __future__ import annotations

import json

import pytest

from kernelkeep.language import writers
from kernelkeep.language.readers.c import read_body
from kernelkeep.language.readers.python_kernel import read_kernel
from kernelkeep.language.tree import Module, kernel_parameter
from kernelkeep.language.writers.portable import PortableWriter

PARAMETERS = [
    kernel_parameter("x", "f4", "r"), kernel_parameter("y", "f4", "rw"), kernel_parameter("z", "i4", "rw"),
    kernel_parameter("b", "u1", "rw"), kernel_parameter("n", "i4"), kernel_parameter("u", "u4"), kernel_parameter("l", "i8"),
]  # fmt: skip
ENTRY = writers.Entry("//kk: kernel k", "k", (64, 1, 1))
HELPER = (
    "def mean(v: kk.In['f4'], w: kk.InOut['i4'], at: kk.i4, p: kk.float2) -> kk.f4:\n    at += 1\n"
    "    w[0] = at\n    return (v[at] + p.x) / 2\n"
)
BODIES = {
    "numbers": "z[0] = -2147483648\ny[0] = 0.1 + 1e30 - float('inf') + float('nan')\nb[0] = kk.u1(300)\n"
    "z[1] = kk.i4(u * 4294967295)\nz[2] = kk.i4(l - 9223372036854775807)\ny[1] = kk.f4(kk.f8(0.1) * n)\nz[3] = int(n > 1)",
    "operators": "z[0] = (n // 3 - n % -7) ^ ~n & (n << 2 | n >> 1)\n"
    "y[0] = (-x[0] if n > 0 and not n == 3 else x[1]) ** 2 % 1.5\n"
    "z[0] += n\nz[0] *= -n\ny[0] /= 3\nb[1] += 1\nz[1] = int(n < u)",
    "statements": "s = 0\nfor i in range(n):\n    if i == 3:\n        continue\n    elif i > n - 2:\n"
    "        break\n    else:\n        s += i\n"
    "while s > 0:\n    s -= 2\nfor k in kk.unroll(range(8), 4):\n    z[k] = s\n"
    "for j in range(z[0], z[1], n):\n    z[2] = j\nif s:\n    return\nz[0] = 1",
    "arrays and vectors": "w = kk.array('f4', [1, 2, 3])\nv = kk.array('i4', 2, 3)\nv[1, 2] = n\n"
    "p = kk.float4(w[0], 2, w[n], 4)\n"
    "p.xy = p.zw * 2\np[n] = 1\ny[0] = kk.dot(p, kk.float4(n)) + w[1]\nz[0] = v[1, 2]\nkk.store4(y, 4, kk.load4(x, 0) + p)",
    "functions": "y[0] = mean(x, z, n, kk.float2(1, 2)) + mean(y[n:], z[3:], 2, kk.float2(0))\nkk.atomic_max(z[1], n)\n"
    "y[1] = kk.sqrt(x[0]) + kk.clamp(x[1], 0, 1) + kk.fma(x[0], 2, 1)\nkk.barrier()\nkk.print('label \"1\"', n)",
    "names": "do, kk_x, float4, sqrt = 1, 2, 3, 4\nn = n + do\nz[0] = n + kk_x + float4 + sqrt",
}  # fmt: skip


def python_module(body: str) -> Module:
    text = "def k(x, y, z, b, n, u, l):\n" + "\n".join(f"    {line}" for line in body.split("\n"))
    names = {"kk": "module kernelkeep"}
    functions = json.dumps([["k", "", {**names, "mean": "function 1"}], ["mean", HELPER, names]])
    return read_kernel(
        "k", PARAMETERS, text, functions=functions, group=(64,), first_line=50, file="k.py\n20 k.py"
    ).module


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
@pytest.mark.parametrize("target", ["cuda", "opencl", "glsl"])
def test_c_gives_the_same_text_in_every_target(target: str, body: str) -> None:
    module = python_module(body)
    writer = PortableWriter(module, [])
    text = f"{writer.functions()}\n{writer.body()}"
    again = read_body("k", PARAMETERS, text, group=(64,)).module
    once, twice = writers.write(target, module, ENTRY), writers.write(target, again, ENTRY)
    if "float4, sqrt" in body:  # names that C reserves are changed on the way
        assert once.text.count("\n") <= twice.text.count("\n")
        return
    assert twice.text == once.text
    assert twice.lines == once.lines
