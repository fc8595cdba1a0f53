"""Tuning a kernel for many problems with a fleet: one problem at a time on each device, and the results for all."""

from __future__ import annotations

import io
import os
import time
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from .. import settings
from ..cache.program_cache import ProgramCache
from ..cache.remote_tiers import resolve_remotes
from ..devices.registry import list_devices, open_device
from ..errors import ArgumentError, VariantError
from ..kernels.catalogue import find_kernel
from ..progress.reporter import Wanted
from ..remote.address import Remote
from ..variants.records import Records
from ..variants.sharing import share_with, take_from
from ..variants.values import in_words
from .engine import run_parts
from .parts import Part, PartStatus, Slot, State, Tell
from .report import FleetReport, report_of
from .shipping import NamedCode
from .view import progress_view
from .warming import TIMEOUT_SECONDS
from .workers import open_workers


class TunedProblem(msgspec.Struct, frozen=True):
    """What tuning one problem found. `lines` are the device's records of the kernel, as in an exported file."""

    problem: dict[str, Any]
    device: str
    best: dict[str, Any] | None
    best_ms: float | None
    measured: int
    remembered: int
    lines: bytes = b""


class _Order(msgspec.Struct, frozen=True):
    code: NamedCode
    problem: dict[str, Any]
    budget_seconds: float | None
    remotes: tuple[Remote, ...]


def tune(
    kernel: str,
    problems: Iterable[Mapping[str, Any]] = (),
    *,
    budget_seconds: float | None = None,
    remote: Any = None,
    signing_key: Any = None,
    allow_unsigned: bool = False,
    cache_dir: str | os.PathLike[str] | None = None,
    device: str | None = None,
    cluster: str | None = None,
    progress: Wanted = False,
) -> FleetReport:
    """Tune a kernel for several problems, on all GPUs of a cluster or of this machine; on its CPU device where there is none.

    `kernel` is "gemm", "conv2d", or "FILE.py:NAME" for a `kk.Tuned` of your own; without `problems` some common ones are tuned.
    Results are shared through the stores that `remote` or KERNELKEEP_REMOTE names, and merged into the records here. What is
    known of the same device is not measured again.
    """
    began = time.monotonic()
    entry = find_kernel(kernel)
    code = NamedCode.parse(kernel)
    wanted = [dict(entry.complete(problem)) for problem in problems] or [dict(one) for one in entry.problems]
    if not wanted:
        raise ArgumentError(f"problems must name at least one problem of {kernel}")
    remotes = resolve_remotes(
        remote, signing_key=signing_key, allow_unsigned=allow_unsigned, timeout_seconds=TIMEOUT_SECONDS
    )
    root = settings.cache_dir(cache_dir)
    slots = [Slot(spec, str(root)) for spec in _devices_here(device)]
    with open_workers(cluster, slots, each_device=True, device=device) as fleet:
        orders = [_Order(code, problem, budget_seconds, remotes) for problem in wanted]
        parts = [Part(f"{entry.name} {in_words(order.problem)}", tune_part, order) for order in orders]
        with progress_view(f"tune {entry.name}", len(parts), progress) as show:
            statuses = run_parts(parts, fleet, show)
        _merge(statuses, root)
        return report_of(f"tune {entry.name}", fleet.description, statuses, time.monotonic() - began)


def _devices_here(device: str | None) -> list[str | None]:
    """The devices of this machine to tune on: all its GPUs, or the best device it has."""
    if device is not None:
        return [device]
    gpus = [info for info in list_devices() if info.is_gpu]
    # The same GPU may be listed by several backends; the best comes first.
    return [info.spec for info in gpus if info.backend == gpus[0].backend] or [None]


# --- on a worker


def tune_part(order: _Order, slot: Slot, tell: Tell) -> TunedProblem:
    """Tune one problem on one device, after taking what others know of it, and share the result."""
    with order.code.placed() as name:
        entry = find_kernel(name)
        with open_device(slot.device, cache_dir=slot.cache_dir) as opened:
            with ProgramCache(opened, slot.cache_dir, remote=order.remotes) as cache:
                tuned = entry.tuned_for(opened, dict(order.problem))
                records, digest = tuned.records(cache), opened.fingerprint.digest
                if order.remotes:
                    take_from(order.remotes, records, device=digest, tuned=tuned.name)
                tell(f"measuring on {opened.spec}")
                report = tuned.tune(cache, order.problem, order.budget_seconds)
                if order.remotes:
                    tell("sharing")
                    share_with(order.remotes, records, device=digest, tuned=tuned.name)
                if report.best is None:
                    if not report.attempts:
                        raise VariantError(
                            "the time was too short to try any variant; a larger budget (--budget) may do"
                        )
                    raise VariantError(f"every variant failed: {in_words(report.failures)}")
                lines = io.BytesIO()
                records.export(lines, tuned.name, digest)
                return TunedProblem(
                    problem=dict(order.problem),
                    device=opened.info.name,
                    best=dict(report.best),
                    best_ms=report.best_ms,
                    measured=report.measured,
                    remembered=report.remembered,
                    lines=lines.getvalue(),
                )


# --- where the fleet was asked


def _merge(statuses: list[PartStatus], root: Any) -> None:
    """Merge what the workers measured into the records here."""
    with Records(root) as records:
        for status in statuses:
            if status.state is State.DONE and isinstance(status.result, TunedProblem):
                if status.result.lines:
                    records.load(io.BytesIO(status.result.lines))
                status.result = msgspec.structs.replace(status.result, lines=b"")
