"""What is allowed, and probably not meant."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("z[0] = a;", "float becomes int and may lose a part"),
        ("y[0] = d[0];", "double becomes float"),
        ("long v = 1; z[0] = v;", "long becomes int"),
        ("b[0] = n;", "int becomes uchar"),
        ("z[0] = 1.5;", "1.5 becomes 1 as int"),
        ("b[0] = 256;", "256 becomes 0 as uchar"),
        ("n += a;", "float becomes int"),
        ("volatile int i = n; z[0] = i;", "volatile has no effect: kk_atomic_load and kk_atomic_store"),
        ("b[0] = b[1] + n;", "int becomes uchar"),
        ("z[0] = n / 0;", "/ by 0: the result is undefined"),
        ("z[0] = 0.5 * n;", "float becomes int"),
        ("return; n = 1;", "this is never reached"),
        ("while (1) { n = 1; break; n = 2; }", "this is never reached"),
        ("for (;;) n++; n = 2;", "this is never reached"),
        ("int i; z[0] = i;", "i is read here, and was never set"),
        ("float2 v; v.x = v.y;", "v is read here, and was never set"),
        ("z[n] = n++;", "n is changed and used in one expression"),
        ("n = n++;", "n is changed and used in one expression"),
        ("z[0] = n++ + n;", "n is changed and used in one expression"),
        ("if (z[0] > 0) return;\nkk_barrier();", "return before the barrier in line 2"),
        ("if (kk_local_id(0) == 0) kk_barrier();", "this barrier is in a branch or loop that may differ"),
        ("for (int i = 0; i < kk_local_id(0); i++) kk_barrier();", "this barrier is in a branch or loop"),
        ("while (true) { if (kk_local_id(0) == n) break; kk_barrier(); }", "this barrier is in a branch or loop"),
    ],
)
def test_a_warning_says_what(read: Any, body: str, message: str) -> None:
    (warning,) = read(body).warnings
    assert message in warning.sentence
    assert warning.is_warning and warning.line and warning.shown
    assert str(warning).startswith(f"line {warning.line}: warning: ")


@pytest.mark.parametrize(
    "body",
    [
        "z[0] = (int)a;",
        "y[0] = n; d[0] = a;",
        "u = n; n = u; u = -1; b[0] = 255;",
        "b[0] += 1; b[0] <<= 2; b[0] = b[1] + 1; b[0] = -b[1] * b[2] >> 1;",
        "float v = 1; double w = 0.1; v *= 0.1;",
        "int i; if (n > 0) i = 1; z[0] = i;",
        "int i; for (int k = 0; k < n; k++) { if (k > 0) z[0] = i; i = k; }",
        "int t[4]; z[0] = t[n];",
        "z[n++] = 1; n = n + 1; n++;",
        "n++ > 0 && n < 5 ? n++ : n--;",
        "int i = 0; (i++, z[0] = i);",
        "if (n > 0) return;\nkk_barrier();",
        "int g = kk_group_id(0) * 2; if (g > n) return;\nkk_barrier();",
        "for (int s = 32; s > 0; s /= 2) { if (kk_local_id(0) < s) n = 1; kk_barrier(); }",
        "kk_barrier(); if (kk_global_id(0) >= n) return; z[0] = 1;",
        "for (int i = 0; i < 4; i++) { if (kk_local_id(0) > i) continue; z[i] = 1; }\nkk_barrier();",
        "if (kk_local_id(0) < n) { switch (n) { case 0: z[0] = 1; break; default: z[0] = 2; } }\nkk_barrier();",
    ],
)
def test_what_is_meant_causes_no_warning(read: Any, body: str) -> None:
    assert read(body).warnings == ()


def test_a_dimension_of_one_work_item_is_the_same_for_all(read: Any) -> None:
    body = "int row = kk_global_id(1); if (row >= n) return;\nkk_barrier();"
    assert read(body, group=(64,)).warnings == ()
    assert read(body, group=(64, 1, 1)).warnings == ()
