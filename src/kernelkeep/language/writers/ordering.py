"""What must be evaluated before an expression: written as statements, or kept in constants."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from ..tree import (
    Assign,
    Binary,
    BuiltinCall,
    Call,
    Comma,
    Construct,
    Expression,
    Field,
    Increment,
    Index,
    Literal,
    Logical,
    Name,
    Slice,
    Swizzle,
    Ternary,
    Unary,
    Update,
    Variable,
    has_effect,
)
from ..types import BOOL, VOID, Array, Buffer
from .effects import OLD_VALUE
from .expressions import ExpressionWriter


class OrderingWriter(ExpressionWriter):
    """Writes statements before an expression."""

    def keep(self, e: Expression, stem: str = "kept") -> Name:
        """The value of an expression in a new constant, declared before the statement."""
        if isinstance(e, Name) and e.variable.is_const:
            return e
        if isinstance(e, Increment) and e.is_postfix:
            target = self.fixed_target(e.target)
            old = self.keep(target, "old")
            self.assign(self.incremented(e, target, old))
            return old
        variable = Variable(self.names.new(stem), e.type, "local", e.at, is_const=True)
        self.variables[variable] = variable.name
        self.declare(variable, e)
        return Name(e.at, e.type, variable)

    def declare(self, variable: Variable, value: Expression | None) -> None:
        raise NotImplementedError

    def with_kept_operands(self, e: Expression) -> Expression:
        """The same expression, with the operands in constants that must be evaluated first."""
        which = self.effects.spilled[id(e)]
        hoisted = id(e) in self.effects.hoisted
        found = self._with_kept(e, which)
        if hoisted:
            self.effects.hoisted.add(id(found))
            self.alive.append(found)
        return found

    def _with_kept(self, e: Expression, which: frozenset[int]) -> Expression:
        def kept(position: int, operand: Expression) -> Expression:
            if position not in which or operand.type is VOID:
                return operand
            if isinstance(operand, Slice):
                return replace(operand, offset=self.keep(operand.offset, "from"))
            if isinstance(operand.type, Buffer):
                return operand
            return operand if operand.type.kind == "array" else self.keep(operand)  # type: ignore[attr-defined]

        match e:
            case Binary():
                return replace(e, left=kept(0, e.left), right=kept(1, e.right))
            case Index():
                return replace(e, base=e.base, index=kept(1, e.index))
            case Call():
                arrays = {at for at, one in enumerate(e.arguments) if isinstance(one.type, (Array, Buffer))}
                if (
                    which & arrays
                ):  # GLSL copies an array when its turn comes, so the other arguments are computed before
                    which = frozenset(range(len(e.arguments)))
                return replace(e, arguments=tuple(kept(at, one) for at, one in enumerate(e.arguments)))
            case Construct():
                return replace(e, arguments=tuple(kept(at, one) for at, one in enumerate(e.arguments)))
            case BuiltinCall():
                first = e.arguments[0]
                if e.builtin.rule == "atomic" and 0 in which:
                    given = (
                        self.fixed_target(first, always=True),
                        *(kept(at, one) for at, one in enumerate(e.arguments) if at),
                    )
                else:
                    given = tuple(kept(at, one) for at, one in enumerate(e.arguments))
                return replace(e, arguments=given)
            case Assign():
                target = self.fixed_target(e.target, always=True) if 0 in which else e.target
                return replace(e, target=target, value=kept(1, e.value))
            case Update():
                target = self.fixed_target(e.target, always=True) if 0 in which else e.target
                if OLD_VALUE not in which:
                    return replace(e, target=target, value=kept(1, e.value))
                old = self.keep(target, "old")
                return Assign(e.at, e.type, target, self.combined(replace(e, value=kept(1, e.value)), old))
        return e

    def fixed_target(self, target: Expression, *, always: bool = False) -> Expression:
        """The target, with the indices in constants whose evaluation changes something; with `always`, all of them."""
        match target:
            case Index():
                base = self.fixed_target(target.base, always=always)
                index = target.index
                if not isinstance(index, Literal) and (always or self.changes(index)):
                    index = self.keep(index, "at")
                return (
                    replace(target, base=base, index=index)
                    if base is not target.base or index is not target.index
                    else target
                )
            case Field() | Swizzle():
                base = self.fixed_target(target.base, always=always)
                return replace(target, base=base) if base is not target.base else target
        return target

    def changes(self, e: Expression) -> bool:
        return has_effect(e) or id(e) in self.effects.emits

    def hoist(self, e: Expression) -> Expression:
        """Write an expression as statements. Returns its value."""
        match e:
            case Assign():
                return self.hoist_assignment(e)
            case Update():
                return self.hoist_assignment(self.expanded(e))
            case Increment():
                target = self.fixed_target(e.target)
                if not e.is_postfix:
                    return self.hoist_assignment(self.incremented(e, target))
                return self.keep(e)
            case Comma():
                self.evaluate(e.first)
                return e.last
            case Ternary() | Logical():
                return self.hoist_branches(e)
        return self.keep(e)

    def hoist_assignment(self, e: Assign) -> Expression:
        if isinstance(e.target, Name):
            self.assign(e)
            return e.target
        value = e.value if isinstance(e.value, Literal) else self.keep(e.value, "value")
        self.assign(replace(e, value=value))
        return value

    def hoist_branches(self, e: Ternary | Logical) -> Expression:
        variable = Variable(self.names.new("chosen" if isinstance(e, Ternary) else "holds"), e.type, "local", e.at)
        self.variables[variable] = variable.name
        self.effects.assigned[variable] += 1
        result = Name(e.at, e.type, variable)
        if isinstance(e, Ternary):
            condition = self.x(e.condition)
            self.declare(variable, None)
            self.branches(condition, lambda: self.set(result, e.then), lambda: self.set(result, e.otherwise))
        else:
            self.declare(variable, e.left)
            test = Unary(e.at, BOOL, "!", result) if e.operator == "||" else result
            self.branches(self.x(test), lambda: self.set(result, e.right), None)
        return result

    def set(self, target: Expression, value: Expression) -> None:
        """Write `target = value;`."""
        self.assign(Assign(value.at, value.type, target, value))

    def assign(self, e: Assign) -> None:
        self.line(f"{self.table[Assign](e)[0]};")

    def evaluate(self, e: Expression) -> None:
        raise NotImplementedError

    def branches(self, condition: str, then: Callable[[], None], otherwise: Callable[[], None] | None) -> None:
        raise NotImplementedError
