"""C's types, conversions and literals."""

from __future__ import annotations

import math

import pytest

from kernelkeep.language import types
from kernelkeep.language.types import ANY_FLOAT, BOOL, F2, F4, F8, I1, I2, I4, I8, U1, U2, U4, U8, Scalar


@pytest.mark.parametrize(
    ("words", "expected"),
    [("unsigned", U4), ("unsigned int", U4), ("int unsigned", U4), ("long", I8), ("long long int", I8),
     ("unsigned long long", U8), ("long unsigned int", U8), ("signed char", I1), ("unsigned char", U1), ("short int", I2),
     ("unsigned short", U2), ("signed", I4), ("char", I1)],
)  # fmt: skip
def test_words_of_c_name_types_in_any_order(words: str, expected: Scalar) -> None:
    assert types.type_of_words(words.split()) is expected


@pytest.mark.parametrize("words", ["long long long", "short char", "unsigned signed", "short long"])
def test_other_combinations_name_none(words: str) -> None:
    assert types.type_of_words(words.split()) is None


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [(I4, I4, I4), (U1, U1, I4), (I2, U2, I4), (BOOL, BOOL, I4), (I4, U4, U4), (U4, I8, I8), (I8, U8, U8), (U4, U8, U8),
     (I4, F4, F4), (I8, F4, F4), (F4, F8, F8), (F2, F2, F2), (F2, I4, F2), (F2, F4, F4), (ANY_FLOAT, F4, F4),
     (ANY_FLOAT, F8, F8), (ANY_FLOAT, F2, F2), (ANY_FLOAT, I4, ANY_FLOAT), (ANY_FLOAT, ANY_FLOAT, ANY_FLOAT)],
)  # fmt: skip
def test_usual_arithmetic_conversions(a: Scalar, b: Scalar, expected: Scalar) -> None:
    assert types.common_scalar(a, b) is expected
    assert types.common_scalar(b, a) is expected


def test_a_scalar_meets_a_vector_as_that_vector() -> None:
    float3, int3 = types.vector(F4, 3), types.vector(I4, 3)
    assert types.common_type(float3, I4) is float3
    assert types.common_type(ANY_FLOAT, float3) is float3
    assert types.common_type(int3, F4) is None
    assert types.common_type(int3, ANY_FLOAT) is None
    assert types.common_type(float3, int3) is None
    assert types.common_type(float3, types.vector(F4, 2)) is None


def test_types_are_single_objects_with_the_titles_of_c() -> None:
    tile = types.array(types.array(F4, 17), 16)
    assert tile is types.array(types.array(F4, 17), 16)
    assert str(tile) == "float[16][17]"
    assert str(types.buffer(types.vector(U4, 2), "r")) == "uint2[]"


@pytest.mark.parametrize(
    ("text", "value", "kind"),
    [("0", 0, I4), ("42", 42, I4), ("2147483647", 2**31 - 1, I4), ("2147483648", 2**31, I8), ("0x7fffffff", 2**31 - 1, I4),
     ("0xFFFFFFFF", 2**32 - 1, U4), ("0x100000000", 2**32, I8), ("0xFFFFFFFFFFFFFFFF", 2**64 - 1, U8), ("017", 15, I4),
     ("0b101", 5, I4), ("1u", 1, U4), ("1U", 1, U4), ("5000000000u", 5_000_000_000, U8), ("1l", 1, I8), ("1LL", 1, I8),
     ("1ul", 1, U8), ("1LU", 1, U8), ("1ull", 1, U8), ("0xfful", 255, U8), ("0.5", 0.5, ANY_FLOAT), (".5f", 0.5, F4),
     ("1.", 1.0, ANY_FLOAT), ("1.f", 1.0, F4), ("1e3", 1000.0, ANY_FLOAT), ("1E-2F", float.fromhex("0x1.47ae14p-7"), F4),
     ("1.5L", 1.5, F8), ("1.5h", 1.5, F2), ("0x1p-3", 0.125, ANY_FLOAT), ("0x1.8p1f", 3.0, F4), ("1e39f", math.inf, F4),
     ("1f", 1.0, F4)],
)  # fmt: skip
def test_literals(text: str, value: float, kind: Scalar) -> None:
    assert types.literal(text) == (value, kind)


@pytest.mark.parametrize(
    "text", ["08", "1uu", "0x", "1.2.3", "1_000", "12abc", "0b12", "1e", "99999999999999999999", "0xg"]
)
def test_what_is_no_number_is_none(text: str) -> None:
    assert types.literal(text) is None


@pytest.mark.parametrize(
    ("value", "target", "expected"),
    [(300, U1, 44), (-1, U4, 2**32 - 1), (200, I1, -56), (2.9, I4, 2), (-2.9, I4, -2), (1e20, I4, 2**31 - 1),
     (-5.0, U4, 0), (math.nan, I4, 0), (math.inf, U1, 255), (0.1, F4, float.fromhex("0x1.99999ap-4")), (70000.0, F2, math.inf),
     (2, BOOL, True), (0.0, BOOL, False), (True, I4, 1), (16777217, F4, 16777216.0)],
)  # fmt: skip
def test_constants_are_converted_as_at_run_time(value: float, target: Scalar, expected: float) -> None:
    assert types.converted(value, target) == expected


def test_lossy_conversions() -> None:
    assert all(types.is_lossy(*pair) for pair in [(F4, I4), (F8, F4), (I8, I4), (I4, U1), (ANY_FLOAT, I4), (F4, F2)])
    assert not any(
        types.is_lossy(*pair) for pair in [(I4, F4), (I4, U4), (F4, BOOL), (BOOL, I1), (ANY_FLOAT, F2), (I4, I8)]
    )
