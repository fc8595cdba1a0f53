"""Sixteen threads at once."""

from __future__ import annotations

import gc

import numpy as np

from ...devices.array import Array
from ...devices.base import Device, Kernel
from ...programs.portable import Buffer, PortableKernel, Scalar
from .common import SAXPY, DevicePart, together

__all__ = ["ThreadTests"]

_THREADS, _LAUNCHES, _ITEMS = 16, 50, 257

_PARAMS: list[Buffer | Scalar] = [Buffer("y", "i4", "w"), Scalar("a", "i4"), Scalar("b", "i4"), Scalar("n", "i4")]


class ThreadTests(DevicePart):
    """A device, its programs and its kernels are safe to use from several threads."""

    def test_each_thread_builds_and_launches_its_own_kernel(self, device: Device) -> None:
        ids = np.arange(_ITEMS)

        def work(number: int) -> None:
            kernel = self.build(
                device,
                PortableKernel(
                    f"own_{number}",
                    params=_PARAMS,
                    body=f"int i = kk_global_id(0); if (i < n) y[i] = i * a + b + {number * 1000};",
                    group=32,
                ),
            )
            y = device.empty(_ITEMS, "i4")
            for launch in range(_LAUNCHES):
                kernel.launch(9, (y, launch, number, _ITEMS))
                np.testing.assert_array_equal(y.numpy(), ids * launch + number + number * 1000)
            kernel.program.close()

        together(work)

    def test_all_threads_launch_one_kernel(self, device: Device) -> None:
        # Many launches before each check, so that threads meet between setting arguments and launching.
        kernel = self.build(
            device,
            PortableKernel(
                "shared_kernel", params=_PARAMS, body="int i = kk_global_id(0); if (i < n) y[i] = i * a + b;", group=32
            ),
        )
        ids = np.arange(_ITEMS)

        def work(number: int) -> None:
            arrays = [device.array(np.full(_ITEMS, -1, "i4")) for _ in range(_LAUNCHES)]
            for turn in range(8):
                b = number * 10_000 + turn
                for launch, y in enumerate(arrays):
                    kernel.launch(9, (y, launch + 1, b, _ITEMS))
                for launch, y in enumerate(arrays):
                    np.testing.assert_array_equal(y.numpy(), ids * (launch + 1) + b)

        together(work)

    def test_all_threads_load_the_same_bytes(self, device: Device) -> None:
        binary = device.compile(SAXPY.source(device))

        def work(number: int) -> None:
            with device.load(binary) as program:
                self.check_saxpy(device, program.kernel(), 100 + number)

        together(work)

    def test_arrays_cross_threads(self, device: Device, saxpy: Kernel) -> None:
        def make(number: int) -> Array:
            return device.array(np.full(_ITEMS, number, "f4"))

        made = together(make)

        def use(number: int) -> Array:
            theirs, y = made[(number + 1) % _THREADS], device.array(np.zeros(_ITEMS, "f4"))
            saxpy.launch(5, (theirs, y, 2.0, _ITEMS))
            return y

        for number, y in enumerate(together(use)):
            assert (y.numpy() == 2 * ((number + 1) % _THREADS)).all()

    def test_arrays_are_collected_in_another_thread(self, device: Device, saxpy: Kernel) -> None:
        piles = together(lambda number: [device.array(np.full(_ITEMS, number, "f4")) for _ in range(50)])
        assert sum(len(pile) for pile in piles) == 50 * _THREADS

        def drop(number: int) -> None:
            pile = piles[(number + 7) % _THREADS]
            y = device.array(np.zeros(_ITEMS, "f4"))
            while pile:
                saxpy.launch(5, (pile.pop(), y, 1.0, _ITEMS))
            gc.collect()
            assert (y.numpy() == 50 * ((number + 7) % _THREADS)).all()

        together(drop)
        self.check_saxpy(device, saxpy)
