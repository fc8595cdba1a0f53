"""Python as a kernel language.

A kernel is a function that is called once for a launch, over whole NumPy arrays. Its annotations are its signature:

    def saxpy(x: "f4[]", y: "f4[]", a: "f4", n: "i4"):
        y[:n] += a * x[:n]

A function with a parameter `launch` behind a `*` is given the grid and the group. Portable kernels become calls of
`translated(…)`, with their C inside, and run once for each work-item.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import CompileError
from ...programs.kernel_parts import UnwrittenKernel, Written
from ...programs.languages.base import NO_DEVICE_CLOCK, Language
from ...programs.signature import CTYPES, KernelSignature, Parameter
from ...programs.source import Source
from ...programs.translation_unit import user_line
from .c_subset import translate
from .preprocessor import CError
from .runtime import HELPERS, Launch, run_items

__all__ = ["LANGUAGE", "PythonKernel", "read_kernels"]

_MACRO = re.compile(r"^#define (\w+) ?([^\n]*)$", re.MULTILINE)


class _Python(Language):
    name = "python"
    title = "Python"
    has_options = False
    handwritten_kernel = '''\
translated("{name}", None, "x:buffer:{kind}:r y:buffer:{kind}:rw a:scalar:{kind} n:scalar:int", r"""
{before}int i = kk_global_id(0);
{statement}
""")
'''
    state_helpers = (
        NO_DEVICE_CLOCK
        + """\
#define KK_READ(x) (x)
#define KK_WRITE(x, v) (x) = (v)
#define KK_UNROLL
#define KK_OVERRAN false
#define KK_CHECK_LOOPS
"""
    )

    def write(self, kernel: UnwrittenKernel) -> Written:
        assert kernel.module, "it was checked, as for every device"
        parts = kernel.parts
        params = " ".join(f"{p.name}:{p.kind}:{p.dtype}:{p.access}" for p in kernel.signature.params or ())
        given = [kernel.signature.name, kernel.group, params, parts.body, parts.functions, parts.first_line]
        text = f"translated({', '.join(repr(each) for each in given)})\n"
        return Written(self.with_macros(text, kernel.macros) if kernel.macros else text, ())


LANGUAGE = _Python()


@dataclass(frozen=True)
class PythonKernel:
    """A kernel and how to run it."""

    signature: KernelSignature
    run: Callable[[Launch, Sequence[Any]], Any]


def read_kernels(text: str, source: Source) -> dict[str, PythonKernel]:
    """The kernels in a text. `CompileError` for what is no Python, or names what is not there."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        raise _refusal(source, user_line(text, line) if line else None, str(getattr(error, "msg", error))) from None
    macros = {name: value.strip() for name, value in _MACRO.findall(text)}
    found: dict[str, PythonKernel] = {}

    def translated(
        name: str, group: tuple[int, int, int] | None, params: str, body: str, functions: str = "", first_line: int = 1
    ) -> None:
        signature = KernelSignature(name, tuple(_declared(word) for word in params.split()), group)
        dtypes = {p.name: f"{p.dtype}{'[]' if p.kind == 'buffer' else ''}" for p in signature.params or ()}
        try:
            made = translate("kernel", dtypes, body, functions, macros, first_line)
        except CError as error:
            written = dict(enumerate(body.split("\n"), first_line)).get(error.line, "").strip()
            shown = f"\n    {written}" if written else ""
            raise _refusal(source, error.line, f"{error}{shown}") from None
        names = dict(HELPERS)
        exec(compile(made, f"<{name}>", "exec"), names)
        function = names["kernel"]
        found[name] = PythonKernel(signature, lambda launch, values: run_items(function, launch, values))

    names: dict[str, Any] = {
        **HELPERS,
        **{name: _value(value) for name, value in macros.items()},
        "translated": translated,
    }
    _check_names(tree, names, text, source)
    try:
        exec(compile(tree, f"<{source.name}>", "exec"), names)
    except CompileError:
        raise
    except Exception as error:
        raise _refusal(source, None, f"{type(error).__name__}: {error}") from None
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            found[node.name] = _python_kernel(names[node.name])
    if not found:
        raise _refusal(source, None, "there is no kernel in this text")
    return found


def _python_kernel(function: Callable[..., Any]) -> PythonKernel:
    given = inspect.signature(function).parameters.values()
    params = tuple(_annotated(p.name, str(p.annotation)) for p in given if p.kind is p.POSITIONAL_OR_KEYWORD)
    takes_launch = any(p.name == "launch" and p.kind is p.KEYWORD_ONLY for p in given)

    def run(launch: Launch, values: Sequence[Any]) -> Any:
        return function(*values, launch=launch) if takes_launch else function(*values)

    return PythonKernel(KernelSignature(function.__name__, params), run)


def _annotated(name: str, annotation: str) -> Parameter:
    kind = annotation.strip("'\"")
    if kind.endswith("[]"):
        return Parameter(name, "buffer", kind[:-2])
    return Parameter(name, "scalar", kind, "r", np.dtype(kind).itemsize)


def _declared(word: str) -> Parameter:
    name, kind, dtype, access = (*word.split(":"), "rw")[:4]
    dtype = CTYPES.get(dtype, dtype)
    return Parameter(name, kind, dtype, access, np.dtype(dtype).itemsize if kind == "scalar" else 0)


def _check_names(tree: ast.Module, known: Mapping[str, Any], text: str, source: Source) -> None:
    """A name that nobody defines is found now, and not when the kernel runs."""
    defined = {*known, *dir(builtins)}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            defined.add(node.name)
        elif isinstance(node, ast.arg):
            defined.add(node.arg)
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            defined.add(node.id)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            defined.update((alias.asname or alias.name).partition(".")[0] for alias in node.names)
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id not in defined:
            raise _refusal(source, user_line(text, node.lineno), f"{node.id} is not defined")


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return text


def _refusal(source: Source, line: int | None, message: str) -> CompileError:
    where = source.name if line is None else f"{source.name}, line {line}"
    return CompileError(f"{where}: {message}", log=message, line=line, name=source.name)
