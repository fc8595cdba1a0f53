"""The launch in C: what it packs, and what it leaves to Python."""

from __future__ import annotations

import ctypes
import struct
from typing import Any

import numpy as np
import pytest

from kernelkeep.devices.array import Array
from kernelkeep.testing import note_skipped

try:
    from kernelkeep._native import CheckedLaunch
except ImportError as error:
    reason = f"kernelkeep._native was not built here, and its twin in plain Python is used ({error})"
    note_skipped("native", reason)
    pytest.skip(reason, allow_module_level=True)

CODES = {"i1": "b", "u1": "B", "i2": "h", "u2": "H", "i4": "i", "u4": "I", "i8": "q", "u8": "Q", "f4": "f", "f8": "d"}
SHAPE = (4, 3, 2, 64, 2, 1)
_DRIVER = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_uint64] * 11)


class Driver:
    """Stands for cuLaunchKernel, and remembers what it got."""

    def __init__(self, status: int = 0) -> None:
        self.launches: list[tuple[tuple[int, ...], bytes]] = []
        self.status = status
        self._function = _DRIVER(self._launch)
        self.address = ctypes.cast(self._function, ctypes.c_void_p).value or 0

    def _launch(self, *arguments: int) -> int:
        extra = (ctypes.c_uint64 * 5).from_address(arguments[10])
        size = ctypes.c_uint64.from_address(extra[3]).value
        self.launches.append((arguments[:10], ctypes.string_at(extra[1], size)))
        return self.status


class Setting:
    """A kernel with two buffers and a scalar."""

    def __init__(self, scalar: str = "f4", status: int = 0) -> None:
        self.device: Any = object()
        self.driver = Driver(status)
        self.slow: list[Any] = []
        checks = (np.dtype("f4"), None, np.dtype(scalar).type)
        code = CODES[scalar]
        self.layout = struct.Struct(f"<QQ{code}")
        offsets = (0, 8, 16)
        self.launch = CheckedLaunch(
            self.driver.address, 77, 88, f"QQ{code}", offsets, self.layout.size, checks, Array, self.device, self._slow
        )

    def _slow(self, args: Any, shape: Any) -> str:
        self.slow.append(args)
        return "slow"

    def array(self, handle: Any, dtype: str = "f4", device: Any = None) -> Array:
        return Array(device or self.device, (4,), np.dtype(dtype), handle)


def test_the_usual_arguments_go_to_the_driver() -> None:
    setting = Setting()
    x, y = setting.array(0x1234567890), setting.array(2**63 + 5, "i8")
    assert setting.launch((x, y, np.float32(1.5)), SHAPE) is None
    ((head, packed),) = setting.driver.launches
    assert head == (77, *SHAPE, 0, 88, 0)
    assert setting.layout.unpack(packed) == (0x1234567890, 2**63 + 5, 1.5)
    assert not setting.slow


@pytest.mark.parametrize("kind", CODES)
def test_numbers_that_fit_are_packed_as_they_are(kind: str) -> None:
    setting = Setting(kind)
    dtype = np.dtype(kind)
    info: Any = np.finfo(kind) if dtype.kind == "f" else np.iinfo(kind)
    limits = [info.min, info.max, 0, 1]
    values = [dtype.type(limit) for limit in limits]
    if dtype.kind == "f":
        values += [dtype.type("inf"), 0.5, -1.5, float("-inf")]
    else:
        values += [int(limit) for limit in limits]
    if kind == "u8":
        del values[-3]  # the largest as an int is left to Python
    x = setting.array(1)
    for value in values:
        setting.launch((x, x, value), SHAPE)
        assert setting.layout.unpack(setting.driver.launches[-1][1])[2] == dtype.type(value), value
    assert len(setting.driver.launches) == len(values) and not setting.slow


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("f4", 1e39), ("f4", 1), ("f4", np.float64(1)), ("f4", "1"), ("f4", None), ("f4", True), ("f8", 1),
        ("i4", 2**31), ("i4", -(2**31) - 1), ("i4", 1.0), ("i4", np.int64(1)), ("i4", True), ("u1", 256), ("u1", -1),
        ("u8", -1), ("u8", 2**64), ("i8", 2**63), ("i2", 40_000),
    ],
)  # fmt: skip
def test_other_values_are_left_to_python(kind: str, value: Any) -> None:
    setting = Setting(kind)
    x = setting.array(1)
    assert setting.launch((x, x, value), SHAPE) == "slow"
    assert not setting.driver.launches and setting.slow == [(x, x, value)]


def test_unusual_arrays_are_left_to_python() -> None:
    setting = Setting()
    x, a = setting.array(1), np.float32(1)
    closed, shared = setting.array(1), Array(setting.device, (4,), np.dtype("f4"), 1, peers=object())
    closed.ready = None
    unusual = [setting.array(1, "f8"), setting.array(1, device=object()), closed, shared, np.zeros(4, "f4"), None, 17]
    for y in unusual:
        assert setting.launch((y, x, a), SHAPE) == "slow"
    for args in [(x, x), (x, x, a, a), [x, x, a], "abc", None]:
        assert setting.launch(args, SHAPE) == "slow"  # type: ignore[arg-type]
    assert not setting.driver.launches and len(setting.slow) == len(unusual) + 5


def test_a_launch_that_the_driver_refuses_is_left_to_python() -> None:
    setting = Setting(status=201)
    x = setting.array(1)
    assert setting.launch((x, x, np.float32(1)), SHAPE) == "slow"
    assert len(setting.driver.launches) == 1


def test_wrong_parameters_are_refused() -> None:
    def made(codes: str, offsets: tuple[int, ...], nbytes: int = 8) -> CheckedLaunch:
        return CheckedLaunch(1, 1, 1, codes, offsets, nbytes, (None,) * len(codes), Array, object(), print)

    for codes, offsets, nbytes in [
        ("e", (0,), 8),
        ("Q", (), 8),
        ("Q" * 65, (0,) * 65, 8),
        ("Q", (4090,), 8),
        ("Q", (0,), 5000),
    ]:
        with pytest.raises(ValueError):
            made(codes, offsets, nbytes)
    with pytest.raises(AttributeError):
        CheckedLaunch(1, 1, 1, "Q", (0,), 8, (None,), int, object(), print)
