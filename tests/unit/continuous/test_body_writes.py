"""Reading from a body's text which arrays it may leave unwritten."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelkeep.continuous.body_writes import Keep, arrays_to_keep, old_arrays_written

OWN, WHOLE = Keep.OWN, Keep.WHOLE
ITEM = "int i = kk_item();\n"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("x_next[kk_item()] = 1;", {}),
        (ITEM + "x_next[i] = x[i] + 1; /* if */ // return", {}),
        ("const int i = kk_item(), j = 3; x_next[i] = j;", {}),
        (ITEM + "if (i > 0) x_next[i] = 1; else x_next[i] = 2;", {}),
        (ITEM + "if (i > 0) { x_next[i] = 1; return; } x_next[i] = 2;", {}),
        (ITEM + "if (i >= kk_items()) return; x_next[i] = 2;", {}),
        (ITEM + "x_next[i] = 1; if (x[i] == 2) x_next[i] = 3;", {}),
        (ITEM + "x_next[i] = y_next[i] = 3;", {}),
        (ITEM + "#define W 4\nx_next[i] = W;", {}),
        (ITEM + "int s = 0; for (int k = 0; k < 3; k++) { if (k == x[i]) continue; s += k; } x_next[i] = s;", {}),
        (ITEM + "kk_unroll for (int k = 0; k < 3; k++) ; x_next[i] = 1;", {}),
        # an item may leave its own element as it is
        (ITEM + "if (x[i] > 0) x_next[i] = 1;", {"x": OWN}),
        (ITEM + "if (x[i] > 0) return; x_next[i] = 1;", {"x": OWN}),
        (ITEM + "if (x[i] > 0) x_next[i] = 1; else if (x[i] > 9) x_next[i] = 1;", {"x": OWN}),
        (ITEM + "while (x[i] > 9) { x_next[i] = 1; break; }", {"x": OWN}),
        (ITEM + "x[i] > 0 && (x_next[i] = 1);", {"x": OWN}),
        (ITEM + "x_next[i] += 1;", {"x": OWN}),
        (ITEM + "x_next[i] = x_next[i] + 1;", {"x": OWN}),
        (ITEM + "if (x_next[i] == 0) y_next[i] = 1; else y_next[i] = 2; x_next[i] = 1;", {"x": OWN}),
        (ITEM + "kk_atomic_add(x_next[i], 1);", {"x": OWN}),
        # something else than an item's own element
        (ITEM + "x_next[i + 1] = 1;", {"x": WHOLE}),
        (ITEM + "x_next[i] = 1; x_next[i + kk_items()] = 1;", {"x": WHOLE}),
        (ITEM + "i++; x_next[i] = 1;", {"x": WHOLE}),
        ("for (int i = 0; i < 8; i++) x_next[i] = 1;", {"x": WHOLE}),
        (ITEM + "{ int i = 3; x_next[i] = 1; }", {"x": WHOLE}),
        (ITEM + "kk_store4(x_next, 4 * i, v);", {"x": WHOLE}),
        # what is not understood
        (ITEM + "#define SET(v) x_next[i] = v\nSET(3);", {"x": WHOLE}),
        (ITEM + "#define OUT return\nif (x[i] > 0) OUT; x_next[i] = 1;", {"x": WHOLE}),
        (ITEM + "#ifdef A\nx_next[i] = 1;\n#endif", {"x": WHOLE}),
        (ITEM + "#define P(n) n##_next[i]\nP(x) = 1;", {"x": WHOLE, "y": WHOLE}),
        (ITEM + "switch (i) { default: x_next[i] = 1; }", {"x": WHOLE}),
        (ITEM + "x_next[i] = (1;", {"x": WHOLE}),
        (ITEM + "}} x_next[i] = 1;", {"x": WHOLE}),
        # a comment goes on in the next line, and a string is no comment
        (ITEM + "if (i > 0) x_next[i] = 1; // \\\nx_next[i] = 1;", {"x": OWN}),
        (ITEM + 'printf("/*"); if (i > 0) return; printf("*/"); x_next[i] = 1;', {"x": OWN}),
        (ITEM + "x_next[i] = '{'; y_next[i] = '\\'';", {}),
        # a way out behind an attribute, a macro or a label
        (
            ITEM + "__attribute__((opencl_unroll_hint(4))) for (;;) { if (i > 3) return; break; } x_next[i] = 1;",
            {"x": WHOLE},
        ),
        (ITEM + "#define UNROLLED\nUNROLLED for (;;) { if (i > 3) return; break; } x_next[i] = 1;", {"x": WHOLE}),
        (ITEM + "again: if (i > 0) return; x_next[i] = 1;", {"x": WHOLE}),
        (ITEM + "#define OUT goto end\nif (i > 0) OUT; x_next[i] = 1; end: ;", {"x": WHOLE}),
        (ITEM + "if (i > 0) <% return; %> x_next[i] = 1;", {"x": WHOLE}),
        # another i
        (ITEM + "#define i 0\nx_next[i] = 1;", {"x": WHOLE}),
        ("{ int i = kk_item(); } x_next[i] = 1;", {"x": WHOLE}),
        ("#define kk_item() 0\nx_next[kk_item()] = 1;", {"x": WHOLE}),
    ],
)
def test_arrays_that_may_stay_unwritten_are_found(body: str, expected: dict[str, Keep]) -> None:
    assert arrays_to_keep(body, {"x": 8, "y": 8}, 8, alone=False) == expected


def test_independent_items_touch_only_their_own() -> None:
    body = "int e = kk_item() + 0; x_next[e] = 1;"
    assert arrays_to_keep(body, {"x": 8}, 8, alone=True) == {"x": OWN}
    assert arrays_to_keep(body, {"x": 16}, 8, alone=True) == {"x": WHOLE}


# --- random bodies: a way through one that leaves an array unwritten is never overlooked

Statement = tuple[Any, ...]
_blocks = st.deferred(lambda: st.lists(_statements, max_size=3))
_statements: st.SearchStrategy[Statement] = st.deferred(
    lambda: st.one_of(
        st.tuples(st.just("write"), st.sampled_from("xy")),
        st.tuples(st.just("write"), st.sampled_from("xy")),
        st.tuples(st.just("return")),
        st.tuples(st.just("if"), _blocks, st.none() | _blocks, st.booleans()),
        st.tuples(st.just("for"), _blocks),
        st.tuples(st.just("jump"), st.sampled_from(["break", "continue"])),
    )
)


def _text(block: list[Statement], *, loop: bool = False) -> str:
    lines = []
    for statement in block:
        match statement:
            case ("write", key):
                lines.append(f"{key}_next[i] = {key}[i];")
            case ("return",):
                lines.append("return;")
            case ("if", then, otherwise, bare):
                braces = "{", "}"
                if bare and len(then) == 1 and then[0][0] in ("write", "return"):
                    braces = "", ""
                lines.append(f"if (x[i] > {len(lines)}) {braces[0]}{_text(then, loop=loop)}{braces[1]}")
                if otherwise is not None:
                    lines.append(f"else {{{_text(otherwise, loop=loop)}}}")
            case ("for", inner):
                lines.append(f"for (int k = 0; k < y[i]; k++) {{{_text(inner, loop=True)}}}")
            case ("jump", word):
                lines.append(f"{word};" if loop else ";")
    return "\n".join(lines)


def _ways(block: list[Statement], *, loop: bool = False) -> Iterator[tuple[frozenset[str], str]]:
    """What each way through a block writes, and how it ends: "on", "return" or "jump"."""
    if not block:
        yield frozenset(), "on"
        return
    first, rest = block[0], block[1:]
    begins: set[tuple[frozenset[str], str]] = set()
    match first:
        case ("write", key):
            begins = {(frozenset(key), "on")}
        case ("return",):
            begins = {(frozenset(), "return")}
        case ("if", then, otherwise, _):
            begins = {*_ways(then, loop=loop), *_ways(otherwise or [], loop=loop)}
        case ("for", inner):
            once = set(_ways(inner, loop=True))
            begins = {(frozenset(), "on")}
            for (a, ended), (b, ended_too) in itertools.product(once, once):
                begins |= {(a, "return" if ended == "return" else "on")}
                if ended != "return":
                    begins |= {(a | b, "return" if ended_too == "return" else "on")}
        case ("jump", _):
            begins = {(frozenset(), "jump" if loop else "on")}
    for written, ended in begins:
        if ended != "on":
            yield written, ended
        else:
            yield from ((written | more, end) for more, end in set(_ways(rest, loop=loop)))


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(_blocks)
def test_every_path_that_skips_a_write_is_found(block: list[Statement]) -> None:
    body = ITEM + _text(block)
    kept = arrays_to_keep(body, {"x": 8, "y": 8}, 8, alone=False)
    for key in "xy":
        skipped = any(key not in written for written, _ in _ways(block))
        mentioned = f"{key}_next" in body
        if skipped and mentioned:
            assert kept.get(key) is OWN, body
        if not skipped and "for" not in body:
            assert key not in kept, body


def test_writing_to_the_old_state_is_found() -> None:
    for body in ("x[i] = 1;", "x[y[i] + (2)] += 1;", "x[i]++;", "--x[i];", "y_next[i] = x[i] = 2;"):
        assert old_arrays_written(body, ["x", "y"]) == ["x"], body
    for body in (
        "x_next[i] = x[i];",
        "if (x[i] == 1 || x[i] <= y[i]) ;",
        "// x[i] = 1;",
        "y_next[x[i]] = 1;",
        "x[i",
        "a++ + x[i];",
    ):
        assert old_arrays_written(body, ["x", "y"]) == [], body
