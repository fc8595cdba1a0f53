"""Compiling for GPUs that are not in this machine.

    kk.compile_ahead([saxpy, source], targets=["cuda:sm_80", "cuda:sm_90"], cache_dir="kernels")

The programs are kept in the cache folder under their architecture. A machine with such a GPU finds them there, or in a bundle
made of them, and compiles nothing. No GPU and no driver is needed to compile.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from .. import __version__, settings
from ..cache.entry import Entry, Facts, encode
from ..cache.filling import folder_to_fill
from ..cache.gpu_folder import GpuFolder
from ..cache.key import Key, key_of
from ..continuous.program import StateProgram
from ..devices.ahead import AheadTarget, parse_target
from ..devices.binary import Binary
from ..errors import ArgumentError, KernelKeepError
from ..escaping import escaped
from ..kernels.user_files import Kernels, compilable
from ..programs.portable import PortableKernel
from ..programs.source import Source
from ..progress.reporter import Wanted, reported
from ..storage.files import Damaged


class AheadFailure(msgspec.Struct, frozen=True):
    """A program that could not be compiled for a target, and why."""

    name: str
    target: str
    error: Exception

    def __str__(self) -> str:
        said = escaped(self.error, keep="\n\t")
        return f"{self.target}: {said if said.startswith(self.name) else f'{escaped(self.name)}: {said}'}"


class AheadReport(msgspec.Struct, frozen=True):
    """What was compiled ahead. `kept`: programs that were there already, from the same compiler; `bytes`: of all on disk."""

    cache_dir: Path
    targets: tuple[str, ...]
    compiled: int
    kept: int
    bytes: int
    seconds: float
    failed: tuple[AheadFailure, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether every program is there for every target."""
        return not self.failed

    def __str__(self) -> str:
        ready = self.compiled + self.kept
        text = (
            f"{ready} program{'' if ready == 1 else 's'} ready for {', '.join(self.targets)} in {self.seconds:.2f} s: "
        )
        text += f"{self.compiled} compiled, {self.kept} already there"
        return "\n".join([text, *(f"failed: {failure}" for failure in self.failed)])


class _Order(NamedTuple):
    """One program for one target."""

    source: Source
    key: Key
    target: AheadTarget


def compile_ahead(
    sources: Kernels | Iterable[Kernels],
    targets: str | Iterable[str],
    cache_dir: str | os.PathLike[str] | None = None,
    *,
    workers: int | None = None,
    progress: Wanted = False,
) -> AheadReport:
    """Compile every source for every target, such as "cuda:sm_90", into the cache folder. Needs no GPU.

    A source is a `kk.Source`, a `kk.PortableKernel`, or a `kk.StateProgram`, which has a kernel for each way to run it.
    A program that fails does not stop the others; the report says which and why. `DeviceError` where the compiler for a
    target is not installed.
    """
    start = time.perf_counter()
    wanted = compilable(_several("sources", sources, (Source, PortableKernel, StateProgram)), cooperative=True)
    parsed = [parse_target(target) for target in dict.fromkeys(_several("targets", targets, (str,)))]
    orders, failed = _orders(wanted, parsed)
    root = settings.cache_dir(cache_dir)
    try:
        folders = {target: _folder(root, target) for target in parsed}
    except OSError as error:
        raise ArgumentError(f"cache_dir {root} cannot be used: {error.strerror or error}") from None
    compiled = kept = size = 0
    count = workers or os.cpu_count() or 1
    with reported("compiling", len(orders), progress, unit="programs") as report:
        with ThreadPoolExecutor(max(1, min(count, len(orders) or 1)), thread_name_prefix="kernelkeep-ahead") as pool:
            for order, outcome in zip(
                orders, pool.map(lambda one: _make(one, folders[one.target]), orders), strict=True
            ):
                if isinstance(outcome, Exception):
                    failed.append(AheadFailure(order.source.name, str(order.target), outcome))
                else:
                    compiled, kept, size = compiled + outcome.new, kept + (not outcome.new), size + outcome.nbytes
                report.step(f"{order.source.name} for {order.target}", failed=isinstance(outcome, Exception))
    names = tuple(str(target) for target in parsed)
    return AheadReport(root, names, compiled, kept, size, time.perf_counter() - start, tuple(failed))


def _several(argument: str, given: object, kinds: tuple[type, ...]) -> list[Any]:
    """What an argument holds: one, or several of them."""
    if isinstance(given, kinds):
        return [given]
    wanted = " or ".join(f"kk.{kind.__name__}" if kind is not str else "str like cuda:sm_90" for kind in kinds)
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise ArgumentError(f"{argument} must be a list of {wanted}, got {given!r}")
    found = list(given)
    for one in found:
        if not isinstance(one, kinds):
            raise ArgumentError(f"{argument} must be a list of {wanted}, got a {type(one).__name__} in it")
    if not found:
        raise ArgumentError(f"{argument} must not be empty")
    return found


def _orders(
    sources: list[Source | PortableKernel], targets: list[AheadTarget]
) -> tuple[list[_Order], list[AheadFailure]]:
    """Each program once for each target, and the portable kernels that a target's language cannot express."""
    orders: dict[str, _Order] = {}
    failed = []
    for target in targets:
        fingerprint = target.compiler.fingerprint(target.architecture)
        for given in sources:
            language = target.compiler.language
            try:
                source = given.source(language) if isinstance(given, PortableKernel) else given
                if source.language != language:
                    raise ArgumentError(f"source {source.name} is {source.language}, and {target} takes {language}")
                key = key_of(source, fingerprint.digest, fingerprint.folder)
            except KernelKeepError as error:
                failed.append(AheadFailure(given.name, str(target), error))
            else:
                orders.setdefault(key.digest, _Order(source, key, target))
    return list(orders.values()), failed


class _Done(NamedTuple):
    new: bool
    nbytes: int


def _folder(root: Path, target: AheadTarget) -> GpuFolder:
    fingerprint = target.compiler.fingerprint(target.architecture)
    return folder_to_fill(root, fingerprint.folder, fingerprint.facts)


def _make(order: _Order, folder: GpuFolder) -> _Done | Exception:
    """Compile one program, unless the same compiler did so before."""
    source, key, target = order
    compiler = target.compiler.version()
    try:
        with suppress(Damaged):
            data = folder.read(key.digest, source.name)
            known = None if data is None else folder.read_entry(key.digest, source.name)
            if data is not None and known is not None and known.facts.compiler == compiler:
                return _Done(False, len(data))
        start = time.perf_counter()
        binary = target.compiler.compile(source, target.architecture)
        facts = Facts(
            name=source.name,
            language=source.language,
            device=folder.path.name,
            key=key,
            created=time.time(),
            compile_seconds=time.perf_counter() - start,
            version=__version__,
            kernels=tuple(kernel.name for kernel in Binary.decode(binary, target.backend).kernels),
            payload_bytes=len(binary),
            compiler=compiler,
        )
        data = encode(Entry(facts, binary))
        folder.write(key.digest, data)
        return _Done(True, len(data))
    except (KernelKeepError, OSError) as error:
        return error
