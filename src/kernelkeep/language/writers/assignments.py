"""Assignments, `+=` and `++`, in the syntax that C, GLSL and WGSL share."""

from __future__ import annotations

from msgspec.structs import replace

from ..tree import Assign, Binary, Expression, Increment, Literal, Update
from ..types import Scalar, Type, Vector, promoted
from .texts import ASSIGNMENT, PRIMARY, UNARY, Text, TextWriter, converted


class AssignmentWriter(TextWriter):
    """Writes what changes a variable."""

    masks_shifts = True  # the target language leaves shifts beyond the width open

    def assignment(self, e: Assign) -> Text:
        if self.plain_store(e.target):
            return f"{self.x(e.target, UNARY)} = {self.x(e.value, ASSIGNMENT)}", ASSIGNMENT
        return self.stored(e.target, e.value)

    def plain_store(self, target: Expression) -> bool:
        """Whether `target = value` is how the target language stores there."""
        return True

    def stored(self, target: Expression, value: Expression) -> Text:
        """What stores where `=` does not."""
        raise NotImplementedError

    def update(self, e: Update) -> Text:
        if e.target.type is e.computed and self.plain_store(e.target) and self.plain_update(e):
            return f"{self.x(e.target, UNARY)} {e.operator}= {self.update_operand(e)}", ASSIGNMENT
        return self.table[Assign](self.expanded(e))

    def plain_update(self, e: Update) -> bool:
        """Whether `target op= value` of the target language means the same."""
        return True

    def update_operand(self, e: Update) -> str:
        return self.x(self.shift_amount(e.value, e.computed) if e.operator in ("<<", ">>") else e.value, ASSIGNMENT)

    def shift_amount(self, amount: Expression, kind: Type) -> Expression:
        """The right operand of a shift, within the width of the left one."""
        element = kind.element if isinstance(kind, Vector) else kind
        assert isinstance(element, Scalar)
        bits = 8 * element.size
        if isinstance(amount, Literal):
            return amount if 0 <= int(amount.value) < bits else replace(amount, value=int(amount.value) & (bits - 1))
        if isinstance(amount.type, Vector) or not self.masks_shifts:
            return amount
        low, high = self.ranges.of(amount)
        if low >= 0 and high < bits:
            return amount
        return Binary(amount.at, amount.type, "&", amount, Literal(amount.at, amount.type, bits - 1))

    def expanded(self, e: Update) -> Assign:
        """`target = (type)((computed)target op value)`."""
        target = self.fixed_target(e.target)
        return Assign(e.at, e.type, target, self.combined(e, target))

    def combined(self, e: Update, old: Expression) -> Expression:
        computed: Expression = Binary(e.at, e.computed, e.operator, converted(old, e.computed), e.value)
        return converted(computed, e.target.type)

    def increment(self, e: Increment) -> Text:
        if self.plain_increment(e):
            text = self.x(e.target, UNARY)
            return (f"{text}{e.operator}", PRIMARY) if e.is_postfix else (f"{e.operator}{text}", UNARY)
        return self.table[Assign](self.incremented(e, self.fixed_target(e.target)))

    def plain_increment(self, e: Increment) -> bool:
        """Whether `x++` of the target language means the same."""
        return self.plain_store(e.target)

    def incremented(self, e: Increment, target: Expression, old: Expression | None = None) -> Assign:
        kind = e.target.type
        computed = promoted(kind) if isinstance(kind, Scalar) else kind
        element = computed.element if isinstance(computed, Vector) else computed
        one: Expression = Literal(e.at, element, 1.0 if element.kind == "float" else 1)  # type: ignore[attr-defined]
        changed = Binary(e.at, computed, e.operator[0], converted(old or target, computed), converted(one, computed))
        return Assign(e.at, kind, target, converted(changed, kind))
