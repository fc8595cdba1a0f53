"""Parts the body of a state program: helper functions and what stands before them, and what runs for each item.

The body becomes a function, so what is outside of all functions must stand before that one. The text is scanned, not parsed: this
is done whenever a program is made. A helper function is `type name(…) {` outside of all braces, as for the reader of kernels.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_TOKENS = re.compile(
    r"""(?P<skipped>//(?:\\[ \t]*\r?\n|[^\n])*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
    |(?P<directive>(?:^|(?<=\n))[ \t]*\#(?:/\*.*?\*/|\\[ \t]*\r?\n|[^\n])*)
    |(?P<name>[^\W\d]\w*)|(?P<sign>[(){};])|(?P<other>[^\s])""",
    re.VERBOSE | re.DOTALL,
)
_MACRO = re.compile(r"[ \t]*#[ \t]*define[ \t]+(\w+)\(")
_NESTING = re.compile(r"[ \t]*#[ \t]*(if|endif)")
_ITEM_CALLS = re.compile(r"\bkk_(item|items|iteration|phase|set_phase|stop|push)\b")
_NO_HEAD = frozenset(("for", "while", "if", "switch", "do", "else", "return", "case", "kk_unroll"))


class BodyParts(NamedTuple):
    """`before` is what stands before the generated function, `body` what runs for each item, from the line `first_line` on."""

    before: str
    body: str
    first_line: int

    @property
    def item_call(self) -> str:
        """A call in a helper function that only the body itself can make, such as kk_item; "" where there is none."""
        code = " ".join(match.group() for match in _TOKENS.finditer(self.before) if match.lastgroup == "name")
        found = _ITEM_CALLS.search(code)
        return found.group() if found else ""

    @property
    def read(self) -> str:
        """The body with all directives: what is to be looked at to know what an item writes."""
        directives = [match.group() for match in _TOKENS.finditer(self.before) if match.lastgroup == "directive"]
        return "\n".join([*directives, self.body]) if directives else self.body


def split_body(text: str) -> BodyParts:
    """The parts of a body. Without a helper function all of it runs for each item."""
    end = _end_of_last_function(text) if "{" in text else 0
    if not end:
        return BodyParts("", text, 1)
    line_start = text.rfind("\n", 0, end) + 1
    # What is left in the line of the last brace keeps its column.
    indent = re.sub(r"[^\t]", " ", text[line_start:end])
    return BodyParts(text[:end], indent + text[end:], text.count("\n", 0, end) + 1)


def _end_of_last_function(text: str) -> int:
    """Where the last helper function ends, behind the `#endif` where it is in an `#if`; 0 without one."""
    found = depth = conditions = 0
    in_function = open_conditions = False
    tokens: list[str] = []  # outside of braces, since the last statement
    macros: set[str] = set()
    for match in _TOKENS.finditer(text):
        kind, token = match.lastgroup, match.group().strip()
        if kind == "directive":
            if (macro := _MACRO.match(token)) is not None:
                macros.add(macro.group(1))
            elif (nesting := _NESTING.match(token)) is not None:
                conditions += 1 if nesting.group(1) == "if" else -1
                if open_conditions and conditions == 0:
                    found, open_conditions = match.end(), False
        elif kind != "skipped":
            if token == "{":
                in_function |= depth == 0 and _is_head(tokens, macros)
                depth += 1
            elif token == "}":
                depth -= 1
                if depth == 0:
                    if in_function:
                        found, in_function, open_conditions = match.end(), False, conditions > 0
                    tokens.clear()
            elif depth == 0:
                tokens.append(token)
                if token == ";":
                    tokens.clear()
    return found


def _is_head(tokens: list[str], macros: set[str]) -> bool:
    """Whether tokens end with the head of a function: a type, a name, and parameters in parentheses."""
    if tokens[-1:] != [")"]:
        return False
    depth, at = 0, len(tokens)
    while at:
        at -= 1
        depth += (tokens[at] == ")") - (tokens[at] == "(")
        if depth == 0:
            break
    if at < 2:
        return False
    kind, name = tokens[at - 2 : at]
    both_names = all(one[0].isalpha() or one[0] == "_" for one in (kind, name))
    return both_names and not _NO_HEAD & {kind, name} and name not in macros
