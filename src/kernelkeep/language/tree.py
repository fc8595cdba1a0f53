"""The typed tree of a kernel: what every reader makes, and what every writer and the interpreter take.

    Module      structs, constants, helper functions in the order of their calls, and the kernel
    Function    a helper function or the kernel: parameters, result, body
    Variable    a parameter, a local or shared variable, a constant: one object per declaration
    Statement   Declare Evaluate Block If For While DoWhile Switch Break Continue Return
    Expression  Literal Name Unary Binary Logical Ternary Comma Assign Update Increment Convert Call BuiltinCall Construct
                Index Field Swizzle Slice

A tree is never changed. Every node has `at`, its line and column in the user's text: where it begins, and for an operator
between two operands the place of its sign. What a macro wrote is at the place where the macro was used. Nodes are compared by
identity. `children` and `walk` go through any of them.

What holds for every tree that a reader returns:

Types
- Every expression has a type. It is never INVALID or ANY_FLOAT, and VOID only for a call that is a statement, or for both
  branches of a Ternary or the ends of a Comma that is one.
- Conversions are explicit. Where C converts silently there is a `Convert`, or a `Literal` that has the wanted type already.
  `Convert` goes from scalar to scalar, from vector to vector of the same length, or from scalar to vector: the same value in
  every element; the scalar then has the vector's element type. Arrays and structs are never converted.
- The operands of `Binary` have one and the same type, which is i4, u4, i8, u8, a float, or a vector. Two exceptions: the right
  operand of `<<` and `>>` has an integer type of its own, and `==` and `!=` also take two bools.
- Comparisons, `!`, `&&` and `||` give BOOL, and their `Logical` and `!` operands are BOOL. All conditions are BOOL.
- The right side of an `Assign`, an initialiser, an argument and a returned value have exactly the type they are given to.
- `Construct` has one argument per element of a vector or array, or per field of a struct, each of exactly that type. A short
  initialiser list is filled up with zeros.

Names
- Every name is resolved: `Name.variable`, `Call.function` and `BuiltinCall.builtin` are the declarations themselves.
- `Variable.name` hides nothing: within a function no two variables that are visible at the same place have the same name, and
  none has the name of a struct, a constant or a function. Where the user's text does that, the inner one was renamed
  (`i`, `i_2`). A name may be a reserved word of a target, or one of its functions: writers rename these.
- A helper function is defined before its first call, and none is recursive.

Values
- The order of evaluation is from left to right: operands, arguments, the index of an assigned element before the value that
  is assigned. `&&`, `||` and `?:` evaluate what C evaluates. Where C leaves an order open and the result depends on it (`x[i] =
  i++`), the checker has warned.
- Integers wrap in two's complement. `/` and `%` truncate towards zero. Shifts use the low bits of their right operand. A float
  that becomes an integer is truncated; beyond the limits it is the nearest integer of the type, and NaN is 0.
- `Update` (`x += v`) evaluates its target once. It is computed in `computed`, the type of its `value`, and then converted to the
  type of the target; where the two are one type, the target's own operator does it.

Statements
- Bodies of `If`, loops and `Case` are Blocks. There is no empty statement.
- Shared variables, mostly arrays, are declared at the top level of the kernel only, without an initialiser. `kk_barrier()` is
  a BuiltinCall in an Evaluate.
- `Case.falls_through` says that control may run from its end into the next case. The last one never does.
- A function with a result returns one on every path.

Arrays
- Arrays are never assigned, compared, returned or used as a value: they are indexed, initialised, or passed to a helper function.
- A parameter of type `Buffer` takes an array by reference. The argument is a `Name`: a buffer of the kernel, a shared or local
  array, or such a parameter of the caller. So each of them can be traced to an array of the kernel. It may also be a `Slice`, an
  array from an element on, or the Name of a variable that is no array (`&v` in C), of which only element 0 is used.
- There are no pointers. One that the user's text moves within one array (`float* p = x + i; p++`) has become a variable with
  an offset into that array.
- Structs are values: they are assigned, passed and returned whole.

What is left to a writer
- A `Literal` may be negative, the least integer of its type, inf or nan.
- Names of variables, functions, structs and fields may be reserved words of the target, or names that the writer uses itself.
- Parameters in `Function.changed` are assigned to: a target whose parameters are constant copies them.
- Assignments, `++` and calls stand inside of expressions; `has_effect` finds them.
- Types that the target lacks: `requirements.py` says which types and atomics a module uses.
"""

from __future__ import annotations

from collections.abc import Container, Iterator

from msgspec import Struct

from .nodes import (
    NOWHERE,
    Assign,
    Binary,
    Block,
    Break,
    BuiltinCall,
    Call,
    Case,
    Comma,
    Construct,
    Continue,
    Convert,
    Declare,
    DoWhile,
    Evaluate,
    Expression,
    Field,
    For,
    Function,
    If,
    Increment,
    Index,
    Literal,
    Logical,
    Name,
    Node,
    Place,
    Return,
    Slice,
    Statement,
    Switch,
    Swizzle,
    Ternary,
    Unary,
    Update,
    Variable,
    While,
)
from .types import SCALARS, TYPE_NAMES, Access, Named, StructType, Type, buffer

__all__ = [
    "CHAINED",
    "NOWHERE",
    "Assign",
    "Binary",
    "Block",
    "Break",
    "BuiltinCall",
    "Call",
    "Case",
    "Comma",
    "Construct",
    "Continue",
    "Convert",
    "Declare",
    "DoWhile",
    "Evaluate",
    "Expression",
    "Field",
    "For",
    "Function",
    "If",
    "Increment",
    "Index",
    "Literal",
    "Logical",
    "Module",
    "Name",
    "Node",
    "Place",
    "Return",
    "Slice",
    "Statement",
    "Switch",
    "Swizzle",
    "Ternary",
    "Unary",
    "Update",
    "Variable",
    "While",
    "children",
    "has_effect",
    "kernel_parameter",
    "long_chain",
    "walk",
]  # fmt: skip


class Module(Struct, frozen=True, eq=False):
    """A kernel, and all that it uses. Each constant is a Declare whose value consists of Literals and Constructs."""

    kernel: Function
    functions: tuple[Function, ...] = ()
    structs: tuple[StructType, ...] = ()
    constants: tuple[Declare, ...] = ()


def kernel_parameter(name: str, dtype: str, access: Access | None = None) -> Variable:
    """A parameter of a kernel: a buffer with an access of "r", "w" or "rw", or a scalar.

    `dtype` is NumPy's short name of a number; for a buffer also the name of a vector, such as "float4", or of a struct that the
    text defines.
    """
    element: Type | None = SCALARS.get(dtype)
    if element is None:
        element = TYPE_NAMES.get(dtype) or Named(dtype)
    if access is None:
        return Variable(name, element, "scalar", written=name)
    return Variable(name, buffer(element, access), "buffer", written=name)


# --- walking


def children(node: Node) -> list[Node]:
    """The nodes directly below a node, in the order of evaluation."""
    found: list[Node] = []
    for name in _CHILDREN[type(node)]:
        below = getattr(node, name)
        if isinstance(below, tuple):
            found += below
        elif below is not None:
            found.append(below)
    return found


def walk(node: Node) -> Iterator[Node]:
    """A node and all below it, from left to right; a node comes before what is below it."""
    rest = [node]
    take, add = rest.pop, rest.append
    while rest:
        node = take()
        yield node
        for name in _LAST_FIRST[type(node)]:
            below = getattr(node, name)
            if isinstance(below, tuple):
                rest += below[::-1]
            elif below is not None:
                add(below)


def has_effect(expression: Expression) -> bool:
    """Whether evaluating it does more than give a value: it assigns, or calls what may write."""
    for node in walk(expression):
        if isinstance(node, (Assign, Update, Increment, Call)):
            return True
        if isinstance(node, BuiltinCall) and not node.builtin.is_pure:
            return True
    return False


# Long chains of operators, such as a sum of 300 terms: as a tree they are deeper than Python's calls may be.
CHAINED = frozenset((Binary, Logical))
_LINKS = 40


def long_chain(e: Expression, known: Container[int]) -> list[Expression]:
    """Every 40th left operand of a chain, the innermost first, up to one whose id is known.

    Who handles them in this order and remembers what was found never goes deeper than 40.
    """
    found = []
    links = 0
    while type(e) in CHAINED and id(e) not in known:
        e = e.left  # type: ignore[attr-defined]
        links += 1
        if links % _LINKS == 0:
            found.append(e)
    return found[::-1]


_CHILDREN: dict[type, tuple[str, ...]] = {
    Literal: (), Name: (), Unary: ("operand",), Binary: ("left", "right"), Logical: ("left", "right"),
    Ternary: ("condition", "then", "otherwise"), Comma: ("first", "last"), Assign: ("target", "value"),
    Update: ("target", "value"), Increment: ("target",), Convert: ("operand",), Call: ("arguments",),
    BuiltinCall: ("arguments",), Construct: ("arguments",), Index: ("base", "index"), Slice: ("base", "offset"),
    Field: ("base",), Swizzle: ("base",),
    Declare: ("value",), Evaluate: ("expression",), Block: ("statements",), If: ("condition", "then", "otherwise"),
    For: ("start", "condition", "body", "step"), While: ("condition", "body"), DoWhile: ("body", "condition"),
    Case: ("body",), Switch: ("value", "cases"), Break: (), Continue: (), Return: ("value",),
}  # fmt: skip
_LAST_FIRST = {kind: names[::-1] for kind, names in _CHILDREN.items()}
