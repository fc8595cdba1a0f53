"""A device of wgpu-native with its one queue: its errors, its loss, and waiting for its work.

wgpu-native may be called from several threads. Errors of a call are reported to a callback before the call returns, in the
same thread; so calls that can fail are made with `lock` held, and `check` raises what they reported.

A wait polls, with pauses. While a thread waits inside wgpu-native, which is a little faster, no other thread can submit: that is
done only as long as one thread alone uses the device, and without a timeout, because there is no wait that ends after a time.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from typing import Any, NoReturn

from ...errors import DeviceError, OutOfMemory
from .adapters import Adapter
from .guard import guarded
from .native import native
from .types import address_of, callback, cast, new, raise_late, text_of

_OUT_OF_MEMORY = 3  # WGPUErrorType_OutOfMemory
_DESTROYED, _CANCELLED = 2, 3  # WGPUDeviceLostReason: by us
_SPONTANEOUS = 3  # WGPUCallbackMode_AllowSpontaneous
_SUCCESS = 1  # of every status
# Features that are asked for where the adapter has them.
TIMESTAMPS = 0x00000009  # WGPUFeatureName_TimestampQuery
IMMEDIATES = 0x00030001  # WGPUNativeFeature_Immediates
_LONGEST_PAUSE_SECONDS = 200e-6


class Context:
    """A device and its queue. `passed` counts the fences that were passed, in order."""

    def __init__(self, adapter: Adapter, spec: str) -> None:
        self.spec = spec
        self.lock = threading.RLock()
        self._life_lock = threading.Lock()
        self.limits = limits_of(adapter)
        self.lost = ""  # why the device cannot be used any more
        self._failed = False  # it was lost by the driver's doing
        self.passed = 0
        self._user: int | None = None  # the thread that uses the device
        self._shared = False  # more than one did
        self._made = 0
        self._errors: list[tuple[int, str]] = []
        self._notes: dict[int, Callable[[], None]] = {}
        self._mappings: dict[int, bool] = {}  # those that are done, and whether they succeeded
        lib = native().lib
        features = [one for one in (TIMESTAMPS, IMMEDIATES) if lib.wgpuAdapterHasFeature(adapter.raw, one)]
        self.has_timestamps = TIMESTAMPS in features
        self.max_immediate_bytes = int(self.limits.maxImmediateSize) if IMMEDIATES in features else 0
        self._callbacks = self._make_callbacks()
        self._raw: Any = self._open(adapter, features)
        self.queue = lib.wgpuDeviceGetQueue(self.raw)
        self._address, self._queue_address = address_of(self.raw), address_of(self.queue)

    def _make_callbacks(self) -> dict[str, Any]:
        def on_error(_device: Any, kind: int, message: Any, *_: Any) -> None:
            self._errors.append((int(kind), text_of(message)))

        def on_lost(_device: Any, reason: int, message: Any, *_: Any) -> None:
            self._failed = self._failed or reason not in (_DESTROYED, _CANCELLED)
            if self._failed or not self.lost:
                self.lost = text_of(message) or "the driver gave no reason"

        def on_done(_status: int, *rest: Any) -> None:
            # The rest is a message, in some versions, and the two values that were passed on.
            point = address_of(rest[-2])
            self.passed = max(self.passed, point)
            note = self._notes.pop(point, None)
            if note is not None:
                note()

        def on_mapped(status: int, *rest: Any) -> None:
            self._mappings[address_of(rest[-2])] = status == _SUCCESS

        kinds = {
            "mapped": ("WGPUBufferMapCallback", on_mapped),
            "error": ("WGPUUncapturedErrorCallback", on_error),
            "lost": ("WGPUDeviceLostCallback", on_lost),
            "done": ("WGPUQueueWorkDoneCallback", on_done),
        }
        return {name: callback(kind, function) for name, (kind, function) in kinds.items()}

    def _open(self, adapter: Adapter, features: list[int]) -> Any:
        lib = native().lib
        answer: list[Any] = []

        def on_device(status: int, device: Any, message: Any, *_: Any) -> None:
            answer.append(device if status == _SUCCESS else text_of(message))

        answered = callback("WGPURequestDeviceCallback", on_device)
        wanted = new("WGPUFeatureName[]", features)
        descriptor = new("WGPUDeviceDescriptor *")
        descriptor.requiredFeatureCount = len(features)
        descriptor.requiredFeatures = wanted
        descriptor.requiredLimits = self.limits
        descriptor.deviceLostCallbackInfo.mode = _SPONTANEOUS
        descriptor.deviceLostCallbackInfo.callback = self._callbacks["lost"]
        descriptor.uncapturedErrorCallbackInfo.callback = self._callbacks["error"]
        info = new("WGPURequestDeviceCallbackInfo *", {"mode": _SPONTANEOUS, "callback": answered})
        lib.wgpuAdapterRequestDevice(adapter.raw, descriptor, info[0])
        if not answer or isinstance(answer[0], str):
            raise DeviceError(f"{self.spec} cannot be opened: {answer[0] if answer else 'the driver gave no answer'}")
        return answer[0]

    # --- errors

    def take_error(self) -> tuple[bool, str] | None:
        """Whether memory ran out, and the message of the first error since the last look. The caller has the lock."""
        if not self._errors:
            return None
        kind, message = self._errors[0]
        self._errors.clear()
        return kind == _OUT_OF_MEMORY, message

    def check(self, doing: str) -> None:
        """Raise what went wrong since the last look. The caller has the lock."""
        error = self.take_error() if self._errors else None
        if self.lost:
            self.raise_lost()
        if error is not None:
            out_of_memory, message = error
            self.raise_if_lost(message)
            raise (OutOfMemory if out_of_memory else DeviceError)(f"{self.spec}, {doing}: {last_line(message)}")

    def raise_if_lost(self, message: str = "") -> None:
        """Raise `DeviceError` if the device is lost, or if an error's message says so."""
        if self.lost or "device is lost" in message:
            self.lost = self.lost or last_line(message)
            self.raise_lost()

    @property
    def raw(self) -> Any:
        """The driver's device. Another thread may have closed it a moment ago: then it is a `DeviceError`."""
        raw = self._raw
        if raw is None:
            self.raise_lost()
        return raw

    def raise_lost(self) -> NoReturn:
        """Raise the `DeviceError` of a lost device."""
        if self._raw is None:
            raise DeviceError(f"device {self.spec} is closed")
        raise DeviceError(f"{self.spec} is lost: {last_line(self.lost)}")

    def lose(self) -> NoReturn:
        """The device is lost: wgpu-native panicked instead of saying so."""
        self._failed = True
        self.lost = self.lost or "the driver gave no reason"
        self.raise_lost()

    def submit(self, commands: list[Any]) -> None:
        """Submit command buffers, and release them. The caller has the lock."""
        lib = native().lib
        self._note_user()
        try:
            if self.lost:
                self.raise_lost()
            array = new("WGPUCommandBuffer[]", commands)
            if not guarded("wgpuQueueSubmit")(self._queue_address, len(commands), address_of(array)):
                self.lose()
        finally:
            for one in commands:
                lib.wgpuCommandBufferRelease(one)

    # --- waiting

    def note_point(self, note: Callable[[], None] | None = None) -> int:
        """The number of a point after all that was submitted; `note` is called when it is passed. The caller has the lock."""
        lib = native().lib
        if self.lost:
            self.raise_lost()
        self._made += 1
        if note is not None:
            self._notes[self._made] = note
        info = new("WGPUQueueWorkDoneCallbackInfo *")
        info.mode = _SPONTANEOUS
        info.callback = self._callbacks["done"]
        info.userdata1 = cast("void *", self._made)
        lib.wgpuQueueOnSubmittedWorkDone(self.queue, info[0])
        return self._made

    def map_buffer(self, buffer: Any, mode: int, nbytes: int) -> int:
        """Have a buffer mapped once the work before is done. The caller has the lock."""
        lib = native().lib
        self._made += 1
        info = new("WGPUBufferMapCallbackInfo *")
        info.mode = _SPONTANEOUS
        info.callback = self._callbacks["mapped"]
        info.userdata1 = cast("void *", self._made)
        lib.wgpuBufferMapAsync(buffer, mode, 0, nbytes, info[0])
        return self._made

    def is_mapped(self, mapping: int) -> bool:
        """Whether `take_mapping` can be asked."""
        if mapping not in self._mappings:
            self.poll()
        return mapping in self._mappings

    def take_mapping(self, mapping: int) -> bool:
        """Whether a mapping succeeded; asked once."""
        return self._mappings.pop(mapping)

    def poll(self, *, block: bool = False) -> None:
        """Have the callbacks called of what is done; with `block` of all that was submitted before, once it is done."""
        lib = native().lib
        with self._life_lock:
            if self.lost:
                self.raise_lost()
            device = self.raw
            lib.wgpuDeviceAddRef(device)  # another thread may close it meanwhile
        if not guarded("wgpuDevicePoll")(self._address, block, 0):
            self.lose()
        self._release(device)
        raise_late()

    def is_passed(self, point: int) -> bool:
        """Whether everything before a point is done."""
        if self.passed < point:
            self.poll()
        return self.passed >= point

    def wait(self, point: int, timeout_seconds: float | None = None) -> bool:
        """Wait until a point is passed; False if the timeout passed first."""
        return self.wait_until(lambda: self.is_passed(point), timeout_seconds)

    def wait_until(self, is_done: Callable[[], bool], timeout_seconds: float | None = None) -> bool:
        """Wait until something is done that polling brings about; False if the timeout passed first."""
        self._note_user()
        deadline = math.inf if timeout_seconds is None else time.monotonic() + timeout_seconds
        pause = 20e-6
        while not is_done():
            if timeout_seconds is None and not self._shared:
                self.poll(block=True)
                continue
            if time.monotonic() >= deadline:
                return False
            time.sleep(pause)
            pause = min(pause * 1.5, _LONGEST_PAUSE_SECONDS)
        return True

    def _note_user(self) -> None:
        thread = threading.get_ident()
        if thread != self._user:
            self._shared = self._user is not None
            self._user = self._user or thread

    def close(self) -> None:
        """Give the device back."""
        _, lib = native()
        with self.lock, self._life_lock:
            device, self._raw = self._raw, None
            if device:
                lib.wgpuQueueRelease(self.queue)
                if not self._failed:
                    lib.wgpuDeviceDestroy(device)
                self._release(device)
            self.lost = self.lost or "it is closed"

    def _release(self, device: Any) -> None:
        """Give a reference back, unless the driver lost the device: releasing the last one would wait, and end the process."""
        if not self._failed:
            native().lib.wgpuDeviceRelease(device)


def limits_of(adapter: Adapter) -> Any:
    """The limits of an adapter, as a WGPULimits."""
    lib = native().lib
    limits = new("WGPULimits *")
    lib.wgpuAdapterGetLimits(adapter.raw, limits)
    return limits


def last_line(message: str) -> str:
    """The cause in one of wgpu's messages, which name the outermost call first."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    return lines[-1] if lines else "the driver gave no reason"
