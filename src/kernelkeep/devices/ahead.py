"""Compiling for GPUs that are not in this machine: what a backend offers for it, and targets such as "cuda:sm_90".

A backend whose compiler needs no device has an `AheadCompiler` as `ahead` in its module. Its programs depend on the architecture
only, so they have a fingerprint of their own (`architecture_fingerprint`), without a model, a driver and a compiler. A device
names the fingerprints that it can load in `Device.architecture_fingerprints`.

The compiler's version is left out on purpose: a machine with another compiler, or with none, must find what it was sent. A
program that was compiled on the machine itself is found first.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from ..errors import ArgumentError
from ..programs.source import Source
from .fingerprint import Fingerprint
from .registry import backend_module, backend_names


class AheadCompiler(Protocol):
    """A compiler that needs no device. `compile` is called from several threads at once."""

    language: str

    def version(self) -> str:
        """The compiler, for people. `DeviceError` says how to get it where it is missing."""
        ...

    def architectures(self) -> tuple[str, ...]:
        """What it compiles for. `DeviceError` where the compiler is missing."""
        ...

    def compile(self, source: Source, architecture: str) -> bytes:
        """What `Device.load` takes on a device of that architecture. Raises `CompileError`."""
        ...

    def fingerprint(self, architecture: str) -> Fingerprint:
        """Under which these programs are kept. Needs no compiler."""
        ...


class AheadTarget(NamedTuple):
    """An architecture, and what compiles for it."""

    backend: str
    architecture: str
    compiler: AheadCompiler

    def __str__(self) -> str:
        return f"{self.backend}:{self.architecture}"


def architecture_fingerprint(backend: str, vendor: str, architecture: str) -> Fingerprint:
    """The fingerprint of programs that run on every device of an architecture."""
    return Fingerprint(backend, vendor, f"any {architecture}", driver="", compiler="", architecture=architecture)


def ahead_compilers() -> dict[str, AheadCompiler]:
    """The backends that compile without a device, whether or not their compilers are installed."""
    found = {name: getattr(backend_module(name), "ahead", None) for name in backend_names()}
    return {name: compiler for name, compiler in found.items() if compiler is not None}


def parse_target(target: str) -> AheadTarget:
    """The target that "cuda:sm_90" names. `DeviceError` where its compiler is not installed."""
    known = ahead_compilers()
    backend, _, architecture = target.partition(":") if isinstance(target, str) else ("", "", "")
    if backend not in known:
        raise ArgumentError(
            f"a target must be written like {_example(known)}, for one of the backends {', '.join(known)}, got {target!r}"
        )
    compiler = known[backend]
    offered = compiler.architectures()
    if architecture not in offered:
        raise ArgumentError(f"the architecture in target {target!r} must be one of {', '.join(offered)}")
    return AheadTarget(backend, architecture, compiler)


def _example(known: dict[str, AheadCompiler]) -> str:
    return f"{next(iter(known), 'backend')}:ARCHITECTURE"
