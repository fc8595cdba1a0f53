"""C's expressions, read token by token."""

from __future__ import annotations

from ..checker.checker import Checker
from ..checker.declarations import InitialiserList
from ..tree import Expression, Literal, Place
from ..types import I4, TEXT, TYPE_NAMES, U8, Array, Scalar, Type, Vector, type_of_words
from .c_tokens import Token
from .c_types import TypeParser

_STRENGTH = {
    "||": 1, "&&": 2, "|": 3, "^": 4, "&": 5, "==": 6, "!=": 6, "<": 7, ">": 7, "<=": 7, ">=": 7, "<<": 8, ">>": 8,
    "+": 9, "-": 9, "*": 10, "/": 10, "%": 10,
}  # fmt: skip
_ASSIGNMENTS = frozenset(("=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>="))
_POSTFIX = frozenset(("[", ".", "++", "--", "->", "("))
_ESCAPES = {"n": 10, "t": 9, "r": 13, "0": 0, "a": 7, "b": 8, "f": 12, "v": 11}


class ExpressionParser(TypeParser):
    """Reads expressions."""

    def __init__(self, tokens: list[Token], checker: Checker) -> None:
        super().__init__(tokens, checker)
        self._make = checker.expressions

    # --- expressions, from the weakest operator to the strongest

    def expression(self) -> Expression:
        """An expression, commas included."""
        first = self.assignment()
        while self.token.text == ",":
            at = self.advance().at
            first = self._make.comma(first, self.assignment(), at)
        return first

    def assignment(self) -> Expression:
        """An expression without a comma outside parentheses."""
        left = self._binary(1)
        text = self.token.text
        if text == "?":
            at = self.advance().at
            then = self.expression()
            self.expect(":", " in ?:")
            left = self._make.ternary(left, then, self.assignment(), at)
            text = self.token.text
        if text in _ASSIGNMENTS:
            at = self.advance().at
            return self._make.assignments.assign(text, left, self.assignment(), at)
        return left

    def condition(self) -> Expression:
        """An expression in parentheses that is true or false."""
        self.expect("(")
        found = self.condition_here()
        self.expect(")")
        return found

    def condition_here(self) -> Expression:
        """An expression that is true or false."""
        return self._make.full(self.checker.conversions.condition(self.expression()))

    def _binary(self, least: int) -> Expression:
        left = self._unary()
        while True:
            token = self.token
            strength = _STRENGTH.get(token.text, 0)
            if strength < least:
                return left
            self.advance()
            right = self._binary(strength + 1)
            make = self._make.logical if strength <= 2 else self._make.binary
            left = make(token.text, left, right, token.at)

    def _unary(self) -> Expression:
        token = self.token
        kind, text = token.kind, token.text
        if kind == "name":
            return self._postfix(self._name())
        if kind == "number":
            self.advance()
            return self._make.number(text, token.at)
        if kind == "text":
            self.advance()
            return self._text(token)
        if text == "(":
            return self._parentheses()
        if text in ("-", "+", "!", "~"):
            self.advance()
            return self._make.unary(text, self._unary(), token.at)
        if text in ("++", "--"):
            self.advance()
            return self._make.assignments.increment(text, self._unary(), token.at, is_postfix=False)
        if text == "*":
            self.advance()
            return self._make.pointers.pointed_at(self._unary(), token.at)
        if text == "&":
            self.advance()
            return self._make.pointers.address_of(self._unary(), token.at)
        self.fail("an expression is missing")

    def _parentheses(self) -> Expression:
        start = self.advance()
        if not self.type_is_next():
            inner = self.expression()
            self.expect(")")
            return self._postfix(inner)
        kind, is_pointer = self.cast_type()
        self.expect(")")
        if is_pointer:
            return self._make.pointers.cast(kind, self._unary(), start.at)
        if self.token.text == "{":
            at = self.token.at
            value = self.checker.declarations.initial(kind, self.initialiser_list(), "this value")
            if isinstance(kind, Array):
                self.checker.problems.error(at, "an array cannot be a value")
            return self._postfix(value)
        if isinstance(kind, Vector) and self.token.text == "(":
            self.advance()
            return self._postfix(self.checker.calls.construct(kind, self._arguments(), start.at))
        return self.checker.calls.cast(kind, self._unary(), start.at)

    def _postfix(self, base: Expression) -> Expression:
        while True:
            token = self.token
            text = token.text
            if text not in _POSTFIX:
                return base
            if text == "[":
                self.advance()
                index = self.expression()
                self.expect("]")
                base = self._make.index(base, index, base.at)
            elif text == ".":
                self.advance()
                name = self.expect_name("the name of a field")
                base = self._make.member(base, name.text, name.at)
            elif text == "++" or text == "--":
                self.advance()
                base = self._make.assignments.increment(text, base, token.at, is_postfix=True)
            elif text == "->":
                self.advance()
                name = self.expect_name("the name of a field")
                base = self._make.member(self._make.pointers.pointed_at(base, base.at), name.text, name.at)
            else:
                self.fail("only a function can be called")

    def _name(self) -> Expression:
        token = self.advance()
        name = token.text
        if self.token.text == "=" and self.checker.scopes.unset_pointer(name) is not None:
            at = self.advance().at
            return self._make.pointers.first_set(name, self.assignment(), at)
        if self.token.text == "<" and name in ("reinterpret_cast", "static_cast"):
            return self._cpp_cast(token.at)
        if self.token.text == "(":
            if name == "sizeof":
                return self._sizeof(token.at)
            if not self.begins_type(token):
                self.advance()
                return self.checker.calls.call(name, self._arguments(), token.at)
            self.advance()
            kind = self._function_style(token)
            arguments = self._arguments()
            if isinstance(kind, Vector):
                return self.checker.calls.construct(kind, arguments, token.at)
            if len(arguments) != 1:
                self.fail(f"{name}(…) converts one value", token)
            return self.checker.calls.cast(kind, arguments[0], token.at)
        if self.begins_type(token):
            self.fail("an expression is missing", token)
        return self._make.name(name, token.at)

    def _cpp_cast(self, at: Place) -> Expression:
        """`reinterpret_cast<float4*>(x)`, `static_cast<int>(x)`."""
        self.expect("<")
        kind, is_pointer = self.cast_type()
        self.expect(">")
        self.expect("(")
        operand = self.expression()
        self.expect(")")
        return (self._make.pointers if is_pointer else self.checker.calls).cast(kind, operand, at)

    def _function_style(self, token: Token) -> Type:
        """The type of `float(x)`, which C++ and GLSL have for a cast."""
        found = self.checker.scopes.find_type(token.text) or TYPE_NAMES.get(token.text) or type_of_words([token.text])
        if found is None:
            self.fail("an expression is missing", token)
        return found

    def _arguments(self) -> list[Expression]:
        """Arguments up to the closing parenthesis."""
        found: list[Expression] = []
        if self.accept(")"):
            return found
        while True:
            found.append(self.assignment())
            if self.token.text != ",":
                break
            self.advance()
        self.expect(")", " behind the arguments")
        return found

    def _sizeof(self, at: Place) -> Expression:
        self.expect("(")
        kind = self.type_name() if self.begins_type(self.token) else self.expression().type
        self.expect(")")
        size = size_of(kind)
        if size is None:
            self.checker.problems.error(at, f"the size of {kind} is not the same on every target")
        return Literal(at, U8, size or 0)

    def _text(self, token: Token) -> Expression:
        inner = token.text[1:-1]
        if token.text[0] == '"':
            return Literal(token.at, TEXT, inner)
        code = _ESCAPES.get(inner[1:], ord(inner[-1])) if inner[:1] == "\\" else ord(inner) if len(inner) == 1 else None
        if code is None:
            self.fail("a character must stand between single quotes", token)
        return Literal(token.at, I4, code)

    def initialiser_list(self) -> InitialiserList:
        """`{1, 2}`."""
        start = self.expect("{")
        items: list[tuple[str | int | None, Expression | InitialiserList]] = []
        while self.token.text != "}":
            designator: str | int | None = None
            if self.accept("."):
                designator = self.expect_name("the name of a field").text
                self.expect("=")
            elif self.accept("["):
                designator = self.checker.declarations.length(self.assignment(), least=0)
                self.expect("]")
                self.expect("=")
            items.append((designator, self.initialiser()))
            if not self.accept(","):
                break
        self.expect("}", " behind the list")
        return InitialiserList(start.at, tuple(items))

    def initialiser(self) -> Expression | InitialiserList:
        """What stands behind the = of a declaration."""
        return self.initialiser_list() if self.token.text == "{" else self.assignment()


def size_of(kind: Type) -> int | None:
    """The size of a type in bytes; None where it differs between targets."""
    if isinstance(kind, Array):
        element = size_of(kind.element)
        return None if element is None else element * kind.length
    if isinstance(kind, Vector) and kind.length != 3:
        return kind.element.size * kind.length
    return kind.size if isinstance(kind, Scalar) and kind.is_number else None
