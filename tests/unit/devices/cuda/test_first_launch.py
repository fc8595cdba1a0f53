"""The first launch of a kernel: the kernel itself is launched, unless a kernel that never exits runs."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from kernelkeep.devices.array import Array
from kernelkeep.devices.cuda import native_launch
from kernelkeep.devices.cuda.context import Discarded
from kernelkeep.programs.signature import Parameter
from kernelkeep.testing import note_skipped

try:
    from kernelkeep._native import CheckedLaunch as CheckedLaunch
except ImportError as error:
    reason = f"kernelkeep._native was not built here, and its twin in plain Python is used ({error})"
    note_skipped("native", reason)
    pytest.skip(reason, allow_module_level=True)

SHAPE = (4, 1, 1, 64, 1, 1)
PARAMS = (Parameter("x", "buffer", "f4", "rw", 8, 0), Parameter("n", "scalar", "i4", "r", 4, 8))
KERNEL, STREAM = 77, 88


class Setting:
    """A kernel whose launches are noted; the driver answers with a status."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, status: int = 0) -> None:
        self.launched: list[int] = []
        self.under_way: list[int] = []
        self.discarded = Discarded()

        def launch(function: int, *rest: int) -> int:
            self.launched.append(function)
            self.under_way.append(len(self.discarded.under_way))
            return status

        self._function = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_uint64] * 11)(launch)
        address = ctypes.cast(self._function, ctypes.c_void_p).value
        monkeypatch.setattr(native_launch, "launch_addresses", lambda: {"cuLaunchKernel": address})
        self.device: Any = SimpleNamespace(cu_stream=STREAM, discarded=self.discarded)
        program = SimpleNamespace(hold=lambda: "held")
        self.kernel: Any = SimpleNamespace(device=self.device, program=program, params=PARAMS, cu_kernel=KERNEL)

    def launch(self, n: Any = 3) -> bool:
        x = Array(self.device, (4,), np.dtype("f4"), 4096)
        return native_launch.first_launch(self.kernel, (x, n), SHAPE)


def test_the_kernel_itself_is_launched(monkeypatch: pytest.MonkeyPatch) -> None:
    setting = Setting(monkeypatch)
    assert setting.launch() is True
    assert setting.launched == [KERNEL]
    assert setting.under_way == [1], "a kernel that never exits is not launched meanwhile"
    assert not setting.discarded.under_way


def test_nothing_is_launched_beside_a_kernel_that_never_exits(monkeypatch: pytest.MonkeyPatch) -> None:
    setting = Setting(monkeypatch)
    setting.discarded.held = True
    assert setting.launch() is False
    assert not setting.launched and not setting.discarded.under_way


def test_unusual_arguments_take_the_usual_way(monkeypatch: pytest.MonkeyPatch) -> None:
    setting = Setting(monkeypatch)
    assert setting.launch("three") is False
    assert not setting.launched and not setting.discarded.under_way


def test_a_launch_that_the_driver_refuses_takes_the_usual_way(monkeypatch: pytest.MonkeyPatch) -> None:
    setting = Setting(monkeypatch, status=201)
    assert setting.launch() is False
    assert setting.launched == [KERNEL] and not setting.discarded.under_way


def test_without_the_module_in_c_it_takes_the_usual_way(monkeypatch: pytest.MonkeyPatch) -> None:
    setting = Setting(monkeypatch)
    monkeypatch.setattr(native_launch, "launch_addresses", lambda: None)
    assert setting.launch() is False
    assert not setting.launched
