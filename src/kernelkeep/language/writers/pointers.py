"""What CUDA C and OpenCL C share: pointers, C's casts, and signed integers whose overflow is undefined.

`+`, `-` and `*` of signed integers wrap here, so they are computed unsigned: `(int)((uint)a * b + c)`. Three kinds stay as they
are, because compilers make good use of what C promises: those whose operands cannot lead to an overflow; those directly in an
index, `x[row * n + column]`; and the counter of a loop that counts up or down to a limit. An index that overflows is a mistake,
which the reference device reports.
"""

from __future__ import annotations

from typing import ClassVar

from msgspec.structs import replace

from ..tree import (
    Binary,
    BuiltinCall,
    Call,
    Construct,
    Convert,
    Expression,
    Function,
    Increment,
    Index,
    Literal,
    Name,
    Unary,
    Update,
    Variable,
)
from ..types import BOOL, F2, I4, I8, U4, U8, VOID, Array, Buffer, Scalar, StructType, Vector, wrapped
from .base import Writer
from .effects import array_of, root_of
from .expressions import LEVELS, PRIMARY, SUM, UNARY, Text
from .numbers import folded, literal

UNSIGNED = {I4: U4, I8: U8}
_SIGNED = {U4: I4, U8: I8}


class PointerWriter(Writer):
    """A writer for a language like C."""

    casts: ClassVar[dict[Scalar, str]]  # the short names of types, in casts
    suffixes: ClassVar[dict[Scalar, str]]
    shared: ClassVar[str]
    aligned: ClassVar[str]
    function_qualifier: ClassVar[str]
    restrict: ClassVar[str]

    def needs_statement(self, e: Expression) -> bool:
        if not isinstance(e, Increment) or not e.is_postfix:
            return False
        return e.type is BOOL or (e.type in UNSIGNED and not isinstance(e.target, Name))

    # --- numbers

    def integer(self, value: int, kind: Scalar) -> Text:
        suffix = self.suffixes.get(kind, "")
        if kind.signed and kind.size >= 4 and value == -(1 << (8 * kind.size - 1)):
            return f"{value + 1}{suffix} - 1", SUM  # C has no negative constants: 2147483648 would be a long
        return f"{value}{suffix}", PRIMARY if value >= 0 else UNARY

    def cast(self, operand: Expression, target: Scalar) -> Text:
        if target is F2:
            return self.round_to_half(self.x(operand))
        source = operand.type
        if source is F2 and target.name == "f4":
            return self.x(operand, UNARY), UNARY
        if _SIGNED.get(target) is source and isinstance(operand, (Binary, Unary)) and self._may_wrap(operand):
            text, level, _ = self.unsigned(operand)
            return text, level
        return f"({self.casts.get(target) or self.type_name(target)}){self.x(operand, UNARY)}", UNARY

    # --- signed arithmetic

    def _may_wrap(self, e: Binary | Unary) -> bool:
        operators = ("+", "-", "*") if isinstance(e, Binary) else ("-",)
        if e.operator not in operators or e.type not in UNSIGNED or self.in_index:
            return False
        return id(e) not in self.effects.spilled and not self.ranges.is_exact(e)

    def unary(self, e: Unary) -> Text:
        if self._may_wrap(e):
            return self.wrapped(e)
        if e.operator == "-" and isinstance(e.type, Vector):
            return self.vector_operation(e)
        return super().unary(e)

    def binary(self, e: Binary) -> Text:
        if isinstance(e.left.type, Vector):
            return self.vector_operation(e)
        if self._may_wrap(e):
            return self.wrapped(e)
        if e.operator in ("<<", ">>"):
            return self.infix(e.operator, e.left, self.shift_amount(e.right, e.type))
        if e.type is F2:
            text, _ = self.infix(e.operator, e.left, e.right)
            return self.round_to_half(text)
        return self.infix(e.operator, e.left, e.right)

    def wrapped(self, e: Binary | Unary) -> Text:
        """Signed arithmetic, computed unsigned."""
        text, level, _ = self.unsigned(e)
        assert isinstance(e.type, Scalar)
        return f"({self.casts[e.type]}){text if level >= UNARY else f'({text})'}", UNARY

    def unsigned(self, e: Expression) -> tuple[str, int, bool]:
        """The same bits as an unsigned number; False: the text is signed, and becomes unsigned beside one that is not."""
        kind = UNSIGNED[e.type]  # type: ignore[index]
        if (value := folded(e)) is not None:
            return (*self.integer(wrapped(value, kind), kind), True)
        if isinstance(e, Convert) and e.operand.type is kind and id(e) not in self.effects.hoisted:
            text = self.x(e.operand, UNARY)
            return text, UNARY, True
        if isinstance(e, Unary) and self._may_wrap(e):
            text, level, is_unsigned = self.unsigned(e.operand)
            text = text if level >= UNARY and text[0] != "-" else f"({text})"
            return f"-{text if is_unsigned else f'({self.casts[kind]}){text}'}", UNARY, True
        if not isinstance(e, Binary) or not self._may_wrap(e):
            text, level = self.text(e)
            return text, level, False
        operator, right = e.operator, e.right
        if operator in ("+", "-") and isinstance(right, Literal) and int(right.value) < 0:
            operator, right = "+-"[operator == "+"], replace(right, value=-int(right.value))
        level = LEVELS[operator]
        first, first_level, first_unsigned = self.unsigned(e.left)
        second, second_level, second_unsigned = self.unsigned(right)
        if not first_unsigned and not second_unsigned:
            first = f"({self.casts[kind]}){first if first_level >= UNARY else f'({first})'}"
            first_level = UNARY
        first = first if first_level >= level else f"({first})"
        second = second if second_level > level else f"({second})"
        return f"{first} {operator} {second}", level, True

    def plain_update(self, e: Update) -> bool:
        if isinstance(e.computed, Vector) or e.computed is F2:
            return False
        if e.operator not in ("+", "-", "*") or e.computed not in UNSIGNED:
            return True
        return self._counts(e.target)

    def plain_increment(self, e: Increment) -> bool:
        if isinstance(e.type, Vector) or e.type is F2 or e.type is BOOL:
            return False
        return e.type not in UNSIGNED or self.in_index or self._counts(e.target)

    def _counts(self, target: Expression) -> bool:
        return isinstance(target, Name) and target.variable is self.counter

    def increment(self, e: Increment) -> Text:
        if not e.is_postfix or self.plain_increment(e):
            return super().increment(e)
        # The old value is the new one, counted back.
        changed = self.x(self.incremented(e, e.target))
        back = "-" if e.operator == "++" else "+"
        one = literal(1, e.type)
        if isinstance(e.type, Scalar) and e.type.kind == "float":
            one = replace(one, value=1.0)
        return f"{changed}, {self.x(Binary(e.at, e.type, back, e.target, one))}", 1

    # --- vectors, structs, arrays

    def vector_operation(self, e: Binary | Unary) -> Text:
        raise NotImplementedError

    def index(self, e: Index) -> Text:
        if isinstance(e.base.type, Vector):
            if isinstance(e.index, Literal):
                return f"{self.x(e.base, PRIMARY)}.{'xyzw'[int(e.index.value)]}", PRIMARY
            return self.vector_element(e)
        return super().index(e)

    def vector_element(self, e: Index) -> Text:
        raise NotImplementedError

    def construct(self, e: Construct) -> Text:
        if isinstance(e.type, Array):
            return f"{{{self.list_of(e.arguments)}}}", PRIMARY
        return super().construct(e)

    def declaration(self, variable: Variable, value: Expression | None) -> str:
        kind, sizes = variable.type, ""
        while isinstance(kind, Array):
            sizes += f"[{kind.length}]"
            kind = kind.element
        start = f" = {self.x(value, 2)}" if value is not None else ""
        space = ""
        if variable.space == "shared":
            space = f"{self.shared} {self.aligned if variable in self.effects.vectors else ''}"
        elif variable.is_const and value is not None:
            space = "const "
        return f"{space}{self.type_name(kind)} {self.variable(variable)}{sizes}{start}"

    def struct(self, struct: StructType) -> None:
        self.line(self.struct_head(struct))
        self.depth += 1
        for name, kind in struct.fields:
            field = Variable(name, kind, "local")
            self.variables[field] = self.field_name(struct, name)
            self.line(f"{self.declaration(field, None)};")
        self.depth -= 1
        self.line(self.struct_end(struct))

    def struct_head(self, struct: StructType) -> str:
        return f"struct {self.type_name(struct)} {{"

    def struct_end(self, struct: StructType) -> str:
        return "};"

    # --- functions

    def call(self, e: Call) -> Text:
        name, _ = self.specialised(e.function, e.arguments)
        texts = []
        for parameter, argument in zip(e.function.parameters, e.arguments, strict=True):
            text = self.x(argument)
            # A variable that is no array is given by its address.
            by_address = isinstance(parameter.type, Buffer) and not isinstance(argument.type, (Array, Buffer))
            texts.append(f"&{text}" if by_address and isinstance(argument, Name) else text)
        return f"{name}({', '.join(texts)})", PRIMARY

    def pointer(self, variable: Variable, space: str) -> str:
        """A parameter that takes an array."""
        kind, name = variable.type, self.variable(variable)
        assert isinstance(kind, Buffer)
        if variable.is_restrict:
            name = f"{self.restrict} {name}"
        element, sizes = kind.element, ""
        while isinstance(element, Array):
            sizes += f"[{element.length}]"
            element = element.element
        const = "const " if kind.access == "r" else ""
        start = f"{space}{const}{self.type_name(element)}"
        return f"{start} (*{name}){sizes}" if sizes else f"{start}* {name}"

    def space_of(self, variable: Variable) -> str:
        """The address space of an array, as it is written before a pointer."""
        return ""

    def specialised(self, function: Function, arguments: tuple[Expression, ...]) -> tuple[str, tuple[Expression, ...]]:
        roots = [
            array_of(argument)
            for parameter, argument in zip(function.parameters, arguments, strict=True)
            if isinstance(parameter.type, Buffer)
        ]
        spaces = tuple(self.space_of(root) for root in roots if root is not None)
        key = (function, spaces)
        if key in self.written:
            return self.written[key], arguments
        name = self.names.free(function.name)
        if name in self.written.values():
            name = self.names.other(name)
        before = dict(self.spaces)
        arrays = (one for one in function.parameters if isinstance(one.type, Buffer))
        self.spaces = dict(zip(arrays, spaces, strict=True))
        self.function(function, key, name, {})
        self.spaces = before
        return name, arguments

    spaces: dict[Variable, str] = {}  # noqa: RUF012

    def function_head(self, function: Function, name: str) -> str:
        parameters = []
        for one in function.parameters:
            if isinstance(one.type, Buffer):
                parameters.append(self.pointer(one, self.spaces.get(one, "")))
            else:
                parameters.append(f"{self.type_name(one.type)} {self.variable(one)}")
        result = "void" if function.result is VOID else self.type_name(function.result)
        return f"{self.function_qualifier} {result} {name}({', '.join(parameters) or 'void'})"

    def kernel_parameters(self) -> str:
        found = []
        kernel = self.module.kernel
        for one in kernel.parameters:
            if isinstance(one.type, Buffer):
                found.append(self.pointer(one, self.space_of(one)))
            else:
                const = "" if one in kernel.changed else "const "
                found.append(f"{const}{self.type_name(one.type)} {self.variable(one)}")
        return ", ".join(found)

    # --- built-ins

    def volatile(self, element: Expression, address: str, values: list[Expression]) -> Text:
        """An atomic load, or with a value an atomic store."""
        root = root_of(element)
        assert root is not None
        place = f"*(volatile {self.space_of(root)}{self.type_name(element.type)}*){address}"
        return (f"{place} = {self.x(values[0])}", 2) if values else (place, UNARY)

    def four(self, e: BuiltinCall) -> Text:
        root = root_of(e.arguments[0])
        assert root is not None
        array, index = self.x(e.arguments[0], PRIMARY), self.index_text(e.arguments[1])
        space = self.space_of(root)
        if e.builtin.rule == "load4":
            return f"*({space}const float4*)&{array}[{index}]", UNARY
        return f"*({space}float4*)&{array}[{index}] = {self.x(e.arguments[2], 2)}", 2
