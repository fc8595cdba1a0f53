"""`read` reads a body; `shown` writes a tree as one line, so that a test can say what it expects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kernelkeep.language import tree
from kernelkeep.language.readers.c import Reading, read_body

# x is read, y and z are read and written; there is one of each scalar that bodies like to use.
PARAMETERS = (
    tree.kernel_parameter("x", "f4", "r"),
    tree.kernel_parameter("y", "f4", "rw"),
    tree.kernel_parameter("z", "i4", "rw"),
    tree.kernel_parameter("d", "f8", "rw"),
    tree.kernel_parameter("b", "u1", "rw"),
    tree.kernel_parameter("n", "i4"),
    tree.kernel_parameter("a", "f4"),
    tree.kernel_parameter("u", "u4"),
)


@pytest.fixture
def parameters() -> tuple[tree.Variable, ...]:
    return PARAMETERS


@pytest.fixture
def read() -> Callable[..., Reading]:
    def read(body: str, parameters: tuple[tree.Variable, ...] = PARAMETERS, **options: Any) -> Reading:
        return read_body("k", parameters, body, **options)

    return read


@pytest.fixture
def shown() -> Callable[[Any], str]:
    return show


def show(node: Any) -> str:
    match node:
        case None:
            return ""
        case tree.Literal(value=value, type=type_):
            return f"{value!r}:{type_}"
        case tree.Name(variable=variable):
            return str(variable.name)
        case tree.Unary(operator=sign, operand=operand):
            return f"({sign} {show(operand)})"
        case tree.Binary(operator=sign, left=left, right=right) | tree.Logical(operator=sign, left=left, right=right):
            return f"({show(left)} {sign} {show(right)})"
        case tree.Ternary(condition=condition, then=then, otherwise=otherwise):
            return f"({show(condition)} ? {show(then)} : {show(otherwise)})"
        case tree.Comma(first=first, last=last):
            return f"({show(first)}, {show(last)})"
        case tree.Assign(target=target, value=value):
            return f"{show(target)} = {show(value)}"
        case tree.Update(operator=sign, target=target, value=value, computed=computed):
            return f"{show(target)} {sign}= {show(value)} in {computed}"
        case tree.Increment(operator=sign, is_postfix=is_postfix, target=target):
            return f"{show(target)}{sign}" if is_postfix else f"{sign}{show(target)}"
        case tree.Convert(operand=operand, type=type_):
            return f"{type_}({show(operand)})"
        case tree.Call(function=function, arguments=arguments):
            return f"{function.name}({', '.join(map(show, arguments))})"
        case tree.BuiltinCall(builtin=builtin, arguments=arguments):
            return f"{builtin.name}({', '.join(map(show, arguments))})"
        case tree.Construct(arguments=arguments, type=type_):
            return f"{type_}{{{', '.join(map(show, arguments))}}}"
        case tree.Index(base=base, index=index):
            return f"{show(base)}[{show(index)}]"
        case tree.Slice(base=base, offset=offset):
            return f"{show(base)} + {show(offset)}"
        case tree.Field(base=base, name=name) | tree.Swizzle(base=base, elements=name):
            return f"{show(base)}.{name}"
        case tree.Declare(variable=variable, value=value):
            return f"{variable.type} {variable.name}" + (f" = {show(value)}" if value else "")
        case tree.Evaluate(expression=expression):
            return show(expression)
        case tree.Block(statements=statements):
            return "{" + "; ".join(map(show, statements)) + "}"
        case tree.If(condition=condition, then=then, otherwise=otherwise):
            return f"if {show(condition)} {show(then)}" + (f" else {show(otherwise)}" if otherwise else "")
        case tree.For(start=start, condition=condition, step=step, body=body, unroll=unroll):
            head = "; ".join((", ".join(map(show, start)), show(condition), show(step)))
            return f"{'unroll ' if unroll else ''}for ({head}) {show(body)}"
        case tree.While(condition=condition, body=body):
            return f"while {show(condition)} {show(body)}"
        case tree.DoWhile(body=body, condition=condition):
            return f"do {show(body)} while {show(condition)}"
        case tree.Switch(value=value, cases=cases):
            return f"switch {show(value)} " + " ".join(map(show, cases))
        case tree.Case(values=values, is_default=is_default, body=body, falls_through=falls_through):
            labels = [*map(str, values), *(["default"] if is_default else [])]
            return f"{'/'.join(labels)}: {show(body)}{' falls' if falls_through else ''}"
        case tree.Return(value=value):
            return f"return {show(value)}".strip()
        case tree.Break():
            return "break"
        case tree.Continue():
            return "continue"
    raise AssertionError(node)
