"""Prepared launches: checked and bound once, called often, one argument exchanged at a time."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

from ...devices.array import Array
from ...devices.base import Device, Kernel
from ...devices.registry import open_device
from ...errors import ArgumentError, Unsupported
from ...programs.portable import Buffer, PortableKernel, Scalar
from ...programs.source import Source
from ..device_parts.common import handwritten_saxpy, together
from .common import AFFINE, GRID, HOST, ITEMS, DispatchPart

__all__ = ["PreparedTests"]


class _Lent:
    """Another library's array in this device's memory, as CuPy and PyTorch show theirs."""

    def __init__(self, array: Array) -> None:
        self._array = array

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return self._array.__cuda_array_interface__


class PreparedTests(DispatchPart):
    """A call does what the launch it was made from does."""

    # A kernel `turn(int* y)` that reverses each group through memory whose size is given at launch, where the language has that.
    turn_in_shared_memory: Source | None = None

    @pytest.mark.parametrize("items", [1, 64, 257, 100_003])
    def test_a_prepared_launch_computes_what_launch_computes(self, device: Device, saxpy: Kernel, items: int) -> None:
        grid = -(-items // 64)
        host = np.linspace(-1, 1, items, dtype="f4")
        x, by_launch, by_call = device.array(host[::-1]), device.array(host), device.array(host)
        prepared = saxpy.prepare(grid, (x, by_call, np.float32(0.5), items))
        assert (by_call.numpy() == host).all(), "preparing launches nothing"
        for _ in range(2):
            saxpy.launch(grid, (x, by_launch, np.float32(0.5), items))
            prepared()
            np.testing.assert_array_equal(by_call.numpy(), by_launch.numpy())

    def test_many_calls_run_in_order(self, device: Device, affine: Kernel) -> None:
        y, expected = device.array(HOST), HOST
        double, add = affine.prepare(GRID, (y, 2, 1, ITEMS)), affine.prepare(GRID, (y, 1, 5, ITEMS))
        for turn in range(1000):
            if turn % 3:
                double()
                expected = np.uint32(2) * expected + np.uint32(1)
            else:
                add()
                expected = expected + np.uint32(5)
        np.testing.assert_array_equal(y.numpy(), expected)

    def test_prepared_launches_of_two_programs_take_turns(self, device: Device, affine: Kernel) -> None:
        other = self.build(device, AFFINE)  # another program, so that each call switches programs
        y, expected = device.array(HOST), HOST
        calls = affine.prepare(GRID, (y, 3, 0, ITEMS)), other.prepare(GRID, (y, 1, 7, ITEMS))
        for turn in range(200):
            calls[turn % 2]()
            expected = expected * np.uint32(3) if turn % 2 == 0 else expected + np.uint32(7)
        np.testing.assert_array_equal(y.numpy(), expected)

    def test_a_handwritten_kernel_is_prepared(self, device: Device) -> None:
        kernel = device.load(device.compile(handwritten_saxpy(device.language))).kernel("saxpy")
        x, y = self.ones_and_zeros(device)
        prepared = kernel.prepare(GRID, (x, y, np.float32(2), np.int32(ITEMS)), 64)
        prepared()
        prepared.update("a", np.float32(3))
        prepared()
        assert (y.numpy() == 5).all()

    def test_args_and_repr_tell_what_is_prepared(self, device: Device, saxpy: Kernel) -> None:
        x, y = self.ones_and_zeros(device)
        prepared = saxpy.prepare(GRID, [x, y, 2.0, ITEMS])  # type: ignore[arg-type]
        assert prepared.args == (x, y, 2.0, ITEMS)
        assert prepared.kernel is saxpy
        assert "saxpy" in repr(prepared) and device.spec in repr(prepared)
        with pytest.raises(TypeError):
            prepared(1)  # type: ignore[call-arg]

    # --- what is refused when it is prepared

    @pytest.mark.parametrize("grid", [0, -1, (1, 1, 1, 1), (), 1.0, "1", None, 2**40])
    def test_prepare_rejects_wrong_grids(self, device: Device, saxpy: Kernel, grid: Any) -> None:
        x, y = self.ones_and_zeros(device)
        with pytest.raises(ArgumentError, match="grid"):
            saxpy.prepare(grid, (x, y, 1.0, ITEMS))

    @pytest.mark.parametrize("group", [0, 32, (64, 2), 64.0, "64"])
    def test_prepare_rejects_wrong_groups(self, device: Device, saxpy: Kernel, group: Any) -> None:
        x, y = self.ones_and_zeros(device)
        with pytest.raises(ArgumentError, match="group"):
            saxpy.prepare(GRID, (x, y, 1.0, ITEMS), group)

    def test_prepare_rejects_wrong_arguments(self, device: Device, saxpy: Kernel) -> None:
        x, y = self.ones_and_zeros(device)
        for args in ((), (x, y, 1.0), (x, y, 1.0, ITEMS, 5)):
            with pytest.raises(ArgumentError, match=f"saxpy takes 4 arguments, got {len(args)}"):
                saxpy.prepare(GRID, args)
        for position, value in ((0, np.ones(ITEMS, "f4")), (1, device.empty(ITEMS, "i4")), (2, "a"), (3, 1.5)):
            wrong: list[Any] = [x, y, 1.0, ITEMS]
            wrong[position] = value
            with pytest.raises(ArgumentError, match=rf"argument {position} \({'xyan'[position]}\) of saxpy"):
                saxpy.prepare(GRID, tuple(wrong))

    # --- options

    def test_cooperative(self, device: Device, saxpy: Kernel) -> None:
        x, y = self.ones_and_zeros(device)
        if not device.capabilities.cooperative:
            with pytest.raises(Unsupported) as caught:
                saxpy.prepare(GRID, (x, y, 2.0, ITEMS), cooperative=True)
            assert caught.value.capability == "cooperative"
            return
        prepared = saxpy.prepare(GRID, (x, y, 2.0, ITEMS), cooperative=True)
        prepared()
        prepared.update("a", 3.0)
        prepared()
        assert (y.numpy() == 5).all()

    def test_shared_bytes(self, device: Device, saxpy: Kernel) -> None:
        x, y = self.ones_and_zeros(device)
        if self.turn_in_shared_memory is None:
            with pytest.raises(ArgumentError, match="memory"):
                saxpy.prepare(GRID, (x, y, 2.0, ITEMS), shared_bytes=256)
            return
        turn = device.load(device.compile(self.turn_in_shared_memory)).kernel()
        numbers = device.array(np.arange(64, dtype="i4"))
        prepared = turn.prepare(2, (numbers,), 32, shared_bytes=32 * 4)
        prepared()
        assert numbers.numpy().tolist() == [*range(31, -1, -1), *range(63, 31, -1)]
        prepared()
        assert numbers.numpy().tolist() == [*range(64)]
        with pytest.raises(ArgumentError, match="shared_bytes"):
            turn.prepare(2, (numbers,), 32, shared_bytes=1 << 30)

    def test_queue(self, device: Device, affine: Kernel) -> None:
        if not device.capabilities.queues:
            pytest.skip("this device has one queue")
        y, expected = device.array(HOST), HOST
        first, second = device.queue(), device.queue()
        here, there = affine.prepare(GRID, (y, 3, 1, ITEMS), queue=first), affine.prepare(
            GRID, (y, 2, 5, ITEMS), queue=second
        )  # fmt: skip
        device.synchronize()
        for _ in range(20):
            here()
            second.wait_for(first.fence())
            there()
            first.wait_for(second.fence())
            expected = np.uint32(2) * (np.uint32(3) * expected + np.uint32(1)) + np.uint32(5)
        first.synchronize()
        np.testing.assert_array_equal(y.numpy(), expected)
        with open_device(device.spec) as elsewhere:
            theirs = elsewhere.queue()
            with pytest.raises(ArgumentError, match="queue"):
                affine.prepare(GRID, (y, 3, 1, ITEMS), queue=theirs)

    def test_launches_encoded_ahead_run_when_they_are_called(self, device: Device, affine: Kernel) -> None:
        y = device.array(HOST)
        launches = [affine.prepare(GRID, (y, a, b, ITEMS)) for a, b in ((2, 1), (3, 0))]
        ahead = device.encode_ahead(launches)
        np.testing.assert_array_equal(y.numpy(), HOST)
        if ahead is None:  # the driver encodes nothing
            return
        ahead()
        np.testing.assert_array_equal(y.numpy(), (HOST * np.uint32(2) + np.uint32(1)) * np.uint32(3))

    def test_a_prepared_launch_is_measured_by_a_timer(self, device: Device, affine: Kernel) -> None:
        y = device.array(HOST)
        prepared = affine.prepare(GRID, (y, 2, 1, ITEMS))
        prepared()
        with device.timer() as timer:
            prepared()
            affine.launch(GRID, (y, 3, 2, ITEMS))
            prepared()
        prepared()
        assert timer.seconds > 0
        expected = HOST
        for a, b in ((2, 1), (2, 1), (3, 2), (2, 1), (2, 1)):
            expected = np.uint32(a) * expected + np.uint32(b)
        np.testing.assert_array_equal(y.numpy(), expected)

    # --- side by side

    def test_prepared_launches_of_one_kernel_are_independent(self, device: Device, affine: Kernel) -> None:
        arrays = [device.array(HOST) for _ in range(4)]
        expected = [HOST] * 4
        prepared = [affine.prepare(GRID, (arrays[k], k + 2, k, ITEMS)) for k in range(3)]
        for turn in range(50):
            for k in (turn % 3, (turn * 7 + 1) % 3):
                prepared[k]()
                expected[k] = np.uint32(k + 2) * expected[k] + np.uint32(k)
            affine.launch(GRID, (arrays[3], 5, turn, ITEMS))
            expected[3] = np.uint32(5) * expected[3] + np.uint32(turn)
        for array, host in zip(arrays, expected, strict=True):
            np.testing.assert_array_equal(array.numpy(), host)

    def test_each_prepared_launch_has_its_own_grid(self, device: Device, saxpy: Kernel) -> None:
        x, y = self.ones_and_zeros(device)
        whole, first = saxpy.prepare(GRID, (x, y, 1.0, ITEMS)), saxpy.prepare(1, (x, y, 1.0, ITEMS))
        for call in (whole, first, first, whole):
            call()
        assert y.numpy().tolist() == [4.0] * 64 + [2.0] * (ITEMS - 64)

    def test_a_prepared_launch_has_three_dimensions(self, device: Device) -> None:
        kernel = self.build(
            device,
            PortableKernel(
                "space",
                params=[Buffer("y", "i4", "w"), Scalar("base", "i4")],
                body="int i = kk_global_id(0), j = kk_global_id(1), k = kk_global_id(2);\n"
                "y[(k * 6 + j) * 4 + i] = base + (k * 100 + j) * 100 + i;",
                group=(2, 3, 1),
            ),
        )
        y = device.array(np.full((2, 6, 4), -1, "i4"))
        prepared = kernel.prepare((2, 2, 2), (y, 0))
        prepared()
        prepared.update("base", 7)
        prepared()
        k, j, i = np.indices((2, 6, 4))
        np.testing.assert_array_equal(y.numpy(), 7 + (k * 100 + j) * 100 + i)

    def test_a_prepared_launch_keeps_its_arrays_alive(self, device: Device, saxpy: Kernel) -> None:
        x, y = self.ones_and_zeros(device)
        prepared = saxpy.prepare(GRID, (x, y, 2.0, ITEMS))
        prepared.update("x", device.array(np.full(ITEMS, 3, "f4")))
        del x, y
        gc.collect()
        others = [device.array(np.full(ITEMS, 1000, "f4")) for _ in range(20)]  # would be placed in freed memory
        prepared()
        assert (prepared.args[1].numpy() == 6).all()
        assert all((other.numpy() == 1000).all() for other in others)

    def test_arrays_of_other_libraries_are_prepared(self, device: Device, saxpy: Kernel) -> None:
        x, y = self.ones_and_zeros(device)
        if not device.guests.supported:
            with pytest.raises(ArgumentError, match=r"argument 0 \(x\) of saxpy"):
                saxpy.prepare(GRID, (_Lent(x), y, 2.0, ITEMS))
            return
        prepared = saxpy.prepare(GRID, (_Lent(x), y, 2.0, ITEMS))
        prepared()
        other = device.array(np.zeros(ITEMS, "f4"))
        prepared.update("y", _Lent(other))
        prepared()
        prepared()
        assert (y.numpy() == 2).all()
        assert (other.numpy() == 4).all()

    # --- threads

    def test_each_thread_calls_its_own_prepared_launch(self, device: Device, affine: Kernel) -> None:
        def work(number: int) -> None:
            y, expected = device.array(HOST), HOST
            prepared = affine.prepare(GRID, (y, number, 1, ITEMS))
            for turn in range(40):
                prepared.update("b", turn)
                prepared()
                expected = np.uint32(number) * expected + np.uint32(turn)
            np.testing.assert_array_equal(y.numpy(), expected)

        together(work)

    def test_all_threads_call_one_prepared_launch(self, device: Device, affine: Kernel) -> None:
        y = device.array(HOST)
        prepared = affine.prepare(GRID, (y, 1, 3, ITEMS))

        def work(number: int) -> None:
            for _ in range(100):
                prepared()

        together(work)
        np.testing.assert_array_equal(y.numpy(), HOST + np.uint32(16 * 100 * 3))
