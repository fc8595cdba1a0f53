"""Reads kernels that are written as Python functions. The text is parsed with `ast` and never executed.

`docs/python-kernels.md` says what they can have, and what it means.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterable, Mapping

from ..builtins import BUILTINS, Spelling
from ..checker.checker import Checker
from ..checker.flow import check_flow
from ..checker.scopes import CurrentFunction
from ..problems import TooManyProblems
from ..tree import NOWHERE, Block, Function, Module, Place, Variable
from ..types import VOID, Buffer, Type
from . import Reading
from .python_function import FunctionReader, ascii_name
from .python_generated import Generated
from .python_problems import PythonFunction, PythonProblems
from .python_statements import StatementReader

_TOO_DEEP = "the function is nested too deeply"


def read_kernel(
    name: str,
    parameters: Iterable[Variable],
    body: str,
    *,
    functions: str = "",
    defines: Mapping[str, str] | None = None,
    extra: Mapping[str, Spelling] | None = None,
    group: tuple[int, ...] | None = None,
    first_line: int = 1,
    file: str = "",
) -> Reading:
    """The tree of a kernel whose body is the text of a Python function.

    `functions` is JSON: `[[name, text, names], …]`, the kernel itself first, without its text, and then its helper functions;
    `names` says what the free names of each mean (`python_names.py`). `file` has a line for each of them: the file, and for
    helper functions the number of their first line before it.
    """
    facts: list[tuple[str, str, dict[str, str]]] = json.loads(functions) if functions else [(name, "", {})]
    places = file.split("\n")
    texts = [PythonFunction(name, body, facts[0][2], places[0], first_line)]
    for at, (helper, text, names) in enumerate(facts[1:], 1):
        line, _, where = (places[at] if at < len(places) else "1 ").partition(" ")
        texts.append(PythonFunction(helper, text, names, where, int(line)))
    return read_python(name, tuple(parameters), texts, defines=defines, extra=extra, group=group)


def read_python(
    name: str,
    parameters: tuple[Variable, ...],
    texts: list[PythonFunction],
    *,
    defines: Mapping[str, str] | None = None,
    extra: Mapping[str, Spelling] | None = None,
    group: tuple[int, ...] | None = None,
) -> Reading:
    """The tree of a kernel, the first of `texts`. Raises `CompileError` with the lines and columns of the file."""
    problems = PythonProblems(texts[0])
    module = None
    try:
        reader = ModuleReader(texts, problems, defines or {}, extra or {}, group)
        module = reader.kernel(name, parameters)
    except TooManyProblems:
        pass
    except RecursionError:
        problems.errors.clear()
        problems.error(Place(texts[0].first_line, 1), _TOO_DEEP)
    where = f" in {texts[0].file}" if texts[0].file else ""
    problems.raise_errors(f"kernel {name}{where}", name)
    assert module is not None
    return Reading(module, tuple(problems.warnings))


class ModuleReader:
    """Reads the kernel, and each helper function when it is first called."""

    def __init__(
        self,
        texts: list[PythonFunction],
        problems: PythonProblems,
        defines: Mapping[str, str],
        extra: Mapping[str, Spelling],
        group: tuple[int, ...] | None,
    ) -> None:
        self.problems = problems
        self.checker = Checker(problems, extra)
        self.defines = defines
        self.of_body = frozenset(extra)  # what only the body can call
        self.callable = frozenset((*(name for name in BUILTINS if name.startswith("kk_")), *extra))
        self.taken: set[str] = {texts[0].name}  # names of functions
        self._names = [texts[0].name, *(self._unique(text.name) for text in texts[1:])]
        self._words = set(re.findall(r"\w+", "\n".join(text.text for text in texts)))
        self.generated = Generated(self._add)
        self._texts = texts
        self._sizes = None if group is None else (*group, 1, 1)[:3]
        self._functions: list[Function] = []
        self._helpers: dict[int, Function | None] = {}
        self._open: list[int] = []  # the helper functions that are being read

    def kernel(self, name: str, parameters: tuple[Variable, ...]) -> Module:
        """The whole module."""
        function = self._reader(self._texts[0])
        if function is None:
            return Module(Function(name, parameters, VOID, Block(NOWHERE, ())))
        function.current.is_kernel = True
        own = {one.name: one for one in parameters}
        given = [one.arg for one in function.node.args.args]
        for argument in function.node.args.args:
            if argument.arg not in own:
                function.expressions.error(
                    argument, f"there is nothing called {argument.arg} to pass: {', '.join(own)}"
                )
        function.variables |= {name: own[name] for name in given if name in own}
        function.used |= set(own)
        return Module(self._finished(function, parameters, name), tuple(self._functions))

    def helper(self, number: int, at: Place, caller: FunctionReader) -> Function | None:
        """A helper function, read when it is first called; None where it has mistakes, which are reported."""
        if number in self._open:
            name = self._texts[number].name
            self.problems.error(at, f"{name} calls itself, and recursion is not possible on a GPU: use a loop")
            return None
        if number not in self._helpers:
            before = self.checker.scopes.function, self.checker.expressions.nested_changes, self.problems.text
            self._open.append(number)
            self._helpers[number] = self._helper(self._texts[number], self._names[number])
            self._open.pop()
            self.checker.scopes.function, self.checker.expressions.nested_changes, self.problems.text = before
        return self._helpers[number]

    def _helper(self, text: PythonFunction, name: str) -> Function | None:
        function = self._reader(text)
        if function is None:
            return None
        before = len(self.problems.errors)
        parameters = [self._parameter(function, argument) for argument in function.node.args.args]
        returns = function.node.returns
        if returns is not None and not (isinstance(returns, ast.Constant) and returns.value is None):
            result = function.type_of(returns)
            function.current.result = VOID if result is None else result
            if isinstance(result, Buffer):
                function.expressions.error(returns, f"{text.name} cannot return an array: pass one to write to")
        if len(self.problems.errors) > before:
            return None
        found = self._finished(function, tuple(one for one in parameters if one is not None), name)
        if len(self.problems.errors) > before:
            return None
        self._functions.append(found)
        return found

    def _parameter(self, function: FunctionReader, argument: ast.arg) -> Variable | None:
        if argument.annotation is None:
            function.expressions.error(argument, f"{argument.arg} needs a type, as in {argument.arg}: kk.f4")
            return None
        kind: Type | None = function.type_of(argument.annotation)
        if kind is None:
            return None
        at = function.expressions.at(argument)
        found = Variable(function.unique(argument.arg), kind, "parameter", at, argument.arg)
        function.variables[argument.arg] = found
        return found

    def _finished(self, function: FunctionReader, parameters: tuple[Variable, ...], name: str) -> Function:
        """Read the body, and check the function as a whole."""
        current: CurrentFunction = function.current
        self.checker.scopes.function = current
        self.checker.expressions.nested_changes = 0
        at = function.expressions.at(function.node)
        body = StatementReader(function).block(function.node.body, at)
        changed = frozenset(current.changed)
        found = Function(name, parameters, current.result, body, at, changed, current.has_barrier)
        if not self.problems.errors:
            check_flow(found, current, self.problems, self._sizes)
        return found

    def _reader(self, text: PythonFunction) -> FunctionReader | None:
        """A function, parsed; None where it is none."""
        self.problems.text = text
        indented = text.text[:1] in (" ", "\t")
        parsed = None
        try:
            parsed = ast.parse(f"if True:\n{text.text}" if indented else text.text)
        except SyntaxError as error:
            at = Place(text.first_line + (error.lineno or 1) - 1 - indented, error.offset or 1)
            self.problems.error(at, f"this is not Python: {error.msg}")
        except (ValueError, MemoryError):
            self.problems.error(Place(text.first_line, 1), "this is not Python")
        if parsed is None or not parsed.body:
            return None
        node: ast.stmt = parsed.body[0]
        if indented and isinstance(node, ast.If):
            node = node.body[0]
        if not isinstance(node, ast.FunctionDef):
            self.problems.error(Place(text.first_line, 1), "a kernel is a function: def name(…): …")
            return None
        found = FunctionReader(self, text, node, int(indented))
        arguments = node.args
        for wrong in (
            arguments.vararg,
            arguments.kwarg,
            *arguments.kwonlyargs,
            *arguments.posonlyargs,
            *arguments.defaults,
        ):
            if wrong is not None:
                found.expressions.error(wrong, "parameters are plain here: no * or **, no / and no default values")
                return None
        return found

    def _unique(self, name: str, avoided: frozenset[str] | set[str] = frozenset()) -> str:
        name = found = ascii_name(name)
        count = 1
        while found in self.taken or found in avoided:
            count += 1
            found = f"{name}_{count}"
        self.taken.add(found)
        return found

    def _add(self, name: str, make: Callable[[str], Function]) -> Function:
        found = make(self._unique(name, self._words))
        self._functions.append(found)
        return found
