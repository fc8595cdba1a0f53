"""Reads the body of a kernel, in C.

A body is C99 with pointers into arrays only, and what `builtins.py` lists. It may begin with helper functions, and with structs,
typedefs and constants before these:

    struct pair { float a, b; };
    const float LIMIT = 2.0f;
    float longer(float x[], int n, struct pair p) { … }

    int i = kk_global_id(0);
    x[i] = longer(x, n, p);

A parameter `float x[]` or `float* x` of a helper function takes an array: its name, a part (`x + i`, `&x[i]`), or one variable
(`&v`); `const float x[]` promises not to write to it. Helper functions do not see the parameters of the kernel. A pointer stays
within the array that it was first set to: it becomes a variable with an offset into that array.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..builtins import Spelling, system_builtins
from ..checker.checker import Checker
from ..checker.flow import check_flow
from ..checker.scopes import CurrentFunction
from ..problems import NESTED_TOO_DEEPLY, Problems, TooManyProblems
from ..tree import Block, Declare, Function, Literal, Module, Place, Statement, Variable
from ..types import I4, INVALID, VOID, Array, Buffer, Named, Scalar, Type, buffer
from . import Reading as Reading
from .c_refusals import refuse
from .c_statements import StatementParser
from .c_tokens import Token, changed_names, last_function, tokens_of
from .c_types import UnexpectedToken


def read_kernel(
    name: str,
    parameters: Iterable[Variable],
    body: str,
    *,
    functions: str = "",
    defines: Mapping[str, str] | None = None,
    group: tuple[int, ...] | None = None,
    first_line: int = 1,
    file: str = "",
) -> Reading:
    """The tree of a kernel whose body may have generated text before it, `functions`."""
    if not functions:
        return read_body(name, parameters, body, defines=defines, group=group, first_line=first_line)
    text = f"{functions}#line {first_line}\n{body}"
    return read_body(name, parameters, text, defines=defines, extra=system_builtins(), group=group)


def read_body(
    name: str,
    parameters: Iterable[Variable],
    body: str,
    *,
    defines: Mapping[str, str] | None = None,
    extra: Mapping[str, Spelling] | None = None,
    group: tuple[int, ...] | None = None,
    first_line: int = 1,
) -> Reading:
    """The tree of a kernel.

    `parameters` are those of the kernel, with the spaces "buffer" and "scalar"; `defines` are macros with their replacement
    text; `extra` has further built-ins, such as those of state programs; `group` is the size of a group.

    Raises `CompileError` for a body with mistakes: it shows the first of them, `.log` has all, `.line` is that of the first.
    """
    if "#pragma kk python" in body:
        from .python_body import with_python

        body = with_python(body, name)
    problems = Problems(body, first_line)
    module = None
    try:
        tokens = tokens_of(body, first_line)
        if defines or "#" in body:
            from .c_preprocessor import Preprocessor

            tokens = Preprocessor(problems, defines or {}).expanded(tokens)
        sizes = None if group is None else (*group, 1, 1)[:3]
        reader = _ModuleReader(tokens, Checker(problems, extra or {}), sizes)
        module = reader.module(name, tuple(parameters))
    except (UnexpectedToken, TooManyProblems):
        pass
    except RecursionError:
        if not problems.errors:
            problems.error(Place(first_line, 1), NESTED_TOO_DEEPLY)
    problems.raise_errors(f"kernel {name}", name)
    assert module is not None
    return Reading(module, tuple(problems.warnings))


class _ModuleReader:
    """Reads what stands before the body, and the body."""

    def __init__(self, tokens: list[Token], checker: Checker, group: tuple[int, ...] | None) -> None:
        self._group = group
        self._statements = StatementParser(tokens, checker)
        self._read = self._statements.read
        self._declarations = self._statements.declarations
        self._checker = checker
        self._functions: list[Function] = []
        self._pointers = changed_names(tokens)
        self._constants: list[Declare] = []

    def module(self, name: str, parameters: tuple[Variable, ...]) -> Module:
        """The whole text."""
        scopes, last = self._checker.scopes, last_function(self._read.tokens)
        while self._read.position < last:
            start = self._read.position
            try:
                self._outside()
            except UnexpectedToken:
                self._statements.skip(start, depth=1)
        kinds = [self._parameter_type(one) for one in parameters]
        scopes.open()
        own = tuple(
            scopes.declare(one.name, kind, one.space, one.at, is_const=one.is_const)
            for one, kind in zip(parameters, kinds, strict=True)
        )
        current = self._checker.scopes.function = CurrentFunction(name, VOID, is_kernel=True)
        at = self._read.token.at
        body = self._moved(own)
        self._statements.statements(body, end="")
        scopes.close()
        kernel = self._finished(current, own, body, at)
        return Module(kernel, tuple(self._functions), tuple(scopes.tags.values()), tuple(self._constants))

    def _parameter_type(self, parameter: Variable) -> Type:
        """The type of a parameter of the kernel. One that the text defines is defined before the first statement."""
        kind = parameter.type
        if not isinstance(kind, Buffer) or isinstance(kind.element, Scalar):
            return kind
        if isinstance(kind.element, Named):
            while self._read.token.text == "typedef" or self._is_struct():
                self._outside()
            name = kind.element.title.removeprefix("struct ")
            found = self._checker.scopes.tags.get(name) or self._checker.scopes.find_type(name)
            if found is None:
                where = f"of buffer {parameter.name} is not defined at the beginning of the body"
                self._checker.problems.error(self._read.token.at, f"type {name} {where}")
                return INVALID
            kind = buffer(found, kind.access)
        from ..layout import has_no_layout  # few kernels have structs in buffers

        if (part := has_no_layout(kind.element)) is not None:
            sentence = f"buffer {parameter.name} must not have {part} in its elements: targets differ in where it lies"
            self._checker.problems.error(self._read.token.at, sentence)
        return kind

    def _is_struct(self) -> bool:
        """Whether the definition of a struct is next."""
        following = [one.text for one in self._read.tokens[self._read.position + 1 : self._read.position + 3]]
        return self._read.token.text == "struct" and "{" in following

    def _moved(self, parameters: tuple[Variable, ...]) -> list[Statement]:
        """Offsets for the arrays that the text moves as pointers, such as `x += n`: these are declared first."""
        found: list[Statement] = []
        for one in parameters:
            if isinstance(one.type, Buffer) and one.written in self._pointers:
                zero = Literal(one.at, I4, 0)
                found.append(self._checker.expressions.pointers.view(one.written, one, zero, one.type, I4, one.at))
        return found

    def _finished(
        self, current: CurrentFunction, parameters: tuple[Variable, ...], body: list[Statement], at: Place
    ) -> Function:
        """The function that was read, checked as a whole."""
        changed = frozenset(current.changed)
        found = Function(
            current.name, parameters, current.result, Block(at, tuple(body)), at, changed, current.has_barrier
        )
        if not self._checker.problems.errors:
            check_flow(found, current, self._checker.problems, self._group)
        return found

    def _outside(self) -> None:
        """A struct, typedef, constant or helper function."""
        read = self._read
        token = read.token
        nothing: list[Statement] = []
        if token.text == ";":
            read.advance()
        elif token.text == "typedef":
            self._declarations.typedef(nothing)
        elif self._is_struct():
            self._declarations.struct(nothing)
            for one in nothing:
                self._checker.problems.error(
                    one.at, "a variable that is no constant stands in the body or in a function"
                )
        elif not read.type_is_next():
            refuse(read)
            read.fail("only functions, structs and constants stand before a helper function")
        else:
            kind, is_const = read.specifiers()
            if read.peek(1).text == "(":
                self._function(kind)
            else:
                self._constant(kind, is_const)

    def _constant(self, kind: Type, is_const: bool) -> None:
        read = self._read
        found = self._declarations.declarators(kind, is_const=True, is_global=True)
        read.expect(";", " behind the declaration")
        for one in found:
            variable = one.variable
            if not is_const:
                self._checker.problems.error(
                    one.at, f"{variable.written} stands before a helper function and must be const"
                )
            elif not isinstance(variable.type, Array) and variable.value is None:
                self._checker.problems.error(one.at, f"{variable.written} must have a constant value")
        self._constants += found

    def _function(self, result: Type) -> None:
        read, scopes = self._read, self._checker.scopes
        name = self._declarations.declared_name()
        current = self._checker.scopes.function = CurrentFunction(name.text, result)
        if isinstance(result, Array):
            self._checker.problems.error(name.at, f"{name.text} cannot return an array")
        read.expect("(")
        scopes.open()
        parameters: list[Variable] = []
        if read.token.text == "void" and read.peek(1).text == ")":
            read.advance()
        while not read.accept(")"):
            parameters.append(self._parameter())
            if not read.accept(",") and read.token.text != ")":
                read.fail(") is missing behind the parameters")
        if read.accept(";"):  # a declaration says nothing that the definition does not say
            scopes.prototypes[name.text] = name.at.line
            scopes.close()
            return
        read.expect("{")
        body = self._moved(tuple(parameters))
        self._statements.statements(body, end="}")
        read.advance()
        scopes.close()
        function = self._finished(current, tuple(parameters), body, name.at)
        self._functions.append(function)
        scopes.define(function)

    def _parameter(self) -> Variable:
        read = self._read
        kind, is_const = read.specifiers()
        is_array = is_restrict = False
        while read.token.text in ("*", "restrict", "__restrict__", "__restrict", "const"):
            word = read.advance().text
            is_array |= word == "*"
            is_restrict |= "restrict" in word
        name = self._declarations.declared_name()
        sizes = self._declarations.sizes()
        if sizes or is_array:
            inner = [size or 1 for size in sizes[1:]]
            kind = buffer(self._checker.declarations.array(kind, inner), "r" if is_const else "rw")
            is_const = False
        return self._checker.declarations.parameter(
            name.text, kind, name.at, is_const=is_const, is_restrict=is_restrict and isinstance(kind, Buffer)
        )
