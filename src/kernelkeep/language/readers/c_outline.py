"""What can be seen in the tokens of a text before it is read."""

from __future__ import annotations

from .c_tokens import Token

_BRACES = frozenset("{}")
_CHANGES = frozenset(("=", "+=", "-=", "++", "--"))
_BEFORE_BRACKETS = frozenset(("for", "while", "if", "switch", "do", "else", "return", "case"))


def last_function(tokens: list[Token]) -> int:
    """Where the body of the last helper function begins, or 0: that is `type name(…) {` outside all braces."""
    found = depth = 0
    for at, token in enumerate(tokens):
        if token.text not in _BRACES:
            continue
        if token.text == "{":
            if depth == 0 and at and tokens[at - 1].text == ")" and _is_head(tokens, at - 1):
                found = at
            depth += 1
        else:
            depth -= 1
    return found


def _is_head(tokens: list[Token], close: int) -> bool:
    """Whether the parenthesis at `close` ends the head of a function."""
    depth, at = 0, close
    while at >= 0:
        depth += (tokens[at].text == ")") - (tokens[at].text == "(")
        if depth == 0:
            break
        at -= 1
    if at < 2:
        return False
    name, before = tokens[at - 1], tokens[at - 2]
    return name.kind == before.kind == "name" and not {name.text, before.text} & _BEFORE_BRACKETS


def changed_names(tokens: list[Token]) -> set[str]:
    """Names that are changed as they stand, without an index."""
    found: set[str] = set()
    for at, token in enumerate(tokens):
        if token.text in _CHANGES:
            before = tokens[at - 2].text
            is_step = token.text in ("++", "--")
            if before not in (".", "->") and (is_step or before != "*"):
                found.add(tokens[at - 1].text)
            if is_step:
                found.add(tokens[at + 1].text)
    return found
