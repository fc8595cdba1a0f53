"""The reference device finds every seeded bug, and names its line."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import numpy as np
import pytest

import kernelkeep as kk
from kernelkeep.devices.reference import ReferenceDevice

from .seeded_bugs import BUGS, Bug


@pytest.fixture(scope="module")
def device() -> Iterator[ReferenceDevice]:
    with ReferenceDevice() as opened:
        opened.max_loop_rounds = 10_000
        yield opened


def launch(device: ReferenceDevice, bug: Bug) -> None:
    kernel = device.load(device.compile(bug.kernel.source(device))).kernel()
    args = [
        device.array(arg) if isinstance(arg, np.ndarray) else device.empty(arg) if isinstance(arg, tuple) else arg
        for arg in bug.args
    ]
    kernel.launch(bug.grid, tuple(args))


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_seeded_bug_is_found_with_its_line(device: ReferenceDevice, bug: Bug) -> None:
    with pytest.raises(kk.KernelFault) as caught:
        launch(device, bug)
    fault = caught.value
    assert (fault.kind, fault.line, fault.kernel) == (bug.kind, bug.line, bug.name), str(fault)
    assert f"kernel {bug.name}, line {bug.line}: " in str(fault)
    assert bug.body.split("\n")[bug.line - 1].strip() in str(fault), "the line is shown"
    if bug.array:
        assert fault.array == bug.array
        assert bug.array in str(fault)
    if bug.index is not None:
        assert fault.index == bug.index
    if bug.item is not None:
        assert fault.item == bug.item


def test_there_are_bugs_of_every_kind() -> None:
    assert len(BUGS) >= 30
    assert {bug.kind for bug in BUGS} == {
        "out of bounds", "uninitialised", "race", "barrier", "overflow", "division by zero", "endless loop", "misaligned",
    }  # fmt: skip


def test_a_fault_says_what_where_and_who(device: ReferenceDevice) -> None:
    bug = next(bug for bug in BUGS if bug.name == "off_by_one")
    with pytest.raises(kk.DeviceError) as caught:
        launch(device, bug)
    assert str(caught.value) == (
        "kernel off_by_one, line 3: y[7] is out of bounds: y has 7 elements\n"
        "      y[i] += x[i];\n"
        "        ^\n"
        "    in work-item 7 of group (0, 0, 0)"
    )


def test_a_race_names_both_work_items_and_both_lines(device: ReferenceDevice) -> None:
    bug = next(bug for bug in BUGS if bug.name == "read_too_early")
    with pytest.raises(kk.KernelFault) as caught:
        launch(device, bug)
    sentence = "line 3: work-item 1 changes atomically h[0], and work-item 0 read it in line 4, with no barrier between"
    assert sentence in str(caught.value)


def test_a_fault_crosses_processes(device: ReferenceDevice) -> None:
    with pytest.raises(kk.KernelFault) as caught:
        launch(device, BUGS[0])
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (str(copy), copy.kind, copy.line, copy.item) == (
        str(caught.value), "out of bounds", BUGS[0].line, caught.value.item,
    )  # fmt: skip


def test_the_device_works_after_a_fault(device: ReferenceDevice) -> None:
    kernel = kk.PortableKernel("fill", params=[kk.Buffer("y", "i4", "w")], body="y[kk_global_id(0)] = 5;", group=8)
    loaded = device.load(device.compile(kernel.source(device))).kernel()
    small, large = device.empty(7, "i4"), device.empty(8, "i4")
    with pytest.raises(kk.KernelFault):
        loaded.launch(1, (small,))
    loaded.launch(1, (large,))
    assert large.numpy().tolist() == [5] * 8


def test_a_race_in_one_launch_is_no_race_across_launches(device: ReferenceDevice) -> None:
    kernel = kk.PortableKernel(
        "shift", params=[kk.Buffer("x", "i4", "r"), kk.Buffer("y", "i4")], body="int i = kk_global_id(0);\ny[i] = x[7 - i];",
        group=8,
    )  # fmt: skip
    loaded = device.load(device.compile(kernel.source(device))).kernel()
    a, b = device.array(np.arange(8, dtype="i4")), device.array(np.zeros(8, "i4"))
    for _ in range(3):
        loaded.launch(1, (a, b))
        loaded.launch(1, (b, a))
    with pytest.raises(kk.KernelFault, match=r"reads x\[3\], and work-item 3 wrote it"):
        loaded.launch(1, (a, a))  # one array under two names


def test_a_race_names_the_element_with_all_its_indices(device: ReferenceDevice) -> None:
    body = "kk_shared(int, As, 4, 2, 8);\nint i = kk_local_id(0);\nAs[3][1][5] = i;\nkk_barrier();\ny[i] = As[3][1][5];"
    kernel = kk.PortableKernel("race", params=[kk.Buffer("y", "i4", "w")], body=body, group=8)
    with pytest.raises(kk.KernelFault, match=r"writes As\[3\]\[1\]\[5\], and work-item 0 wrote it") as caught:
        device.load(device.compile(kernel.source(device))).kernel().launch(1, (device.empty(8, "i4"),))
    assert (caught.value.array, caught.value.index) == ("As", (3 * 2 + 1) * 8 + 5)
