"""`kk.Pipeline`: jobs one after the other on the device; only what the last one makes comes back to the host."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..errors import ArgumentError
from ..programs.portable import PortableKernel
from .job import Job
from .plan import Stage, plan_of


class Pipeline:
    """Jobs that an executor runs one after the other on each batch; what they hand on stays on the device.

    Values have names. The outputs of a job are known by the names of its parameters, and a later job takes them by the same
    names; what no earlier job makes is passed with the batch, once for all jobs that have a parameter of that name. Where
    names differ, `(job, {"parameter": "name"})` says what a parameter takes, and what an output is called from there on. A
    value that is no string is passed to that job as it is: `(job, {"threshold": 0.5})`.

    An array that a kernel reads and writes is changed in place. One that it only writes is new, also where an earlier one
    had its name: `(edges, {"image": "result"})` reads one `result` and makes the next.

    The outputs of the last job come back, or those that `returns` names. That the jobs fit together is checked here for
    portable kernels, and at the first batch for sources, whose parameters are known once they are compiled.
    """

    jobs: tuple[Job, ...]
    """The jobs, in their order."""

    def __init__(
        self,
        jobs: Iterable[Job | tuple[Job, Mapping[str, Any]]],
        *,
        returns: str | Iterable[str] | None = None,
        name: str | None = None,
    ) -> None:
        if isinstance(jobs, Job | str | Mapping) or not isinstance(jobs, Iterable):
            raise ArgumentError(f"jobs must be a list of kk.Job, got a {type(jobs).__name__}")
        self.stages = tuple(_stage(job) for job in jobs)
        self.jobs = tuple(stage.job for stage in self.stages)
        if not self.stages:
            raise ArgumentError("jobs must have at least one kk.Job, got none")
        self.returns = _parse_returns(returns)
        self.name = name or "+".join(job.name for job in self.jobs)
        self.label = f"pipeline {self.name}"
        self.copy = any(job.copy for job in self.jobs)
        first = self.jobs[0]
        for job in self.jobs:
            if job.cache.device is not first.cache.device:
                raise ArgumentError(
                    f"job {job.name} has a cache of {job.cache.device.spec}, job {first.name} one of "
                    f"{first.cache.device.spec}; the jobs of a pipeline run on one device"
                )
        kernels = [job.source for job in self.jobs]
        known = [kernel.signature.params or () for kernel in kernels if isinstance(kernel, PortableKernel)]
        if len(known) == len(kernels):
            plan_of(self.stages, known, self.returns)

    def __repr__(self) -> str:
        return f"<Pipeline {self.name} on {self.jobs[0].cache.device.spec}>"


def _stage(given: Any) -> Stage:
    if isinstance(given, Job):
        return Stage(given, {})
    if isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], Job) and isinstance(given[1], Mapping):
        job, takes = given
        for name in takes:
            if not isinstance(name, str):
                raise ArgumentError(f"parameters of job {job.name} must be named by strings, got {name!r}")
        return Stage(job, dict(takes))
    kind = "a kk.Pipeline: list its jobs instead" if isinstance(given, Pipeline) else repr(given)
    raise ArgumentError(f'jobs must be kk.Job or (kk.Job, {{"parameter": "name"}}), got {kind}')


def _parse_returns(returns: Any) -> tuple[str, ...] | None:
    if returns is None:
        return None
    if not isinstance(returns, str | Iterable):
        raise ArgumentError(f"returns must be names of outputs, got a {type(returns).__name__}")
    names = (returns,) if isinstance(returns, str) else tuple(returns)
    if not names:
        raise ArgumentError("returns must name at least one output: the result is how a batch reports that it is done")
    for name in names:
        if not isinstance(name, str):
            raise ArgumentError(f"returns must be names of outputs, got {name!r}")
    return names
