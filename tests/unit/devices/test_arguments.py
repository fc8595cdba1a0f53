"""Checking launch arguments: scalars, raw bytes, grids. Buffers are checked with a real device in the conformance suite."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

import kernelkeep as kk
from kernelkeep.devices.arguments import Converter, dimensions, launcher
from kernelkeep.devices.guests import Guests
from kernelkeep.programs.signature import DTYPES, Parameter


def bind(name: str, params: tuple[Parameter, ...], args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The checked values of a launch of a kernel `name`, which has no device here."""
    values = "".join(f"v{i}, " for i in range(len(params)))
    checked: tuple[Any, ...] = launcher(
        cast(Any, SimpleNamespace(guests=Guests(), spec="test:0", capabilities=SimpleNamespace(shared_bytes=1024))),
        name,
        params,
        [f"return ({values})"],
        {},
    )(args, None)
    return checked


def scalar(dtype: str | None, nbytes: int = 0, kind: str = "scalar") -> Converter:
    """What becomes of one parameter `s` of a kernel `f`; scalars never look at the device."""
    return lambda value: bind("f", (Parameter("s", kind, dtype, "r", nbytes),), (value,))[0]


def test_a_wrong_number_of_arguments_is_rejected() -> None:
    two = (Parameter("a", "scalar", "i4"), Parameter("b", "scalar", "f4"))
    assert bind("f", two, (1, 2.5)) == (1, 2.5)
    assert bind("f", (), ()) == ()
    for name in ("f", 'a "name"', "{oops} \\ '\n"):
        for args, lacks in (((), "; a, b are missing"), ((1,), "; b is missing"), ((1, 2.0, 3), "")):
            with pytest.raises(kk.ArgumentError) as caught:
                bind(name, two, args)
            assert str(caught.value) == f"{name} takes 2 arguments, got {len(args)}: pass args=(a, b){lacks}"


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_numpy_scalar_of_the_dtype_passes_as_it_is(dtype: str) -> None:
    value = np.dtype(dtype).type(5)
    assert scalar(dtype)(value) is value
    assert scalar(dtype)(np.array(5, dtype)) == value


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d[0] in "iu"])
def test_integers_are_taken_up_to_their_limits(dtype: str) -> None:
    limits = np.iinfo(dtype)
    for value in (int(limits.min), int(limits.max), 0, True):
        assert scalar(dtype)(value) == value
    for value in (int(limits.min) - 1, int(limits.max) + 1, 10**30):
        with pytest.raises(kk.ArgumentError, match=r"argument 0 \(s\) of f must fit into u?int\d+, got"):
            scalar(dtype)(value)


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d[0] in "iu"])
@pytest.mark.parametrize("value", [1.0, np.float32(1), np.float64(1), "1", None, 1j, [1], np.ones(1)], ids=repr)
def test_no_silent_conversion_to_an_integer(dtype: str, value: Any) -> None:
    with pytest.raises(kk.ArgumentError, match=r"argument 0 \(s\) of f"):
        scalar(dtype)(value)


def test_floats_must_fit_unless_infinite() -> None:
    for value in (1.5, 3, -0.0, float("inf"), float("-inf"), 3.4e38, 1e-45):
        assert scalar("f4")(value) == value
        assert scalar("f8")(value) == value
    assert np.isnan(scalar("f4")(float("nan")))
    assert scalar("f8")(1e300) == 1e300
    for value in (1e39, -1e39, 10**39, 10**400):
        with pytest.raises(kk.ArgumentError, match="must fit into"):
            scalar("f4")(value)
    with pytest.raises(kk.ArgumentError, match="must fit into"):
        scalar("f8")(10**400)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "kind", [np.int64, np.uint8, np.int16, np.uint64, np.bool_, np.float64, np.float16, np.longdouble]
)
def test_numpy_numbers_are_taken_as_pythons_are(dtype: str, kind: type[Any]) -> None:
    if dtype[0] in "iu" and issubclass(kind, np.floating):
        with pytest.raises(kk.ArgumentError, match="float"):
            scalar(dtype)(kind(1))
        return
    for value in (kind(1), np.array(1, kind)):
        made = scalar(dtype)(value)
        assert made == 1 and made.dtype == dtype


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("i4", np.int64(2**31)), ("i4", np.uint32(2**31)), ("u4", np.int64(-1)), ("u1", np.int64(256)), ("i8", np.uint64(2**63)),
        ("f4", np.float64(1e39)), ("f4", np.float64(-1e300)),
    ],
)  # fmt: skip
def test_numpy_numbers_that_do_not_fit_are_refused(dtype: str, value: Any) -> None:
    with pytest.raises(kk.ArgumentError, match=r"argument 0 \(s\) of f must fit into .*, got"):
        scalar(dtype)(value)


def test_numpy_floats_are_rounded_as_pythons_are() -> None:
    for value in (0.1, 1e-30, 3.4e38, float("inf"), -0.0):
        assert scalar("f4")(np.float64(value)).tobytes() == scalar("f4")(value).tobytes() == np.float32(value).tobytes()
    assert np.isnan(scalar("f4")(np.float64("nan")))


@pytest.mark.parametrize(
    "value", [np.complex64(1), np.timedelta64(1, "s"), np.datetime64(1, "s"), np.str_("1"), np.void(b"1234")]
)
def test_numpy_scalars_that_are_no_numbers_are_refused(value: Any) -> None:
    for dtype in ("i4", "f4"):
        with pytest.raises(kk.ArgumentError, match=r"argument 0 \(s\) of f must be"):
            scalar(dtype)(value)


def test_bytes_of_the_right_size_are_taken_where_only_the_size_is_known() -> None:
    convert = scalar(None, 8)
    assert convert(b"12345678") == b"12345678"
    assert convert(np.float64(1)) == np.float64(1).tobytes()
    pair = np.array((1, 2), dtype=[("a", "i4"), ("b", "i4")])
    assert convert(pair) == pair.tobytes()
    for wrong in (b"1234", np.float32(1), 5, 5.0, "12345678"):
        with pytest.raises(kk.ArgumentError, match=r"argument 0 \(s\) of f"):
            convert(wrong)


def test_a_parameter_of_unknown_kind_takes_arrays_and_scalars_by_size() -> None:
    convert = scalar(None, 4, "any")
    assert convert(np.int32(7)) == np.int32(7).tobytes()
    with pytest.raises(kk.ArgumentError):
        convert(np.int64(7))


def test_local_memory_must_be_positive_and_fit() -> None:
    convert = scalar(None, 0, "local")
    memory = kk.LocalMemory(64)
    assert convert(memory) is memory
    with pytest.raises(kk.ArgumentError, match="LocalMemory"):
        convert(64)
    with pytest.raises(kk.ArgumentError, match="at most 1,024 bytes on test:0, got 1,025"):
        convert(kk.LocalMemory(1025))
    for wrong in (0, -1, 1.5, "64"):
        with pytest.raises(kk.ArgumentError):
            kk.LocalMemory(cast(Any, wrong))


@pytest.mark.parametrize(
    ("value", "parsed"),
    [
        (5, (5, 1, 1)),
        ((5,), (5, 1, 1)),
        ([2, 3], (2, 3, 1)),
        ((2, 3, 4), (2, 3, 4)),
        (np.int64(7), (7, 1, 1)),
        ((np.uint8(2), 1), (2, 1, 1)),
    ],
)
def test_dimensions_are_filled_up_to_three(value: Any, parsed: tuple[int, int, int]) -> None:
    assert dimensions(value, "grid") == parsed
    assert all(type(n) is int for n in dimensions(value, "grid"))


@pytest.mark.parametrize("value", [0, -1, (), (1, 2, 3, 4), 1.0, "5", None, (1, None), (1, 0), {1: 2}, np.float32(1)])
def test_wrong_dimensions_are_rejected(value: Any) -> None:
    with pytest.raises(kk.ArgumentError, match="grid"):
        dimensions(value, "grid")
