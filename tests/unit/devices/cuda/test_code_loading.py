"""The bytes that a library was loaded from, with a driver that only takes notes: it reads them until the library is unloaded."""

from __future__ import annotations

import contextlib
import gc
import sys
from types import SimpleNamespace
from typing import Any

import pytest

import kernelkeep as kk
from kernelkeep.devices.cuda.code_loading import load_function, load_library
from kernelkeep.devices.cuda.context import Discarded
from kernelkeep.devices.cuda.program import _Library
from kernelkeep.devices.cuda.residents import Residents

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


def test_code_that_finds_no_memory_is_loaded_after_the_postponed_calls() -> None:
    full, notes = SimpleNamespace(name="CUDA_ERROR_OUT_OF_MEMORY"), []

    def get_function(kernel: Any) -> tuple[Any, Any]:
        notes.append("load")
        return (OK, "function") if "freed" in notes else (full, None)

    driver = Driver(CUresult=SimpleNamespace(CUDA_ERROR_OUT_OF_MEMORY=full), cuKernelGetFunction=get_function)
    discarded = Discarded()
    device: Any = SimpleNamespace(
        driver=driver, success=OK, discarded=discarded, current=contextlib.nullcontext(), residents=Residents(discarded),
        translated=lambda status, doing: kk.OutOfMemory(doing),
    )  # fmt: skip
    with pytest.raises(kk.OutOfMemory, match="loading saxpy"):
        load_function(device, "kernel", "saxpy", "saxpy")
    discarded.add(notes.append, "freed")
    assert load_function(device, "kernel", "saxpy", "saxpy") == "function"
    assert notes == ["load", "load", "freed", "load"]
