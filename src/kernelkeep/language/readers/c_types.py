"""The next token, and the names of types in C."""

from __future__ import annotations

from typing import NoReturn

from ..checker.checker import Checker
from ..checker.scopes import View
from ..tree import Place, Variable
from ..types import TYPE_NAMES, WORDS, Type, type_of_words
from .c_tokens import Token

_NO_POINTERS = "a type without pointers is needed"
# C's own words for types, which no variable can hide.
_TYPE_WORDS = WORDS | {"void", "bool", "_Bool", "float", "double", "struct", "const", "volatile"}
_KEYWORDS = _TYPE_WORDS | {
    "if",
    "else",
    "for",
    "while",
    "do",
    "switch",
    "case",
    "default",
    "break",
    "continue",
    "return",
}
QUALIFIERS = frozenset(
    """const volatile static inline __inline register restrict __restrict__ __restrict __constant constant __constant__ __device__
    __global __local __shared__ __private __host__ __forceinline__ __noinline__ __inline__""".split()
)
_STORAGE = QUALIFIERS - {"constant", "restrict"}
# OpenCL's words without underscores, which are fine names where no type follows.
_SPACES = frozenset(("global", "local", "private", "constant"))


class UnexpectedToken(Exception):
    """The text is no C from here on. The problem was reported; the reader goes on with the next statement."""


class TypeParser:
    """Reads types. `token` is the next token."""

    def __init__(self, tokens: list[Token], checker: Checker) -> None:
        self.tokens = tokens
        self.position = 0
        self.token = tokens[0]
        self.checker = checker
        self.has_shared = False  # the last type had a word before it that makes a variable shared

    # --- tokens

    def advance(self) -> Token:
        """Go to the next token; returns the one before."""
        token = self.token
        if token.kind != "end":
            self.position += 1
            self.token = self.tokens[self.position]
        return token

    def peek(self, count: int) -> Token:
        """The token so many behind the next one; at the end of the text, the last one."""
        return self.tokens[min(self.position + count, len(self.tokens) - 1)]

    def accept(self, text: str) -> bool:
        """Go on if the next token is this one."""
        if self.token.text != text or self.token.kind == "text":
            return False
        self.advance()
        return True

    def expect(self, text: str, where: str = "") -> Token:
        """Go on, or report that this token is missing."""
        if self.token.text != text:
            self.fail(f"{text} is missing{where}", at=self._behind_line_before())
        return self.advance()

    def expect_name(self, what: str) -> Token:
        """The next token, which must be a name."""
        if self.token.kind != "name" or self.token.text in _KEYWORDS:
            self.fail(f"{what} is missing")
        return self.advance()

    def fail(self, sentence: str, token: Token | None = None, at: Place | None = None) -> NoReturn:
        """Report a mistake at the next token, or at another place."""
        token = token or self.token
        got = "the text ends here" if token.kind == "end" else f"got {token.text}"
        at = at or (self._behind_line_before() if token.kind == "end" else None) or token.at
        self.checker.problems.error(at, f"{sentence}, {got}")
        raise UnexpectedToken

    def _behind_line_before(self) -> Place | None:
        """Where something is missing at the end of a line: behind the last token, if the next one is in another line."""
        before = self.tokens[self.position - 1] if self.position else self.token
        if before.at.line == self.token.at.line:
            return None
        return before.at if before.at.macro else Place(before.at.line, before.end)

    # --- types

    def begins_type(self, token: Token) -> bool:
        """Whether a token is the first one of a type."""
        text = token.text
        if text in _TYPE_WORDS:
            return True
        if token.kind != "name" or not (text in TYPE_NAMES or self.checker.scopes.find_type(text) is not None):
            return text in _STORAGE
        return not isinstance(self.checker.scopes.find(text), (Variable, View))

    def type_is_next(self) -> bool:
        """Whether a type begins here, with a word such as OpenCL's `global` before it or without."""
        if self.token.text in _SPACES and self.begins_type(self.peek(1)):
            return True
        return self.begins_type(self.token)

    def specifiers(self) -> tuple[Type, bool]:
        """A type without its stars and brackets, and whether it is const."""
        words: list[str] = []
        found: Type | None = None
        is_const = self.has_shared = False
        first = self.token
        while True:
            text = self.token.text
            if text in _STORAGE or text == "restrict" or (text in _SPACES and self.begins_type(self.peek(1))):
                self.has_shared |= text in ("__shared__", "__local", "local")
                if text == "volatile":
                    hint = "kk_atomic_load and kk_atomic_store see what other work-items change"
                    self.checker.problems.warn(self.token.at, f"volatile has no effect: {hint}")
                is_const |= text in ("const", "__constant", "constant", "__constant__")
            elif text in WORDS:
                words.append(text)
            elif found is None and not words and text == "struct":
                self.advance()
                found = self._tag()
                continue
            elif found is None and not words and self.token.kind == "name":
                found = self.checker.scopes.find_type(text) or TYPE_NAMES.get(text)
                if found is None:
                    break
            else:
                break
            self.advance()
        if found is None and words:
            found = type_of_words(words)
        if found is None or (found and words and not type_of_words(words)):
            self.fail(f"{' '.join(words)} is no type" if words else "a type is missing", first if words else None)
        return found, is_const

    def _tag(self) -> Type:
        name = self.expect_name("the name of a struct")
        found = self.checker.scopes.tags.get(name.text)
        if found is None:
            self.fail(f"struct {name.text} is not defined", name)
        return found

    def type_name(self) -> Type:
        """A type in sizeof or kk_shared."""
        found, _ = self.specifiers()
        if self.token.text == "*":
            self.fail(_NO_POINTERS)
        return found

    def cast_type(self) -> tuple[Type, bool]:
        """The type of a cast, and whether it is a pointer to that type."""
        found, _ = self.specifiers()
        is_pointer = self.accept("*")
        while self.token.text in ("const", "volatile", "restrict", "__restrict__", "__restrict"):
            self.advance()
        if self.token.text == "*":
            self.fail("there are no pointers to pointers")
        return found, is_pointer
