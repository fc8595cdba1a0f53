"""The body of a state program as a Python function.

The function is read when a kernel is written, and never executed. What a run must know before that, which arrays the body writes
and what it calls, is told from an outline: the same statements in the form of C, for `body_writes.py`.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Iterable
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

from ..errors import ArgumentError
from ..programs.portable_source import PLACES
from ..programs.python_text import described, plain_function, resolved, text_of
from ..programs.python_words import Word

_OWN = "kernelkeep"


class PythonBody(NamedTuple):
    """A body in Python: its text, what it uses from outside, and its outline."""

    text: str
    functions: str
    places: str
    first_line: int
    arguments: tuple[str, ...]
    outline: str

    @property
    def identity(self) -> str:
        """What the body computes, as a text: another one is another program."""
        return f"{self.text}\n# {self.functions}"

    def pragma(self, name: str, parameters: list[list[Any]], tasks: list[str] | None) -> str:
        """The lines that stand for the helper functions in the text of a kernel (`language/readers/python_body.py`)."""
        facts = {
            "name": name, "text": self.text, "functions": self.functions, "parameters": parameters, "tasks": tasks,
            "taken": [one[0] for one in parameters],
        }  # fmt: skip
        return f"{PLACES}{json.dumps([self.first_line, self.places])}\n#pragma kk python {json.dumps(facts)}"


def python_body(given: Callable[..., Any], program: str) -> PythonBody:
    """What is known of a body. Raises `ArgumentError` where it is no plain function with a text."""
    if not isinstance(given, FunctionType):
        raise ArgumentError(f"body of {program} must be a text in C or a plain Python function, got {given!r}")
    function = plain_function(given, "a body")
    text = text_of(function)
    functions, places = described(function, text)
    code = function.__code__
    if code.co_flags & 0x0C or code.co_kwonlyargcount or code.co_posonlyargcount or function.__defaults__:
        raise ArgumentError(
            f"parameters of the body of {program} must be plain: no * or **, no / and no default values"
        )
    arguments = code.co_varnames[: code.co_argcount]
    return PythonBody(text.text, functions, places, text.first_line, arguments, _Outline(function).text(text.text))


class _Outline:
    """Writes statements as C, as far as it matters which elements are read and written, in which order, on which path."""

    def __init__(self, function: FunctionType) -> None:
        self._function = function

    def text(self, source: str) -> str:
        """The outline of a function; of a text that is not Python, nothing, and the reader will say so."""
        try:
            parsed: ast.stmt = ast.parse(f"if True:\n{source}" if source[:1].isspace() else source).body[0]
            inner = parsed.body[0] if isinstance(parsed, ast.If) else parsed
            return "\n".join(self._block(inner.body)) if isinstance(inner, ast.FunctionDef) else ""
        except (SyntaxError, ValueError, RecursionError):
            return ""

    def _block(self, nodes: Iterable[ast.stmt]) -> list[str]:
        return [line for node in nodes for line in self._statement(node)]

    def _statement(self, node: ast.stmt) -> list[str]:
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
            return self._assignment(node)
        if isinstance(node, ast.If):
            if not node.orelse and self._is_past_the_end(node):
                return [f"if ({self._x(node.test.left)} >= kk_items()) return;"]  # type: ignore[attr-defined]
            then = [f"if ({self._x(node.test)}) {{", *self._block(node.body), "}"]
            return [*then, "else {", *self._block(node.orelse), "}"] if node.orelse else then
        if isinstance(node, ast.While):
            return [f"while ({self._x(node.test)}) {{", *self._block(node.body), "}"]
        if isinstance(node, ast.For):
            return [f"for (; {self._x(node.iter)}; {self._x(node.target)} = 0) {{", *self._block(node.body), "}"]
        if isinstance(node, ast.Return | ast.Break | ast.Continue):
            return [f"{type(node).__name__.lower()};"]
        if isinstance(node, ast.Expr):
            return [] if isinstance(node.value, ast.Constant) else [f"{self._x(node.value)};"]
        return [] if isinstance(node, ast.Pass) else ["goto;"]  # what is not understood may do anything

    def _is_past_the_end(self, node: ast.If) -> bool:
        """`if i >= kk.items(): return`, which is true for no item."""
        test = node.test
        if not isinstance(test, ast.Compare) or [type(one) for one in test.ops] != [ast.GtE]:
            return False
        ends = len(node.body) == 1 and isinstance(node.body[0], ast.Return)
        return ends and isinstance(test.left, ast.Name) and self._x(test.comparators[0]) == "kk_items()"

    def _assignment(self, node: ast.Assign | ast.AnnAssign | ast.AugAssign) -> list[str]:
        if node.value is None:
            return []
        value = self._x(node.value)
        if isinstance(node, ast.AugAssign):
            return [f"{self._x(node.target)} += {value};"]
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if len(targets) == 1 and isinstance(targets[0], ast.Name) and value == "kk_item()":
            return [f"int {targets[0].id} = kk_item();"]
        plain: list[ast.expr] = []
        for target in targets:
            plain += target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
        values = node.value.elts if isinstance(node.value, ast.Tuple | ast.List) else []
        if len(values) == len(plain) and all(isinstance(one, ast.Name) for one in plain):
            pairs = zip(plain, map(self._x, values), strict=True)
            return [
                f"int {self._x(one)} = kk_item();" if text == "kk_item()" else f"{self._x(one)} = {text};"
                for one, text in pairs
            ]
        return [f"kkv = {value};", *(f"{self._x(target)} = kkv;" for target in plain)]

    def _x(self, node: ast.AST) -> str:
        """An expression: names, elements and calls are kept, of operators only `i + 1`: it may be a neighbour's index."""
        if isinstance(node, ast.Name):
            return node.id
        if isinstance(node, ast.Constant):
            return "0"
        if isinstance(node, ast.Subscript):
            return f"{self._x(node.value)}[{self._x(node.slice)}]"
        if isinstance(node, ast.Call):
            name = self._word(node.func)
            given = ", ".join(map(self._x, node.args))
            return f"{name}({given})" if name else f"kkf({self._x(node.func)}, {given})"
        if isinstance(node, ast.Attribute):
            return self._x(node.value)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
            left, right = node.left, node.right
            if isinstance(left, ast.Name) and isinstance(right, ast.Constant) and isinstance(right.value, int):
                return f"{left.id} {'+' if isinstance(node.op, ast.Add) else '-'} {right.value}"
        parts = [self._x(child) for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]
        return f"kkf({', '.join(parts)})"

    def _word(self, node: ast.expr) -> str:
        """`kk_item` for `kk.item`, whatever the module is called here; "" for other functions."""
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module = resolved(self._function, node.value.id)
            return f"kk_{node.attr}" if isinstance(module, ModuleType) and module.__name__ == _OWN else ""
        meant = resolved(self._function, node.id) if isinstance(node, ast.Name) else None
        return f"kk_{meant.__name__}" if isinstance(meant, Word) else ""
