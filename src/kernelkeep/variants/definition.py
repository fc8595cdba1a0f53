"""What a tuned kernel is: its template, its space of variants, and how their results are verified."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..cache.key import digest_of
from ..errors import ArgumentError
from ..programs.signature import Parameter
from ..programs.source import Source
from .case import Case, Inputs, Reference, make_case, ragged_problem
from .record import Record, decode_lines
from .space import Variant, VariantSpace
from .template import Launch, Template
from .time_model import TimeModel
from .trial import default_tolerance

if TYPE_CHECKING:
    from ..devices.base import Device

Problem = Mapping[str, Any]


def source_digest(source: Source) -> str:
    """A hash of a source that does not depend on the device.

    Which version wrote the text does not matter: it computes the same, and measured times stay the best guess there is.
    """
    return digest_of(source, "", whoever_wrote=True)


@dataclass(frozen=True, eq=False)
class Definition:
    """A tuned kernel's definition, with the arguments of `kk.Tuned`."""

    name: str
    template: Template
    space: VariantSpace
    reference: Reference | None
    inputs: Inputs | None
    checks: Sequence[Problem] | Callable[[Problem], Sequence[Problem]] | None
    given_tolerance: float | None
    check_scalars: Mapping[str, Any]
    given_work: Callable[[Problem], float] | None
    shipped_files: tuple[Path, ...]
    deterministic: bool
    model: TimeModel | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise ArgumentError(f"name must be a non-empty string, got {self.name!r}")
        if not isinstance(self.template, Template):
            raise ArgumentError(f"template must be a kk.Template, got a {type(self.template).__name__}")
        if not isinstance(self.space, VariantSpace):
            raise ArgumentError(f"space must be a kk.VariantSpace, got a {type(self.space).__name__}")
        if self.reference is not None and not callable(self.reference):
            raise ArgumentError(f"reference must be a function that computes the outputs, got {self.reference!r}")
        for path in self.shipped_files:
            if not path.is_file():
                raise ArgumentError(f"shipped names the file {path} for {self.name}, and there is no such file")

    def require_reference(self, purpose: str) -> None:
        """Raise unless variants can be verified."""
        if self.reference is None:
            raise ArgumentError(f"{self.name} has no reference to verify its variants with, so it cannot {purpose}")

    # --- variants

    def launch(self, device: Device, values: Mapping[str, Any], variant: Mapping[str, Any]) -> Launch:
        """A variant's launch; `values` is what `template.values(problem)` returned."""
        return self.template.launch(self.name, device, values, variant)

    def source(self, device: Device, variant: Mapping[str, Any], problem: Problem | None = None) -> Source:
        """A variant's source, as the cache is asked for it."""
        return self.launch(device, self.template.values(problem or {}), variant).source

    def default(self, device: Device, values: Mapping[str, Any]) -> Variant:
        """What runs where nothing was measured: what the model expects to be fastest, else the space's default."""
        best = None if self.model is None else self.model.best(device, values)
        return self.space.default(values) if best is None else Variant(best)

    @cached_property
    def dtype(self) -> str:
        """The type of the first output."""
        return next((str(p.dtype) for p in self._params if p.kind == "buffer" and p.access != "r"), "f4")

    @property
    def _params(self) -> tuple[Parameter, ...]:
        return self.template.params(self.template.a_language)

    def work(self, problem: Problem) -> float:
        """How much there is to compute, to estimate the time of one problem from another's."""
        if self.given_work is not None:
            return float(self.given_work(problem))
        values = self.template.values(problem)
        return float(sum(prod(self.template.shape(p.name, values)) for p in self._params if p.kind == "buffer"))

    def bytes_moved(self, values: Mapping[str, Any]) -> int:
        """The bytes of all arrays: each is read or written once at least."""
        buffers = [p for p in self._params if p.kind == "buffer"]
        return sum(prod(self.template.shape(p.name, values)) * np.dtype(p.dtype).itemsize for p in buffers)

    # --- verification

    @cached_property
    def tolerance(self) -> float:
        """The largest error allowed in a result, relative to the reference's largest value."""
        return default_tolerance(self._params) if self.given_tolerance is None else self.given_tolerance

    @cached_property
    def reference_digest(self) -> str:
        """A hash of the reference's code, without what it calls; "" where it has no code object."""
        code = getattr(self.reference, "__code__", None)
        return "" if code is None else hashlib.sha256(_code_bytes(code)).hexdigest()

    def problems_to_check(self, problem: Problem) -> list[Problem]:
        """The problems a variant must compute correctly before it is measured on `problem`, which is the last."""
        given = self.checks(problem) if callable(self.checks) else self.checks
        others = [ragged_problem(self.template, problem)] if given is None else list(given)
        return [*(other for other in others if other != problem), problem]

    def case(self, device: Device, problem: Problem, seed: int = 0, *, measured: bool = False) -> Case:
        """Arguments for a problem, and the reference's outputs. `check_scalars` apply unless the case is measured."""
        params = self.template.params(device.language)
        scalars = None if measured else self.check_scalars
        return make_case(self.template, params, problem, self.reference, self.inputs, seed, scalars)

    def trials(
        self, device: Device, variant: Mapping[str, Any], cases: Sequence[Case]
    ) -> tuple[tuple[Launch, ...], tuple[Case, ...]]:
        """A variant's launches, and the cases that they must compute correctly: always the last one.

        A case is left out where the space does not allow the variant, or where other constants make it another program.
        """
        launches = [self.launch(device, case.values, variant) for case in cases]
        digest = source_digest(launches[-1].source)
        pairs = [
            (launch, case)
            for launch, case in zip(launches, cases, strict=True)
            if case is cases[-1] or (source_digest(launch.source) == digest and self.space.allows(variant, case.values))
        ]
        return tuple(launch for launch, _ in pairs), tuple(case for _, case in pairs)

    # --- records

    @cached_property
    def shipped_records(self) -> list[Record]:
        """The records that come with the kernel."""
        found: list[Record] = []
        for path in self.shipped_files:
            with path.open("rb") as lines:
                found += [item for item in decode_lines(lines)[0] if isinstance(item, Record)]
        return [record for record in found if record.tuned == self.name]

    def record(
        self,
        device: Device,
        problem: Problem,
        variant: Mapping[str, Any],
        source: Source,
        samples_ms: Sequence[float],
        failure: str = "",
        detail: str = "",
    ) -> Record:
        """A measurement, or a failure, as it is stored."""
        return Record(
            tuned=self.name,
            source=source_digest(source),
            space=self.space.digest,
            device=device.fingerprint.digest,
            device_name=device.fingerprint.folder,
            architecture=device.family,
            problem=dict(problem),
            variant=dict(variant),
            dtype=self.dtype,
            samples_ms=list(samples_ms),
            failure=failure,
            detail=detail,
            tolerance=self.tolerance,
            verified=not failure,
            reference=self.reference_digest,
        )

    def still_counts(self, record: Record) -> bool:
        """Whether a record needs no new trial. A changed tolerance or reference may make a new one necessary."""
        if record.failure:
            # Most often the reference was wrong, and has been corrected.
            same = record.tolerance >= self.tolerance and record.reference == self.reference_digest
            return record.failure != "wrong" or same
        return bool(record.samples_ms) and record.verified and record.tolerance <= self.tolerance


def _code_bytes(code: Any) -> bytes:
    constants = [_code_bytes(c) if hasattr(c, "co_code") else repr(c).encode() for c in code.co_consts]
    return b"\0".join([code.co_code, repr(code.co_names).encode(), *constants])
