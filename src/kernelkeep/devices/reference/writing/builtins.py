"""Calls of built-in functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ....language.tree import BuiltinCall, Expression, Literal, Name, has_effect
from ....language.types import F8, TEXT, Array, Buffer, Scalar, Vector, limits
from ..arithmetic import EXACT
from .code import Value, of_type
from .storage import Storage

if TYPE_CHECKING:
    from .expressions import Expressions

# Of the positions that every work-item of a launch has alike.
_SIZES = {"kk_group_size": "S{d}", "kk_group_count": "C{d}", "kk_global_size": "(S{d} * C{d})"}
POSITIONS = {"kk_global_id": "gid{d}", "kk_local_id": "lid{d}", "kk_group_id": "grp{d}", **_SIZES}
_NOTHING = Value("None", is_fixed=True)


class BuiltinCalls:
    """Writes the calls of one function."""

    def __init__(self, expressions: Expressions) -> None:
        self._expressions = expressions
        self._code = expressions.code
        self._operations = expressions.operations
        self._rules: dict[str, Callable[[BuiltinCall], Value]] = {
            "position": self._position, "fixed": self._fixed, "atomic": self._atomic, "load4": self._load4,
            "store4": self._store4, "float": self._float, "test": self._test, "number": self._number,
            "integer": self._integer, "bits": self._bits, "reduce": self._reduce, "direction": self._direction,
            "print": self._print,
        }  # fmt: skip

    def call(self, expression: BuiltinCall) -> Value:
        """The value of a call."""
        return self._rules[expression.builtin.rule](expression)

    # --- places and waiting

    def _position(self, expression: BuiltinCall) -> Value:
        name, (dimension,) = expression.builtin.name, expression.arguments
        pattern = POSITIONS[name]
        least, most = (1, 1 << 31) if name in _SIZES else (0, (1 << 31) - 1)
        group = self._expressions.scope.group
        if isinstance(dimension, Literal) and isinstance(dimension.value, int) and 0 <= dimension.value <= 2:
            if group is not None and name == "kk_local_id":
                most = group[dimension.value] - 1
            elif group is not None and name == "kk_group_size":
                least = most = group[dimension.value]
            is_fixed = True
            text = pattern.format(d=dimension.value)
        else:
            which = self._expressions.value(dimension).text
            beyond = "1" if name in _SIZES else "0"
            text = f"dict(enumerate(({', '.join(pattern.format(d=d) for d in range(3))}))).get({which}, {beyond})"
            is_fixed = False
        return Value(text, least, min(most, (1 << 31) - 1), is_fixed)

    def _fixed(self, expression: BuiltinCall) -> Value:
        if expression.builtin.name == "kk_barrier":
            self._code.add(f"me, lo, many = yield {self._code.point(expression.at)}")
        elif expression.builtin.name == "kk_fence":
            self._code.add("fence()")
        else:
            raise NotImplementedError(f"the reference device has no {expression.builtin.name}")
        return _NOTHING

    # --- memory

    def _atomic(self, expression: BuiltinCall) -> Value:
        element, *given = expression.arguments
        kind = element.type
        assert isinstance(kind, Scalar)
        target = self._expressions.parts.element(element, is_kept=any(map(has_effect, given)))
        assert target is not None, "atomics take memory that work-items share"
        values = [self._code.keep(value) for value in self._expressions.values(given)]
        operation = expression.builtin.name.removeprefix("kk_atomic_")
        storage, index = target.storage, target.index
        self._expressions.access.atomic(storage, index, element.at, reads=operation not in ("exchange", "store"))
        place = f"{storage.prefix}[{index}]"
        if operation == "store":
            self._code.add(f"{place} = {values[0].text}")
            return _NOTHING
        old = self._code.keep(of_type(place, kind))
        if operation != "load":
            self._code.add(f"{place} = {self._new_value(operation, kind, old, values, expression).text}")
        return old

    def _new_value(
        self, operation: str, kind: Scalar, old: Value, values: Sequence[Value], expression: BuiltinCall
    ) -> Value:
        signs = {"add": "+", "sub": "-", "and": "&", "or": "|", "xor": "^"}
        value = values[0]
        if operation in signs:
            return self._operations.binary(signs[operation], kind, old, value, expression.at)
        if operation in ("min", "max"):
            return self._extreme(operation, kind, old, value)
        if operation == "exchange":
            return value
        return of_type(f"({values[1].text} if {old.text} == {value.text} else {old.text})", kind)

    def _load4(self, expression: BuiltinCall) -> Value:
        array, index = expression.arguments
        storage, texts = self._four(array, index, is_kept=False)
        if storage is None:
            name = self._expressions.value(array).text
            found = [self._code.keep(Value(f"{name}[{text}]")).text for text in texts]
        else:
            access = self._expressions.access
            found = [self._code.keep(access.read(storage, text, expression.at)).text for text in texts]
        value = Value(f"({', '.join(found)})")
        if storage is None:
            value = self._code.keep(value)
            self._code.add(f"if UNSET in {value.text}: unset({self._code.point(expression.at)}, me)")
        return self._code.keep(value)

    def _store4(self, expression: BuiltinCall) -> Value:
        array, index, given = expression.arguments
        storage, texts = self._four(array, index, is_kept=has_effect(given))
        value = self._code.keep(self._expressions.value(given))
        for number, text in enumerate(texts):
            part = Value(f"{value.text}[{number}]")
            if storage is None:
                self._code.add(f"{self._expressions.value(array).text}[{text}] = {part.text}")
            else:
                self._expressions.access.write(storage, text, part, expression.at)
        return _NOTHING

    def _four(self, array: Expression, index: Expression, *, is_kept: bool) -> tuple[Storage | None, list[str]]:
        """The array, where work-items share it, and the indices of four elements."""
        assert isinstance(array, Name) and isinstance(array.type, Array | Buffer)
        storage = self._expressions.scope.storages.get(array.variable)
        first = self._code.keep(self._expressions.parts.index_from_start(array, index))
        title = array.variable.written or array.variable.name
        if isinstance(array.type, Array):
            length: str | int = array.type.length
        else:
            length = f"len({self._expressions.value(array).text})" if storage is None else f"{storage.prefix}_n"
        self._expressions.access.check_bounds(first, length, index.at, title, index.type, count=4)
        self._code.add(f"if {first.text} & 3: misaligned({self._code.point(index.at, title)}, me, {first.text})")
        return storage, [first.text, *(f"{first.text} + {number}" for number in (1, 2, 3))]

    def _print(self, expression: BuiltinCall) -> Value:
        texts = [
            value.text if argument.type is not TEXT else f"Label({value.text})"
            for argument, value in zip(
                expression.arguments, self._expressions.values(expression.arguments), strict=True
            )
        ]
        self._code.add(f"show({self._code.point(expression.at)}, me, ({''.join(f'{text}, ' for text in texts)}))")
        return _NOTHING

    # --- mathematics

    def _arguments(self, expression: BuiltinCall) -> list[Value]:
        return [self._code.keep(value) for value in self._expressions.values(expression.arguments)]

    def _each(
        self, expression: BuiltinCall, one: Callable[[Scalar, list[Value]], Value], *, is_kept: bool = True
    ) -> Value:
        """A function of numbers, for each element of vectors."""
        kind = expression.arguments[0].type
        given = self._arguments(expression) if is_kept else self._expressions.values(expression.arguments)
        if not isinstance(kind, Vector):
            assert isinstance(kind, Scalar)
            return one(kind, given)
        given = [self._code.keep(value) for value in given]
        found = []
        for at in range(kind.length):
            parts = [of_type(f"{value.text}[{at}]", kind.element) for value in given]
            found.append(self._code.keep(one(kind.element, parts)).text)
        return Value(f"({', '.join(found)})")

    def _float(self, expression: BuiltinCall) -> Value:
        name = expression.builtin.name

        def one(kind: Scalar, parts: list[Value]) -> Value:
            texts = ", ".join(part.text for part in parts)
            if name == "fabs":
                return Value(f"abs({texts})")
            if name in ("fma", "mad") and kind is F8:
                return Value(f"fma_f8({texts})")
            value = Value(f"m_{name}({texts})")
            return value if name in EXACT else self._operations.round(value, kind)

        return self._each(expression, one, is_kept=False)

    def _test(self, expression: BuiltinCall) -> Value:
        value = self._code.keep(self._expressions.value(expression.arguments[0])).text
        name = expression.builtin.name
        return Value(f"({value} != {value})" if name == "isnan" else f"{name}({value})", 0, 1)

    def _number(self, expression: BuiltinCall) -> Value:
        name = expression.builtin.name

        def one(kind: Scalar, parts: list[Value]) -> Value:
            if name == "abs":
                (value,) = parts
                if kind.kind == "float":
                    return Value(f"abs({value.text})")
                if not kind.signed:
                    return value
                return self._operations.wrap(Value(f"abs({value.text})", 0, limits(kind)[1] + 1), kind)
            if name == "clamp":
                low = self._code.keep(self._extreme("max", kind, parts[0], parts[1]))
                return self._extreme("min", kind, low, parts[2])
            return self._extreme(name, kind, *parts)

        return self._each(expression, one)

    def _extreme(self, name: str, kind: Scalar, left: Value, right: Value) -> Value:
        if kind.kind == "float":
            return Value(f"f{name}({left.text}, {right.text})")
        sign = "<" if name == "min" else ">"
        left, right = self._code.keep(left), self._code.keep(right)
        text = f"({left.text} if {left.text} {sign} {right.text} else {right.text})"
        if left.low is None or right.low is None or left.high is None or right.high is None:
            return of_type(text, kind)
        choose = min if name == "min" else max
        return Value(text, choose(left.low, right.low), choose(left.high, right.high))

    def _integer(self, expression: BuiltinCall) -> Value:
        kind = expression.type
        assert isinstance(kind, Scalar)
        value = self._expressions.value(expression.arguments[0])
        bits = 8 * kind.size
        text = f"({value.text} & {(1 << bits) - 1})" if kind.signed else value.text
        if expression.builtin.name == "popcount":
            return Value(f"({text}).bit_count()", 0, bits)
        return Value(f"({bits} - ({text}).bit_length())", 0, bits)

    def _bits(self, expression: BuiltinCall) -> Value:
        source, target = expression.arguments[0].type, expression.type
        assert isinstance(source, Scalar) and isinstance(target, Scalar)
        value = self._expressions.value(expression.arguments[0])
        return of_type(f"same_bits({value.text}, {source.name!r}, {target.name!r})", target)

    def _reduce(self, expression: BuiltinCall) -> Value:
        kind = expression.type
        assert isinstance(kind, Scalar)
        return Value(self._vector_call(expression, kind))

    def _direction(self, expression: BuiltinCall) -> Value:
        kind = expression.type
        assert isinstance(kind, Vector)
        return Value(self._vector_call(expression, kind.element))

    def _vector_call(self, expression: BuiltinCall, kind: Scalar) -> str:
        texts = [value.text for value in self._expressions.values(expression.arguments)]
        return f"{expression.builtin.name}({', '.join(texts)}, {kind.name!r})"
