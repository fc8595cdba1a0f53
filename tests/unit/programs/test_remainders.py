"""C's % in GLSL: the rewritten text means what C means, and macros that hide an operand are refused."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kernelkeep as kk
from kernelkeep.programs.remainders import with_c_remainders
from kernelkeep.programs.tokens import tokens_of
from kernelkeep.testing.device_parts.arithmetic import CInt

NAMES = "abcd"


def rewritten(text: str, **defines: str) -> str:
    (made,), _, _ = with_c_remainders((text,), tuple(defines.items()))
    return made


def operand(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    signed = st.tuples(st.sampled_from(["-", "~", "- "]), inner.map(lambda text: f"({text})")).map("".join)
    binary = st.tuples(inner, st.sampled_from(["%", " % ", " %\n ", "*", " + ", " - ", " /* % */ - "]), inner).map(
        "".join
    )
    divided = st.tuples(
        inner, st.sampled_from([" / ", "/", " % ", "%"]), inner.map(lambda text: f"(({text}) | 1)")
    ).map("".join)
    call = inner.map(lambda text: f"same({text})")
    index = inner.map(lambda text: f"list[same({text}) & 3]")
    return st.one_of(signed, binary, divided, call, index, inner.map(lambda text: f"({text})"))


EXPRESSIONS = st.recursive(st.sampled_from([*NAMES, "1", "7"]), operand, max_leaves=12)


class Row:
    """Four numbers that an element of can be asked for."""

    def __getitem__(self, index: CInt) -> CInt:
        return CInt(int(index) * 5 - 8)


def value_of(expression: str, values: list[int]) -> int:
    """What an expression of a, b, c, d is, in C; Python's own numbers divide otherwise, so literals are C's too."""
    text = "".join(
        "".join(piece for piece in token.before if "*" not in piece)
        + (f"CInt({token.text})" if token.kind == "number" else token.text)
        for token in tokens_of(expression)
    )
    names = {name: CInt(number) for name, number in zip(NAMES, values, strict=True)}
    functions = {"same": lambda x: x, "list": Row(), "kk_remainder": lambda a, b: a % b, "CInt": CInt}
    return int(eval(f"({text})", {**names, **functions}))


@settings(max_examples=200, deadline=None)
@given(EXPRESSIONS, st.lists(st.integers(-9, 9), min_size=4, max_size=4))
def test_any_expression_has_the_value_that_c_gives_it(expression: str, values: list[int]) -> None:
    try:
        expected = value_of(expression, values)
    except ZeroDivisionError:
        return
    made = rewritten(f"y = {expression};").removeprefix("y = ").removesuffix(";")
    assert not any(token.text == "%" for token in tokens_of(made))
    assert value_of(made, values) == expected
    assert made.count("\n") == expression.count("\n")


@given(st.text(alphabet="abkx01.%+-*/=()[]{};,?:<>&|!~^ \n\\#\"'", max_size=60))
@settings(max_examples=300, deadline=None)
def test_any_text_is_rewritten_or_refused_and_keeps_its_lines(text: str) -> None:
    assert "".join(str(token) for token in tokens_of(text)) == text
    try:
        made = rewritten(text)
    except kk.ArgumentError:
        return
    assert made.count("\n") >= text.count("\n")
    if "%" not in text:
        assert made == text


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("x = a * b % c / d;", "x = kk_remainder(a * b , c) / d;"),
        ("x = a % b % c;", "x = kk_remainder(kk_remainder(a , b) , c);"),
        ("x[i++] %= y = 3;", "kk_set_remainder(x[i++] , y = 3);"),
        ("if (a % 2 == 0) -a % b;", "if (kk_remainder(a , 2) == 0) kk_remainder(-a , b);"),
        ("return v.x++ % f(a, b)[2].y;", "return kk_remainder(v.x++ , f(a, b)[2].y);"),
        ("float t[N % 3]; t[i % 3] = 1;", "float t[((N - N / 3 * 3) << 0)]; t[kk_remainder(i , 3)] = 1;"),
        ("case A % 2:", "case ((A - A / 2 * 2) << 0):"),
        ("#if A % B\nx = 1;\n#endif // %\n", "#if A % B\nx = 1;\n#endif // %\n"),
        ("#define M (7 % 4)\n", "#define M (((7 - 7 / 4 * 4) << 0))\n"),
        ("#define W(i) ((i) % 4)\nx[W(k++)] = 1;", "#define W(i) (kk_remainder((i) , 4))\nx[W(k++)] = 1;"),
    ],
)  # fmt: skip
def test_each_form_of_remainder_becomes_the_expected_text(text: str, made: str) -> None:
    assert rewritten(text) == made


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("#define SUM a + b\nx = SUM % 3;", "macro SUM"),
        ("#define SUM a + b\n#define ALSO SUM\nx = 3 % ALSO;", "macro ALSO"),
        ("#define REST a % b\nx = c * REST;", "macro REST"),
        ("#define WRAP(i) (i % 4)\nx = WRAP(a + 1);", "parameter i of macro WRAP"),
        ("#define SIGN %\nx = a SIGN b;", "before %"),
        ("#define SIGN a %\nx = SIGN b;", "after %"),
        ("x = a\n#if 1\n% b;\n#else\n% c;\n#endif", "preprocessor line"),
    ],
)
def test_macros_that_hide_an_operand_are_refused(text: str, names: str) -> None:
    kernel = kk.PortableKernel("f", params=[], body=text)
    with pytest.raises(kk.ArgumentError, match="kernel f: .*" + names):
        kernel.source(_Glsl())
    for harmless in (
        "#define SUM (a + b)\nx = SUM % 3;",
        "#define WRAP(i) (i % 4)\nx = WRAP(-a);",
        "#define R a % b\nx = c + R;",
    ):
        assert rewritten(harmless)


def test_texts_without_remainders_stay_as_they_are() -> None:
    with_one = kk.PortableKernel("f", params=[kk.Scalar("n", "i4")], body="int i = n % 3;")
    assert "kk_remainder" in with_one.source(_Glsl()).text
    for same in (
        kk.PortableKernel("f", params=[kk.Scalar("n", "i4")], body="int i = n / 3; // not a %"),
        kk.PortableKernel("f", params=[kk.Scalar("n", "i4")], body="int i = n % 3;", nonnegative_remainders=True),
    ):
        text = same.source(_Glsl()).text
        assert same.body in text and "kk_remainder" not in text


class _Glsl:
    language = "glsl"
    capabilities = kk.Capabilities(int64=True)
