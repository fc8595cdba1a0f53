"""The space of variants: named parameters, their values, and which combinations are allowed."""

from __future__ import annotations

import copy
import hashlib
import itertools
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from ..errors import ArgumentError
from .values import Value, in_words, plain_number

__all__ = ["Value", "Variant", "VariantSpace"]

Condition = Callable[[Mapping[str, Any]], bool]


class Variant(Mapping[str, Value]):
    """One value for each parameter: an immutable mapping, equal to a dict with the same values."""

    __slots__ = ("_hash", "_values")

    def __init__(self, values: Mapping[str, Value]) -> None:
        self._values = dict(values)
        self._hash = hash(frozenset(self._values.items()))

    def __getitem__(self, name: str) -> Value:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Variant):
            return self._values == other._values
        return self._values == other

    def is_same(self, other: Mapping[str, Any]) -> bool:
        """Whether all values are the same and of the same types: True and 1 are equal, and make different sources."""
        return self._values.keys() == other.keys() and all(
            _is_same(value, other[name]) for name, value in self._values.items()
        )

    def __str__(self) -> str:
        return in_words(self._values) or "the only variant"

    def __repr__(self) -> str:
        return f"Variant({', '.join(f'{name}={value!r}' for name, value in self._values.items())})"


class VariantSpace:
    """Every combination of the parameters' values that all conditions allow.

        space = kk.VariantSpace(TILE=[8, 16, 32], VEC=[1, 2, 4]).where(lambda v: v["TILE"] >= v["VEC"])

    A space never changes: `where` and `with_default` return a new one. A condition sees the parameters; when a particular
    problem is at hand, it also sees the problem's values, so `lambda v: v.get("n", 1024) % v["TILE"] == 0` is possible.
    """

    def __init__(self, **parameters: Iterable[Value]) -> None:
        self.parameters: dict[str, tuple[Value, ...]] = {
            name: _checked_values(name, values) for name, values in parameters.items()
        }
        self._conditions: tuple[Condition, ...] = ()
        self._default: Mapping[str, Value] = {}
        self._rule: Callable[[Mapping[str, Any]], Mapping[str, Value]] | None = None

    def where(self, condition: Condition) -> VariantSpace:
        """This space without the variants for which `condition` is false."""
        if not callable(condition):
            raise ArgumentError(f"condition must be a function of a variant, got {condition!r}")
        changed = copy.copy(self)
        changed._conditions = (*self._conditions, condition)
        return changed

    def with_default(
        self, rule: Callable[[Mapping[str, Any]], Mapping[str, Value]] | None = None, /, **values: Value
    ) -> VariantSpace:
        """This space with another default, which runs where nothing is known. Parameters left out keep theirs.

        A rule returns the default for a problem; its values need not be in the lists, and conditions do not apply to it.
        """
        if rule is not None and not callable(rule):
            raise ArgumentError(f"rule must be a function of a problem, got {rule!r}")
        for name, value in values.items():
            if name not in self.parameters:
                raise ArgumentError(f"the space has no parameter {name}; it has: {', '.join(self.parameters)}")
            if value not in self.parameters[name]:
                raise ArgumentError(f"{value!r} is not among the values of {name}: {list(self.parameters[name])}")
        changed = copy.copy(self)
        changed._default = {**self._default, **values}
        changed._rule = rule or self._rule
        return changed

    def allows(self, variant: Mapping[str, Any], problem: Mapping[str, Any] | None = None) -> bool:
        """Whether the space has a variant, value for value and type for type, and allows it for the problem."""
        if variant.keys() != self.parameters.keys():
            return False
        for name, choices in self.parameters.items():
            if not any(_is_same(value, variant[name]) for value in choices):
                return False
        values = {**(problem or {}), **variant}
        return all(_holds(condition, values) for condition in self._conditions)

    def variants(self, problem: Mapping[str, Any] | None = None) -> list[Variant]:
        """All variants, in the order of the values; with a problem, those allowed for it."""
        return [variant for variant in self._combinations() if self.allows(variant, problem)]

    def default(self, problem: Mapping[str, Any] | None = None) -> Variant:
        """What runs where nothing is known: the given default, or the first variant allowed.

        Where the problem does not allow the default, the allowed variant that differs from it in the fewest parameters.
        """
        if self._rule is not None and problem is not None:
            made = Variant(self._rule(problem))
            if made.keys() != self.parameters.keys():
                raise ArgumentError(
                    f"the rule for the default returned {made}, and the parameters are {list(self.parameters)}"
                )
            return made
        wanted = Variant({name: self._default.get(name, values[0]) for name, values in self.parameters.items()})
        if self.allows(wanted, problem):
            return wanted
        near = self._combinations() if not self._default else self._around(wanted)
        found = next((variant for variant in near if self.allows(variant, problem)), None)
        if found is None:
            raise ArgumentError("no variant of the space is allowed" + ("" if problem is None else f" for {problem}"))
        return found

    def _combinations(self) -> Iterator[Variant]:
        names = tuple(self.parameters)
        for values in itertools.product(*self.parameters.values()):
            yield Variant(dict(zip(names, values, strict=True)))

    def around(self, wanted: Variant, problem: Mapping[str, Any] | None = None) -> Iterator[Variant]:
        """All other allowed variants, those that differ in the fewest parameters first."""
        return (variant for variant in self._around(wanted) if self.allows(variant, problem))

    def _around(self, wanted: Variant) -> Iterator[Variant]:
        """All other variants, those that differ in the fewest parameters first."""
        for count in range(1, len(self.parameters) + 1):
            for names in itertools.combinations(self.parameters, count):
                others = [[value for value in self.parameters[name] if value != wanted[name]] for name in names]
                for values in itertools.product(*others):
                    yield Variant({**wanted, **dict(zip(names, values, strict=True))})

    def neighbours(self, variant: Variant, problem: Mapping[str, Any] | None = None) -> list[Variant]:
        """The allowed variants one step away: one parameter changed to the value before or after."""
        found = []
        for name, values in self.parameters.items():
            place = values.index(variant[name]) if variant[name] in values else -1  # a default may be outside
            for other in (place - 1, place + 1):
                if 0 <= other < len(values):
                    near = Variant({**variant, name: values[other]})
                    if self.allows(near, problem):
                        found.append(near)
        return found

    @property
    def digest(self) -> str:
        """A hash of the names and values, without the conditions."""
        text = json.dumps({name: list(values) for name, values in self.parameters.items()}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def combinations(self) -> int:
        """The number of variants without the conditions."""
        return math.prod(len(values) for values in self.parameters.values())

    def __iter__(self) -> Iterator[Variant]:
        return iter(self.variants())

    def __len__(self) -> int:
        return len(self.variants())

    def __contains__(self, variant: object) -> bool:
        return isinstance(variant, Mapping) and self.allows(variant)

    def __repr__(self) -> str:
        parameters = ", ".join(f"{name}={list(values)}" for name, values in self.parameters.items())
        conditions = f" with {len(self._conditions)} conditions" if self._conditions else ""
        return f"VariantSpace({parameters}){conditions}"


def _checked_values(name: str, values: Any) -> tuple[Value, ...]:
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise ArgumentError(f"parameter {name} must be a list of values, got {values!r}")
    plain: list[Value] = []
    for value in values:
        item = plain_number(value)
        if not isinstance(item, int | float | str):
            raise ArgumentError(f"a value of parameter {name} must be a number, a str or a bool, got {value!r}")
        if item not in plain:
            plain.append(item)
    if not plain:
        raise ArgumentError(f"parameter {name} has no values")
    return tuple(plain)


def _is_same(one: Value, other: Any) -> bool:
    plain = plain_number(other)
    return type(one) is type(plain) and bool(one == plain)


def _holds(condition: Condition, values: Mapping[str, Any]) -> bool:
    try:
        return bool(condition(values))
    except KeyError as error:
        raise ArgumentError(f"a condition of the space asks for {error}, which is not among {sorted(values)}") from None
