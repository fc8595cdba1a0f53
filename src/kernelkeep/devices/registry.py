"""Which backends there are, and finding and opening their devices.

A backend is a module with two functions, and whatever of the rest of `Backend` applies to it. It comes in by
`register_backend` or through an entry point of the group `kernelkeep.backends`; the shipped ones are registered like any other.

    [project.entry-points."kernelkeep.backends"]
    mine = "my_package.backend"

Backends are preferred in the order of their registration. Nothing here takes a lock: a forked child would inherit it held.
"""

from __future__ import annotations

import importlib
import os
import re
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast, overload

from .. import settings
from ..errors import ArgumentError, DeviceError, KernelKeepError
from . import forks

if TYPE_CHECKING:
    from .base import Device
    from .fingerprint import Fingerprint
    from .info import DeviceInfo
    from .reference.device import ReferenceDevice, ReferenceSpec

# The best first. hip has no devices, it only compiles ahead; reference interprets.
SHIPPED = ("cuda", "opencl", "opengl", "webgpu", "hip", "reference")
ENTRY_POINT_GROUP = "kernelkeep.backends"
_Folder = str | os.PathLike[str] | None
_NAME = re.compile(r"[a-z][a-z0-9]*\Z")
KINDS = ("gpu", "cpu")  # what `open_device` takes beside the backends
_SPEC = re.compile(r"([a-z][a-z0-9]*)(?::(?:([0-9]+)|([a-z][a-z0-9]*)))?\Z")
_REQUIRED = ("list_devices", "open_device")


class Backend(Protocol):
    """What the registry calls in a backend's module. Importing the module loads no GPU library.

    Optional, each with a default:
    - `language: str`: what its devices compile, so that a source file finds a device.
    - `hint: str`: one line that says how to get a device.
    - `needs() -> Iterable[Check]`: what must be installed before a device can be found, each check building on the one before.
    - `device_needs(devices) -> Iterable[Check]`: what the devices that were found need besides.
    - `ahead: AheadCompiler`: compiles without a device (`ahead.py`).
    - `find_index(word) -> int`: the index of a device that a spec names with a word, as "webgpu:metal" does.
    - `interfaces: tuple[str, ...]`: words that `find_index` takes, for those who look for a backend of that name.
    - `interprets: bool`: its device runs kernels without a driver, and finds bugs in them.
    """

    def list_devices(self, cache_dir: _Folder = None) -> list[DeviceInfo]:
        """The devices here. `DeviceError` says in one sentence why there are none."""
        ...

    def open_device(self, index: int | None = None, *, driver_cache_dir: _Folder, cache_dir: _Folder) -> Device:
        """Open a device by index, or the best one of this backend."""
        ...


class _Registration(NamedTuple):
    origin: str  # where the module comes from, for messages and to tell one from another
    load: Callable[[], Any]


_registered: dict[str, _Registration] = {}
_entry_points_read = False


def register_backend(name: str, module: Any) -> None:
    """Add a backend: `open_device(name)` and `list_devices()` find its devices from now on.

    `module` is a module, or the dotted name of one, which is imported at first use. It has the functions
    `list_devices(cache_dir=None)` and `open_device(index=None, *, driver_cache_dir=None, cache_dir=None)`.
    """
    if not isinstance(name, str) or not _NAME.match(name):
        raise ArgumentError(f"name must be a word of lower-case letters and digits, like webgpu, got {name!r}")
    if name in KINDS:
        raise ArgumentError(
            f"name must not be {name!r}, which open_device takes for a kind of device: choose another name"
        )
    if isinstance(module, str):
        if not all(part.isidentifier() for part in module.split(".")):
            raise ArgumentError(f"module must be a module or its dotted name, like my_package.backend, got {module!r}")
        registration = _Registration(module, lambda: importlib.import_module(module))
    else:
        missing = _missing_functions(module)
        if missing:
            raise ArgumentError(
                f"module must have the functions {' and '.join(_REQUIRED)}, and {module!r} lacks {missing}"
            )
        registration = _Registration(getattr(module, "__name__", repr(module)), lambda: module)
    taken = _registered.setdefault(name, registration)
    if taken.origin != registration.origin:
        raise ArgumentError(f"the backend {name} is already registered from {taken.origin}; choose another name")


def backend_names() -> tuple[str, ...]:
    """Every backend, the preferred ones first, those of installed packages included."""
    _read_entry_points()
    return tuple(_registered)


def backend_module(name: str) -> Backend:
    """The module of a backend. `DeviceError` where it cannot be imported or is no backend."""
    if name not in _registered:
        _read_entry_points()
    registration = _registered[name]
    try:
        module = registration.load()
    except Exception as error:  # importing runs the module, which may raise anything
        raise DeviceError(f"the backend {name} cannot be loaded from {registration.origin}: {error}") from error
    missing = _missing_functions(module)
    if missing:
        raise DeviceError(f"the backend {name} cannot be used: {registration.origin} lacks {missing}")
    return cast(Backend, module)


def list_devices(*, cache_dir: str | os.PathLike[str] | None = None) -> list[DeviceInfo]:
    """Every usable device, the best first: CUDA, OpenCL GPU, OpenGL GPU, OpenCL CPU, OpenGL CPU.

    GPUs and CPUs of backends that were registered come after those, and the reference interpreter is the last. A backend that
    is not installed or has no device contributes nothing; `kernelkeep doctor` says why. `cache_dir` is the cache folder to be
    used later: NVIDIA's OpenGL driver must know it before it is asked anything. `DeviceError` in a process that was forked
    from one that had loaded a driver.
    """
    from .info import DeviceList

    found = [info for name in _names() for info in _ask(name, cache_dir) or ()]
    return DeviceList(sorted(found, key=lambda info: (info.is_interpreter, not info.is_gpu)))


@overload
def open_device(
    spec: ReferenceSpec, *, cache_dir: _Folder = None, driver_cache_dir: _Folder = None
) -> ReferenceDevice: ...
@overload
def open_device(
    spec: str | DeviceInfo | None = None, *, cache_dir: _Folder = None, driver_cache_dir: _Folder = None
) -> Device: ...
def open_device(
    spec: str | DeviceInfo | None = None,
    *,
    cache_dir: str | os.PathLike[str] | None = None,
    driver_cache_dir: str | os.PathLike[str] | None = None,
) -> Device:
    """Open "cuda", "cuda:0", "opencl:1", "webgpu:metal", …; without a spec $KERNELKEEP_DEVICE, else the best one here.

    "gpu" is the best GPU and "cpu" the best driver for the CPU, of whichever backend. A `DeviceInfo` of `list_devices()` is that
    very device.

    Without a spec, and where there is no driver, that is the reference interpreter, which is thousands of times slower: a
    RuntimeWarning says so.

    An OpenGL driver keeps its own compiled shaders, by default in the GPU's folder of the cache. `cache_dir` names another
    cache folder, `driver_cache_dir` the very folder for the shaders. It can be chosen until the process's first OpenGL
    device; the other backends have no use for it.
    """
    folders = {"cache_dir": cache_dir, "driver_cache_dir": driver_cache_dir}
    spec = settings.device_spec() if spec is None else spec
    if spec is None:
        return _open_best(folders)
    if not isinstance(spec, str):
        from .info import DeviceInfo  # rarely needed, and the driver has not begun to start yet

        if isinstance(spec, DeviceInfo):
            forks.check_driver(spec.backend)
            return backend_module(spec.backend).open_device(spec.index, **folders)
    if spec in KINDS:
        return _open_kind(spec, folders)
    backend, index = parse_spec(spec)
    forks.check_driver(backend)
    return backend_module(backend).open_device(index, **folders)


def open_interpreter() -> Device:
    """Open the device that interprets kernels and finds bugs in them; no driver is loaded."""
    for name in _names():
        module = backend_module(name)
        if getattr(module, "interprets", False):
            return module.open_device(cache_dir=None, driver_cache_dir=None)
    raise DeviceError("no backend that is registered interprets kernels")


def parse_spec(spec: str) -> tuple[str, int | None]:
    """The backend and index of "cuda", "opencl:1" or "webgpu:metal"."""
    match = _SPEC.match(spec) if isinstance(spec, str) else None
    known = match is not None and (match[1] in _registered or match[1] in backend_names())
    if match is not None and known and match[3] is None:
        return match[1], None if match[2] is None else int(match[2])
    find_index = getattr(backend_module(match[1]), "find_index", None) if match is not None and known else None
    if match is None or find_index is None:
        from .spec_hint import spec_hint  # only where there is a mistake

        names = backend_names()
        meant = spec_hint(spec, (*KINDS, *names), backend_module)
        raise ArgumentError(
            f"{spec!r} is not a device{meant}: use {', '.join((*KINDS, *names))}, or one with an index, like {names[0]}:0"
        )
    return match[1], find_index(match[3])


def fingerprints_here(cache_dir: str | os.PathLike[str] | None = None) -> dict[str, list[Fingerprint]]:
    """The fingerprints of the devices here by backend; a backend that cannot be asked is left out.

    `DeviceError` where a device cannot be opened: it is here all the same.
    """
    found: dict[str, list[Fingerprint]] = {}
    for name in _names():
        try:
            devices = _ask(name, cache_dir)
        except DeviceError:
            continue
        if devices is None:
            continue
        found[name] = []
        for info in devices:
            try:
                opened = backend_module(name).open_device(info.index, cache_dir=cache_dir, driver_cache_dir=None)
                with opened as device:
                    found[name].append(device.fingerprint)
            except DeviceError as error:
                raise DeviceError(f"{info.spec} cannot be opened, so what is here cannot be told: {error}") from None
    return found


def _names() -> Iterator[str]:
    """Every backend; installed packages are only asked once the ones that are registered did not suffice."""
    known = list(_registered)
    yield from known
    yield from (name for name in backend_names() if name not in known)


def _read_entry_points() -> None:
    global _entry_points_read
    if _entry_points_read:
        return
    from importlib.metadata import entry_points  # takes longer to import than the rest of this module

    try:
        found = list(entry_points(group=ENTRY_POINT_GROUP))
    except Exception as error:  # a damaged installation of some other package
        _warn(f"the entry points {ENTRY_POINT_GROUP} cannot be read: {error}")
        found = []
    for point in found:
        registration = _Registration(point.value, point.load)
        if not _NAME.match(point.name):
            _warn(f"the entry point {point.name!r} ({point.value}) is ignored: a backend's name is letters and digits")
        elif (taken := _registered.setdefault(point.name, registration)).origin != point.value:
            _warn(f"the entry point {point.name} ({point.value}) is ignored: the name belongs to {taken.origin}")
    _entry_points_read = True


def _ask(name: str, cache_dir: _Folder = None) -> list[DeviceInfo] | None:
    """The devices of a backend; None where it cannot say. `DeviceError` where its driver was loaded before a fork."""
    forks.check_driver(name)  # or the best device would quietly be another one than in the parent
    try:
        module = backend_module(name)
    except DeviceError as error:
        _warn(str(error))
        return None
    try:
        return sorted(module.list_devices(cache_dir), key=lambda info: info.index)
    except DeviceError:
        return None
    except KernelKeepError:  # the caller's mistake, such as a cache_dir that is no path
        raise
    except Exception as error:
        _warn(f"the backend {name} cannot list its devices: {error!r}")
        return None


def _open_best(folders: dict[str, _Folder]) -> Device:
    failures: list[str] = []
    later: list[tuple[str, DeviceInfo]] = []
    interpreters: list[tuple[str, DeviceInfo]] = []

    def first_that_opens(devices: Iterable[tuple[str, DeviceInfo]]) -> Device | None:
        for name, info in devices:
            try:
                return backend_module(name).open_device(info.index, **folders)
            except DeviceError as error:
                failures.append(f"{info.spec}: {error}")
        return None

    for name in _names():  # in order of preference, so the first GPU that opens is the best: look no further
        devices = _ask(name, folders["cache_dir"]) or ()
        later.extend((name, info) for info in devices if not info.is_gpu and not info.is_interpreter)
        interpreters.extend((name, info) for info in devices if info.is_interpreter)
        device = first_that_opens((name, info) for info in devices if info.is_gpu)
        if device is not None:
            return device
    device = first_that_opens(later)
    if device is not None:
        return device
    device = first_that_opens(interpreters)
    if device is not None:
        why = f" ({'; '.join(failures)})" if failures else ""
        _warn(
            f"no GPU and no CPU driver can be used{why}, so kernels run on {device.spec}, an interpreter that checks them and "
            "is thousands of times slower than any driver: `kernelkeep doctor` says what is missing"
        )
        return device
    reasons = "; ".join(failures) or "none was found; `kernelkeep doctor` says what is missing"
    raise DeviceError(f"no usable device ({reasons})")


def _open_kind(kind: str, folders: dict[str, _Folder]) -> Device:
    """The best GPU, or the best driver for the CPU, that opens."""
    failures: list[str] = []
    for name in _names():
        for info in _ask(name, folders["cache_dir"]) or ():
            if info.is_interpreter or info.is_gpu != (kind == "gpu"):
                continue
            try:
                return backend_module(name).open_device(info.index, **folders)
            except DeviceError as error:
                failures.append(f"{info.spec}: {error}")
    reasons = "; ".join(failures) or "none was found; `kernelkeep doctor` says what is missing"
    raise DeviceError(f"no {kind.upper()} can be used ({reasons})")


def _missing_functions(module: Any) -> str:
    return " and ".join(name for name in _REQUIRED if not callable(getattr(module, name, None)))


def _warn(message: str) -> None:
    warnings.warn(message, RuntimeWarning, stacklevel=4)


for _name in SHIPPED:
    register_backend(_name, f"{__package__}.{_name}")
