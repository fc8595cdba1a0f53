"""From the C of portable kernels to Python, as far as tests need it: one work-item is one call.

Statements, expressions, functions, macros and barriers are translated; vectors, structs, nested assignments and pointers other
than parameters are not. Integers are Python's, brought back into their type at every assignment, so the sums of 32-bit
arithmetic come out as on a device as long as no single expression divides, shifts right or compares what has overflowed inside
it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from .expressions import Expressions
from .preprocessor import CError, Macro, Token, preprocess, tokens_of

__all__ = ["translate"]


def translate(
    name: str,
    params: Mapping[str, str],
    body: str,
    functions: str = "",
    macros: Mapping[str, str] = {},
    first_line: int = 1,
) -> str:
    """Python text that defines `name(item, …)`, a generator where the body has barriers.

    `params` maps names to dtypes, with `[]` behind those of buffers.
    """
    known: dict[str, Macro] = {}
    for macro, value in macros.items():
        known[macro] = Macro(None, tuple(tokens_of(value, 1)))
    before = _Statements(preprocess(functions, 1, known), params)
    made = before.functions()
    parser = _Statements(preprocess(body, first_line, known), params, before.called)
    lines = parser.statements(until="")
    arguments = ", ".join(["item", *(f"v_{key}" for key in params)])
    return "\n".join([f"def {name}({arguments}):", *_indented([*made, *lines] or ["pass"])]) + "\n"


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"    {line}" for line in lines]


class _Statements(Expressions):
    """Reads statements and functions."""

    def __init__(self, tokens: Sequence[Token], params: Mapping[str, str], called: set[str] | None = None) -> None:
        super().__init__(tokens, params, called)
        self._continues: list[list[str]] = []

    # functions

    def functions(self) -> list[str]:
        lines: list[str] = []
        while self.next.kind != "end":
            while self.next.text in ("inline", "static"):
                self.take()
            if self.read_type() is None:
                raise CError(self.next.line, f"expected a function and found {self.next.text!r}")
            name = self.take().text
            self.called.add(name)
            self.take("(")
            names = []
            while not self.accept(")"):
                dtype = self.read_type()
                if dtype is None:
                    raise CError(
                        self.next.line, f"parameter {self.next.text!r} of {name} has no type that is supported"
                    )
                if dtype:
                    is_array = self.accept("*")
                    self.accept("restrict")
                    names.append(self.take().text)
                    (self.arrays if is_array else self.types)[names[-1]] = dtype
                self.accept(",")
            self.take("{")
            body = self.statements(until="}")
            lines += [f"def v_{name}({', '.join(f'v_{each}' for each in names)}):", *_indented(body or ["pass"])]
        return lines

    # statements

    def statements(self, until: str) -> list[str]:
        lines: list[str] = []
        while self.next.text != until or (until == "" and self.next.kind != "end"):
            if self.next.kind == "end":
                raise CError(self.next.line, "a block does not end")
            lines += self._statement()
        if until:
            self.take(until)
        return lines

    def _block(self) -> list[str]:
        return _indented(self._statement() or ["pass"])

    def _statement(self) -> list[str]:
        token = self.next
        if self.accept("{"):
            return self.statements(until="}")
        if self.accept(";"):
            return []
        maker: Callable[[], list[str]] | None = {
            "if": self._if,
            "for": self._for,
            "while": self._while,
            "do": self._do,
            "return": self._return,
            "break": self._break,
            "continue": self._continue,
            "kk_shared": self._shared,
        }.get(token.text)
        if maker is not None:
            self.take()
            return maker()
        lines = self._simple()
        self.take(";")
        return lines

    def _simple(self) -> list[str]:
        """A declaration, or expressions with commas between them."""
        dtype = self.read_type()
        if dtype is not None:
            return self._declaration(dtype)
        lines = self._expression_statement()
        while self.accept(","):
            lines += self._expression_statement()
        return lines

    def _declaration(self, dtype: str) -> list[str]:
        lines = []
        while True:
            token = self.take()
            if token.kind != "name":
                raise CError(token.line, f"expected a name and found {token.text!r}")
            name = token.text
            if self.next.text == "[":
                sizes = []
                while self.accept("["):
                    sizes.append(self.expression().text)
                    self.take("]")
                self.arrays[name] = dtype
                lines.append(f"v_{name} = np.zeros(({', '.join(sizes)},), {dtype!r})")
            else:
                self.types[name] = dtype
                value = self.expression().text if self.accept("=") else "0"
                lines.append(f"v_{name} = to_{dtype}({value})")
            if not self.accept(","):
                return lines

    def _expression_statement(self) -> list[str]:
        if self.next.text == "kk_barrier":
            self.take()
            self.take("(")
            self.take(")")
            return ["yield"]
        value = self.expression(assign=True)
        return list(value.statements) or [value.text]

    def _condition(self) -> str:
        self.take("(")
        text = self.expression().text
        self.take(")")
        return text

    def _if(self) -> list[str]:
        lines = [f"if {self._condition()}:", *self._block()]
        if self.accept("else"):
            lines += ["else:", *self._block()]
        return lines

    def _loop(self, head: list[str], condition: str, update: list[str]) -> list[str]:
        self._continues.append(update)
        body = self._block()
        self._continues.pop()
        return [*head, f"while {condition}:", *body, *_indented(update)]

    def _for(self) -> list[str]:
        self.take("(")
        head = [] if self.next.text == ";" else self._simple()
        self.take(";")
        condition = "True" if self.next.text == ";" else self.expression().text
        self.take(";")
        update: list[str] = []
        while not self.accept(")"):
            update += self._expression_statement()
            self.accept(",")
        return self._loop(head, condition, update)

    def _while(self) -> list[str]:
        return self._loop([], self._condition(), [])

    def _do(self) -> list[str]:
        start = self.at
        self._continues.append([])
        self._block()  # read once for what stands behind it
        self.take("while")
        condition = self._condition()
        self.take(";")
        end, self.at = self.at, start
        leave = [f"if not ({condition}): break"]
        self._continues[-1] = leave
        body = self._block()
        self._continues.pop()
        self.at = end
        return ["while True:", *body, *_indented(leave)]

    def _return(self) -> list[str]:
        value = "" if self.next.text == ";" else self.expression().text
        self.take(";")
        return [f"return {value}".rstrip()]

    def _break(self) -> list[str]:
        self.take(";")
        return ["break"]

    def _continue(self) -> list[str]:
        line = self.take(";").line
        if not self._continues:
            raise CError(line, "continue outside a loop")
        return [*self._continues[-1], "continue"]

    def _shared(self) -> list[str]:
        self.take("(")
        dtype = self.read_type() or "f4"
        self.take(",")
        name = self.take().text
        sizes = []
        while self.accept(","):
            sizes.append(self.expression().text)
        self.take(")")
        self.accept(";")
        self.arrays[name] = dtype
        return [f"v_{name} = item.shared({name!r}, ({', '.join(sizes)},), {dtype!r})"]
