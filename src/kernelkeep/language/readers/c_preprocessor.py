"""C's preprocessor: macros and conditions. What a macro writes has the place where the macro is used."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from ..builtins import UNROLL
from ..problems import Problems
from ..tree import Place
from .c_tokens import Token, tokens_of


class Macro(Struct, eq=False):
    """A macro. `parameters` is None for one without parentheses; `text` is what tokens are made from when first needed."""

    parameters: tuple[str, ...] | None = None
    tokens: list[Token] | None = None
    text: str = ""

    @property
    def replacement(self) -> list[Token]:
        """The tokens that it stands for."""
        if self.tokens is None:
            self.tokens = tokens_of(self.text)[:-1]
        return self.tokens


class _Condition(Struct, eq=False):
    """An `#if` that is open. `active`: this branch is read; `taken`: this or an earlier branch was."""

    at: Place
    active: bool
    taken: bool
    outer: bool  # the text around it is read
    has_else: bool = False


class Preprocessor:
    """Expands the macros of one text."""

    def __init__(self, problems: Problems, defines: Mapping[str, str]) -> None:
        self._problems = problems
        self._macros = {name: Macro(text=value) for name, value in defines.items()}
        self._conditions: list[_Condition] = []

    def expanded(self, tokens: list[Token]) -> list[Token]:
        """The tokens with macros expanded and without directives. The last one is still the end."""
        directives = [at for at, token in enumerate(tokens) if token.first and token.text == "#"]
        if not directives:
            return self._expand(tokens)
        found: list[Token] = []
        begin = 0
        for at in directives:
            if at < begin:
                continue
            end = at + 1
            while not tokens[end].first:
                end += 1
            if not self._conditions or self._conditions[-1].active:
                found += self._expand(tokens[begin:at])
            found += self._directive(tokens[at + 1 : end], tokens[at])
            begin = end
        for condition in self._conditions:
            self._problems.error(condition.at, "#if without #endif")
        return found + self._expand(tokens[begin:])

    # --- directives

    def _directive(self, line: list[Token], sign: Token) -> list[Token]:
        """Obey one directive. What it leaves in the text: nothing, or kk_unroll."""
        if not line:
            return []
        word, rest, at = line[0].text, line[1:], line[0].at
        active = not self._conditions or self._conditions[-1].active
        if word in ("if", "ifdef", "ifndef"):
            holds = active and self._holds(word, rest, at)
            self._conditions.append(_Condition(at, holds, holds, active))
        elif word in ("elif", "else", "endif"):
            self._next_branch(word, rest, at)
        elif not active:
            pass
        elif word == "define":
            self._define(rest, at)
        elif word == "undef":
            if len(rest) != 1 or rest[0].kind != "name":
                self._problems.error(at, "#undef takes one name")
            else:
                self._macros.pop(rest[0].text, None)
        elif word == "error":
            self._problems.error(at, f"#error {' '.join(token.text for token in rest)}")
        elif word == "pragma":
            if [token.text for token in rest[:1]] == ["unroll"]:
                return self._expand([Token("name", UNROLL, at), *_in_parentheses(rest[1:])])
        elif word == "include":
            self._problems.error(at, "a body cannot #include: put the text into the body, or use defines=")
        elif word != "line":
            self._problems.error(sign.at, f"unknown directive #{word}")
        return []

    def _define(self, rest: list[Token], at: Place) -> None:
        if not rest or rest[0].kind != "name":
            self._problems.error(at, "#define takes a name")
            return
        name, behind = rest[0], rest[1:]
        if not behind or behind[0].text != "(" or behind[0].at != Place(name.at.line, name.end):
            self._macros[name.text] = Macro(None, behind)
            return
        texts = [token.text for token in behind]
        close = texts.index(")") if ")" in texts else -1
        names = texts[1:close]
        if close < 0 or any(token.kind != "name" and token.text != "..." for token in behind[1:close:2]):
            self._problems.error(name.at, f"the parameters of macro {name.text} must be names in parentheses")
        elif any(sign != "," for sign in names[1::2]):
            self._problems.error(name.at, f"the parameters of macro {name.text} must have commas between them")
        else:
            parameters = tuple("__VA_ARGS__" if one == "..." else one for one in names[::2])
            self._macros[name.text] = Macro(parameters, behind[close + 1 :])

    def _holds(self, word: str, rest: list[Token], at: Place) -> bool:
        if word == "if":
            return self._condition(rest, at)
        if len(rest) != 1 or rest[0].kind != "name":
            self._problems.error(at, f"#{word} takes one name")
            return False
        return (rest[0].text in self._macros) == (word == "ifdef")

    def _condition(self, rest: list[Token], at: Place) -> bool:
        from .c_conditions import evaluate

        known: list[Token] = []
        queue = list(rest)
        while queue:
            token = queue.pop(0)
            if token.text == "defined":
                words = [one.text for one in queue[:3]]
                length = 3 if words[:1] == ["("] and words[2:] == [")"] else 1
                name = words[1] if length == 3 else "".join(words[:1])
                if not name[:1].isidentifier():
                    self._problems.error(token.at, "defined takes a name, in parentheses or without")
                    return False
                del queue[:length]
                known.append(Token("number", "1" if name in self._macros else "0", token.at))
            else:
                known.append(token)
        try:
            return evaluate(self._expand(known)) != 0
        except ValueError as error:
            self._problems.error(at, f"the condition of this line cannot be evaluated: {error}")
            return False

    def _next_branch(self, word: str, rest: list[Token], at: Place) -> None:
        if not self._conditions:
            self._problems.error(at, f"#{word} without #if")
            return
        condition = self._conditions[-1]
        if word == "endif":
            self._conditions.pop()
            return
        if condition.has_else:
            self._problems.error(at, f"#{word} after #else")
        condition.has_else = word == "else"
        may = condition.outer and not condition.taken
        condition.active = may and (word == "else" or self._condition(rest, at))
        condition.taken |= condition.active

    # --- macros

    def _expand(self, tokens: list[Token]) -> list[Token]:
        macros = self._macros
        first = next((at for at, token in enumerate(tokens) if token.text in macros), None) if macros else None
        if first is None:
            return tokens
        found = tokens[:first]
        stack = tokens[first:][::-1]
        while stack:
            token = stack.pop()
            macro = macros.get(token.text)
            if macro is None or token.kind != "name" or token.text in token.hidden:
                found.append(token)
            elif macro.parameters is None:
                stack += _placed(_pasted(macro.replacement), token)[::-1]
            elif stack and stack[-1].text == "(":
                arguments = self._arguments(token, stack)
                if arguments is not None:
                    stack += reversed(self._called(token, macro, arguments))
            else:
                found.append(token)
        return found

    def _arguments(self, name: Token, stack: list[Token]) -> list[list[Token]] | None:
        """Take the arguments of a macro from the stack, with their parentheses."""
        depth = 0
        found: list[list[Token]] = [[]]
        while stack:
            token = stack.pop()
            if token.kind == "end":
                stack.append(token)
                break
            if token.text in ("(", "[", "{"):
                depth += 1
                if depth == 1:
                    continue
            elif token.text in (")", "]", "}"):
                depth -= 1
                if depth == 0:
                    return found
            if token.text == "," and depth == 1:
                found.append([])
            else:
                found[-1].append(token)
        self._problems.error(name.at, f"the call of macro {name.text} has no closing parenthesis")
        return None

    def _called(self, name: Token, macro: Macro, arguments: list[list[Token]]) -> list[Token]:
        parameters = macro.parameters or ()
        if not parameters and arguments == [[]]:
            arguments = []
        if parameters[-1:] == ("__VA_ARGS__",):
            last = len(parameters) - 1
            rest = arguments[last:]
            arguments = [*arguments[:last], [one for i, each in enumerate(rest) for one in ([*_comma(name, i), *each])]]
        if len(arguments) != len(parameters):
            counts = f"{len(parameters)} argument{'' if len(parameters) == 1 else 's'}, got {len(arguments)}"
            self._problems.error(name.at, f"macro {name.text} takes {counts}")
            return [Token("number", "0", name.at)]
        given = dict(zip(parameters, arguments, strict=True))
        hidden = name.hidden | {name.text}
        replacement = _placed(macro.replacement, name)
        found: list[Token] = []
        for at, token in enumerate(replacement):
            argument = given.get(token.text) if token.kind == "name" else None
            if argument is None:
                found.append(token)
            elif "##" in (replacement[at - 1].text if at else "", *(one.text for one in replacement[at + 1 : at + 2])):
                found += argument
            else:
                # An argument keeps its own place: it stands in the user's text.
                found += [_hidden(one, hidden) for one in self._expand(argument)]
        return _pasted(found)


def _comma(name: Token, count: int) -> list[Token]:
    return [Token("sign", ",", name.at)] if count else []


def _placed(tokens: list[Token], use: Token) -> list[Token]:
    """The replacement of a macro, at the place where it is used."""
    at = use.at if use.at.macro else Place(use.at.line, use.at.column, use.text)
    hidden = use.hidden | {use.text}
    return [Token(one.kind, one.text, at, False, hidden | one.hidden if one.hidden else hidden) for one in tokens]


def _hidden(token: Token, hidden: frozenset[str]) -> Token:
    return Token(token.kind, token.text, token.at, False, hidden | token.hidden)


def _in_parentheses(tokens: list[Token]) -> list[Token]:
    """The number of `#pragma unroll 4`, as C writes an argument."""
    if not tokens or tokens[0].text == "(":
        return tokens
    return [Token("sign", "(", tokens[0].at), *tokens, Token("sign", ")", tokens[-1].at)]


def _pasted(tokens: list[Token]) -> list[Token]:
    """Join the tokens on both sides of each ##."""
    if not any(token.text == "##" for token in tokens):
        return tokens
    found: list[Token] = []
    rest = iter(tokens)
    for token in rest:
        if token.text != "##":
            found.append(token)
        elif found and (other := next(rest, None)) is not None:
            left = found.pop()
            joined = tokens_of(left.text + other.text)[0]
            found.append(Token(joined.kind, left.text + other.text, left.at, False, left.hidden & other.hidden))
    return found
