"""A prepared launch that has become a graph, without a GPU: what was revoked stays so."""

from __future__ import annotations

import ctypes
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from kernelkeep.devices.cuda import prepared
from kernelkeep.devices.cuda.launch_graph import LaunchGraph
from kernelkeep.devices.prepared import LaunchOptions
from kernelkeep.errors import DeviceError
from kernelkeep.programs.signature import Parameter
from kernelkeep.testing import note_skipped

try:
    from kernelkeep._native import BoundCall as BoundCall
except ImportError as error:
    reason = f"kernelkeep._native was not built here, and its twin in plain Python is used ({error})"
    note_skipped("native", reason)
    pytest.skip(reason, allow_module_level=True)

PARAMS = (Parameter("m", "scalar", "i4", "r", 4, 0), Parameter("n", "scalar", "i4", "r", 4, 4))
SHAPE = (4, 1, 1, 64, 1, 1)
OFTEN = 40  # calls


def test_a_new_argument_does_not_mend_what_another_one_revoked(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def note(name: str) -> int:
        calls.append(name)
        return 0

    names = ("cuLaunchKernel", "cuGraphLaunch")
    functions = [ctypes.CFUNCTYPE(ctypes.c_int)(partial(note, name)) for name in names]
    addresses = {name: ctypes.cast(one, ctypes.c_void_p).value for name, one in zip(names, functions, strict=True)}
    monkeypatch.setattr(prepared, "launch_addresses", lambda: addresses)
    monkeypatch.setattr(LaunchGraph, "of", lambda _: SimpleNamespace(executable=9))
    device: Any = SimpleNamespace(
        driver=SimpleNamespace(cuLaunchKernel=print), guests=SimpleNamespace(supported=False), lost=False, spec="cuda:0"
    )
    device.cu_stream = 8
    program = SimpleNamespace(hold=lambda: "held", load_kernel=lambda kernel, name: 7, closed=False)
    kernel: Any = SimpleNamespace(device=device, program=program, params=PARAMS, cu_kernel=6, name="saxpy")
    made = prepared._native_prepared.__wrapped__()
    assert made is not None
    launch = made(kernel, (1, 2), (1, 2), SHAPE, LaunchOptions())
    for _ in range(OFTEN):
        launch()
    assert len(calls) == OFTEN and calls[0] == "cuLaunchKernel" and calls[-1] == "cuGraphLaunch"
    launch.revoke("an array it was prepared with is closed")
    launch.bind(0, 5)
    with pytest.raises(DeviceError, match="closed"):
        launch()
    assert len(calls) == OFTEN, "nothing is launched"
