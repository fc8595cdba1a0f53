"""Which helpers of a body cannot be macros: those whose arguments do more than compute, and those that are no statement."""

from __future__ import annotations

import pytest

from kernelkeep.programs.helper_calls import not_as_macros
from kernelkeep.programs.languages import find_language


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("v = kk_load4(x, 4 * i + kk_local_id(0)); kk_store4(y, 4 * i, v);\n#if A\nkk_barrier();\n#else\n#endif", ""),
        ("for (;;) { kk_store4(y, 0, kk_load4(x, N * (i - 1))); }", ""),
        ("#define N (3 + M)\n#define M 4\nv = kk_load4(x, N * 4);", ""),
        ("v = kk_load4(x, own[i]);", ""),
        ("// kk_load4(x, i++)\n/* if (c) kk_barrier(); else */ v = kk_load4(x, i);", ""),
        ("v = kk_load4(x, 4 * i++);", "kk_load4"),
        ("v = kk_load4(x, kk_int(kk_load4(x, i -= 4).x));", "kk_load4"),
        ("v = kk_load4(x, f(i));", "kk_load4"),
        ("v = kk_load4(x, y[0]);", "kk_load4"),
        ("#define NEXT i++\nv = kk_load4(x, NEXT);", "kk_load4"),
        ("#define LOAD(a, i) kk_load4(a, i)\nv = LOAD(x, 0);", "kk_load4"),
        ("#define LOAD kk_load4\nv = LOAD(x, 0);", "kk_load4"),
        ("if (c) kk_store4(y, 0, v); else i = 1;", "kk_store4"),
        ("if (c) kk_barrier();\n#if 1\n// no\nelse i = 1;\n#endif", "kk_barrier"),
        ("do kk_barrier(); while (i++ < 3);", "kk_barrier"),
        ("for (; i < 3; kk_store4(y, 0, v), i++) {}", "kk_store4"),
        ("i = 1, kk_store4(y, 0, v);", "kk_store4"),
        ("#define SYNC kk_barrier()\nSYNC;", "kk_barrier"),
        ("n = kk_global_size(d++);", "kk_global_size"),
        ("n = kk_global_id(d++);", ""),
    ],
)
def test_glsl_helpers_that_repeat_side_effects_or_are_no_statement_become_functions(body: str, found: str) -> None:
    assert not_as_macros(find_language("glsl"), (body,), (), frozenset("y")) == frozenset(found.split())


def test_each_language_has_its_own_helpers_that_become_functions() -> None:
    body = "n = kk_global_id(d++); kk_store4(y, i++, kk_load4(x, j++)); if (c) kk_barrier(); else n = kk_local_id(n);"
    assert not_as_macros(find_language("cuda"), (body,), (), frozenset()) == {"kk_global_id"}
    assert not_as_macros(find_language("opencl"), (body,), (), frozenset()) == frozenset()
    assert not_as_macros(find_language("glsl"), ("v = kk_load4(x, NEXT);",), (("NEXT", "i++"),), frozenset()) == {
        "kk_load4"
    }
