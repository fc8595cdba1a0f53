"""The kernel language itself: a tree as C, for what is put together as text. Reading it again gives the same tree.

`#line` keeps the lines of the user's text. Trees of Python kernels have no structs and no constants, so these are not written.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from ..builtins import BUILTINS, CONSTANTS, CONSTRUCTORS, CONVERSIONS
from ..tree import (
    Assign,
    Binary,
    Block,
    Break,
    BuiltinCall,
    Call,
    Construct,
    Continue,
    Convert,
    Declare,
    Evaluate,
    Expression,
    For,
    Function,
    If,
    Increment,
    Index,
    Literal,
    Logical,
    Module,
    Name,
    Return,
    Slice,
    Statement,
    Swizzle,
    Ternary,
    Unary,
    Update,
    Variable,
    While,
)
from ..types import BOOL, F2, F4, F8, I4, I8, TEXT, U4, U8, Array, Buffer, Scalar, Type, Vector, limits

_KEYWORDS = frozenset(
    """auto bool break case char const continue default do double else enum extern false float for goto half if inline int long
    register restrict return short signed sizeof static struct switch true typedef uint ulong uchar ushort union unsigned void
    volatile while local constant global""".split()
)
_SUFFIXES = {I4: "", U4: "u", I8: "l", U8: "ul", F4: "f", F8: "L", F2: "h"}


class PortableWriter:
    """Writes functions, and the body of the kernel. `taken` are names that the text around has."""

    def __init__(self, module: Module, taken: Iterable[str]) -> None:
        self._module = module
        self._taken = {*taken, *_KEYWORDS, *BUILTINS, *CONSTANTS, *CONVERSIONS, *CONSTRUCTORS}
        self._inside: set[str] = set()  # names of the function that is being written
        self._names: dict[object, str] = {one: one.name for one in module.kernel.parameters}
        self._lines: list[str] = []
        self._next = 0  # the number that the next line has

    def functions(self) -> str:
        """The helper functions."""
        self._begin()
        for function in self._module.functions:
            self._inside = set()
            self._names[function] = self._unique(function.name)
            self._taken.add(self._names[function])
            parameters = ", ".join(self._parameter(one) for one in function.parameters)
            self._line(f"{_type(function.result)} {self._names[function]}({parameters}) {{", function.at.line)
            self._copies(function)
            self._block(function.body)
            self._line("}")
        return "\n".join(self._lines)

    def body(self) -> str:
        """The statements of the kernel. Call `functions` first."""
        self._begin()
        self._inside = {one.name for one in self._module.kernel.parameters}
        self._copies(self._module.kernel)
        self._block(self._module.kernel.body)
        return "\n".join(self._lines)

    # --- lines and names

    def _begin(self) -> None:
        self._lines, self._next = [], 0

    def _line(self, text: str, number: int = 0) -> None:
        if number and number != self._next:
            self._lines.append(f"#line {number}")
            self._next = number
        self._lines.append(text)
        self._next += 1

    def _unique(self, name: str) -> str:
        found, count = f"py_{name}" if name.lower().startswith(("kk", "__")) else name, 1
        while found in self._taken or found in self._inside:
            count += 1
            found = f"{name}_{count}"
        self._inside.add(found)
        return found

    def _new(self, variable: Variable) -> str:
        found = self._names[variable] = self._unique(variable.name)
        return found

    def _parameter(self, variable: Variable) -> str:
        kind = variable.type
        if isinstance(kind, Buffer):
            return f"{'const ' if kind.access == 'r' else ''}{_type(kind.element)}* {self._new(variable)}"
        return f"{_type(kind)} {self._new(variable)}"

    def _copies(self, function: Function) -> None:
        """Parameters that the kernel assigns to: around the text they may be constant."""
        if function is self._module.kernel:
            for one in sorted(function.changed, key=lambda variable: variable.name):
                given = self._names[one]
                self._line(f"{_type(one.type)} {self._new(one)} = {given};")

    # --- statements

    def _block(self, block: Block) -> None:
        for statement in block.statements:
            self._statement(statement)

    def _statement(self, s: Statement) -> None:
        number = s.at.line
        if isinstance(s, Declare):
            self._line(f"{self._declaration(s)};", number)
        elif isinstance(s, Evaluate):
            self._line(f"{self._x(s.expression)};", number)
        elif isinstance(s, Return):
            self._line("return;" if s.value is None else f"return {self._x(s.value)};", number)
        elif isinstance(s, Break | Continue):
            self._line("break;" if isinstance(s, Break) else "continue;", number)
        elif isinstance(s, If):
            self._line(f"if ({self._x(s.condition)}) {{", number)
            self._block(s.then)
            if s.otherwise is not None:
                self._line("} else {")
                self._block(s.otherwise)
            self._line("}")
        elif isinstance(s, While):
            self._line(f"while ({self._x(s.condition)}) {{", number)
            self._block(s.body)
            self._line("}")
        else:
            assert isinstance(s, For), s
            self._for(s)

    def _for(self, s: For) -> None:
        if s.unroll:
            self._line(f"kk_unroll({s.rounds})" if s.rounds else "kk_unroll", s.at.line)
        declared = [one for one in s.start if isinstance(one, Declare)]
        head = ", ".join(self._declaration(one, with_type=not at) for at, one in enumerate(declared))
        condition = "" if s.condition is None else self._x(s.condition)
        step = "" if s.step is None else self._x(s.step)
        self._line(f"for ({head}; {condition}; {step}) {{", s.at.line)
        self._block(s.body)
        self._line("}")

    def _declaration(self, s: Declare, *, with_type: bool = True) -> str:
        kind, sizes = s.variable.type, ""
        while isinstance(kind, Array):
            sizes += f"[{kind.length}]"
            kind = kind.element
        value = "" if s.value is None else f" = {self._x(s.value)}"  # before the name means the variable
        return f"{_type(kind) + ' ' if with_type else ''}{self._new(s.variable)}{sizes}{value}"

    # --- expressions

    def _x(self, e: Expression) -> str:
        if isinstance(e, Literal):
            return _literal(e)
        if isinstance(e, Name):
            return self._names[e.variable]
        if isinstance(e, Unary):
            return f"({e.operator}{self._x(e.operand)})"
        if isinstance(e, Binary | Logical):
            return f"({self._x(e.left)} {e.operator} {self._x(e.right)})"
        if isinstance(e, Ternary):
            return f"({self._x(e.condition)} ? {self._x(e.then)} : {self._x(e.otherwise)})"
        if isinstance(e, Assign):
            return f"{self._x(e.target)} = {self._x(e.value)}"
        if isinstance(e, Update):
            return f"{self._x(e.target)} {e.operator}= {self._x(e.value)}"
        if isinstance(e, Increment):
            return f"{self._x(e.target)}{e.operator}"
        if isinstance(e, Convert):
            return f"({_type(e.type)})({self._x(e.operand)})"
        if isinstance(e, Call):
            return f"{self._names[e.function]}({self._several(e.arguments)})"
        if isinstance(e, BuiltinCall):
            return f"{e.builtin.name}({self._several(e.arguments)})"
        if isinstance(e, Construct):
            if isinstance(e.type, Vector):
                return f"make_{e.type.title}({self._several(e.arguments)})"
            return f"{{{self._several(e.arguments)}}}"
        if isinstance(e, Index):
            return f"{self._x(e.base)}[{self._x(e.index)}]"
        if isinstance(e, Slice):
            return f"&{self._x(e.base)}[{self._x(e.offset)}]"
        assert isinstance(e, Swizzle), e
        return f"{self._x(e.base)}.{e.elements}"

    def _several(self, arguments: Iterable[Expression]) -> str:
        return ", ".join(map(self._x, arguments))


def _type(kind: Type) -> str:
    return kind.title


def _literal(e: Literal) -> str:
    kind, value = e.type, e.value
    if kind is TEXT:
        text = "".join(sign if sign.isprintable() and sign not in '"\\' else " " for sign in str(value))
        return f'"{text}"'
    if kind is BOOL:
        return "true" if value else "false"
    assert isinstance(kind, Scalar)
    if isinstance(value, float) and not math.isfinite(value):
        word = "NAN" if math.isnan(value) else "INFINITY" if value > 0 else "(-INFINITY)"
        return word if kind is F4 else f"({kind.title})({word})"
    if kind not in _SUFFIXES:
        return f"({kind.title})({value})"
    suffix = _SUFFIXES[kind]
    if isinstance(value, int) and not isinstance(value, bool) and kind.signed and value == limits(kind)[0]:
        return f"(-{-(value + 1)}{suffix} - 1{suffix})"
    return f"({value}{suffix})" if isinstance(value, int | float) and value < 0 else f"{value}{suffix}"
