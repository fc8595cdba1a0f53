"""From the C of portable kernels to Python, as far as tests need it: one work-item is one call.

Statements, expressions, functions, macros and barriers are translated; vectors, structs, pointers and nested assignments are
not. Integers are Python's, brought back into their type at every assignment, so the sums of 32-bit arithmetic come out as on a
device as long as no single expression divides, shifts right or compares what has overflowed inside it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from ...programs.signature import CTYPES

__all__ = ["CError", "translate"]

_TOKEN = re.compile(
    r"""(?P<space>[^\S\n]+|//[^\n]*|/\*.*?\*/|\\\n)|(?P<line>\n)|(?P<name>[A-Za-z_]\w*)|(?P<number>\.?\d(?:[eE][+-]|[\w.])*)
    |(?P<sign><<=|>>=|\+\+|--|&&|\|\||<<|>>|[-+*/%&|^=!<>]=|.)""",
    re.VERBOSE | re.DOTALL,
)
_ASSIGNMENTS = ("=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>=")
_LEVELS = (
    ("||",),
    ("&&",),
    ("|",),
    ("^",),
    ("&",),
    ("==", "!="),
    ("<", ">", "<=", ">="),
    ("<<", ">>"),
    ("+", "-"),
    ("*", "/", "%"),
)
_TYPE_WORDS = {word for spelled in CTYPES for word in spelled.split()} | {"bool", "void", "const", "ulong_t"}
_CASTS = {"kk_int": "i4", "kk_uint": "u4", "kk_float": "f4", "kk_double": "f8"}
_IDS = ("kk_global_id", "kk_local_id", "kk_group_id", "kk_group_size", "kk_group_count", "kk_global_size")


class CError(Exception):
    """What cannot be translated, and its line."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line


class _Token(NamedTuple):
    kind: str
    text: str
    line: int


class _Macro(NamedTuple):
    parameters: tuple[str, ...] | None
    meaning: tuple[_Token, ...]


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
    known: dict[str, _Macro] = {}
    for macro, value in macros.items():
        known[macro] = _Macro(None, tuple(_tokens(value, 1)))
    before = _Parser(_preprocessed(functions, 1, known), params)
    made = before.functions()
    parser = _Parser(_preprocessed(body, first_line, known), params, before.called)
    lines = parser.statements(until="")
    arguments = ", ".join(["item", *(f"v_{key}" for key in params)])
    return "\n".join([f"def {name}({arguments}):", *_indented([*made, *lines] or ["pass"])]) + "\n"


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"    {line}" for line in lines]


# --- the preprocessor


def _tokens(text: str, line: int) -> list[_Token]:
    found = []
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup or ""
        if kind not in ("space", "line"):
            found.append(_Token(kind, match.group(), line))
        line += match.group().count("\n")
    return found


def _preprocessed(text: str, line: int, macros: dict[str, _Macro]) -> list[_Token]:
    found: list[_Token] = []
    pending: list[_Token] = []  # since the last directive: a macro's arguments may go over lines
    active: list[bool] = []

    def flush() -> None:
        found.extend(_expanded(pending, macros, frozenset()))
        pending.clear()

    for written in re.split(r"(?<!\\)\n", text):
        directive = re.match(r"[ \t]*#[ \t]*(\w*)[ \t]*(.*)", written, re.DOTALL)
        if directive is None:
            if all(active):
                pending += _tokens(written, line)
        else:
            flush()
            word, rest = directive[1], directive[2]
            if word in ("ifdef", "ifndef", "if"):
                active.append(_condition(word, rest, macros, line))
            elif word == "else":
                active[-1] = not active[-1]
            elif word == "endif":
                active.pop()
            elif all(active) and word == "define":
                _define(rest, line, macros)
            elif all(active) and word == "undef":
                macros.pop(rest.strip(), None)
            elif all(active) and word == "line":
                line = int(rest.split()[0]) - 1
            elif word not in ("pragma", "extension", "define", "undef", "line"):
                raise CError(line, f"#{word} is not supported")
        line += 1 + written.count("\n")
    flush()
    return found


def _condition(word: str, rest: str, macros: Mapping[str, _Macro], line: int) -> bool:
    if word != "if":
        return (rest.strip() in macros) == (word == "ifdef")
    rest = re.sub(r"defined\s*\(?\s*(\w+)\s*\)?", lambda m: str(int(m[1] in macros)), rest)
    text = " ".join(token.text for token in _expanded(_tokens(rest, line), macros, frozenset()))
    return bool(eval(re.sub(r"\b[A-Za-z_]\w*", "0", text.replace("&&", " and ").replace("||", " or ")), {}))


def _define(rest: str, line: int, macros: dict[str, _Macro]) -> None:
    match = re.match(r"(\w+)(?:\(([^)]*)\))?(.*)", rest, re.DOTALL)
    if match is None:
        raise CError(line, "#define needs a name")
    parameters = None if match[2] is None else tuple(name.strip() for name in match[2].split(",") if name.strip())
    macros[match[1]] = _Macro(parameters, tuple(_tokens(match[3], line)))


def _expanded(tokens: Sequence[_Token], macros: Mapping[str, _Macro], hidden: frozenset[str]) -> list[_Token]:
    found: list[_Token] = []
    at = 0
    while at < len(tokens):
        token = tokens[at]
        at += 1
        macro = macros.get(token.text) if token.kind == "name" and token.text not in hidden else None
        if macro is None:
            found.append(token)
            continue
        meaning = list(macro.meaning)
        if macro.parameters is not None:
            if at >= len(tokens) or tokens[at].text != "(":
                found.append(token)
                continue
            arguments, at = _arguments(tokens, at, token)
            given = {
                name: _expanded(argument, macros, hidden)
                for name, argument in zip(macro.parameters, arguments, strict=False)
            }
            meaning = [piece for part in macro.meaning for piece in given.get(part.text, [part])]
        meaning = [piece._replace(line=token.line) for piece in meaning]
        found += _expanded(meaning, macros, hidden | {token.text})
    return found


def _arguments(tokens: Sequence[_Token], at: int, macro: _Token) -> tuple[list[list[_Token]], int]:
    arguments: list[list[_Token]] = [[]]
    depth = 0
    while True:
        if at >= len(tokens):
            raise CError(macro.line, f"the arguments of {macro.text} do not end")
        text = tokens[at].text
        at += 1
        depth += (text in "([{") - (text in ")]}")
        if depth == 0:
            return arguments, at
        if text == "," and depth == 1:
            arguments.append([])
        elif depth > 1 or text != "(":
            arguments[-1].append(tokens[at - 1])


# --- expressions and statements


class _Value(NamedTuple):
    """An expression as Python text, and what else it could be: an array's element, a variable, an assignment."""

    text: str
    element: tuple[str, str] | None = None
    variable: str = ""
    statements: tuple[str, ...] = ()


class _Parser:
    def __init__(self, tokens: Sequence[_Token], params: Mapping[str, str], called: set[str] | None = None) -> None:
        self._rest = [*tokens, _Token("end", "", tokens[-1].line if tokens else 1)]
        self._at = 0
        self._arrays = {name: dtype[:-2] for name, dtype in params.items() if dtype.endswith("[]")}
        self._types = {name: dtype for name, dtype in params.items() if not dtype.endswith("[]")}
        self.called = set(called or ())
        self._continues: list[list[str]] = []

    # tokens

    @property
    def _next(self) -> _Token:
        return self._rest[self._at]

    def _take(self, text: str | None = None) -> _Token:
        token = self._next
        if text is not None and token.text != text:
            raise CError(token.line, f"expected {text!r} and found {token.text or 'the end'!r}")
        self._at += 1
        return token

    def _accept(self, text: str) -> bool:
        if self._next.text == text and self._next.kind != "end":
            self._at += 1
            return True
        return False

    def _type(self) -> str | None:
        """A type, if one stands here: its dtype, "" for void."""
        start = self._at
        words = []
        while self._next.text in _TYPE_WORDS:
            words.append(self._take().text)
        words = [word for word in words if word != "const"]
        spelled = " ".join(words)
        if spelled in ("bool", "void"):
            return "bool" if spelled == "bool" else ""
        if spelled == "ulong_t":
            return "u8"
        if spelled not in CTYPES:
            self._at = start
            return None
        return CTYPES[spelled]

    # functions

    def functions(self) -> list[str]:
        lines: list[str] = []
        while self._next.kind != "end":
            while self._next.text in ("inline", "static"):
                self._take()
            if self._type() is None:
                raise CError(self._next.line, f"expected a function and found {self._next.text!r}")
            name = self._take().text
            self.called.add(name)
            self._take("(")
            names = []
            while not self._accept(")"):
                dtype = self._type()
                if dtype is None:
                    raise CError(
                        self._next.line, f"parameter {self._next.text!r} of {name} has no type that is supported"
                    )
                if dtype:
                    names.append(self._take().text)
                    self._types[names[-1]] = dtype
                self._accept(",")
            self._take("{")
            body = self.statements(until="}")
            lines += [f"def v_{name}({', '.join(f'v_{each}' for each in names)}):", *_indented(body or ["pass"])]
        return lines

    # statements

    def statements(self, until: str) -> list[str]:
        lines: list[str] = []
        while self._next.text != until or (until == "" and self._next.kind != "end"):
            if self._next.kind == "end":
                raise CError(self._next.line, "a block does not end")
            lines += self._statement()
        if until:
            self._take(until)
        return lines

    def _block(self) -> list[str]:
        return _indented(self._statement() or ["pass"])

    def _statement(self) -> list[str]:
        token = self._next
        if self._accept("{"):
            return self.statements(until="}")
        if self._accept(";"):
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
            self._take()
            return maker()
        lines = self._simple()
        self._take(";")
        return lines

    def _simple(self) -> list[str]:
        """A declaration, or expressions with commas between them."""
        dtype = self._type()
        if dtype is not None:
            return self._declaration(dtype)
        lines = self._expression_statement()
        while self._accept(","):
            lines += self._expression_statement()
        return lines

    def _declaration(self, dtype: str) -> list[str]:
        lines = []
        while True:
            token = self._take()
            if token.kind != "name":
                raise CError(token.line, f"expected a name and found {token.text!r}")
            name = token.text
            if self._next.text == "[":
                sizes = []
                while self._accept("["):
                    sizes.append(self._expression().text)
                    self._take("]")
                self._arrays[name] = dtype
                lines.append(f"v_{name} = np.zeros(({', '.join(sizes)},), {dtype!r})")
            else:
                self._types[name] = dtype
                value = self._expression().text if self._accept("=") else "0"
                lines.append(f"v_{name} = to_{dtype}({value})")
            if not self._accept(","):
                return lines

    def _expression_statement(self) -> list[str]:
        if self._next.text == "kk_barrier":
            self._take()
            self._take("(")
            self._take(")")
            return ["yield"]
        value = self._expression(assign=True)
        return list(value.statements) or [value.text]

    def _condition(self) -> str:
        self._take("(")
        text = self._expression().text
        self._take(")")
        return text

    def _if(self) -> list[str]:
        lines = [f"if {self._condition()}:", *self._block()]
        if self._accept("else"):
            lines += ["else:", *self._block()]
        return lines

    def _loop(self, head: list[str], condition: str, update: list[str]) -> list[str]:
        self._continues.append(update)
        body = self._block()
        self._continues.pop()
        return [*head, f"while {condition}:", *body, *_indented(update)]

    def _for(self) -> list[str]:
        self._take("(")
        head = [] if self._next.text == ";" else self._simple()
        self._take(";")
        condition = "True" if self._next.text == ";" else self._expression().text
        self._take(";")
        update: list[str] = []
        while not self._accept(")"):
            update += self._expression_statement()
            self._accept(",")
        return self._loop(head, condition, update)

    def _while(self) -> list[str]:
        return self._loop([], self._condition(), [])

    def _do(self) -> list[str]:
        start = self._at
        self._continues.append([])
        self._block()  # read once for what stands behind it
        self._take("while")
        condition = self._condition()
        self._take(";")
        end, self._at = self._at, start
        leave = [f"if not ({condition}): break"]
        self._continues[-1] = leave
        body = self._block()
        self._continues.pop()
        self._at = end
        return ["while True:", *body, *_indented(leave)]

    def _return(self) -> list[str]:
        value = "" if self._next.text == ";" else self._expression().text
        self._take(";")
        return [f"return {value}".rstrip()]

    def _break(self) -> list[str]:
        self._take(";")
        return ["break"]

    def _continue(self) -> list[str]:
        line = self._take(";").line
        if not self._continues:
            raise CError(line, "continue outside a loop")
        return [*self._continues[-1], "continue"]

    def _shared(self) -> list[str]:
        self._take("(")
        dtype = self._type() or "f4"
        self._take(",")
        name = self._take().text
        sizes = []
        while self._accept(","):
            sizes.append(self._expression().text)
        self._take(")")
        self._accept(";")
        self._arrays[name] = dtype
        return [f"v_{name} = item.shared({name!r}, ({', '.join(sizes)},), {dtype!r})"]

    # expressions

    def _expression(self, *, assign: bool = False) -> _Value:
        value = self._conditional()
        sign = self._next.text
        if sign in ("++", "--"):
            self._take()
            return self._assignment(value, f"{sign[0]}=", "1", assign)
        if sign in _ASSIGNMENTS:
            self._take()
            return self._assignment(value, sign, self._expression().text, assign)
        return value if assign or not value.statements else self._no_nesting()

    def _assignment(self, target: _Value, sign: str, value: str, allowed: bool) -> _Value:
        if not allowed:
            self._no_nesting()
        if sign != "=":
            value = _operation(sign[:-1], target.text, value)
        if target.element is not None:
            array, index = target.element
            place, dtype = f"v_{array}[{index}]", self._arrays[array]
        elif target.variable:
            place, dtype = f"v_{target.variable}", self._types.get(target.variable, "f4")
        else:
            raise CError(self._next.line, f"{target.text} cannot be assigned to")
        return _Value(target.text, statements=(f"{place} = to_{dtype}({value})",))

    def _no_nesting(self) -> _Value:
        raise CError(self._next.line, "an assignment inside an expression is not supported")

    def _conditional(self) -> _Value:
        value = self._binary(0)
        if not self._accept("?"):
            return value
        one = self._expression().text
        self._take(":")
        other = self._conditional().text
        return _Value(f"({one} if {value.text} else {other})")

    def _binary(self, level: int) -> _Value:
        if level == len(_LEVELS):
            return self._unary()
        value = self._binary(level + 1)
        while self._next.text in _LEVELS[level] and self._next.kind == "sign":
            sign = self._take().text
            value = _Value(_operation(sign, value.text, self._binary(level + 1).text))
        return value

    def _unary(self) -> _Value:
        token = self._next
        if token.text in ("++", "--"):
            self._take()
            return self._assignment(self._unary(), f"{token.text[0]}=", "1", True)
        if token.kind == "sign" and token.text in "-+!~":
            self._take()
            return _Value(
                {"!": "(not {})", "-": "(-{})", "+": "{}", "~": "(~{})"}[token.text].format(self._unary().text)
            )
        if token.text == "(":
            start = self._at
            self._take()
            dtype = self._type()
            if dtype is not None and self._accept(")"):
                return _Value(f"to_{dtype}({self._unary().text})")
            self._at = start
        return self._postfix()

    def _postfix(self) -> _Value:
        token = self._take()
        if token.text == "(":
            value = self._expression(assign=True)
            self._take(")")
            return value._replace(text=f"({value.text})")
        if token.kind == "number":
            return _Value(_number(token))
        if token.kind != "name":
            raise CError(token.line, f"expected an expression and found {token.text or 'the end'!r}")
        name = token.text
        if name in _TYPE_WORDS:
            self._at -= 1
            return self._call(f"to_{self._type()}")
        if self._next.text == "(":
            return self._named_call(token)
        if name in ("true", "false"):
            return _Value(name.capitalize())
        if self._next.text == "[":
            if name not in self._arrays:
                raise CError(token.line, f"{name} is not defined")
            indices = []
            while self._accept("["):
                indices.append(self._expression().text)
                self._take("]")
            index = ", ".join(indices)
            text = f"v_{name}[{index}]"
            return _Value(text if self._arrays[name][0] == "f" else f"int({text})", element=(name, index))
        if name not in self._types and name not in self._arrays:
            raise CError(token.line, f"{name} is not defined")
        return _Value(f"v_{name}", variable=name)

    def _named_call(self, token: _Token) -> _Value:
        name = token.text
        if name in _CASTS:
            return self._call(f"to_{_CASTS[name]}")
        if name in _IDS:
            return self._call(f"item.{name[3:]}")
        if name in self.called:
            return self._call(f"v_{name}")
        if name == "kk_fence":
            return self._call("fence")
        if name.startswith("kk_atomic_"):
            self._take("(")
            target = self._expression()
            if target.element is None:
                raise CError(token.line, f"{name} needs an element of an array")
            values = []
            while self._accept(","):
                values.append(self._expression().text)
            self._take(")")
            array, index = target.element
            return _Value(f"atomic({name[10:]!r}, {self._arrays[array]!r}, v_{array}, ({index},), {', '.join(values)})")
        plain = name[:-1] if name.endswith("f") and name not in ("f", "erf") else name
        if plain not in ("sqrt", "exp", "log", "pow", "sin", "cos", "tanh", "floor", "fabs", "abs", "min", "max", "fmin", "fmax",
                         "fma", "rsqrt"):  # fmt: skip
            raise CError(token.line, f"{name} is not defined")
        return self._call(f"math_{plain}")

    def _call(self, function: str) -> _Value:
        self._take("(")
        arguments = []
        while not self._accept(")"):
            arguments.append(self._expression().text)
            self._accept(",")
        return _Value(f"{function}({', '.join(arguments)})")


def _operation(sign: str, left: str, right: str) -> str:
    if sign in "/%":
        return f"{'divide' if sign == '/' else 'remainder'}({left}, {right})"
    return f"({left} {({'&&': 'and', '||': 'or'}).get(sign, sign)} {right})"


def _number(token: _Token) -> str:
    text = token.text.lower()
    if text.startswith("0x"):
        return str(int(text.rstrip("ul"), 16))
    if re.fullmatch(r"\d+[ul]*", text):
        return str(int(text.rstrip("ul")))
    try:
        value = float(text.rstrip("fl"))
    except ValueError:
        raise CError(token.line, f"{token.text} is not a number") from None
    return f"to_f4({value!r})" if text.endswith("f") else repr(value)
