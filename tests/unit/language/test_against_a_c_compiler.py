"""The tree means what C means: random programs, compiled by gcc as they are and as written from the tree, give the same bits.

What is written from the tree has a cast for each conversion, and asserts at compile time that every operand has in C the type
that the tree says. Literals without a suffix are left out: their type is ours (`types.py`).
"""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from kernelkeep.language import tree
from kernelkeep.language.guarantees import violations
from kernelkeep.language.readers.c import read_body
from kernelkeep.language.types import Scalar

PROGRAMS = 40
NAMES = {"b1": "_Bool", "i1": "signed char", "u1": "unsigned char", "i2": "short", "u2": "unsigned short", "i4": "int",
         "u4": "unsigned", "i8": "long", "u8": "unsigned long", "f4": "float", "f8": "double"}  # fmt: skip
INTEGERS, FLOATS = list(NAMES)[:9], ["f4", "f8"]
VALUES: dict[str, list[Any]] = {
    "b1": [0, 1], "i1": [-128, 127, -1, 5], "u1": [0, 200, 255], "i2": [-32768, 32767, -3], "u2": [9, 65535],
    "i4": [-(2**31) + 1, 2**31 - 1, -1, 0, 12345], "u4": [0, 77, 2**32 - 1], "i8": [-(2**63) + 1, 2**40, -1],
    "u8": [3, 2**64 - 1], "f4": [-1.5, 0.1, 3e5], "f8": [-2.75, 1e-3, 7e10],
}  # fmt: skip
HELPER = "long helper(unsigned short a, int b) { a += b; if (a > b) return a - b; return (char)a; }"
HEAD = """#include <stdio.h>
#include <string.h>
typedef _Bool bool;
#define TYPED(x, T) ({ _Static_assert(sizeof(x) == sizeof(T) && \\
    __builtin_types_compatible_p(__typeof__((x) + 0), __typeof__((T)0 + 0)), "another type"); (x); })
"""


class Generator:
    """Random statements. Nothing in them is undefined in C, once signed integers wrap."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.variables = {f"p{at}": kind for at, kind in enumerate(NAMES)}
        self.count = 0

    def fresh(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def variable(self, kinds: list[str]) -> str:
        return self.random.choice([name for name, kind in self.variables.items() if kind in kinds])

    def one(self, *texts: str) -> str:
        return self.random.choice(texts)

    def integer(self, depth: int) -> str:
        choice = self.random.random()
        if depth <= 0 or choice < 0.1:
            return self.variable(INTEGERS) if self.random.random() < 0.7 else self.integer_literal()
        a, b = self.integer(depth - 1), self.integer(depth - 1)
        if choice < 0.5:
            return f"({a} {self.one('+', '-', '*', '&', '|', '^')} {b})"
        if choice < 0.56:
            return f"({a} {self.one('/', '%')} {self.one('3', '7u', '-5', '200l', '(char)9')})"
        if choice < 0.62:
            return f"({a} {self.one('<<', '>>')} ({b} & 7))"
        if choice < 0.74:
            compared = (a, b) if choice < 0.7 else (self.floating(depth - 1), self.floating(depth - 1))
            return f"({compared[0]} {self.one('<', '>', '<=', '>=', '==', '!=')} {compared[1]})"
        if choice < 0.8:
            return f"({self.number(depth - 1)} {self.one('&&', '||')} {self.number(depth - 1)})"
        if choice < 0.85:
            return f"({self.number(depth - 1)} ? {a} : {b})"
        if choice < 0.9:
            return f"({self.one(*(NAMES[kind] for kind in INTEGERS))})({a})"
        if choice < 0.95:
            return f"{self.one('-', '~', '!', '+')}({a})"
        return f"helper({a}, {b})" if choice < 0.98 else f"({a}, {b})"

    def integer_literal(self) -> str:
        edges = [0, 1, 7, 127, 128, 255, 256, 65535, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**63 - 1]
        value = self.random.choice(edges)
        written = str(value) if value == 0 else self.one("%d", "0x%X", "0%o") % value
        return written + self.one("", "", "", "u", "l", "ul", "LL", "ull")

    def floating(self, depth: int) -> str:
        choice = self.random.random()
        if depth <= 0 or choice < 0.15:
            return self.variable(FLOATS) if choice < 0.1 else self.one("0.5f", "1.25e2f", "0x1.8p1f", ".1f", "3.f")
        a, b = self.floating(depth - 1), self.number(depth - 1)
        if choice < 0.7:
            pair = (a, b) if choice < 0.5 else (b, a)
            return f"({pair[0]} {self.one('+', '-', '*')} {pair[1]})"
        if choice < 0.8:
            return f"({b} ? {a} : {self.number(depth - 1)})"
        return self.one(f"({a} / 3)", f"(float)({b})", f"(double)({b})", f"-({a})")

    def number(self, depth: int) -> str:
        return self.integer(depth) if self.random.random() < 0.6 else self.floating(depth)

    def of_kind(self, kind: str, depth: int) -> str:
        return self.floating(depth) if kind in FLOATS else self.integer(depth)

    def block(self, depth: int, count: int = 1) -> str:
        before = dict(self.variables)
        text = "{ " + " ".join(self.statement(depth) for _ in range(count)) + " }"
        self.variables = before
        return text

    def statement(self, depth: int) -> str:
        choice = self.random.random()
        name, kind = self.random.choice(list(self.variables.items()))
        if choice < 0.25:
            new, kind = self.fresh(), self.random.choice(list(NAMES))
            text = f"{NAMES[kind]} {new} = {self.of_kind(kind, 3)};"
            self.variables[new] = kind
            return text
        if choice < 0.5:
            return f"{name} = {self.of_kind(kind, 3)};"
        if choice < 0.7:
            if kind in FLOATS:
                return f"{name} {self.one('+=', '-=', '*=')} {self.number(2)};"
            changed = f"{self.one('+=', '-=', '*=', '&=', '|=', '^=')} {self.integer(2)}"
            return f"{name} {self.one(changed, f'<<= ({self.integer(1)} & 7)', f'>>= ({self.integer(1)} & 7)')};"
        if choice < 0.78 and kind != "b1":
            return self.one(f"{name}++;", f"{name}--;", f"++{name};", f"--{name};")
        if depth <= 0:
            return ";"
        if choice < 0.86:
            return f"if ({self.number(2)}) {self.block(depth - 1, 2)} else {self.block(depth - 1)}"
        new, inner = self.fresh(), self.block(depth - 1)
        if choice < 0.92:
            leave = f"if ({self.number(1)}) {self.one('continue', 'break')};"
            return f"for (int {new} = 0; {new} < 3; {new}++) {{ {inner} {leave} {self.block(depth - 1)} }}"
        if choice < 0.97:
            cases = f"case 0: {inner} case 1: {self.block(depth - 1)} break; case 2u: case 'a': {self.block(depth - 1)}"
            return f"switch ({self.integer(2)} & 3) {{ {cases} default: {self.block(depth - 1)} }}"
        return f"{{ int {new} = 2; do {inner} while ({new}--); }}"


# --- C from the tree


def name_of(kind: Any) -> str:
    return NAMES[kind.name]


def typed(node: Any) -> str:
    return f"TYPED({write(node)}, {name_of(node.type)})"


def write(node: Any) -> str:
    match node:
        case tree.Literal(value=value, type=Scalar() as kind):
            if kind.kind == "float":
                return f"(({name_of(kind)}){float(value).hex()}{'f' if kind.size == 4 else ''})"
            return f"(({name_of(kind)}){int(value) & (2**64 - 1)}ull)"
        case tree.Name(variable=variable):
            return str(variable.name)
        case tree.Unary(operator=sign, operand=operand, type=kind):
            return f"(({name_of(kind)})({sign}{typed(operand)}))"
        case tree.Binary(operator=sign, left=left, right=right, type=kind):
            return f"(({name_of(kind)})({typed(left)} {sign} {typed(right)}))"
        case tree.Logical(operator=sign, left=left, right=right):
            return f"((_Bool)({typed(left)} {sign} {typed(right)}))"
        case tree.Ternary(condition=condition, then=then, otherwise=otherwise, type=kind):
            return f"(({name_of(kind)})({typed(condition)} ? {typed(then)} : {typed(otherwise)}))"
        case tree.Comma(first=first, last=last):
            return f"({write(first)}, {write(last)})"
        case tree.Assign(target=target, value=value):
            return f"({write(target)} = {typed(value)})"
        case tree.Update(operator=sign, target=target, value=value, computed=computed, type=kind):
            old = f"(({name_of(computed)}){write(target)})"
            return f"({write(target)} = ({name_of(kind)})({old} {sign} {typed(value)}))"
        case tree.Increment(operator=sign, is_postfix=is_postfix, target=target):
            return f"({write(target)}{sign})" if is_postfix else f"({sign}{write(target)})"
        case tree.Convert(operand=operand, type=kind):
            return f"(({name_of(kind)})({write(operand)}))"
        case tree.Index(base=base, index=index):
            return f"{write(base)}[{write(index)}]"
        case tree.Call(function=function, arguments=arguments):
            return f"{function.name}_of_tree({', '.join(map(typed, arguments))})"
        case tree.Declare(variable=variable, value=value):
            return f"{name_of(variable.type)} {variable.name} = {typed(value)};"
        case tree.Evaluate(expression=expression):
            return f"{write(expression)};"
        case tree.Block(statements=statements):
            return "{ " + " ".join(map(write, statements)) + " }"
        case tree.If(condition=condition, then=then, otherwise=otherwise):
            return f"if ({write(condition)}) {write(then)}" + (f" else {write(otherwise)}" if otherwise else "")
        case tree.For(start=start, condition=condition, step=step, body=body):
            loop = f"for (; {write(condition)}; {write(step)}) {write(body)}"
            return "{ " + " ".join([*map(write, start), loop]) + " }"
        case tree.DoWhile(body=body, condition=condition):
            return f"do {write(body)} while ({write(condition)});"
        case tree.Switch(value=value, cases=cases):
            return f"switch ({typed(value)}) {{ {' '.join(map(write, cases))} }}"
        case tree.Case(values=values, is_default=is_default, body=body, falls_through=falls_through):
            labels = "".join(f"case {value}: " for value in values) + ("default: " if is_default else "")
            return f"{labels}{write(body)} {'' if falls_through else 'break;'}"
        case tree.Return(value=value):
            return f"return {typed(value)};"
        case tree.Break():
            return "break;"
        case tree.Continue():
            return "continue;"
    raise AssertionError(node)


def compared(at: int, seed: int) -> tuple[str, str]:
    """The functions of one program, and the call that compares what they compute."""
    generator = Generator(seed)
    body = "\n".join(generator.statement(2) for _ in range(12))
    body += "\n" + "\n".join(f"o{kind}[{i}] = {name};" for i, (name, kind) in enumerate(generator.variables.items()))
    parameters = [tree.kernel_parameter(f"p{i}", kind) for i, kind in enumerate(NAMES)]
    parameters += [tree.kernel_parameter(f"o{kind}", kind, "rw") for kind in NAMES]
    module = read_body("k", parameters, f"{HELPER}\n{body}").module
    assert violations(module) == []
    head = ", ".join(f"{name} p{i}" for i, name in enumerate(NAMES.values()))
    head += ", " + ", ".join(f"{name}* o{kind}" for kind, name in NAMES.items())
    functions = (
        f"static void plain{at}({head}) {{\n{body}\n}}\nstatic void tree{at}({head}) {write(module.kernel.body)}\n"
    )
    if at == 0:
        (helper,) = module.functions
        given = ", ".join(f"{name_of(one.type)} {one.name}" for one in helper.parameters)
        functions = f"static {HELPER}\nstatic long helper_of_tree({given}) {write(helper.body)}\n{functions}"
    chosen = {kind: generator.random.choice(values) for kind, values in VALUES.items()}
    call = ", ".join(
        f"({NAMES[kind]}){value}{'ull' if kind == 'u8' else '' if kind in FLOATS else 'll'}"
        for kind, value in chosen.items()
    )
    calls = [f"{which}{at}({call}, {', '.join(f'{which}_{kind}' for kind in NAMES)});" for which in ("plain", "tree")]
    checks = [f'if (memcmp(plain_{kind}, tree_{kind}, sizeof plain_{kind})) puts("{at} {kind}");' for kind in NAMES]
    return functions, "\n".join([*calls, *checks])


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
def test_random_programs_compute_what_gcc_computes(tmp_path: Path) -> None:
    programs = [compared(at, seed=1000 + at) for at in range(PROGRAMS)]
    arrays = "".join(f"static {name} plain_{kind}[99], tree_{kind}[99];\n" for kind, name in NAMES.items())
    calls = "\n".join(call for _, call in programs)
    text = "\n".join([HEAD, arrays, *(functions for functions, _ in programs), f"int main() {{\n{calls}\n}}"])
    (tmp_path / "both.c").write_text(text)
    command = ["gcc", "-w", "-O0", "-fwrapv", "-ffp-contract=off", "-std=gnu11", "-o", "both", "both.c"]
    built = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr[:2000]
    done = subprocess.run([tmp_path / "both"], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == ""
