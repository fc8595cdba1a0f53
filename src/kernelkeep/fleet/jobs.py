"""Running many continuous jobs with a fleet: each restarted when it dies, and continued elsewhere when its machine does.

A job is a function that is called until it returns. Its state is in a checkpoint, best in a shared store: then a job whose
machine is gone goes on from there on another one. On its machine `kk.run_supervised` watches over it.
"""

from __future__ import annotations

import inspect
import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from .. import settings
from ..continuous.checkpoints.address import shown
from ..continuous.checkpoints.ownership import CheckpointInUse
from ..continuous.supervision.supervisor import run_supervised
from ..errors import ArgumentError
from ..progress.reporter import Wanted
from .engine import run_parts
from .parts import Part, Slot, Tell
from .report import FleetReport, report_of
from .shipping import NamedCode, load_function
from .view import progress_view
from .workers import open_workers

_BUSY_TRIES = 6
_BUSY_SECONDS = 5.0


class FleetJob(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A job: `call` is "module:function" or "FILE.py:function", called with `args`, `kwargs`, and `checkpoint=` if it takes that.

    `checkpoint` is a path or an address, such as s3://bucket/job.kkpt. `max_restarts` and `heartbeat_seconds` are those of
    `kk.run_supervised`; `num_cpus` and `num_gpus` are what a cluster reserves.
    """

    call: str
    name: str = ""
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = {}
    checkpoint: str | None = None
    max_restarts: int = 5
    heartbeat_seconds: float = 30.0
    num_cpus: float = 1.0
    num_gpus: float = 0.0

    def __repr__(self) -> str:  # an address may hold secrets
        where = "" if self.checkpoint is None else f", checkpoint {shown(self.checkpoint)}"
        return f"<FleetJob {self.name or self.call}{where}>"


class JobDone(msgspec.Struct, frozen=True):
    """A job that returned: its result, and how often it was restarted on the machine that finished it."""

    result: Any
    restarts: int
    history: tuple[str, ...] = ()


class _File(msgspec.Struct, frozen=True):
    jobs: list[FleetJob]


class _Order(msgspec.Struct, frozen=True):
    job: FleetJob
    code: NamedCode


def read_jobs(path: str | os.PathLike[str]) -> list[FleetJob]:
    """The jobs in a file: JSON, {"jobs": [{"call": …}, …]} or the list alone; or Python, where `jobs` is a list of FleetJob."""
    file = Path(path)
    try:
        data = file.read_bytes()
    except OSError as error:
        raise ArgumentError(f"{file} cannot be read: {error.strerror or error}") from None
    if file.suffix == ".py":
        scope: dict[str, Any] = {"__name__": "kernelkeep_jobs", "__file__": str(file)}
        try:
            exec(compile(data, str(file), "exec"), scope)
        except Exception as error:
            raise ArgumentError(f"{file} cannot be loaded: {type(error).__name__}: {error}") from None
        if "jobs" not in scope:
            raise ArgumentError(f"{file} holds no list of jobs: it must say jobs = [fleet.FleetJob(call=…), …]")
        return checked_jobs(scope["jobs"])
    try:
        found = msgspec.json.decode(data, type=_File | list[FleetJob])
    except (msgspec.MsgspecError, ValueError) as error:
        raise ArgumentError(f"{file} holds no list of jobs: {error}") from None
    return checked_jobs(found.jobs if isinstance(found, _File) else found)


def checked_jobs(jobs: Any) -> list[FleetJob]:
    """The jobs, each with a name of its own; `ArgumentError` says what is wrong."""
    if isinstance(jobs, FleetJob):
        jobs = [jobs]
    if not isinstance(jobs, Iterable) or isinstance(jobs, str | bytes | Mapping):
        raise ArgumentError(f"jobs must be a list of FleetJob, got {jobs!r}")
    found: list[FleetJob] = []
    for number, job in enumerate(jobs, 1):
        try:
            one = job if isinstance(job, FleetJob) else msgspec.convert(job, FleetJob)
        except msgspec.MsgspecError as error:
            raise ArgumentError(f"job {number} is none: {error}") from None
        found.append(one if one.name else msgspec.structs.replace(one, name=f"{one.call} {number}"))
    if not found:
        raise ArgumentError("jobs must not be empty")
    for what, values in (("name", [job.name for job in found]), ("checkpoint", [job.checkpoint for job in found])):
        twice = {value for value in values if value is not None and values.count(value) > 1}
        if twice:
            raise ArgumentError(f"two jobs have the same {what}: {shown(sorted(twice)[0])}")
    return found


def run(
    jobs: str | os.PathLike[str] | Iterable[FleetJob | Mapping[str, Any]],
    *,
    cluster: str | None = None,
    workers: int | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
    device: str | None = None,
    progress: Wanted = False,
) -> FleetReport:
    """Run jobs, or those in a file, until each has returned or failed for good.

    A worker process that dies or hangs is replaced on its machine; where the machine itself is lost, another one goes on from the
    job's checkpoint. A job that raises what would only happen again, or makes no progress, is reported; the others go on.

    On this machine, `cache_dir` and `device` are what `kk.ProgramCache` and `kk.open_device` use by default in the jobs.
    """
    began = time.monotonic()
    if isinstance(jobs, str | os.PathLike):
        folder, found = Path(jobs).parent, read_jobs(jobs)
    else:
        folder, found = Path(), checked_jobs(jobs)
    orders = [_Order(job, _code(job, folder)) for job in found]
    count = workers if workers is not None else os.cpu_count() or 1
    if not isinstance(count, int) or count < 1:
        raise ArgumentError(f"workers must be a positive integer, got {workers!r}")
    slot = Slot(device, None if cache_dir is None else str(settings.cache_dir(cache_dir)))
    with open_workers(cluster, [slot] * count) as fleet:
        parts = [Part(one.job.name, run_part, one, one.job.num_cpus, one.job.num_gpus) for one in orders]
        with progress_view("run", len(parts), progress) as show:
            statuses = run_parts(parts, fleet, show)
        return report_of("run", fleet.description, statuses, time.monotonic() - began)


def _code(job: FleetJob, folder: Path) -> NamedCode:
    """The function of a job. A file is looked for beside the list of jobs."""
    beside = folder / job.call.rpartition(":")[0]
    if job.call.rpartition(":")[0].endswith(".py") and beside.is_file():
        return NamedCode.parse(f"{beside}:{job.call.rpartition(':')[2]}")
    return NamedCode.parse(job.call)


# --- on a worker


def run_part(order: _Order, slot: Slot, tell: Tell) -> JobDone:
    """Run one job under a supervisor."""
    job = order.job
    for name, value in (("KERNELKEEP_DEVICE", slot.device), ("KERNELKEEP_CACHE_DIR", slot.cache_dir)):
        if value is not None:
            os.environ[name] = value  # of this worker, for the process that it starts
    for attempt in range(_BUSY_TRIES):
        try:
            report = run_supervised(
                call_job,
                checkpoint=job.checkpoint,
                heartbeat_seconds=job.heartbeat_seconds,
                max_restarts=job.max_restarts,
                args=(order,),
                on_event=lambda incident: tell(str(incident)),
            )
            return JobDone(report.result, report.restarts, tuple(str(one) for one in report.history))
        except CheckpointInUse as error:
            # A machine that the cluster gave up may still run the job for a while.
            if attempt == _BUSY_TRIES - 1:
                raise
            tell(str(error))
            time.sleep(_BUSY_SECONDS)
    raise AssertionError("the loop returns or raises")


def call_job(order: _Order, found: str | None = None) -> Any:
    """In the supervised process: call the job's function."""
    function = load_function(order.code)
    kwargs = dict(order.job.kwargs)
    if "checkpoint" not in kwargs and _takes_checkpoint(function):
        kwargs["checkpoint"] = order.job.checkpoint
    return function(*order.job.args, **kwargs)


def _takes_checkpoint(function: Any) -> bool:
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False
    return "checkpoint" in parameters or any(one.kind is one.VAR_KEYWORD for one in parameters.values())
