"""The tree of errors is the one its docstring draws."""

from __future__ import annotations

import pickle

import pytest

import kernelkeep as kk
from kernelkeep import errors

PARENTS = {
    "KernelKeepError": (Exception,),
    "ArgumentError": (kk.KernelKeepError, ValueError),
    "CompileError": (kk.KernelKeepError,),
    "DeviceError": (kk.KernelKeepError,),
    "BinaryRejected": (kk.DeviceError,),
    "OutOfMemory": (kk.DeviceError, MemoryError),
    "GraphError": (kk.ArgumentError,),
    "KernelFault": (kk.DeviceError,),
    "TaskSilent": (kk.DeviceError,),
    "Unsupported": (kk.KernelKeepError,),
    "VariantError": (kk.KernelKeepError,),
    "CacheWarning": (UserWarning,),
    "CheckpointError": (kk.KernelKeepError,),
    "RemoteError": (kk.KernelKeepError,),
    "SupervisionError": (kk.KernelKeepError,),
}


def test_every_error_is_in_the_tree() -> None:
    assert sorted(PARENTS) == errors.__all__


@pytest.mark.parametrize("name", sorted(PARENTS))
def test_parents(name: str) -> None:
    error = getattr(kk, name)
    assert error.__bases__ == PARENTS[name]
    assert name in (errors.__doc__ or "")


@pytest.mark.parametrize("name", sorted(set(PARENTS) - {"CompileError", "Unsupported"}))
def test_pickled_and_back(name: str) -> None:
    back = pickle.loads(pickle.dumps(getattr(kk, name)("a sentence")))
    assert type(back) is getattr(kk, name)
    assert str(back) == "a sentence"


def test_compile_error_keeps_its_fields() -> None:
    error = kk.CompileError("f, line 3: no", log="the whole log", line=3, name="f")
    back = pickle.loads(pickle.dumps(error))
    assert (str(back), back.log, back.line, back.name) == ("f, line 3: no", "the whole log", 3, "f")
    assert kk.CompileError("no").line is None


def test_unsupported_names_the_capability() -> None:
    error = kk.Unsupported("cooperative")
    assert "cooperative" in str(error)
    back = pickle.loads(pickle.dumps(kk.Unsupported("float64", "no doubles here")))
    assert (back.capability, str(back)) == ("float64", "no doubles here")


def test_python_notions_catch_ours() -> None:
    with pytest.raises(MemoryError):
        raise kk.OutOfMemory("too much")
    with pytest.raises(ValueError, match="wrong"):
        raise kk.ArgumentError("wrong")
