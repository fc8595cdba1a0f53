"""The bytes that a library was loaded from, with a driver that only takes notes: it reads them until the library is unloaded."""

from __future__ import annotations

import gc
import sys
from types import SimpleNamespace
from typing import Any

import pytest

import kernelkeep as kk
from kernelkeep.devices.cuda.code_loading import load_library
from kernelkeep.devices.cuda.context import Discarded
from kernelkeep.devices.cuda.program import _Library

OK, REFUSED = SimpleNamespace(name="OK"), SimpleNamespace(name="REFUSED")


class Driver(SimpleNamespace):
    __hash__ = object.__hash__  # type: ignore[assignment]  # as a module has it


class Setting:
    """A device, and bytes whose references are counted."""

    def __init__(self) -> None:
        self.unloaded: list[Any] = []
        self.loads = self.unloads = OK
        self.interrupted = False
        driver = Driver(
            CUresult=SimpleNamespace(CUDA_ERROR_OUT_OF_MEMORY="memory"),
            CUlibraryOption=SimpleNamespace(CU_LIBRARY_BINARY_IS_PRESERVED=1),
            cuLibraryLoadData=lambda payload, *options: (self.loads, "library"),
            cuLibraryUnload=self._unload,
        )
        self.device: Any = SimpleNamespace(
            driver=driver, success=OK, spec="cuda:0", lost="", discarded=Discarded(), settle=self._settle
        )
        self.payload = bytes(bytearray(b"code" * 1000))
        self._before = sys.getrefcount(self.payload)

    def _settle(self) -> None:
        if self.interrupted:
            raise KeyboardInterrupt

    def _unload(self, library: Any) -> tuple[Any]:
        self.unloaded.append(library)
        return (self.unloads,)

    def load(self) -> _Library:
        compiled: Any = SimpleNamespace(payload=self.payload, name="saxpy")
        return _Library(self.device, load_library(self.device, compiled), self.payload)

    def is_kept(self) -> bool:
        """Whether somebody beside this object holds the bytes."""
        gc.collect()
        return sys.getrefcount(self.payload) > self._before


def test_the_bytes_are_kept_until_the_library_is_unloaded() -> None:
    setting = Setting()
    library = setting.load()
    del library
    assert setting.is_kept() and not setting.unloaded
    setting.device.discarded.clear()
    assert setting.unloaded == ["library"]
    assert not setting.is_kept()


def test_the_bytes_outlive_postponed_calls_that_are_never_made() -> None:
    """As at the interpreter's end."""
    setting = Setting()
    library = setting.load()
    del library
    setting.device.discarded = None
    assert setting.is_kept()


def test_a_library_is_unloaded_after_an_interruption() -> None:
    setting = Setting()
    library = setting.load()
    del library
    setting.interrupted = True
    with pytest.raises(KeyboardInterrupt):
        setting.device.discarded.clear()
    assert setting.is_kept() and not setting.unloaded
    setting.interrupted = False
    setting.device.discarded.clear()
    assert setting.unloaded == ["library"]
    assert not setting.is_kept()


def test_the_bytes_stay_where_the_driver_does_not_unload() -> None:
    setting = Setting()
    library = setting.load()
    del library
    setting.unloads = REFUSED
    setting.device.discarded.clear()
    assert setting.device.discarded.waiting == 0, "it would be tried for ever"
    assert setting.is_kept()


def test_refused_bytes_are_not_kept() -> None:
    setting = Setting()
    setting.loads = REFUSED
    with pytest.raises(kk.BinaryRejected):
        setting.load()
    assert not setting.is_kept()
