"""What Python has and kernels do not: one sentence each, with what to write instead."""

from __future__ import annotations

import ast
from collections.abc import Container, Iterable

_OFTEN_IMPORTED = {"math": "math", "numpy": "numpy", "np": "numpy as np", "kk": "kernelkeep as kk"}
LENGTH_UNKNOWN = "the length of this array is not known in a kernel: pass it, as in n: kk.i4"
_SENTENCES: dict[str, str] = {
    "AsyncFor": "a kernel cannot wait: write a plain for",
    "AsyncFunctionDef": "a kernel cannot be async: write a plain def",
    "AsyncWith": "there is no with in a kernel",
    "Assert": "a kernel cannot raise, so there is no assert: run it on the reference device, which finds bugs",
    "Attribute": "only vectors have fields, such as v.x, and modules",
    "Await": "a kernel cannot wait: leave out await",
    "ClassDef": "there are no classes in a kernel: use variables, vectors such as kk.float4, or arrays",
    "Delete": "there is no del in a kernel: variables end with it",
    "Dict": "there are no dicts in a kernel: use an array",
    "DictComp": "there are no comprehensions in a kernel: write a for",
    "FormattedValue": "there are no strings in a kernel: write kk.print('label', value)",
    "FunctionDef": "a function cannot be defined in a kernel: write it outside, with @kk.function",
    "GeneratorExp": "there are no generators in a kernel: write a for",
    "Global": "a kernel cannot change variables outside: write to an array",
    "Import": "import outside of the kernel",
    "ImportFrom": "import outside of the kernel",
    "JoinedStr": "there are no strings in a kernel: write kk.print('label', value)",
    "Lambda": "there is no lambda in a kernel: write a function with @kk.function",
    "List": "there are no lists in a kernel: use an array, kk.array('f4', 8) or kk.array('f4', [1, 2])",
    "ListComp": "there are no comprehensions in a kernel: write a for",
    "Match": "there is no match in a kernel: write if and elif",
    "NamedExpr": "there is no := in a kernel: assign in a statement of its own",
    "Nonlocal": "a kernel cannot change variables outside: write to an array",
    "Raise": "a kernel cannot raise: write what went wrong into an array",
    "Set": "there are no sets in a kernel: use an array",
    "SetComp": "there are no comprehensions in a kernel: write a for",
    "Slice": "there are no slices in a kernel, but x[i:] as the argument of a @kk.function: write a for",
    "Starred": "there is no * before a value in a kernel: write the values one by one",
    "Try": "a kernel cannot raise, so there is no try: check before",
    "TryStar": "a kernel cannot raise, so there is no try: check before",
    "Tuple": "there are no tuples in a kernel but in a, b = b, a: use variables, or a vector such as kk.float4",
    "TypeAlias": "a type cannot be named in a kernel: write it out, as in kk.f4",
    "With": "there is no with in a kernel",
    "Yield": "a kernel is no generator: write results into an array",
    "YieldFrom": "a kernel is no generator: write results into an array",
}


def refusal(node: ast.AST) -> str:
    """Why a kernel cannot have this, and what to write instead."""
    return _SENTENCES.get(type(node).__name__, f"there is no {type(node).__name__} in a kernel")


def constant_refusal(value: object) -> str:
    """The same for a constant."""
    if isinstance(value, str | bytes):
        return "there are no strings in a kernel, but the label in kk.print('label', value)"
    if isinstance(value, complex):
        return "there are no complex numbers in a kernel: use kk.float2"
    return f"there is no {value!r} in a kernel: use a number"


def unknown(name: str, own: Iterable[str], imported: Container[str], arguments: str = "") -> str | None:
    """The sentence for a name that is often taken for one that is known; None for others.

    `own` are kernelkeep's functions without kk before them, `imported` the names outside of the kernel, and `arguments` those of
    a call, in parentheses.
    """
    import math

    from ..hints import of_python, unknown_name

    first = name.partition(".")[0]
    if arguments and (told := of_python(name)):
        return told
    if first in imported:
        return f"there is no {name} in a kernel"  # such as np.random.rand
    if first in _OFTEN_IMPORTED:
        return f"{first} is not imported: write import {_OFTEN_IMPORTED[first]} outside of the kernel"
    short = name.removeprefix("kk_")
    if short in own:
        what = (
            f"unknown {'function' if arguments else 'name'} {name}"
            if short == name
            else "kk is followed by a dot in Python"
        )
        other = f" or math.{short}{arguments}" if hasattr(math, short) else ""
        return f"{what}: write kk.{short}{arguments}{other}"
    return unknown_name(name)
