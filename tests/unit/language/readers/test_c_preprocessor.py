"""Macros and conditions."""

from __future__ import annotations

from typing import Any

import pytest

import kernelkeep as kk
from kernelkeep.language.problems import Problems
from kernelkeep.language.readers.c_preprocessor import Preprocessor
from kernelkeep.language.readers.c_tokens import tokens_of


def expanded(text: str, **defines: str) -> str:
    problems = Problems(text)
    tokens = Preprocessor(problems, defines).expanded(tokens_of(text))
    problems.raise_errors("text", "text")
    return " ".join(token.text for token in tokens[:-1])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("#define A 1\nA B", "1 B"),
        ("#define A B\n#define B A\nA B", "A B"),
        ("#define F(x) x * x\nF(1 + 2) F", "1 + 2 * 1 + 2 F"),
        ("#define F (x)\nF", "( x )"),
        ("#define F(x, y) y x\nF((1, 2), G(3))", "G ( 3 ) ( 1 , 2 )"),
        ("#define F(x) F(x + 1)\nF(F(0))", "F ( F ( 0 + 1 ) + 1 )"),
        ("#define F() 7\nF() F ()", "7 7"),
        ("#define V(f, ...) f(__VA_ARGS__)\nV(g, 1, 2)", "g ( 1 , 2 )"),
        ("#define J(a, b) a##b\nJ(x, 1) J(+, =)", "x1 +="),
        ("#define G(x) H(x)\n#define H(x) x + G\nG(1)(2)", "1 + G ( 2 )"),
        ("#define A 1 \\\n + 2\nA\nB", "1 + 2 B"),
        ("#define A 1 // one\n#define B /* two */ 2\nA B", "1 2"),
        ("#define A 1\n#undef A\nA", "A"),
        ("  #  define A 1\nA # not", "1 # not"),
        ("#if 1\na\n#else\nb\n#endif\nc", "a c"),
        ("#if 0 && 1 / 0 || 1 || 1 % 0\na\n#endif\n#if 0 ? 1 / 0 : 0\nb\n#endif", "a"),
        ("#if 1 << 6400000000000 == 1 && -7 / 2 == -3 && -7 % 2 == -1\na\n#endif", "a"),
        ("#if 0\n#if 1\na\n#endif\n#elif 1\nb\n#elif 1\nc\n#else\nd\n#endif", "b"),
        ("#if 0\n#define A 1\n#error no\n#include <x>\n#endif\nA", "A"),
        ("#ifdef A\na\n#endif\n#ifndef A\nb\n#endif", "b"),
        ("#define A\n#if defined(A) && !defined B\na\n#endif", "a"),
        ("#define N 8\n#if N > 4 && (N % 3) == 2 || UNKNOWN\na\n#endif", "a"),
        ("#if (1 ? 2 : 3) == 2 && -7 / 2 == -3 && ~0 == -1 && 1 << 3 == 8 && true\na\n#endif", "a"),
        ("#pragma once\n#line 7\n#\na", "a"),
        ("#pragma unroll 4\nfor", "kk_unroll ( 4 ) for"),
    ],
)
def test_macros_and_conditions(text: str, expected: str) -> None:
    assert expanded(text) == expected


def test_defines_are_macros() -> None:
    assert expanded("A B C", A="1 + 2", B="") == "1 + 2 C"
    assert expanded("#if A == 3\nyes\n#endif", A="3") == "yes"


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("#if 1\na", 1, "#if without #endif"),
        ("a\n#endif", 2, "#endif without #if"),
        ("#if 1\n#else\n#else\n#endif", 3, "#else after #else"),
        ("#include <math.h>", 1, "cannot #include"),
        ("#error too small", 1, "#error too small"),
        ("#define F(x) x\nF(1, 2)", 2, "macro F takes 1 argument, got 2"),
        ("#define F(x) x\nF(1", 2, "no closing parenthesis"),
        ("#define F(1) x", 1, "parameters of macro F must be names"),
        ("#define 1", 1, "#define takes a name"),
        ("#if 1 +\n#endif", 1, "it ends early"),
        ("#if 1 / 0\n#endif", 1, "division by zero"),
        ("#if 1.5\n#endif", 1, "1.5 is no integer"),
        ("#banana", 1, "unknown directive #banana"),
    ],
)
def test_mistakes_are_reported_with_their_line(text: str, line: int, message: str) -> None:
    with pytest.raises(kk.CompileError) as caught:
        expanded(text)
    assert message in str(caught.value)
    assert caught.value.line == line


def test_a_macro_can_be_redefined_between_uses(read: Any, shown: Any) -> None:
    body = "#define V 1\nz[0] = V;\n#undef V\n#define V 2\nz[1] = V;"
    assert list(map(shown, read(body).module.kernel.body.statements)) == ["z[0:int] = 1:int", "z[1:int] = 2:int"]
