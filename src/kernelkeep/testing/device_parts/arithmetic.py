"""Integer arithmetic is C's on every device, for negative numbers too: division cuts towards zero."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from ...devices.base import Device
from ...errors import ArgumentError, CompileError
from ...programs.portable import Buffer, PortableKernel, Scalar
from .common import DevicePart, groups

__all__ = ["ArithmeticTests", "CInt"]

_GROUP = 64
_NAMES = "abcd"


class CInt:
    """An `int` of C. Python reads the operators of an expression with the same precedence, so `eval` computes it."""

    def __init__(self, value: int) -> None:
        self.value = (value + 2**31) % 2**32 - 2**31

    @classmethod
    def of(cls, value: Any) -> CInt:
        return value if isinstance(value, CInt) else cls(int(value))

    def __add__(self, other: Any) -> CInt:
        return CInt(self.value + CInt.of(other).value)

    def __sub__(self, other: Any) -> CInt:
        return CInt(self.value - CInt.of(other).value)

    def __mul__(self, other: Any) -> CInt:
        return CInt(self.value * CInt.of(other).value)

    def __truediv__(self, other: Any) -> CInt:
        divisor = CInt.of(other).value
        size = abs(self.value) // abs(divisor)
        return CInt(size if (self.value < 0) == (divisor < 0) else -size)

    def __mod__(self, other: Any) -> CInt:
        divisor = CInt.of(other)
        return self - self / divisor * divisor

    def __and__(self, other: Any) -> CInt:
        return CInt(self.value & CInt.of(other).value)

    def __or__(self, other: Any) -> CInt:
        return CInt(self.value | CInt.of(other).value)

    def __lshift__(self, other: Any) -> CInt:
        return CInt(self.value << CInt.of(other).value)

    def __neg__(self) -> CInt:
        return CInt(-self.value)

    def __invert__(self) -> CInt:
        return CInt(~self.value)

    def __rmul__(self, other: Any) -> CInt:
        return CInt.of(other) * self

    def __radd__(self, other: Any) -> CInt:
        return CInt.of(other) + self

    def __rsub__(self, other: Any) -> CInt:
        return CInt.of(other) - self

    def __rtruediv__(self, other: Any) -> CInt:
        return CInt.of(other) / self

    def __rmod__(self, other: Any) -> CInt:
        return CInt.of(other) % self

    def __int__(self) -> int:
        return self.value


def _expression(choose: random.Random, depth: int) -> str:
    """A random expression of a, b, c, d; what is divided by is odd, and so never zero."""
    if depth == 0 or choose.random() < 0.15:
        name = str(choose.choice(_NAMES))
        return f"{choose.choice(('', '', '-', '~'))}{name}" if choose.random() < 0.8 else str(choose.randint(1, 9))
    sign = choose.choice("%%%%//*+-")
    left, right = _expression(choose, depth - 1), _expression(choose, depth - 1)
    if sign in "/%":
        right = f"({right} | 1)"
    elif choose.random() < 0.3:
        right = f"({right})"
    if choose.random() < 0.3:
        left = f"({left})"
    space = choose.choice(("", " ")) if right[0] not in "+-" else " "
    return f"{left}{space}{sign}{space}{right}"


class ArithmeticTests(DevicePart):
    """`/` and `%` as C has them, however they are written."""

    @pytest.mark.parametrize("dtype", ["i4", "u4", "i8", "u8"])
    def test_division_and_remainder_match_c(self, device: Device, dtype: str) -> None:
        if dtype in ("i8", "u8") and not device.capabilities.int64:
            pytest.skip("this device has no int64")
        limits = np.iinfo(dtype)
        edges = [limits.min, limits.min + 1, limits.max - 1, limits.max, *range(-9, 10), 1000, -1000]
        values = [value for value in edges if value >= limits.min]
        pairs = [(x, y) for x in values for y in values if y and not (x == limits.min and y == -1)]
        a, b = (np.array(column, dtype) for column in zip(*pairs, strict=True))
        body = """int i = kk_global_id(0);
                  if (i < n) {
                      quotient[i] = a[i] / b[i];
                      remainder[i] = a[i] % b[i];
                      both[i] = a[i];
                      both[i] %= b[i];
                      both[i] /= 3;
                  }"""
        outputs = ("quotient", "remainder", "both")
        kernel = PortableKernel(
            "divide",
            params=[
                *(Buffer(name, dtype, "r") for name in "ab"),
                *(Buffer(name, dtype) for name in outputs),
                Scalar("n", "i4"),
            ],
            body=body,
            group=_GROUP,
        )
        empty = [np.zeros_like(a) for _ in outputs]
        _, _, quotient, remainder, both = self.run(device, kernel, groups(len(a), _GROUP), a, b, *empty, len(a))
        exact = [(abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)) for x, y in pairs]
        left = [x - y * q for (x, y), q in zip(pairs, exact, strict=True)]
        assert quotient.tolist() == exact
        assert remainder.tolist() == left
        assert both.tolist() == [abs(r) // 3 * (1 if r >= 0 else -1) for r in left]

    def test_random_expressions_match_c(self, device: Device) -> None:
        choose = random.Random(20)
        expressions = [_expression(choose, choose.randint(1, 3)) for _ in range(60)]
        body = "int a = v[0], b = v[1], c = v[2], d = v[3];\n"
        body += "".join(f"y[{place}] = {text};\n" for place, text in enumerate(expressions))
        kernel = PortableKernel("random", params=[Buffer("v", "i4", "r"), Buffer("y", "i4", "w")], body=body, group=1)
        for _ in range(8):
            values = [choose.randint(-9, 9) for _ in _NAMES]
            _, y = self.run(device, kernel, 1, np.array(values, "i4"), np.zeros(len(expressions), "i4"))
            names = {name: CInt(value) for name, value in zip(_NAMES, values, strict=True)}
            expected = [int(eval(text, names)) for text in expressions]
            wrong = [
                (text, values, got, right)
                for text, got, right in zip(expressions, y, expected, strict=True)
                if got != right
            ]
            assert not wrong

    def test_remainders_work_in_every_place_of_a_body(self, device: Device) -> None:
        kernel = PortableKernel(
            "places",
            params=[Buffer("x", "i4", "r"), Buffer("y", "i4"), Scalar("m", "i4")],
            body="""#define SIZE (WIDTH % 5)
                    #define WRAP(i, n) (((i) % (n) + (n)) % (n))
                    kk_shared(int, part, SIZE + 7 % 4);
                    #if WIDTH % 5 != 3
                    wrong width;
                    #endif
                    const int count = 17 % 6;
                    int own[count + 1], other[WRAP(-1, 4)], k = 0;
                    for (int i = -7 % 4; i < x[0] % 5 + 9; i += 1 + i % 2 * 0) k++;
                    y[0] = k;
                    k = 0;
                    y[1] = x[k++] % x[1] * 10;
                    y[2 + x[1] % 2 - 1] = x[0] % m /* a % b */ % 2;
                    y[3] = x[0] > 0 ? x[0] % 3 : -x[0] % -4;
                    switch (x[0] % 4) {
                        case -7 % 4: y[4] = 1; break;
                        default: y[4] = 2;
                    }
                    y[5] = WRAP(x[0], 5);
                    y[6] = x[0];
                    y[6] %= k == 1 ? 4 : 2;
                    y[7] = (own[0] = x[0] % 3, other[0] = own[0]
                        % 2, own[0] * 10 + other[0]);
                    if (x[0] % 2 == -1) y[8] = 1; else y[8] = 0;
                    y[9] = TWICE % 3;
                    k = 10;
                    y[k++] = 100; y[11] = k;
                    y[--k] %= -7;
                    y[12] = k;""",
            group=1,
            defines={"WIDTH": 13, "TWICE": "(x[0] % 4 * 2)"},
        )
        _, y = self.run(device, kernel, 1, np.array([-7, 3], "i4"), np.zeros(13, "i4"), -4)
        assert y.tolist() == [10, -10, -1, 3, 1, 3, -3, -11, 1, 0, 2, 11, 10]

    def test_a_macro_that_splits_an_operand_is_right_or_refused(self, device: Device) -> None:
        kernel = PortableKernel(
            "torn",
            params=[Buffer("y", "i4", "w"), Scalar("m", "i4")],
            body="#define SUM 7 + m\ny[0] = SUM % 3;",
            group=1,
        )
        result = refusal = None
        try:
            (result,) = self.run(device, kernel, 1, np.zeros(1, "i4"), -5)
        except ArgumentError as error:
            refusal = str(error)
        assert result == [7 - 5 % 3] if refusal is None else "macro SUM is an operand of %" in refusal

    @pytest.mark.parametrize("remainder", ["5.5f % 3.0f", "5.5f % 3", "x[1] % 3.0f"])
    def test_a_remainder_of_floats_is_refused(self, device: Device, remainder: str) -> None:
        kernel = PortableKernel("floats", params=[Buffer("x", "f4")], body=f"x[0] = {remainder};", group=1)
        with pytest.raises(CompileError):
            device.compile(kernel.source(device))

    def test_division_of_floats_is_unchanged(self, device: Device) -> None:
        kernel = PortableKernel(
            "fractions",
            params=[Buffer("y", "f4"), Scalar("v", "f4"), Scalar("n", "i4")],
            body="y[0] = v / 2.0f; y[1] = v; y[1] /= kk_float(n % 4); y[2] = kk_float(n) / kk_float(n % 3);",
            group=1,
        )
        (y,) = self.run(device, kernel, 1, np.zeros(3, "f4"), 7.0, -7)
        np.testing.assert_allclose(y, [3.5, 7.0 / -3, 7.0])
