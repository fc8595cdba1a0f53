"""What goes where in a batch: worked out once for a job or a pipeline, from the parameters of its kernels.

A *cell* is one value on its way through a batch: a scalar, or an array in device memory. Parameters of several kernels that
have the same cell see the same memory, one kernel after the other. A job alone has a cell for each parameter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..errors import ArgumentError

if TYPE_CHECKING:
    from ..programs.signature import Parameter
    from .job import Job


class Stage(NamedTuple):
    """A job, and what its parameters take: the name of something in the pipeline, or a value that stays the same."""

    job: Job
    takes: Mapping[str, Any]


class Step(NamedTuple):
    """One launch. Not its job, which may be collected while the plan is kept."""

    params: tuple[Parameter, ...]
    cells: tuple[int, ...]  # for each parameter
    names: tuple[str, ...]  # and what it is called in the batch
    spent: tuple[int, ...]  # cells that no later launch and no result needs


@dataclass(frozen=True)
class Plan:
    """The launches of a batch, what it may pass, and what comes back."""

    steps: tuple[Step, ...]
    arguments: dict[str, int]  # names of what a batch may pass, and their cells
    returns: tuple[tuple[str, int], ...]
    constants: dict[int, Any] = field(default_factory=dict)  # cells whose value is the same in every batch
    plain: bool = True  # the names of a batch are those of the parameters


def plan_of(stages: Sequence[Stage], params: Sequence[tuple[Parameter, ...]], returns: Iterable[str] | None) -> Plan:
    """The plan of jobs that run one after the other. `ArgumentError` where they do not fit together."""
    planner = _Planner()
    for stage, known in zip(stages, params, strict=True):
        planner.add(stage, known)
    return planner.plan(returns)


@dataclass
class _Cell:
    """What is known about a cell, and which job and parameter said so first."""

    job: Job
    param: Parameter
    created: int  # the first step that has it
    last_used: int
    output: tuple[tuple[int, ...], np.dtype[Any]] | None = None
    output_of: Job | None = None
    read: bool = False  # by a later step than that


class _Planner:
    def __init__(self) -> None:
        self._cells: list[_Cell] = []
        self._current: dict[str, int] = {}  # the cell that a name means now
        self._arguments: dict[str, int] = {}
        self._constants: dict[int, Any] = {}
        self._outputs: dict[str, int] = {}  # names that jobs write, and the cell that was written last
        self._steps: list[Step] = []
        self._jobs: list[Job] = []
        self._plain = True

    def add(self, stage: Stage, params: tuple[Parameter, ...]) -> None:
        """Put a job behind the others."""
        job, takes = stage
        self._plain = self._plain and not takes and not self._steps
        known = [param.name for param in params]
        for name in takes:
            if name not in known:
                raise ArgumentError(f"job {job.name} has no parameter {name!r}; it has: {', '.join(known) or 'none'}")
        cells: dict[str, int] = {}
        # What only writes comes last: a name that it shares with what is read means the array from before.
        for param in sorted(params, key=lambda param: _written_anew(job, param)):
            name = takes.get(param.name, param.name)
            if isinstance(name, str):
                cells[param.name] = self._named(job, param, name)
            else:
                cells[param.name] = self._new(job, param)
                self._constants[cells[param.name]] = name
        names = [name if isinstance(name := takes.get(param, param), str) else param for param in known]
        step = Step(params, tuple(cells[name] for name in known), tuple(names), ())
        self._check_apart(job, step)
        for param, cell, name in zip(params, step.cells, names, strict=True):
            if param.name in job.outputs:
                self._check_output(job, param, cell)
                self._outputs[name] = cell
        self._steps.append(step)
        self._jobs.append(job)

    def _named(self, job: Job, param: Parameter, name: str) -> int:
        number = len(self._steps)
        cell = self._current.get(name)
        if cell is None or (_written_anew(job, param) and self._cells[cell].created < number):
            made = self._current[name] = self._new(job, param)
            if cell is None:
                self._arguments[name] = made
            return made
        known = self._cells[cell]
        self._check_same_kind(job, param, known, name)
        known.last_used = number
        known.read = known.read or (known.created < number and param.access != "w")
        return cell

    def _new(self, job: Job, param: Parameter) -> int:
        self._cells.append(_Cell(job, param, len(self._steps), len(self._steps)))
        return len(self._cells) - 1

    def plan(self, returns: Iterable[str] | None) -> Plan:
        """The whole of it; without `returns`, the outputs of the last job come back."""
        last = self._steps[-1]
        if returns is None:
            outputs = self._jobs[-1].outputs
            wanted = {
                name: cell
                for param, name, cell in zip(last.params, last.names, last.cells, strict=True)
                if param.name in outputs
            }
        else:
            wanted = {}
            for name in returns:
                if name not in self._outputs:
                    known = ", ".join(self._outputs)
                    raise ArgumentError(f"returns must name outputs of the jobs, got {name!r}; there are: {known}")
                wanted[name] = self._outputs[name]
        self._check_used(set(wanted.values()))
        steps = []
        for number, step in enumerate(self._steps):
            spent = {
                cell for cell in step.cells if self._cells[cell].last_used == number and cell not in wanted.values()
            }
            steps.append(step._replace(spent=tuple(spent) if number < len(self._steps) - 1 else ()))
        # In the order of the parameters, for messages.
        arguments = {name: self._arguments[name] for step in steps for name in step.names if name in self._arguments}
        return Plan(tuple(steps), arguments, tuple(wanted.items()), self._constants, self._plain)

    # --- what does not fit together

    def _check_same_kind(self, job: Job, param: Parameter, known: _Cell, name: str) -> None:
        here, there = _label(job, param), _label(known.job, known.param)
        kinds = {_kind(param), _kind(known.param)}
        if kinds == {"scalar", "buffer"}:
            raise ArgumentError(
                f"{here} is a {_kind(param)} and {there} a {_kind(known.param)}, and both take {name!r}: name one of them "
                "otherwise"
            )
        if "buffer" in kinds and param.dtype and known.param.dtype and param.dtype != known.param.dtype:
            raise ArgumentError(
                f"{here} is {np.dtype(param.dtype).name}, but {name!r} is {np.dtype(known.param.dtype).name} in {there}"
            )

    def _check_apart(self, job: Job, step: Step) -> None:
        """A kernel must not write to memory that it has by another name as well."""
        seen: dict[int, Parameter] = {}
        for param, cell in zip(step.params, step.cells, strict=True):
            other = seen.setdefault(cell, param)
            if other is param or "scalar" in (_kind(param), _kind(other)):
                continue
            if param.access != "r" or other.access != "r":
                written = param if param.access != "r" else other
                raise ArgumentError(
                    f"parameters {other.name!r} and {param.name!r} of job {job.name} take the same array, and the kernel "
                    f"writes to it; give {written.name!r} a name of its own"
                )

    def _check_output(self, job: Job, param: Parameter, cell: int) -> None:
        wanted, known = job.outputs[param.name], self._cells[cell]
        if wanted is None or callable(wanted):
            return  # known when a batch comes
        check_output_dtype(job, param, wanted[1])
        if known.output is None:
            known.output, known.output_of = wanted, job
        elif known.output[0] != wanted[0]:
            assert known.output_of is not None
            raise ArgumentError(
                f"output {param.name!r} of job {job.name} has the shape {wanted[0]} in outputs=, but the array comes from "
                f"job {known.output_of.name}, where its shape is {known.output[0]}"
            )

    def _check_used(self, wanted: set[int]) -> None:
        """A job that only makes what nobody reads is a name that was forgotten."""
        for number, (step, job) in enumerate(zip(self._steps, self._jobs, strict=True)):
            written = [
                (param, cell) for param, cell in zip(step.params, step.cells, strict=True) if param.name in job.outputs
            ]
            if all(
                param.access == "w" and not self._cells[cell].read and cell not in wanted for param, cell in written
            ):
                name = step.names[step.params.index(written[0][0])]
                raise ArgumentError(
                    f"output {name!r} of job {job.name} (number {number + 1} of {len(self._steps)}) goes nowhere: pass it on, "
                    f'as in (job, {{"parameter": "{name}"}}), or name it in returns='
                )


def check_output_dtype(job: Job, param: Parameter, dtype: np.dtype[Any]) -> None:
    """An output must have the dtype that its kernel declares."""
    if param.dtype is not None and dtype != np.dtype(param.dtype):
        raise ArgumentError(
            f"output {param.name!r} of job {job.name} must be {np.dtype(param.dtype).name} as in the kernel, got "
            f"{dtype.name} in outputs="
        )


def _written_anew(job: Job, param: Parameter) -> bool:
    """Whether a job makes an array of its own for a parameter, whatever had that name before.

    A kernel that only writes does not overwrite what came before: the same kernel may read that.
    """
    return param.access == "w" and param.name in job.outputs


def _kind(param: Parameter) -> str:
    return "scalar" if param.kind == "local" else param.kind


def _label(job: Job, param: Parameter) -> str:
    return f"parameter {param.name!r} of job {job.name}"
