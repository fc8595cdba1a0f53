"""Calls of kk_load4 and kk_store4 get functions of their arrays; what a macro's parameter stands for is left alone."""

from __future__ import annotations

from kernelkeep.programs.array_functions import with_array_functions


def test_calls_get_the_functions_of_their_arrays() -> None:
    body = "if (c) kk_store4(y, i, kk_load4( x, k++)); else kk_store4 (tile, 0u, v);"
    texts, functions = with_array_functions([body], {"kk_load4", "kk_store4"}, {"x", "y", "tile"})
    assert texts == ["if (c) kk_store4_y( i, kk_load4_x(  k++)); else kk_store4_tile ( 0u, v);"]
    for name in ("vec4 kk_load4_x(int i)", "void kk_store4_y(int i, vec4 v)", "void kk_store4_tile(uint i, vec4 v)"):
        assert name in functions
    assert "kk_load4_y" not in functions, "a buffer that is only written cannot be read"


def test_macros_and_other_arrays_stay_as_they_are() -> None:
    body = "#define SAVE(y, i) kk_store4(y, i, \\\n  kk_load4(y, 0))\nSAVE(x, 4);\nkk_store4(other, 0, v); kk_load4(yy, 0);"
    assert with_array_functions([body], {"kk_load4", "kk_store4"}, {"x", "y"}) == ([body], "")
    assert with_array_functions([body], {"kk_barrier"}, {"x", "y"}) == ([body], "")
