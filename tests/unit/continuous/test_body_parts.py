"""Helper functions are told from what runs for each item."""

from __future__ import annotations

import numpy as np
import pytest

import kernelkeep as kk
from kernelkeep.continuous.body_parts import split_body
from kernelkeep.continuous.body_writes import Keep

F = "float f(float v) { return v; }"


@pytest.mark.parametrize(
    ("before", "body"),
    [
        ("", "int i = kk_item();\nfor (int k = 0; k < 3; k++) { x_next[i] = k; }"),
        ("", "if (a) { } else if (b) { } while (c) { } switch (d) { default: break; } do { } while (e);"),
        ("", "#define EACH(k) for (int k = 0; k < 3; k++)\nkk_unroll EACH(k) { } int j; EACH(k) { }"),
        ("", "#define EACH(k) for (int k = 0; k < 3; k++)\nfoo EACH(k) { }"),
        ("", "// float f(float v) {\n/* float g(float v) { */ x_next[0] = 1; kk_print(\"float f(int i) {\", 1);"),
        ("", "struct s { float v; }; struct s a = {1}; float w[2] = {f(1), 2};"),
        (F, "\nx_next[0] = f(1);"),
        (f"struct s {{ int a; }};\nconst int N = 3;\n{F}\nint g(int a)\n{{ if (a) {{ return 1; }} return 0; }}", "\ng(1);"),
        ("unsigned int // {\nf /* } */ (void) /* { */\n{ return 1u; }", " f();"),
        (f"#if A\n{F}\n#else\n{F}\n#endif", "\nx_next[0] = f(1);"),
        (f"#if A\n# if B\n{F}\n# endif\n#endif", "\n#if 1\nx_next[0] = 1;\n#endif"),
        (f"#define OPEN \\\n {{\n{F}", "\n{ int k = 1; }"),
    ],
)  # fmt: skip
def test_the_last_helper_function_ends_what_stands_before(before: str, body: str) -> None:
    parts = split_body(before + body)
    column = len(before) - (before.rfind("\n") + 1)
    assert parts == (before, " " * column + body, before.count("\n") + 1)


def program(body: str, **fields: object) -> kk.StateProgram:
    return kk.StateProgram("p", coupling="neighbours", state={"x": np.zeros(8, "f4")}, body=body, **fields)  # type: ignore[arg-type]


def test_what_an_item_writes_is_read_from_the_body_itself() -> None:
    """A helper function's own variables are no state, and a macro beside it may hide a write."""
    own = "float f(float* x, float* x_next) { x[0] = 1; return x_next[0]; }\nint i = kk_item(); "
    assert program(own + "x_next[i] = 1;").keeps == {}
    assert program(own + "x_next[i] = f(x, x_next);").keeps == {"x": Keep.WHOLE}
    assert program(own + "if (i > 2) x_next[i] = 1;").keeps == {"x": Keep.OWN}
    hidden = "#define SET x_next[kk_item() + 1] = 2\n" + own
    assert program(hidden + "x_next[i] = 1; SET;").keeps == {"x": Keep.WHOLE}
    with pytest.raises(kk.ArgumentError, match="writes to x, which is the old state"):
        program(own + "x[i] = 1;")


@pytest.mark.parametrize("call", ["kk_item", "kk_items", "kk_iteration", "kk_phase", "kk_stop", "kk_push"])
def test_what_only_the_body_can_call_is_refused_in_a_helper_function(call: str) -> None:
    with pytest.raises(kk.ArgumentError, match=f"a helper function of p uses {call}, which only the body itself can"):
        program(f"int f(int a) {{ return {call}(); }}\nx_next[kk_item()] = f(1);")
    assert program(f"#define I {call}()\n// {call}()\nint f(int a) {{ return 1; }}\nx_next[kk_item()] = f(1);")
