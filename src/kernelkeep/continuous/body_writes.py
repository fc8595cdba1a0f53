"""Which arrays an iteration may leave partly unwritten, so that their old values must be copied first.

A body is read as text, not compiled: what is not understood counts as a write that may be skipped. An array needs no copy
where every item always writes its own index (`x_next[i]` with `int i = kk_item();`), on every path through the body, and
nothing else of the array is written; nor where the body never mentions the new array at all.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping
from enum import Enum


class Keep(Enum):
    """How the old values of an array are copied to the new one before the body runs."""

    OWN = "own"  # each item copies its own index
    WHOLE = "whole"  # the whole array is copied before any item runs


# A line that continues in the next one, also a comment's: C joins them before anything else.
_SPLICES = re.compile(r"\\[ \t]*\r?\n")
_QUOTES = re.compile(r"""(?P<quoted>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')|/\*.*?\*/|//[^\n]*""", re.DOTALL)
_TOKENS = re.compile(r"[A-Za-z_]\w*|\.?\d[\w.]*|<<=|>>=|\+\+|--|&&|\|\||<<|>>|[-+*/%&|^<>=!]=|\S")
# A macro that is only a value cannot hide a write or a return.
_HARMLESS = re.compile(
    r"#\s*define\b(?:(?!_next|##|=|\+\+|--|[{};]|"
    r"\b(?:return|if|else|for|while|do|break|continue|switch|case|default|goto)\b).)*"
)
_DEFINED = re.compile(r"#\s*define\s+(\w+)")
_CHANGES = {"=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>=", "++", "--"}
_UNREAD = {"switch", "case", "default", "goto", "#"}
_OTHER_SPELLINGS = ("<%", "%>", "<:", ":>", "??")  # of braces, brackets and #
_STEPS = {"return", "if", "else", "for", "while", "do", "break", "continue"}
_WORDS = {*_STEPS, *_UNREAD, "int", "kk_item", "kk_items", "kk_unroll"}
_DISTANCE = re.compile(r"[1-9]\d*")
_CLOSING = {"(": ")", "[": "]", "{": "}"}
_ITEM = ["kk_item", "(", ")"]
_PAST_THE_END = [">=", "kk_items", "(", ")", ")", "return", ";"]


class _NotUnderstood(Exception):
    pass


def arrays_to_keep(body: str, sizes: Mapping[str, int], items: int, *, alone: bool) -> dict[str, Keep]:
    """The arrays that must be copied, and how. `alone`: an item promises to use nothing but its own index."""
    found: dict[str, Keep] = {}
    reading = _Reading(body, sizes)
    for key, size in sizes.items():
        if key not in reading.mentioned or (key in reading.written and key not in reading.elsewhere):
            continue
        only_own = key not in reading.elsewhere or (alone and size <= items)
        found[key] = Keep.OWN if only_own else Keep.WHOLE
    return found


def always_written(body: str, keys: Iterable[str]) -> set[str]:
    """The arrays of which every item writes the element with its own number, in every iteration, and no other."""
    reading = _Reading(body, keys)
    return reading.written - reading.elsewhere


def neighbour_read(body: str, sizes: Mapping[str, int], items: int) -> str:
    """The first use of a neighbour's element, such as `u[i - 1]`, of an array that the body writes; else "".

    In an array with one element for an item, `u[max(i - 1, 0)]` is one too; in a larger one `u[2 * i + 1]` may be the item's own.
    """
    return _Reading(body, sizes).neighbour_read({key for key, size in sizes.items() if size <= items})


def old_arrays_written(body: str, keys: Iterable[str]) -> list[str]:
    """The arrays whose old values a body assigns to, which GLSL would allow."""
    tokens, keys = _TOKENS.findall(_plain(body)), set(keys)
    found = []
    for at, token in enumerate(tokens):
        if token not in keys or tokens[at + 1 : at + 2] != ["["]:
            continue
        depths = itertools.accumulate((other in _CLOSING) - (other in _CLOSING.values()) for other in tokens[at + 1 :])
        end = next((at + 2 + length for length, depth in enumerate(depths) if depth == 0), len(tokens))
        if _CHANGES & set(tokens[end : end + 1]) or (at and tokens[at - 1] in ("++", "--")):
            found.append(token)
    return found


def _plain(body: str) -> str:
    """A body without comments, with lines joined and string literals replaced."""
    return _QUOTES.sub(lambda found: "0" if found["quoted"] else " ", _SPLICES.sub("", body))


class _Reading:
    """One pass over a body. `written` has the arrays that every item always writes, `elsewhere` those that are used at
    another index than the item's own, `mentioned` those whose new array occurs at all."""

    def __init__(self, body: str, keys: Iterable[str]) -> None:
        self._keys = {f"{key}_next": key for key in keys}
        text = _plain(body)
        pasted = "##" in text
        lines = [line for line in text.splitlines() if not _HARMLESS.fullmatch(line.strip())]
        macros = set(_DEFINED.findall(text))
        self._tokens: list[str] = _TOKENS.findall("\n".join(lines))
        self._at = 0
        self._own = self._own_names() - macros
        self._exits: list[set[str] | None] = []
        self._early: set[str] = set()  # used before they are certain to be written
        self.mentioned = set(self._keys.values()) if pasted else self._mentioned_in(_TOKENS.findall(text))
        self.elsewhere: set[str] = set()
        try:
            if _UNREAD & set(self._tokens) or _WORDS & macros or any(other in text for other in _OTHER_SPELLINGS):
                raise _NotUnderstood
            self.written = self._whole_body()
        except (_NotUnderstood, IndexError):
            self.written = set()
            self.elsewhere = set(self.mentioned)

    def _mentioned_in(self, tokens: Iterable[str]) -> set[str]:
        return {self._keys[token] for token in tokens if token in self._keys}

    def _own_names(self) -> set[str]:
        """Variables that are `kk_item()` and nothing else, ever.

        One that a block declares is not among them: after the block, a scalar may have that name.
        """
        tokens, changed = self._tokens, dict[str, int]()
        depths = itertools.accumulate((token in _CLOSING) - (token in _CLOSING.values()) for token in tokens)
        for before, token, after in zip(["", *tokens], tokens, [*tokens[1:], ""], strict=False):
            if after in _CHANGES or before in ("++", "--"):
                changed[token] = changed.get(token, 0) + 1
        return {
            token
            for at, (token, depth) in enumerate(zip(tokens, depths, strict=True))
            if depth == 0
            and changed.get(token) == 1
            and tokens[at + 1 : at + 5] == ["=", *_ITEM]
            and tokens[at + 5 : at + 6] in ([";"], [","])
            and at > 0
            and (tokens[at - 1] == "int" or tokens[at - 1] == ",")
        }

    def neighbour_read(self, one_each: set[str]) -> str:
        for at, token in enumerate(self._tokens):
            if token not in self.mentioned or self._tokens[at + 1 : at + 2] != ["["]:
                continue
            index = self._index_from(at + 2)
            if len(index) > 3 and token not in one_each:
                continue
            for name, sign, distance in zip(index, index[1:], index[2:], strict=False):
                if name in self._own and sign in ("+", "-") and _DISTANCE.fullmatch(distance):
                    return f"{token} at {name} {sign} {distance}"
        return ""

    def _index_from(self, at: int) -> list[str]:
        """The tokens of an index up to its closing bracket, without those in brackets inside of it."""
        found, depth = list[str](), 1
        for token in self._tokens[at:]:
            depth += (token == "[") - (token == "]")
            if depth == 0:
                break
            found.append(token if depth == 1 else "")
        return found

    def _whole_body(self) -> set[str]:
        written: set[str] | None = set()
        while self._at < len(self._tokens):
            written = self._statement(written)
        ends = [end for end in (written, *self._exits) if end is not None]
        return set.intersection(*ends) - self._early if ends else set()

    # --- statements: each takes what is certain to be written before it, and returns what is after it; None is never reached

    def _statement(self, written: set[str] | None) -> set[str] | None:
        token = self._tokens[self._at]
        if token == ";" or token == "kk_unroll":
            self._at += 1
            return written
        if token == "{":
            return self._block(written)
        if token == "if":
            return self._if(written)
        if token in ("for", "while"):
            self._at += 1
            self._note_uses(self._group(), written)
            self._statement(written)  # which may never run
            return written
        if token == "do":
            self._at += 1
            self._statement(written)
            self._expect("while")
            self._note_uses(self._group(), written)
            self._expect(";")
            return written
        if token == "return":
            self._at += 1
            self._note_uses(self._until_semicolon(), written)
            self._exits.append(written)
            return None
        if token in ("break", "continue"):
            self._until_semicolon()
            return None
        if token == "else" or token in _CLOSING.values():
            raise _NotUnderstood
        return self._expression(self._until_semicolon(), written)

    def _block(self, written: set[str] | None) -> set[str] | None:
        self._at += 1
        while self._tokens[self._at] != "}":
            written = self._statement(written)
        self._at += 1
        return written

    def _if(self, written: set[str] | None) -> set[str] | None:
        tokens, at = self._tokens, self._at
        if (
            tokens[at + 2] in self._own
            and tokens[at + 3 : at + 10] == _PAST_THE_END
            and tokens[at + 10 : at + 11] != ["else"]
        ):
            self._at += 10  # if (i >= kk_items()) return; is true for no item
            return written
        self._at += 1
        self._note_uses(self._group(), written)
        then = self._statement(written)
        otherwise = written
        if self._at < len(tokens) and tokens[self._at] == "else":
            self._at += 1
            otherwise = self._statement(written)
        if then is None or otherwise is None:
            return otherwise if then is None else then
        return then & otherwise

    # --- expressions

    def _expression(self, tokens: list[str], written: set[str] | None) -> set[str] | None:
        targets: set[str] = set()
        while (key := self._target(tokens)) is not None:
            targets.add(key)
            tokens = tokens[tokens.index("]") + 2 :]
        self._note_uses(tokens, written)
        return None if written is None else written | targets

    def _target(self, tokens: list[str]) -> str | None:
        """The array that `x_next[i] = …` assigns at the item's own index."""
        if not tokens or tokens[0] not in self._keys:
            return None
        length = self._own_index(tokens, 0)
        return self._keys[tokens[0]] if length and tokens[1 + length : 2 + length] == ["="] else None

    def _own_index(self, tokens: list[str], at: int) -> int:
        """How many tokens after `at` are an index that is the item's own; 0 if it is not."""
        if tokens[at + 1 : at + 2] != ["["]:
            return 0
        if tokens[at + 2 : at + 6] == [*_ITEM, "]"]:
            return 5
        return 3 if tokens[at + 2 : at + 3] and tokens[at + 2] in self._own and tokens[at + 3 : at + 4] == ["]"] else 0

    def _note_uses(self, tokens: list[str], written: set[str] | None) -> None:
        """Note how an expression uses new arrays beside assigning to them."""
        if not _STEPS.isdisjoint(tokens):  # a statement behind a label, an attribute or a macro
            raise _NotUnderstood
        for at, token in enumerate(tokens):
            key = self._keys.get(token)
            if key is None:
                continue
            if written is not None and key not in written:
                self._early.add(key)
            if not self._own_index(tokens, at):
                self.elsewhere.add(key)

    # --- tokens

    def _expect(self, token: str) -> None:
        if self._tokens[self._at] != token:
            raise _NotUnderstood
        self._at += 1

    def _group(self) -> list[str]:
        """The tokens between the next parentheses."""
        self._expect("(")
        start, depth = self._at, 1
        while depth:
            token = self._tokens[self._at]
            depth += (token in _CLOSING) - (token in _CLOSING.values())
            self._at += 1
        return self._tokens[start : self._at - 1]

    def _until_semicolon(self) -> list[str]:
        start, depth = self._at, 0
        while depth or self._tokens[self._at] != ";":
            token = self._tokens[self._at]
            depth += (token in _CLOSING) - (token in _CLOSING.values())
            if depth < 0:
                raise _NotUnderstood
            self._at += 1
        self._at += 1
        return self._tokens[start : self._at - 1]
