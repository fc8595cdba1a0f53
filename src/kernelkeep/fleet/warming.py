"""Compiling many sources for many targets with a fleet: into shared stores, or into the cache folder here."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from typing import Any

import msgspec

from .. import settings
from ..cache.entry import decode
from ..cache.filling import folder_to_fill
from ..cache.folder_description import FolderDescription
from ..cache.key import key_of
from ..cache.program_cache import ProgramCache
from ..cache.remote_tiers import open_remote_tiers, resolve_remotes
from ..devices.ahead import AheadTarget, ahead_compilers, parse_target
from ..devices.registry import open_device
from ..errors import ArgumentError, RemoteError
from ..programs.portable import PortableKernel
from ..programs.source import Source
from ..progress.reporter import Wanted
from ..remote.address import Remote
from ..storage.files import Damaged
from .compile_ahead import compile_ahead
from .engine import run_parts
from .parts import Part, PartStatus, Slot, State, Tell, one_sentence
from .report import FleetReport, report_of
from .view import progress_view
from .workers import open_workers

Program = Source | PortableKernel
TIMEOUT_SECONDS = 10.0  # for one request to a store; an address may say ?timeout_seconds=…


class MadeEntry(msgspec.Struct, frozen=True):
    """A compiled program on its way to the machine that asked for it."""

    folder: str
    fingerprint: dict[str, str]
    digest: str
    data: bytes


class Warmed(msgspec.Struct, frozen=True):
    """One program for one target. `origin`: "compiled", or where it was: "disk" or "remote"; `stored`: stores it was put in."""

    origin: str
    nbytes: int
    stored: int
    entry: MadeEntry | None = None


class _Order(msgspec.Struct, frozen=True):
    program: Program
    target: str | None
    remotes: tuple[Remote, ...]
    send_back: bool


def warm(
    sources: Program | Iterable[Program],
    targets: str | Iterable[str] | None = None,
    *,
    remote: Any = None,
    signing_key: Any = None,
    allow_unsigned: bool = False,
    cache_dir: str | os.PathLike[str] | None = None,
    cluster: str | None = None,
    workers: int | None = None,
    progress: Wanted = False,
) -> FleetReport:
    """Compile every source for every target, one by one across the CPUs of a cluster or of this machine.

    A target is an architecture, as in `kk.compile_ahead`, or a device of the workers, such as "opencl"; None is the best
    device of each worker. Programs go to the shared stores that `remote` or KERNELKEEP_REMOTE names, and without any to the cache
    folder here. What is there already is not compiled again. A program that fails does not stop the others.

    `cluster` is the address of a Ray cluster, "auto" or "local" (`fleet/workers.py`); `workers` are processes on this machine.
    """
    began = time.monotonic()
    programs = _several("sources", sources, (Source, PortableKernel))
    wanted: list[str | None] = [None] if targets is None else list(_several("targets", targets, (str,)))
    for target in wanted:
        if target is not None and is_architecture(target):
            parse_target(target)  # a mistake is found here, not on every worker
    remotes = resolve_remotes(
        remote, signing_key=signing_key, allow_unsigned=allow_unsigned, timeout_seconds=TIMEOUT_SECONDS
    )
    root = settings.cache_dir(cache_dir)
    count = workers if workers is not None else os.cpu_count() or 1
    if not isinstance(count, int) or count < 1:
        raise ArgumentError(f"workers must be a positive integer, got {workers!r}")
    with open_workers(cluster, [Slot(None, str(root))] * count) as fleet:
        parts = [
            Part(
                f"{program.name} for {target or 'the best device'}",
                warm_part,
                _Order(program, target, remotes, not remotes),
            )
            for target in dict.fromkeys(wanted)
            for program in programs
        ]
        with progress_view("warm", len(parts), progress) as show:
            statuses = run_parts(parts, fleet, show)
        for status in statuses:
            _bring_back(status, root)
        return report_of("warm", fleet.description, statuses, time.monotonic() - began)


def is_architecture(target: str) -> bool:
    """Whether a target names an architecture to compile ahead for, and not a device."""
    backend, _, rest = target.partition(":")
    return backend in ahead_compilers() and bool(rest) and not rest.isdecimal()


def _several(argument: str, given: Any, kinds: tuple[type, ...]) -> list[Any]:
    found = [given] if isinstance(given, kinds) else list(given) if isinstance(given, Iterable) else None
    if not found or not all(isinstance(one, kinds) for one in found):
        raise ArgumentError(
            f"{argument} must be one or several of {', '.join(kind.__name__ for kind in kinds)}, got {given!r}"
        )
    return found


# --- on a worker


def warm_part(order: _Order, slot: Slot, tell: Tell) -> Warmed:
    """Compile one program for one target, and store it."""
    tell("compiling")
    if order.target is not None and is_architecture(order.target):
        origin, entry = _made_ahead(order.program, parse_target(order.target), slot.cache_dir)
    else:
        origin, entry = _made_here(order, slot.cache_dir)
    tell("storing")
    stored = _store(entry, order.remotes)
    here = slot.cache_dir is not None  # it is in the folder already
    return Warmed(origin, len(entry.data), stored, entry if order.send_back and not here else None)


def _made_ahead(program: Program, target: AheadTarget, cache_dir: str | None) -> tuple[str, MadeEntry]:
    report = compile_ahead([program], [str(target)], cache_dir, workers=1)
    if report.failed:
        raise report.failed[0].error
    fingerprint = target.compiler.fingerprint(target.architecture)
    source = program.source(target.compiler.language) if isinstance(program, PortableKernel) else program
    digest = key_of(source, fingerprint.digest, fingerprint.folder).digest
    data = folder_to_fill(report.cache_dir, fingerprint.folder, fingerprint.facts).read(digest, source.name)
    assert data is not None, "it was compiled a moment ago"
    return "compiled" if report.compiled else "disk", MadeEntry(fingerprint.folder, fingerprint.facts, digest, data)


def _made_here(order: _Order, cache_dir: str | None) -> tuple[str, MadeEntry]:
    with open_device(order.target, cache_dir=cache_dir) as device:
        source = order.program.source(device) if isinstance(order.program, PortableKernel) else order.program
        with ProgramCache(device, cache_dir, remote=order.remotes) as cache:
            with cache.get(source) as lease:
                origin = lease.origin
            cache.persist()
            fingerprint = device.fingerprint
            digest = key_of(source, fingerprint.digest, fingerprint.folder).digest
            data = cache.disk.get(digest)
    if data is None:
        raise RemoteError(f"{source.name} is not in {settings.cache_dir(cache_dir)}: the folder cannot be written to")
    return origin, MadeEntry(fingerprint.folder, fingerprint.facts, digest, data)


def _store(entry: MadeEntry, remotes: tuple[Remote, ...]) -> int:
    """Put an entry into every store that may be written to and lacks it."""
    stored = 0
    for tier in open_remote_tiers(remotes, FolderDescription(entry.folder, entry.fingerprint)):
        try:
            if not tier.read_only and tier.get(entry.digest) is None:
                tier.put(entry.digest, entry.data)
                stored += 1
        except Exception as error:
            raise RemoteError(f"{tier.location} does not take {entry.digest[:12]}: {one_sentence(error)}") from None
        finally:
            tier.close()
    return stored


# --- where the fleet was asked


def _bring_back(status: PartStatus, root: Any) -> None:
    """Write what another machine has compiled to the cache folder here."""
    made = status.result
    if status.state is not State.DONE or not isinstance(made, Warmed) or made.entry is None:
        return
    entry = made.entry
    try:
        decode(entry.data, entry.digest)
        folder_to_fill(root, entry.folder, entry.fingerprint).write(entry.digest, entry.data)
    except (OSError, Damaged) as error:
        status.state, status.error = State.FAILED, f"{root} cannot hold it: {getattr(error, 'strerror', None) or error}"
    status.result = msgspec.structs.replace(made, entry=None)
