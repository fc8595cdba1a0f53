"""Choosing a tuned kernel's variant for a problem: what is known is gathered here, and `select` decides.

Records and choices come from a file that anybody may have written: a colleague's, one that was shipped, one that was edited.
A variant counts only if it is one of the space, value for value and type for type; nothing else of a record is ever
compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import ArgumentError, Unsupported
from .record import Choice, Record
from .select import Knowledge, Selection, select
from .space import Variant
from .template import plain_problem
from .verdicts import Verdicts, still_counts

if TYPE_CHECKING:
    from ..cache.program_cache import ProgramCache
    from ..devices.base import Device
    from .records import Records
    from .tuned import Tuned

__all__ = ["Chooser"]

T = TypeVar("T")


class Chooser:
    """One choice: a tuned kernel, a device and a problem."""

    def __init__(self, tuned: Tuned, cache: ProgramCache, problem: Mapping[str, Any]) -> None:
        self.problem = plain_problem(problem)
        self._tuned = tuned
        self._device: Device = cache.device
        self._records: Records = tuned.records(cache)
        self._values = tuned.template.values(self.problem)
        self._check_problem()
        self._default = tuned.space.default(self._values)
        self._allowed: dict[Any, Variant | None] = {}

    def choose(self, deterministic: bool) -> Selection:
        """The best variant known; with `deterministic`, what is pinned or else the default. `VariantError` where that is
        known to be wrong, and nothing else is left."""
        tuned, device = self._tuned, self._device
        family, fingerprint = device.family, device.fingerprint.digest
        here = [record for record in self._records.of_device(tuned.name, fingerprint) if record.dtype == tuned.dtype]
        choices = [choice for choice in self._records.choices(tuned.name, fingerprint) if choice.dtype == tuned.dtype]
        usable = [choice for choice in choices if self.allowed(choice.variant) is not None]
        alike: list[Record] = []
        if not deterministic:
            found = self._records.of_architecture(tuned.name, family)
            alike = [record for record in found if record.device != fingerprint]
            alike += [record for record in tuned.shipped() if record.architecture == family]
        known = Knowledge(
            name=tuned.name,
            device_name=device.info.name,
            architecture=family,
            problem=self.problem,
            here=here,
            alike=alike,
            choices=usable,
            default=self._default,
            fits=self._fits,
            work=self._work,
            compiled_in=self._compiled_in,
            verdicts=Verdicts(here, self.problem, self._digest, self._counts),
            others=self._others,
            deterministic=deterministic,
        )
        chosen = select(known)
        return self._without(chosen, [c for c in choices if c.pinned and c.problem == self.problem and c not in usable])

    def allowed(self, variant: Mapping[str, Any]) -> Variant | None:
        """The space's own variant that equals this one in every value and type; None for what is none of them."""
        key = repr(sorted(variant.items()))
        if key not in self._allowed:
            fits = self._tuned.space.allows(variant, self._values) or self._default.is_same(variant)
            self._allowed[key] = Variant(variant) if fits else None
        return self._allowed[key]

    def against(self, variant: Variant) -> Record | None:
        """How a variant failed for this very problem."""
        tuned = self._tuned
        here = self._records.of_device(tuned.name, self._device.fingerprint.digest, self.problem, tuned.dtype)
        return Verdicts(here, self.problem, self._digest, self._counts).against(variant)

    def _without(self, chosen: Selection, ignored: list[Choice]) -> Selection:
        """Say that a pin was passed over; that is seldom what somebody wanted."""
        if not ignored:
            return chosen
        # The values may be anything, also what a terminal would act on, so they are not shown.
        said = f"what was pinned for this problem is not a variant of {self._tuned.name} any more, and is ignored"
        self._records.warn(f"pin {self._tuned.name}", f"{self._records.path}: {said}")
        return Selection(chosen.variant, f"{chosen.reason}; {said}", chosen.expected_ms, chosen.distance, chosen.basis)

    # --- this kernel, this device, this problem

    def _check_problem(self) -> None:
        """A misspelt name is an error here, and not a problem that nobody ever measured."""
        tuned, values = self._tuned, self._values
        for param in tuned.template.params(self._device.language):
            if param.kind == "buffer":
                shape = tuned.template.shape(param.name, values)
                if any(size < 0 for size in shape):
                    raise ArgumentError(f"{param.name} would have the shape {shape}: a size is not negative")
        clash = sorted(values.keys() & tuned.space.parameters.keys())
        if clash:
            raise ArgumentError(f"{', '.join(clash)} of the problem is also a parameter of the space of {tuned.name}")

    def _counts(self, record: Record) -> bool:
        return still_counts(record, self._tuned.tolerance, self._tuned.reference_digest)

    def _digest(self, variant: Variant) -> str | None:
        tuned = self._tuned
        try:
            return tuned.digest(tuned.template.launch(tuned.name, self._device, self._values, variant).source)
        except (ArgumentError, Unsupported):
            return None  # this device cannot have it

    def _others(self) -> Iterator[Variant]:
        """The allowed variants that this device can have, those most like the default first."""
        for variant in self._tuned.space.around(self._default, self._values):
            if self._digest(variant) is not None:
                yield variant

    # --- of another problem, which a stranger may have made up

    def _fits(self, record: Record) -> bool:
        """Whether a record speaks of a variant as it is today, and one that can do this problem."""
        tuned = self._tuned
        if not record.verified or record.tolerance > tuned.tolerance:
            return False
        variant = self.allowed(record.variant)
        if variant is None:
            return False
        # Fails for a larger device's, or an older template's.
        source = self._guarded(lambda: tuned.source(self._device, variant, record.problem))
        return source is not None and tuned.digest(source) == record.source

    def _work(self, problem: Mapping[str, Any]) -> float | None:
        return self._guarded(lambda: self._tuned.work(problem))

    def _compiled_in(self, problem: Mapping[str, Any]) -> Mapping[str, Any] | None:
        template = self._tuned.template
        return self._guarded(lambda: template.compiled_in(template.values(problem)))

    @staticmethod
    def _guarded(ask: Callable[[], T]) -> T | None:
        """What the user's functions make of a problem from a record, which they need not be made for; None where they
        fail."""
        try:
            return ask()
        except Exception:
            return None
