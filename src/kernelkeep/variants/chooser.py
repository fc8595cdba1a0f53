"""Choosing the variant for a problem: gathers what the records say, and lets `select` decide.

Anybody may have written the records: they may be imported, shipped or edited. A variant counts only if the space has it,
value for value and type for type; nothing else of a record is ever compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from ..errors import ArgumentError, Unsupported
from .definition import source_digest
from .known_failures import KnownFailures
from .record import Record
from .select import Knowledge, Selection, select
from .space import Variant
from .template import plain_problem

if TYPE_CHECKING:
    from .definition import Problem
    from .kernel_records import KernelRecords

T = TypeVar("T")


class Chooser:
    """Chooses for one tuned kernel, one device and one problem."""

    def __init__(self, records: KernelRecords, problem: Problem) -> None:
        self.problem = plain_problem(problem)
        self._records = records
        self._definition = records.definition
        self._device = records.device
        self._values = self._definition.template.values(self.problem)
        self._check_problem()
        self._default = self._definition.default(self._device, self._values)
        self._allowed: dict[str, Variant | None] = {}

    def choose(self, deterministic: bool) -> Selection:
        """The best variant known; with `deterministic`, the pinned one or the default. Raises `VariantError` where nothing
        is left that is not known to fail."""
        here, choices = self._records.on_this_device(), self._records.choices()
        usable = [choice for choice in choices if self.allowed(choice.variant) is not None]
        known = Knowledge(
            name=self._definition.name,
            device_name=self._device.info.name,
            architecture=self._device.family,
            problem=self.problem,
            here=here,
            alike=[] if deterministic else self._records.on_similar_devices(),
            choices=usable,
            default=self._default,
            fits=self._fits,
            work=self._work,
            compiled_in=self._compiled_in,
            failures=self._failures(here),
            others=self._others,
            deterministic=deterministic,
            estimate=self._estimate,
            least_ms=self._least_milliseconds(),
        )
        chosen = select(known)
        if any(choice.pinned and choice.problem == self.problem and choice not in usable for choice in choices):
            # The pin's values may be anything, also control characters for a terminal, so they are not shown.
            ignored = f"what was pinned for this problem is not a variant of {known.name} any more, and is ignored"
            self._records.all.warn(f"pin {known.name}", f"{self._records.all.path}: {ignored}")
            chosen = msgspec.structs.replace(chosen, reason=f"{chosen.reason}; {ignored}")
        return chosen

    def allowed(self, variant: Mapping[str, Any]) -> Variant | None:
        """The space's own variant that equals this one in every value and type; None where there is none."""
        key = repr(sorted(variant.items()))
        if key not in self._allowed:
            fits = self._definition.space.allows(variant, self._values) or self._default.is_same(variant)
            self._allowed[key] = Variant(variant) if fits else None
        return self._allowed[key]

    def failure_of(self, variant: Variant) -> Record | None:
        """How a variant failed for this problem."""
        return self._failures(self._records.on_this_device(self.problem)).failure_of(variant)

    def _failures(self, records: list[Record]) -> KnownFailures:
        return KnownFailures(records, self.problem, self._digest, self._definition.still_counts)

    def _check_problem(self) -> None:
        """Refuse a misspelt name, which would otherwise be a problem that nobody ever measured."""
        template, values = self._definition.template, self._values
        for param in template.params(self._device.language):
            if param.kind == "buffer":
                shape = template.shape(param.name, values)
                if any(size < 0 for size in shape):
                    raise ArgumentError(f"{param.name} would have the shape {shape}: a size is not negative")
        clash = sorted(values.keys() & self._definition.space.parameters.keys())
        if clash:
            name = self._definition.name
            raise ArgumentError(f"{', '.join(clash)} of the problem is also a parameter of the space of {name}")

    def _digest(self, variant: Variant) -> str | None:
        try:
            return source_digest(self._definition.launch(self._device, self._values, variant).source)
        except (ArgumentError, Unsupported):
            return None  # the device does not support it

    def _others(self) -> Iterator[Variant]:
        """The allowed variants that the device supports, those most like the default first."""
        for variant in self._definition.space.around(self._default, self._values):
            if self._digest(variant) is not None:
                yield variant

    def _estimate(self, problem: Problem, variant: Mapping[str, Any]) -> float | None:
        model = self._definition.model
        return None if model is None else self._attempt(lambda: model.milliseconds(self._device, problem, variant))

    def _least_milliseconds(self) -> float:
        """How long it takes at least to read and write every array once; 0 where the memory's speed is not known."""
        speed = self._device.memory_bytes_per_second()
        return self._definition.bytes_moved(self._values) / speed * 1e3 if speed else 0.0

    # --- other problems, from records: the user's functions may fail on them

    def _fits(self, record: Record) -> bool:
        """Whether a record is about a variant as the template writes it today, and about one that allows this problem."""
        variant = self.allowed(record.variant) if self._definition.still_counts(record) else None
        if variant is None:
            return False
        source = self._attempt(lambda: self._definition.source(self._device, variant, record.problem))
        return source is not None and source_digest(source) == record.source

    def _work(self, problem: Problem) -> float | None:
        return self._attempt(lambda: self._definition.work(problem))

    def _compiled_in(self, problem: Problem) -> Mapping[str, Any] | None:
        template = self._definition.template
        return self._attempt(lambda: template.compiled_in(template.values(problem)))

    @staticmethod
    def _attempt(function: Callable[[], T]) -> T | None:
        try:
            return function()
        except Exception:
            return None
