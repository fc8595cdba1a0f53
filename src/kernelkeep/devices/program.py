"""A loaded program as every backend has it."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Self

from ..errors import ArgumentError, DeviceError
from ..programs.signature import KernelSignature
from .binary import Binary
from .kernel import Kernel

if TYPE_CHECKING:
    from .base import Device


class Program(ABC):
    """A program loaded on a device. `compiled` is the driver's binary and the signatures of the kernels in it."""

    def __init__(self, device: Device, compiled: Binary) -> None:
        self.device = device
        self.compiled = compiled
        self.name = compiled.name
        self.nbytes = len(compiled.payload)
        self.closed = False
        self.unloaded = False  # a driver that collects launches has dropped it; set under the device's lock
        self.on_ripening: Callable[[], None] | None = None  # called when `ripeness` has grown
        self._signatures = {signature.name: signature for signature in compiled.kernels}
        self._kernels: dict[str, Kernel] = {}

    # --- what a backend supplies

    @abstractmethod
    def make_kernel(self, signature: KernelSignature) -> Kernel:
        """The kernel with this signature; called once for each."""

    def unload(self, *, collected: bool = False) -> None:
        """Give the program back to the driver. With `collected` the garbage collector calls, at any moment, in any thread."""
        return None

    def binary(self) -> bytes:
        """The program as bytes that `device.load` takes, as ripe as it is now."""
        return self.compiled.encode()

    def make_resident(self) -> None:
        """Have all code on the device now. Beside a kernel that never exits, code that is not there yet cannot be loaded."""
        return None

    @property
    def ripeness(self) -> int:
        """Grows whenever a launch made the driver compile something that `binary()` would now hold."""
        return 0

    # --- what users call

    @property
    def kernel_names(self) -> tuple[str, ...]:
        """The kernels in this program."""
        return tuple(self._signatures)

    def kernel(self, name: str | None = None) -> Kernel:
        """A kernel by name; the only one if there is one and no name is given."""
        if name is None and len(self._signatures) == 1:
            (name,) = self._signatures
        found = self._kernels.get(name or "")
        if found is not None and not self.closed:
            return found
        self.check_open()
        if name not in self._signatures:
            known = ", ".join(self.kernel_names) or "none"
            raise ArgumentError(f"program {self.name} has no kernel {name!r}; it has: {known}")
        return self.keep(self.make_kernel(self._signatures[name]))

    def keep(self, kernel: Kernel) -> Kernel:
        """Have `kernel()` return this one from now on; or the one that it returns already, which comes back."""
        return self._kernels.setdefault(kernel.name, kernel)

    def check_open(self) -> None:
        """Raise `DeviceError` if the program or its device is closed."""
        self.device.check_open()
        if self.closed:
            raise DeviceError(f"program {self.name} is closed")

    def close(self) -> None:
        """Unload; launching its kernels afterwards is a `DeviceError`."""
        with self.device.creation_lock:  # once, though several threads may come to close
            if self.closed:
                return
            self.closed = True
        for kernel in list(self._kernels.values()):
            kernel.retire()
        self._kernels.clear()
        self.unload()

    def mark_lost(self, reason: str) -> None:
        """The device is lost to this process (`forks.py`)."""
        self.closed = True
        for kernel in list(self._kernels.values()):
            kernel.mark_lost(reason)

    def __del__(self) -> None:
        if not getattr(self, "closed", True):
            self.closed = True
            with contextlib.suppress(Exception):  # the interpreter may be half gone
                self.unload(collected=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Program {self.name} on {self.device.spec}: {', '.join(self.kernel_names)}>"
