"""Expressions. What an expression does is written as lines before the statement; what it is worth is a `Value`.

The order of evaluation is from left to right: where a later operand does something, the values of earlier ones are kept first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from ....language.tree import (
    Assign,
    Binary,
    BuiltinCall,
    Call,
    Comma,
    Construct,
    Convert,
    Expression,
    Field,
    Increment,
    Index,
    Literal,
    Logical,
    Name,
    Place,
    Slice,
    Swizzle,
    Ternary,
    Unary,
    Update,
    has_effect,
)
from ....language.types import BOOL, I4, VOID, Array, Buffer, Scalar, StructType, Type, Vector, limits
from .builtins import BuiltinCalls
from .code import Code, Value, of_type
from .index_values import ARITHMETIC
from .operations import Operations
from .parts import Parts
from .storage import Binding, StorageAccess
from .targets import Target

if TYPE_CHECKING:
    from .module import FunctionScope

_XYZW = "xyzw"


class Expressions:
    """Writes the expressions of one function."""

    def __init__(self, code: Code, scope: FunctionScope) -> None:
        self.code = code
        self.scope = scope
        self.operations = Operations(code)
        self.access = StorageAccess(code)
        self.parts = Parts(self)
        self.builtins = BuiltinCalls(self)
        self._kinds: dict[type[Expression], Callable[..., Value]] = {
            Literal: self._literal, Name: self._name, Unary: self._unary, Logical: self._logical, Ternary: self._ternary,
            Comma: self._comma, Increment: self._increment, Convert: self._convert, Call: self._call,
            BuiltinCall: self.builtins.call, Construct: self._construct, Index: self.parts.index, Field: self.parts.field,
            Swizzle: self.parts.swizzle, Update: self._update,
        }  # fmt: skip

    # --- what statements call

    def value(self, expression: Expression, *, raw: bool = False) -> Value:
        """The value of an expression. `raw`: a float need not be rounded, because it is stored at once."""
        if isinstance(expression, Binary):
            return self._binary(expression, raw)
        if isinstance(expression, Assign):
            return self._assign(expression)
        return self._kinds[type(expression)](expression)

    def evaluate(self, expression: Expression) -> None:
        """Do what an expression does."""
        if isinstance(expression, Assign):
            self._store(expression)
            return
        if isinstance(expression, Increment):
            self._increment(expression, is_used=False)
            return
        if isinstance(expression, Update):
            self._update(expression, is_used=False)
            return
        value = self.value(expression)
        if not value.is_fixed and value.text and not value.text.isidentifier():
            self.code.add(value.text)

    def values(self, expressions: Iterable[Expression]) -> list[Value]:
        """The values of several expressions, evaluated in order."""
        found: list[Value] = []
        for expression in expressions:
            mark = len(self.code.lines)
            value = self.value(expression)
            if has_effect(expression):
                found = self.code.keep_before(mark, found)
            found.append(value)
        return found

    def initial(self, variable_type: Type, value: Expression, is_index: bool) -> Value:
        """The value that a variable begins with."""
        if is_index and isinstance(variable_type, Scalar) and variable_type.kind == "integer":
            return self._without_overflow(value, variable_type)
        return self.value(value)

    def index_value(self, expression: Expression) -> Value:
        """The value of an index: not wrapped, so that an overflow is seen as one."""
        if isinstance(expression, Binary) and expression.operator in ARITHMETIC and self._overflows(expression):
            left = self.index_value(expression.left)
            mark = len(self.code.lines)
            right = self.index_value(expression.right)
            if has_effect(expression.right):
                (left,) = self.code.keep_before(mark, [left])
            return self.operations.binary(expression.operator, expression.type, left, right, expression.at, exact=True)
        if isinstance(expression, Unary) and expression.operator == "-" and self._overflows(expression):
            return self.operations.unary("-", expression.type, self.index_value(expression.operand), exact=True)
        if isinstance(expression, Convert) and _is_integer(expression.operand.type) and not _is_small(expression.type):
            assert isinstance(expression.operand.type, Scalar)
            inner = self._without_overflow(expression.operand, expression.operand.type)
            return self.operations.convert(inner, expression.operand.type, expression.type)
        return self.value(expression)

    # --- names and literals

    def _literal(self, expression: Literal) -> Value:
        value = expression.value
        if isinstance(value, bool | int):
            return Value(repr(value) if value >= 0 else f"({value})", int(value), int(value), True)
        if isinstance(value, str):
            return Value(repr(value), is_fixed=True)
        if value != value:
            return Value("NAN", is_fixed=True)
        text = repr(value).replace("inf", "INF")
        return Value(text if not text.startswith("-") else f"({text})", is_fixed=True)

    def _name(self, expression: Name) -> Value:
        variable = expression.variable
        if variable.value is not None and isinstance(variable.type, Scalar) and variable.space != "parameter":
            return self._literal(variable.value)
        if isinstance(variable.type, Array | Buffer):
            return Value(self.scope.names.get(variable, variable.name))
        return self.parts.variable(expression).load()

    # --- operators

    def _unary(self, expression: Unary) -> Value:
        return self.operations.unary(expression.operator, expression.type, self.value(expression.operand))

    def _binary(self, expression: Binary, raw: bool = False) -> Value:
        left, right = self.values((expression.left, expression.right))
        return self.operations.binary(expression.operator, expression.left.type, left, right, expression.at, raw=raw)

    def _logical(self, expression: Logical) -> Value:
        left = self.value(expression.left)
        mark = len(self.code.lines)
        with self.code.deeper():
            right = self.value(expression.right)
            if len(self.code.lines) == mark:
                word = "and" if expression.operator == "&&" else "or"
                return Value(f"({left.text} {word} {right.text})", 0, 1)
        name = self.code.new_name()
        self.code.insert(mark, f"{name} = {left.text}")
        self.code.insert(mark + 1, f"if {name}:" if expression.operator == "&&" else f"if not {name}:")
        with self.code.deeper():
            self.code.add(f"{name} = {right.text}")
        return Value(name, 0, 1, True)

    def _ternary(self, expression: Ternary) -> Value:
        condition = self.value(expression.condition)
        if expression.type is VOID:
            with self.code.block(f"if {condition.text}:"):
                self.evaluate(expression.then)
            with self.code.block("else:"):
                self.evaluate(expression.otherwise)
            return Value("None", is_fixed=True)
        begin = len(self.code.lines)
        with self.code.deeper():
            then = self.value(expression.then)
            middle = len(self.code.lines)
            otherwise = self.value(expression.otherwise)
        kind = of_type("", expression.type)
        if len(self.code.lines) == begin:
            return kind._replace(text=f"({then.text} if {condition.text} else {otherwise.text})")
        name = self.code.new_name()
        self.code.insert(begin, f"if {condition.text}:")
        with self.code.deeper():
            self.code.insert(middle + 1, f"{name} = {then.text}")
        self.code.insert(middle + 2, "else:")
        with self.code.deeper():
            self.code.add(f"{name} = {otherwise.text}")
        return kind._replace(text=name, is_fixed=True)

    def _comma(self, expression: Comma) -> Value:
        self.evaluate(expression.first)
        return self.value(expression.last)

    def _convert(self, expression: Convert) -> Value:
        return self.operations.convert(self.value(expression.operand), expression.operand.type, expression.type)

    def _construct(self, expression: Construct) -> Value:
        texts = [value.text for value in self.values(expression.arguments)]
        if isinstance(expression.type, Vector):
            return Value(f"({', '.join(texts)})")
        return Value(f"[{', '.join(texts)}]")

    # --- assignments

    def _assign(self, expression: Assign) -> Value:
        value = self.code.keep(self._assigned_value(expression, target := self._target_of(expression)))
        target.store(value)
        return value

    def _store(self, expression: Assign) -> None:
        target = self._target_of(expression)
        target.store(self._assigned_value(expression, target, raw=target.rounds))

    def _target_of(self, expression: Assign | Update) -> Target:
        return self.parts.target(expression.target, is_kept=has_effect(expression.value))

    def _assigned_value(self, expression: Assign, target: Target, raw: bool = False) -> Value:
        if self._is_index(expression.target):
            assert isinstance(target.type, Scalar)
            return self._without_overflow(expression.value, target.type)
        return self.value(expression.value, raw=raw)

    def _update(self, expression: Update, is_used: bool = True) -> Value:
        target = self._target_of(expression)
        computed, kind = expression.computed, target.type
        before = target.load()
        mark = len(self.code.lines)
        is_exact = computed is kind and expression.operator in ARITHMETIC and self._is_index(expression.target)
        value = self.index_value(expression.value) if is_exact else self.value(expression.value)
        if has_effect(expression.value):
            (before,) = self.code.keep_before(mark, [before])
        left = self.operations.convert(before, kind, computed)
        raw = not is_used and computed is kind and target.rounds
        sign, at = expression.operator, expression.at
        result = self.operations.binary(sign, computed, left, value, at, exact=is_exact, raw=raw)
        if is_exact:
            assert isinstance(kind, Scalar)
            result = self._check_overflow(result, kind, expression.at)
        result = self.operations.convert(result, computed, kind)
        if not is_used:
            target.store(result)
            return result
        kept = self.code.keep(result)
        target.store(kept)
        return kept

    def _increment(self, expression: Increment, is_used: bool = True) -> Value:
        target = self.parts.target(expression.target, is_kept=False)
        kind = target.type
        assert isinstance(kind, Scalar)
        before = target.load()
        if expression.is_postfix and is_used:
            before = self.code.keep(before)
        computed = I4 if kind is BOOL else kind
        one = Value("1.0", is_fixed=True) if kind.kind == "float" else Value("1", 1, 1, True)
        is_exact = self._is_index(expression.target)
        after = self.operations.binary(expression.operator[0], computed, before, one, expression.at, exact=is_exact)
        if is_exact:
            after = self._check_overflow(after, kind, expression.at)
        if computed is not kind:
            after = self.operations.convert(after, computed, kind)
        if not expression.is_postfix and is_used:
            after = self.code.keep(after)
        target.store(after)
        return before if expression.is_postfix else after

    # --- overflow into an index

    def _is_index(self, target: Expression) -> bool:
        return (
            isinstance(target, Name)
            and target.variable in self.scope.index_variables
            and isinstance(target.type, Scalar)
            and target.type.kind == "integer"
        )

    def _overflows(self, expression: Binary | Unary) -> bool:
        """Whether wrapping is a mistake in an index: unsigned numbers wrap on purpose when a negative one is added."""
        kind = expression.type
        if not isinstance(kind, Scalar) or kind.kind != "integer":
            return False
        return kind.signed or (isinstance(expression, Binary) and expression.operator == "*")

    def _without_overflow(self, expression: Expression, kind: Scalar) -> Value:
        return self._check_overflow(self.index_value(expression), kind, expression.at)

    def _check_overflow(self, value: Value, kind: Scalar, at: Place) -> Value:
        if value.fits(kind):
            return value
        least, most = limits(kind)
        kept = self.code.keep(value)
        self.code.add(
            f"if not {least} <= {kept.text} <= {most}: overflow({self.code.point(at, '', kind)}, me, {kept.text})"
        )
        return Value(kept.text, least, most, True)

    # --- calls

    def _call(self, expression: Call) -> Value:
        function = expression.function
        bound: dict[int, Binding] = {}
        given: list[tuple[int, Expression]] = []
        start: dict[int, str] = {}
        for number, (parameter, argument) in enumerate(zip(function.parameters, expression.arguments, strict=True)):
            if not isinstance(parameter.type, Buffer):
                given.append((number, argument))
                continue
            base = argument.base if isinstance(argument, Slice) else argument
            assert isinstance(base, Name)
            inherited = self.scope.offsets.get(base.variable)
            bound[number] = Binding(
                self.scope.storages.get(base.variable),
                self.scope.names.get(base.variable, ""),
                inherited is not None or isinstance(argument, Slice),
            )
            if isinstance(argument, Slice):
                given.append((number, argument.offset))
            if inherited is not None:
                start[number] = inherited
        values = dict(zip((number for number, _ in given), self._arguments(function.parameters, given), strict=True))
        texts: list[str] = []
        for number, parameter in enumerate(function.parameters):
            if number in bound:
                texts += [] if bound[number].storage is not None else [bound[number].name]
                if bound[number].has_offset:
                    parts = [start[number]] if number in start else []
                    texts.append(" + ".join([*parts, *([values[number].text] if number in values else [])]))
            else:
                text = values[number].text
                texts.append(f"copied({text})" if isinstance(parameter.type, StructType) else text)
        name = self.scope.variant(function, bound)
        call = f"{name}({', '.join([*self.scope.context, *texts])})"
        result = self.code.new_name()
        if function.has_barrier:
            self.code.add(f"{result}, me, lo, many = yield from {call}")
        elif function.result is VOID:
            self.code.add(call)
        else:
            self.code.add(f"{result} = {call}")
        if function.result is VOID:
            return Value("None", is_fixed=True)
        return of_type(result, function.result, is_fixed=True)

    def _arguments(self, parameters: Sequence[object], given: list[tuple[int, Expression]]) -> list[Value]:
        found: list[Value] = []
        for number, argument in given:
            mark = len(self.code.lines)
            if parameters[number] in self.scope.index_variables and _is_integer(argument.type):
                assert isinstance(argument.type, Scalar)
                value = self._without_overflow(argument, argument.type)
            else:
                value = self.value(argument)
            if has_effect(argument):
                found = self.code.keep_before(mark, found)
            found.append(value)
        return found


def _is_integer(kind: Type) -> bool:
    return isinstance(kind, Scalar) and kind.kind == "integer"


def _is_small(kind: Type) -> bool:
    return isinstance(kind, Scalar) and kind.size < 4
