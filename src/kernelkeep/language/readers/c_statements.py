"""C's statements, declarations and functions, read token by token."""

from __future__ import annotations

from collections.abc import Callable

from ..builtins import SHARED, UNROLL
from ..checker.checker import Checker
from ..checker.flow import can_complete
from ..tree import (
    Block,
    Break,
    Case,
    Continue,
    Declare,
    DoWhile,
    Evaluate,
    Expression,
    For,
    If,
    Place,
    Return,
    Statement,
    Switch,
    While,
)
from ..types import INVALID, VOID, Scalar, Type, wrapped
from .c_declarations import DeclarationParser
from .c_expressions import ExpressionParser
from .c_refusals import refuse, refuse_unknown_type
from .c_tokens import Token
from .c_types import UnexpectedToken


class StatementParser:
    """Reads statements into lists."""

    def __init__(self, tokens: list[Token], checker: Checker) -> None:
        self.read = ExpressionParser(tokens, checker)
        self.declarations = DeclarationParser(self.read, checker)
        self._checker = checker
        self._loops = 0  # around the current statement
        self._breakable = 0  # loops and switches around it
        self._special: dict[str, Callable[[list[Statement]], None]] = {
            "if": self._if, "for": self._for, "while": self._while, "do": self._do, "switch": self._switch,
            "return": self._return, "break": self._break, "continue": self._continue, "{": self._braces,
            ";": self._empty, UNROLL: self._unroll, SHARED: self.declarations.shared, "struct": self.declarations.struct,
            "typedef": self.declarations.typedef,

        }  # fmt: skip

    # --- blocks

    def statements(self, into: list[Statement], *, end: str) -> None:
        """Statements up to a `}` or the end of the text. A mistake spoils one statement only."""
        read = self.read
        while read.token.text != end or read.token.kind == "text":
            if read.token.kind == "end":
                read.fail("} is missing")
            if read.token.text == "}":
                self._checker.problems.error(read.token.at, "} without a {")
                read.advance()
                continue
            depth, start, loops = self._checker.scopes.depth, read.position, (self._loops, self._breakable)
            try:
                self.statement(into)
            except UnexpectedToken:
                self._loops, self._breakable = loops
                self.skip(start, depth)

    def skip(self, start: int, depth: int) -> None:
        """Go behind the statement with a mistake in it, which began at `start` in a scope of that depth."""
        while self._checker.scopes.depth > depth:
            self._checker.scopes.close()
        self._skip_tokens(start)
        if self.read.position == start:
            self.read.advance()

    def _skip_tokens(self, start: int) -> None:
        read, depth = self.read, 0
        for token in read.tokens[start : read.position]:
            depth += (token.text in ("{", "(")) - (token.text in ("}", ")"))
        while read.token.kind != "end":
            text = read.token.text
            if text == "}" and depth <= 0:
                return
            depth += (text in ("{", "(")) - (text in ("}", ")"))
            read.advance()
            if depth <= 0 and text in (";", "}"):
                return

    def block(self) -> Block:
        """A statement as a block with its own scope."""
        at, found = self.read.token.at, list[Statement]()
        if self.read.token.text == "{":
            self._braces(found)
            inner = found[0]
            assert isinstance(inner, Block)
            return inner
        self._checker.scopes.open()
        self.statement(found)
        self._checker.scopes.close()
        return Block(at, tuple(found))

    def _braces(self, into: list[Statement]) -> None:
        at = self.read.advance().at
        found: list[Statement] = []
        self._checker.scopes.open()
        self.statements(found, end="}")
        self._checker.scopes.close()
        self.read.advance()
        into.append(Block(at, tuple(found)))

    def statement(self, into: list[Statement]) -> None:
        """One statement. A declaration of several variables makes several."""
        read = self.read
        token = read.token
        special = self._special.get(token.text)
        if special is not None:
            special(into)
        elif read.type_is_next() and read.peek(1).text != "(":
            into += self.declarations.declaration()
            read.expect(";", " behind the declaration")
        else:
            if token.kind == "name":
                refuse(read)
                refuse_unknown_type(read)
            into.append(Evaluate(token.at, self._unused()))
            read.expect(";", " behind the statement")

    def _unused(self) -> Expression:
        """An expression that is a statement."""
        make = self._checker.expressions
        return make.full(make.unused(self.read.expression()))

    def _empty(self, into: list[Statement]) -> None:
        self.read.advance()

    # --- choices and loops

    def _if(self, into: list[Statement]) -> None:
        at = self.read.advance().at
        condition = self.read.condition()
        then = self.block()
        otherwise = self.block() if self.read.accept("else") else None
        into.append(If(at, condition, then, otherwise))

    def _body(self) -> Block:
        self._loops += 1
        self._breakable += 1
        found = self.block()
        self._loops -= 1
        self._breakable -= 1
        return found

    def _while(self, into: list[Statement]) -> None:
        at = self.read.advance().at
        condition = self.read.condition()
        into.append(While(at, condition, self._body()))

    def _do(self, into: list[Statement]) -> None:
        at = self.read.advance().at
        body = self._body()
        self.read.expect("while", " behind the body of do")
        into.append(DoWhile(at, body, self.read.condition()))
        self.read.expect(";", " behind do … while (…)")

    def _unroll(self, into: list[Statement]) -> None:
        self.read.advance()
        rounds = 0
        if self.read.accept("("):
            rounds = self._checker.declarations.integer_constant(self.read.assignment(), f"the number of {UNROLL}")
            self.read.expect(")")
        if self.read.token.text != "for":
            self.read.fail(f"{UNROLL} stands before a for")
        self._for(into, unroll=True, rounds=max(0, rounds))

    def _for(self, into: list[Statement], *, unroll: bool = False, rounds: int = 0) -> None:
        read = self.read
        at = read.advance().at
        read.expect("(")
        self._checker.scopes.open()
        start: list[Declare | Evaluate] = []
        if read.token.text != ";":
            first = read.token
            if read.type_is_next():
                start += self.declarations.declaration()
            else:
                start.append(Evaluate(first.at, self._unused()))
        read.expect(";", " in for")
        condition = None if read.token.text == ";" else read.condition_here()
        read.expect(";", " in for")
        step = None if read.token.text == ")" else self._unused()
        read.expect(")")
        body = self._body()
        self._checker.scopes.close()
        into.append(For(at, tuple(start), condition, step, body, unroll, rounds))

    def _break(self, into: list[Statement]) -> None:
        at = self.read.advance().at
        if not self._breakable:
            self._checker.problems.error(at, "break stands in a loop or a switch only")
        self.read.expect(";", " behind break")
        into.append(Break(at))

    def _continue(self, into: list[Statement]) -> None:
        at = self.read.advance().at
        if not self._loops:
            self._checker.problems.error(at, "continue stands in a loop only")
        self.read.expect(";", " behind continue")
        into.append(Continue(at))

    def _return(self, into: list[Statement]) -> None:
        read, function = self.read, self._checker.scopes.function
        at = read.advance().at
        value = None
        if read.token.text != ";":
            value = read.expression()
            if function.result is VOID:
                what = "a kernel" if function.is_kernel else function.name
                self._checker.problems.error(value.at, f"{what} returns nothing: write return;")
            else:
                value = self._checker.conversions.convert(value, function.result, f"the result of {function.name}")
            value = self._checker.expressions.full(value)
        elif function.result is not VOID:
            self._checker.problems.error(at, f"{function.name} must return {function.result}")
        read.expect(";", " behind return")
        into.append(Return(at, value))

    # --- switch

    def _switch(self, into: list[Statement]) -> None:
        read = self.read
        at = read.advance().at
        read.expect("(")
        value = self._checker.conversions.integer(read.expression(), "the value of a switch")
        read.expect(")")
        read.expect("{", ": the cases of a switch stand in braces")
        self._breakable += 1
        seen: set[int | None] = set()
        cases = []
        while not read.accept("}"):
            cases.append(self._case(value.type, seen))
        self._breakable -= 1
        last = len(cases) - 1
        into.append(
            Switch(
                at,
                value,
                tuple(
                    Case(case_at, tuple(v for v in values if v is not None), None in values, body, falls and i < last)
                    for i, (case_at, values, body, falls) in enumerate(cases)
                ),
            )
        )

    def _case(self, kind: Type, seen: set[int | None]) -> tuple[Place, list[int | None], Block, bool]:
        read, at = self.read, self.read.token.at
        values: list[int | None] = []
        while read.token.text in ("case", "default"):
            label = read.advance()
            value = None
            if label.text == "case":
                size = read.assignment()
                value = self._checker.declarations.integer_constant(size, "a case")
                if isinstance(kind, Scalar) and kind is not INVALID:
                    value = wrapped(value, kind)
            if value in seen:
                self._checker.problems.error(
                    label.at, f"{'default' if value is None else f'case {value}'} is there twice"
                )
            seen.add(value)
            values.append(value)
            read.expect(":", f" behind {label.text}")
        if not values:
            read.fail("a switch begins with a case")
        found: list[Statement] = []
        self._checker.scopes.open()
        while read.token.text not in ("case", "default", "}") and read.token.kind != "end":
            self.statement(found)
        self._checker.scopes.close()
        body = Block(at, tuple(found))
        return at, values, body, can_complete(body)
