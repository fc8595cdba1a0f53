"""Variables, elements and fields: what they are worth, and where they are for an assignment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ....language.tree import Expression, Field, Index, Name, Swizzle, has_effect
from ....language.types import Array, Buffer, StructType, Vector
from .code import Value, of_type
from .storage import Storage, count_elements
from .targets import ElementTarget, SlotTarget, Target, VariableTarget, VectorTarget, checked

if TYPE_CHECKING:
    from .expressions import Expressions

_XYZW = "xyzw"


class Parts:
    """Writes them for one function."""

    def __init__(self, expressions: Expressions) -> None:
        self._expressions = expressions
        self._code = expressions.code
        self._scope = expressions.scope
        self._access = expressions.access

    def variable(self, expression: Name) -> VariableTarget | ElementTarget | SlotTarget:
        """A variable, of the work-item or of the group."""
        variable = expression.variable
        if (storage := self._scope.storages.get(variable)) is not None:  # shared by the group
            return ElementTarget(self._access, storage, "0", expression.at)
        if variable in self._scope.boxed:
            text, written = f"{self._scope.names[variable]}[0]", variable.written or variable.name
            return SlotTarget(self._code, text, variable.type, expression.at, written)
        return VariableTarget(
            self._code, self._scope.names[variable], variable.type, expression.at, variable.written or variable.name,
            may_be_unset=variable in self._scope.may_be_unset,
        )  # fmt: skip

    def target(self, expression: Expression, *, is_kept: bool) -> Target:
        """A place that is assigned to. `is_kept`: an index must not change until the value is there."""
        if isinstance(expression, Name):
            return self.variable(expression)
        if isinstance(expression, Index):
            found = self.element(expression, is_kept=is_kept)
            if found is not None:
                return found
            if isinstance(expression.base.type, Vector):
                whole = self.target(expression.base, is_kept=is_kept)
                index = self._checked_index(expression, "", is_kept)
                return VectorTarget(self._code, whole, index, expression.type, expression.at)
            container = self._container(expression.base, is_kept)
            index = self._checked_index(expression, container, is_kept)
            return SlotTarget(
                self._code, f"{container}[{index}]", expression.type, expression.at, _described(expression)
            )
        if isinstance(expression, Field):
            container = self._container(expression.base, is_kept)
            text = f"{container}[{_field_number(expression)}]"
            return SlotTarget(self._code, text, expression.type, expression.at, _described(expression))
        assert isinstance(expression, Swizzle)
        whole = self.target(expression.base, is_kept=is_kept)
        elements = [_XYZW.index(one) for one in expression.elements]
        return VectorTarget(self._code, whole, elements, expression.type, expression.at)

    def element(self, expression: Expression, *, is_kept: bool) -> ElementTarget | None:
        """An element of a buffer or shared array, or a shared variable; None where it is something else."""
        if isinstance(expression, Name):
            found = self.variable(expression)
            return found if isinstance(found, ElementTarget) else None
        if not isinstance(expression, Index):
            return None
        chain: list[Index] = [expression]
        while isinstance(chain[-1].base, Index):
            chain.append(chain[-1].base)
        base = chain[-1].base
        storage = self._scope.storages.get(base.variable) if isinstance(base, Name) else None
        if storage is None or isinstance(expression.base.type, Vector):
            return None
        chain.reverse()
        return ElementTarget(self._access, storage, self._flat_index(storage, chain, is_kept), expression.at)

    def _flat_index(self, storage: Storage, chain: Sequence[Index], is_kept: bool) -> str:
        texts: list[str] = []
        for one in chain:
            kind = one.base.type
            assert isinstance(kind, Array | Buffer)
            stride = count_elements(kind.element)
            limit: str | int = kind.length if isinstance(kind, Array) else f"{storage.prefix}_n"
            if isinstance(kind, Buffer) and stride > 1:
                limit = f"{storage.prefix}_n // {stride}"
            index = self._simple(self.index_from_start(one.base, one.index), is_kept or len(chain) > 1)
            self._access.check_bounds(index, limit, one.index.at, storage.title, one.index.type)
            texts.append(index.text if stride == 1 else f"{index.text} * {stride}")
        if len(texts) == 1:
            return texts[0]
        return self._code.keep(Value(" + ".join(texts))).text

    def _checked_index(self, expression: Index, base: str, is_kept: bool) -> str:
        """The index of an element of a vector, or of a list `base`."""
        index = self._simple(self.index_from_start(expression.base, expression.index), is_kept)
        kind = expression.base.type
        length = kind.length if isinstance(kind, Array | Vector) else f"len({base})"
        self._access.check_bounds(
            index, length, expression.index.at, _described(expression.base), expression.index.type
        )
        return index.text

    def index_from_start(self, base: Expression, index: Expression) -> Value:
        """The value of an index, counted from the start of an array that was passed from an element on."""
        value = self._expressions.index_value(index)
        offset = self._scope.offsets.get(base.variable) if isinstance(base, Name) else None
        return value if offset is None else Value(f"({offset} + {value.text})")

    def _simple(self, value: Value, is_kept: bool) -> Value:
        """A value with a short text: it is used several times."""
        if value.is_fixed or (value.text.isidentifier() and not is_kept):
            return value
        return self._code.keep(value)

    def _container(self, expression: Expression, is_kept: bool) -> str:
        """The list of a struct or local array, to change one of its parts."""
        if isinstance(expression, Name) and expression.variable not in self._scope.storages:
            return self._name(expression)
        return self.target(expression, is_kept=is_kept).container()

    def _name(self, expression: Name) -> str:
        name = self._scope.names[expression.variable]
        return f"{name}[0]" if expression.variable in self._scope.boxed else name

    def index(self, expression: Index) -> Value:
        """The value of an element."""
        found = self.element(expression, is_kept=False)
        if found is not None:
            return found.load()
        base, mark = self._part(expression.base), len(self._code.lines)
        index = self._checked_index(expression, base.text, False)
        if has_effect(expression.index):
            (base,) = self._code.keep_before(mark, [base])
        value = of_type(f"{base.text}[{index}]", expression.type)
        return self._checked_part(value, expression)

    def field(self, expression: Field) -> Value:
        """The value of a field."""
        base = self._part(expression.base)
        return self._checked_part(of_type(f"{base.text}[{_field_number(expression)}]", expression.type), expression)

    def swizzle(self, expression: Swizzle) -> Value:
        """The values of elements of a vector."""
        base = self._part(expression.base)
        elements = [_XYZW.index(one) for one in expression.elements]
        if len(elements) == 1:
            value = of_type(f"{base.text}[{elements[0]}]", expression.type)
        else:
            text = base.text if base.text.isidentifier() else self._code.keep(base).text
            value = Value(f"({', '.join(f'{text}[{one}]' for one in elements)})")
        return self._checked_part(value, expression)

    def _part(self, expression: Expression) -> Value:
        """A struct, array or vector of which a part is read: the other parts may be unset."""
        if isinstance(expression, Name) and expression.variable not in self._scope.storages:
            return Value(self._name(expression))
        if isinstance(expression, Field):
            base = self._part(expression.base)
            return Value(f"{base.text}[{_field_number(expression)}]")
        if isinstance(expression, Index) and isinstance(expression.base.type, Array | Buffer):
            if (found := self.element(expression, is_kept=False)) is not None:
                return found.load()
            base = self._part(expression.base)
            index = self._checked_index(expression, base.text, False)
            return Value(f"{base.text}[{index}]")
        return self._expressions.value(expression)

    def _checked_part(self, value: Value, expression: Field | Index | Swizzle) -> Value:
        root: Expression = expression
        while isinstance(root, Field | Index | Swizzle):
            root = root.base
        if isinstance(root, Name) and root.variable in self._scope.always_set:
            return value
        if not isinstance(root, Name):
            return value
        return checked(self._code, value, expression.type, expression.at, _described(expression))


def _field_number(expression: Field) -> int:
    assert isinstance(expression.base.type, StructType)
    return [name for name, _ in expression.base.type.fields].index(expression.name)


def _described(expression: Expression) -> str:
    """A part of something as the user wrote it, without indices."""
    if isinstance(expression, Name):
        return expression.variable.written or expression.variable.name
    if isinstance(expression, Field):
        return f"{_described(expression.base)}.{expression.name}"
    if isinstance(expression, Swizzle):
        return f"{_described(expression.base)}.{expression.elements}"
    if isinstance(expression, Index):
        return f"{_described(expression.base)}[…]"
    return "this value"
