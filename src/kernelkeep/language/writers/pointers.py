"""What CUDA C and OpenCL C share: pointers, structs and C's casts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from ..tree import (
    Binary,
    BuiltinCall,
    Call,
    Construct,
    Expression,
    Function,
    Increment,
    Index,
    Literal,
    Module,
    Name,
    Unary,
    Variable,
)
from ..types import BOOL, F2, U2, VOID, Array, Buffer, Scalar, StructType, Vector
from .base import Entry
from .effects import array_of, root_of
from .texts import ASSIGNMENT, PRIMARY, SUM, UNARY, Text
from .wrapping import SIGNED, UNSIGNED, WrappingWriter


class PointerWriter(WrappingWriter):
    """A writer for a language like C."""

    suffixes: ClassVar[dict[Scalar, str]]
    shared: ClassVar[str]
    aligned: ClassVar[str]
    function_qualifier: ClassVar[str]
    restrict: ClassVar[str]

    def __init__(self, module: Module, entry: Entry, calls: Mapping[str, str] | None = None) -> None:
        super().__init__(module, entry, calls)
        # Of the arrays that this function was given: their address spaces, and which are the bits of halves.
        self.spaces: dict[Variable, str] = {}
        self.half_bits: set[Variable] = set()

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
        if SIGNED.get(target) is source and isinstance(operand, (Binary, Unary)) and self.may_wrap(operand):
            text, level, _ = self.unsigned(operand)
            return text, level
        return f"({self.casts.get(target) or self.type_name(target)}){self.x(operand, UNARY)}", UNARY

    # --- halves: a variable is a float that is rounded, a buffer has their bits

    def from_half(self) -> str:
        """A function that makes a float of the bits of a half."""
        raise NotImplementedError

    def to_half(self) -> str:
        """A function that rounds a float to a half, and returns its bits."""
        raise NotImplementedError

    def has_half_bits(self, variable: Variable | None) -> bool:
        """Whether an array consists of the bits of halves."""
        if variable is None or not isinstance(variable.type, Buffer) or variable.type.element is not F2:
            return False
        return variable.space == "buffer" or variable in self.half_bits

    def plain_store(self, target: Expression) -> bool:
        return target.type is not F2 or not isinstance(target, Index) or not self.has_half_bits(root_of(target))

    def stored(self, target: Expression, value: Expression) -> Text:
        assert isinstance(target, Index)
        text, from_half = self.x(value), f"{self.from_half()}("
        bits = text[len(from_half) : -1] if _is_one_call(text, from_half) else f"{self.to_half()}({text})"
        return f"{super().index(target)[0]} = {bits}", ASSIGNMENT

    # --- vectors, structs, arrays

    def index(self, e: Index) -> Text:
        if e.type is F2 and self.has_half_bits(root_of(e)):
            return f"{self.from_half()}({super().index(e)[0]})", PRIMARY
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
        start = ""
        if value is not None:
            is_index = self.sets_index(Name(variable.at, variable.type, variable))
            start = f" = {self.index_value(value, 2) if is_index else self.x(value, 2)}"
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
        start = f"{space}{const}{self.type_name(U2 if self.has_half_bits(variable) else element)}"
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
        half_bits = tuple(self.has_half_bits(root) for root in roots)
        key = (function, spaces, half_bits)
        if key in self.written:
            return self.written[key], arguments
        name = self.names.free(function.name)
        if name in self.written.values():
            name = self.names.other(name)
        before = self.spaces, self.half_bits
        arrays = [one for one in function.parameters if isinstance(one.type, Buffer)]
        self.spaces = dict(zip(arrays, spaces, strict=True))
        self.half_bits = {one for one, is_bits in zip(arrays, half_bits, strict=True) if is_bits}
        self.function(function, key, name, {})
        self.spaces, self.half_bits = before
        return name, arguments

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
            elif one.type is F2:
                found.append(f"const {self.type_name(U2)} {self.names.derived(f'{one.name}_bits')}")
            else:
                const = "" if one in kernel.changed else "const "
                found.append(f"{const}{self.type_name(one.type)} {self.variable(one)}")
        return ", ".join(found)

    def kernel_body(self) -> None:
        """The body, behind scalars that were given as the bits of a half."""
        kernel = self.module.kernel
        self.depth += 1
        for one in kernel.parameters:
            if one.type is F2:
                const = "" if one in kernel.changed else "const "
                bits = self.names.derived(f"{one.name}_bits")
                self.line(f"{const}float {self.variable(one)} = {self.from_half()}({bits});")
        self.depth -= 1
        self.block(kernel.body)

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


def _is_one_call(text: str, start: str) -> bool:
    """Whether a text is a call that begins so, and nothing behind it."""
    if not text.startswith(start):
        return False
    depth = 0
    for at, sign in enumerate(text):
        depth += (sign == "(") - (sign == ")")
        if sign == ")" and depth == 0:
            return at == len(text) - 1
    return False
