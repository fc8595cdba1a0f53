"""What other C languages have and bodies do not: one sentence each, with what to write instead."""

from __future__ import annotations

from ..problems import TooManyProblems, nearest
from ..tree import Variable
from ..types import TYPE_NAMES, WORDS
from .c_types import TypeParser, UnexpectedToken

_NOT_HERE = {
    "goto": "there is no goto: use a loop or a function",
    "asm": "there is no assembly in a portable kernel",
    "__asm__": "there is no assembly in a portable kernel",
    "union": "there are no unions: as_int, as_uint and as_float read the bits of a number",
    "enum": "there is no enum: use const int or #define",
    "case": "case stands in a switch only, outside of other statements in it",
    "default": "default stands in a switch only, outside of other statements in it",
    "else": "else stands behind an if only",
}
_WHOLE_KERNEL = "the body is the inside of the kernel: leave its head out, and give its parameters in params="
_TEMPLATE = "there are no templates: write a function for each type, or a macro"
_KERNEL_WORDS = frozenset(("__global__", "__kernel", "kernel"))


def refuse(read: TypeParser) -> None:
    """Report a word that begins no statement here. Nothing is read behind the head of a whole kernel."""
    token, following = read.token, read.peek(1)
    sentence = _NOT_HERE.get(token.text)
    if token.text == "template" and following.text == "<" and read.checker.scopes.find("template") is None:
        sentence = _TEMPLATE  # in C it is a name like others
    if sentence is not None:
        read.checker.problems.error(token.at, sentence)
        raise UnexpectedToken
    is_kernel = token.text in _KERNEL_WORDS and following.kind == "name"
    if is_kernel or (token.text == "extern" and following.kind == "text"):
        read.checker.problems.error(token.at, _WHOLE_KERNEL)
        raise TooManyProblems
    if token.text == "extern" and following.text == "__shared__":
        sentence = "the size of a shared array is written in the kernel, as in kk_shared(float, tile, 256)"
        read.checker.problems.error(token.at, sentence)
        raise UnexpectedToken


def refuse_unknown_type(read: TypeParser) -> None:
    """Two names in a row are a declaration with a type that is not known."""
    token = read.token
    if not token.kind == read.peek(1).kind == "name":
        return
    hidden = read.checker.scopes.find(token.text)
    if token.text in TYPE_NAMES and isinstance(hidden, Variable):
        since = f"a variable here, since line {hidden.at.line}" if hidden.at.line else "a parameter of the kernel here"
        sentence = f"{token.text} is {since}"
    else:
        sentence = f"unknown type {token.text}{nearest(token.text, (*TYPE_NAMES, *WORDS))}"
    read.checker.problems.error(token.at, sentence)
    raise UnexpectedToken
