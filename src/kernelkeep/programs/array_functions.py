"""kk_load4 and kk_store4 as functions in GLSL, for bodies that a macro would get wrong (`helper_calls.py`).

GLSL passes no array to a function, so each array has functions of its own, and the calls are given their names:
`kk_store4(y, i, v)` becomes `kk_store4_y(i, v)`. A call inside a macro of the user's, whose array is not known here, keeps the
form that is one expression; NVIDIA's compiler refuses that form in some loops.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence

__all__ = ["with_array_functions"]

_HELPERS = {
    "kk_load4": "vec4 {name}(int i) {{ return vec4({a}[i], {a}[i + 1], {a}[i + 2], {a}[i + 3]); }}\n"
    "vec4 {name}(uint i) {{ return {name}(int(i)); }}\n",
    "kk_store4": "void {name}(int i, vec4 v) {{ {a}[i] = v.x; {a}[i + 1] = v.y; {a}[i + 2] = v.z; {a}[i + 3] = v.w; }}\n"
    "void {name}(uint i, vec4 v) {{ {name}(int(i), v); }}\n",
}


_DIRECTIVE = re.compile(r"(^[ \t]*#(?:\\\n|[^\n])*)", re.MULTILINE)


def with_array_functions(
    texts: Sequence[str], helpers: Collection[str], arrays: Collection[str]
) -> tuple[list[str], str]:
    """The texts with the calls of `helpers` on `arrays` renamed, and the functions that they then call."""
    wanted = [helper for helper in sorted(helpers) if helper in _HELPERS]
    if not wanted or not arrays:
        return list(texts), ""
    names = "|".join(sorted(map(re.escape, arrays)))
    pattern = re.compile(rf"\b({'|'.join(wanted)})(\s*\(\s*)({names})(\s*),")
    used: set[tuple[str, str]] = set()

    def renamed(match: re.Match[str]) -> str:
        helper, opening, array, space = match.groups()
        used.add((helper, array))
        return f"{helper}_{array}{opening}{space}"

    # A macro's parameter may have an array's name and stand for another one, so definitions stay as they are.
    changed = ["".join(_outside_directives(text, pattern, renamed)) for text in texts]
    functions = "".join(_HELPERS[helper].format(name=f"{helper}_{array}", a=array) for helper, array in sorted(used))
    return changed, functions


def _outside_directives(text: str, pattern: re.Pattern[str], renamed: Callable[[re.Match[str]], str]) -> Iterator[str]:
    for number, piece in enumerate(_DIRECTIVE.split(text)):
        yield piece if number % 2 else pattern.sub(renamed, piece)
