"""What a tree consists of: variables, expressions, statements and functions. `tree.py` says what holds for them."""

from __future__ import annotations

from typing import Literal as OneOf

from msgspec import Struct

from .builtins import Builtin
from .types import Type


class Place(Struct, frozen=True, gc=False):
    """A line and a column in the user's text, both from 1. `macro` is the macro that wrote what stands there."""

    line: int
    column: int
    macro: str = ""


NOWHERE = Place(0, 0)  # of what is not in the user's text: the kernel's parameters


class Variable(Struct, frozen=True, eq=False):
    """A declaration of a name.

    `space`: "buffer" and "scalar" are parameters of the kernel, "parameter" is one of a helper function, "local" a variable,
    "shared" an array or variable of the group, "constant" a constant outside all functions.
    """

    name: str  # unique where it is visible
    type: Type
    space: OneOf["buffer", "scalar", "parameter", "local", "shared", "constant"]
    at: Place = NOWHERE
    written: str = ""  # the name in the user's text
    is_const: bool = False
    value: Literal | None = None  # of a const with a value that is known
    is_restrict: bool = (
        False  # of a parameter that takes an array: nothing else in the function reaches the same memory
    )


# A tree has no cycles, so the garbage collector need not look at it: a third of the time that reading takes.
class Node(Struct, frozen=True, eq=False, gc=False):
    """A statement or an expression."""

    at: Place


# --- expressions


class Expression(Node, frozen=True, eq=False):
    """Something that has a value, of a type."""

    type: Type


class Literal(Expression, frozen=True, eq=False):
    """A number, true or false; for the label of kk_print, a str. Floats are exact in their type, and may be inf or nan."""

    value: bool | int | float | str


class Name(Expression, frozen=True, eq=False):
    """The value of a variable; as a target, the variable."""

    variable: Variable


class Unary(Expression, frozen=True, eq=False):
    """`-x`, `~x`, `!x`."""

    operator: OneOf["-", "~", "!"]
    operand: Expression


class Binary(Expression, frozen=True, eq=False):
    """Arithmetic `+ - * / % << >> & | ^`, or a comparison `== != < > <= >=`. On vectors, arithmetic goes by element."""

    operator: str
    left: Expression
    right: Expression


class Logical(Expression, frozen=True, eq=False):
    """`a && b`, `a || b`: the right operand is evaluated only where the left does not decide."""

    operator: OneOf["&&", "||"]
    left: Expression
    right: Expression


class Ternary(Expression, frozen=True, eq=False):
    """`condition ? then : otherwise`: one of the two is evaluated."""

    condition: Expression
    then: Expression
    otherwise: Expression


class Comma(Expression, frozen=True, eq=False):
    """`first, last`: both are evaluated; the value is that of `last`."""

    first: Expression
    last: Expression


class Assign(Expression, frozen=True, eq=False):
    """`target = value`. The target is a Name, Index, Field or Swizzle."""

    target: Expression
    value: Expression


class Update(Expression, frozen=True, eq=False):
    """`target op= value`, computed in `computed`; `value` has that type, but for shifts, where it has its own."""

    operator: str  # without the "="
    target: Expression
    value: Expression
    computed: Type


class Increment(Expression, frozen=True, eq=False):
    """`++x`, `--x`, `x++` or `x--`. The value is that before the change where `is_postfix`."""

    operator: OneOf["++", "--"]
    is_postfix: bool
    target: Expression


class Convert(Expression, frozen=True, eq=False):
    """`operand` as another type. `is_written`: a cast in the user's text."""

    operand: Expression
    is_written: bool = False


class Call(Expression, frozen=True, eq=False):
    """A call of a helper function."""

    function: Function
    arguments: tuple[Expression, ...]


class BuiltinCall(Expression, frozen=True, eq=False):
    """A call of a built-in function (`builtins.py`)."""

    builtin: Builtin
    arguments: tuple[Expression, ...]


class Construct(Expression, frozen=True, eq=False):
    """A vector, struct or array, made of its elements."""

    arguments: tuple[Expression, ...]


class Index(Expression, frozen=True, eq=False):
    """`base[index]`: an element of a buffer, array or vector. The index is i4, u4, i8 or u8."""

    base: Expression
    index: Expression


class Slice(Expression, frozen=True, eq=False):
    """`base + offset`: an array from an element on, as the argument of a helper function. `base` is a Name."""

    base: Expression
    offset: Expression


class Field(Expression, frozen=True, eq=False):
    """`base.name`: a field of a struct."""

    base: Expression
    name: str


class Swizzle(Expression, frozen=True, eq=False):
    """`base.xyz`: elements of a vector, spelled with x, y, z and w. One of them gives a scalar, more a vector.

    A target has no element twice.
    """

    base: Expression
    elements: str


# --- statements


class Statement(Node, frozen=True, eq=False):
    """Something that is done."""


class Declare(Statement, frozen=True, eq=False):
    """A variable comes into being. Without a value, its contents are undefined."""

    variable: Variable
    value: Expression | None = None


class Evaluate(Statement, frozen=True, eq=False):
    """An expression whose value is not used."""

    expression: Expression


class Block(Statement, frozen=True, eq=False):
    """Statements with a scope of their own."""

    statements: tuple[Statement, ...]


class If(Statement, frozen=True, eq=False):
    """`if (condition) then else otherwise`."""

    condition: Expression
    then: Block
    otherwise: Block | None = None


class For(Statement, frozen=True, eq=False):
    """`for (start; condition; step) body`. Variables of `start` are visible in the loop only. `continue` goes to the step.

    `unroll`: kk_unroll stands before it. `rounds`: so many become one, as in kk_unroll(4); 0 where none is said.
    """

    start: tuple[Declare | Evaluate, ...]
    condition: Expression | None
    step: Expression | None
    body: Block
    unroll: bool = False
    rounds: int = 0


class While(Statement, frozen=True, eq=False):
    """`while (condition) body`."""

    condition: Expression
    body: Block


class DoWhile(Statement, frozen=True, eq=False):
    """`do body while (condition);`. `continue` goes to the condition."""

    body: Block
    condition: Expression


class Case(Node, frozen=True, eq=False):
    """`case 1: case 2: body`. `is_default`: `default:` is one of its labels."""

    values: tuple[int, ...]
    is_default: bool
    body: Block
    falls_through: bool


class Switch(Statement, frozen=True, eq=False):
    """`switch (value) { … }`. The value is i4, u4, i8 or u8; the cases have different values of that type."""

    value: Expression
    cases: tuple[Case, ...]


class Break(Statement, frozen=True, eq=False):
    """Leaves the innermost loop or switch."""


class Continue(Statement, frozen=True, eq=False):
    """Begins the next round of the innermost loop."""


class Return(Statement, frozen=True, eq=False):
    """Leaves the function; in the kernel, ends the work-item."""

    value: Expression | None = None


# --- functions


class Function(Struct, frozen=True, eq=False):
    """A helper function, or the kernel: that has buffers and scalars as parameters, and no result (VOID)."""

    name: str
    parameters: tuple[Variable, ...]
    result: Type
    body: Block
    at: Place = NOWHERE
    changed: frozenset[Variable] = frozenset()  # parameters that it assigns to: scalars are its own copies, as in C
    has_barrier: bool = False  # it, or a function that it calls, waits at a barrier
