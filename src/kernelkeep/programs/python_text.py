"""The text of a Python function, and what the names that it uses mean: all that a reader needs, and all that a key needs.

Nothing is parsed here: a program that is found in a cache is neither read nor written. `language/readers/python_names.py` lists
the lines that say what a name means.
"""

from __future__ import annotations

import builtins
import json
import linecache
import re
from collections.abc import Callable
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

from ..errors import ArgumentError
from .python_words import Word

_DEFINITION = re.compile(r"[ \t]*(async[ \t]+)?def[ \t]+(\w+)")
_WORD = re.compile(r"[^\W\d]\w*")
_KNOWN_MODULES = ("kernelkeep", "math", "numpy")
_MISSING = object()


class FunctionText(NamedTuple):
    """A function as it stands in its file."""

    name: str
    text: str
    file: str
    first_line: int


class Helper:
    """A function that kernels call. It is read, never executed."""

    def __init__(self, function: FunctionType) -> None:
        self.function = function
        self.text = text_of(function)
        self.__name__ = function.__name__
        self.__doc__ = function.__doc__
        self.__wrapped__ = function

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Says that this is not for the host."""
        raise ArgumentError(f"{self.__name__} is a @kk.function, which only kernels call")

    def __repr__(self) -> str:
        return f"<kk.function {self.__name__}>"


def text_of(function: FunctionType) -> FunctionText:
    """The lines of a function, without its decorators."""
    code = function.__code__
    lines = linecache.getlines(code.co_filename, function.__globals__)
    first = code.co_firstlineno - 1
    definition = None
    while first < len(lines) and (definition := _DEFINITION.match(lines[first])) is None:
        first += 1
    if definition is None:
        raise ArgumentError(
            f"the text of {function.__name__} cannot be found ({code.co_filename}): a kernel must stand in a file or a notebook"
        )
    if definition.group(2) != code.co_name:
        raise ArgumentError(f"{code.co_filename} has changed since {code.co_name} was loaded from it: load it again")
    last = _last_line(code, lines, first)
    return FunctionText(code.co_name, "".join(lines[first:last]).rstrip(), code.co_filename, first + 1)


def _last_line(code: CodeType, lines: list[str], first: int) -> int:
    """The line behind a function. Its code says where that ends; comments and a last annotation make no code."""
    last = max((end for _, end, _, _ in code.co_positions() if end is not None), default=first + 1)
    indent = _indent(lines[first])
    at = last
    while at < len(lines):
        line = lines[at]
        if line.strip() and not line.lstrip().startswith("#"):
            if _indent(line) <= indent:
                break
            last = at + 1
        at += 1
    return last


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def described(function: FunctionType, text: FunctionText) -> tuple[str, str]:
    """All that a kernel uses from outside, as JSON, and where its helper functions stand.

    `[[name, text, names], …]`: the kernel itself first, without its text, and then the helper functions that it may call.
    """
    helpers: list[Helper] = []
    found: list[tuple[str, str, dict[str, str]]] = [(text.name, "", _names(function, text, helpers))]
    at = 0
    while at < len(helpers):
        one = helpers[at]
        found.append((one.text.name, one.text.text, _names(one.function, one.text, helpers)))
        at += 1
    places = [text.file, *(f"{one.text.first_line} {one.text.file}" for one in helpers)]
    return json.dumps(found, sort_keys=True), "\n".join(places)


def _names(function: FunctionType, text: FunctionText, helpers: list[Helper]) -> dict[str, str]:
    """What each free name of a function means."""
    code = function.__code__
    own = {*code.co_varnames, *code.co_cellvars}
    used = {*code.co_names, *code.co_freevars}
    found: dict[str, str] = {}
    modules: list[tuple[str, ModuleType]] = []
    for name in sorted({*used, *_WORD.findall(text.text)} - own):
        value = resolved(function, name)
        if value is _MISSING:
            continue
        meaning = _meaning(value, helpers) if name in used else _type_meaning(value)
        if meaning:
            found[name] = meaning
            if isinstance(value, ModuleType) and value.__name__ not in _KNOWN_MODULES:
                modules.append((name, value))
    for path, module in modules:
        for name in sorted(used):
            value = vars(module).get(name, _MISSING)
            if value is not _MISSING and not (isinstance(value, ModuleType) and path.count(".") > 3):
                found[f"{path}.{name}"] = _meaning(value, helpers)
                if isinstance(value, ModuleType):
                    modules.append((f"{path}.{name}", value))
    return found


def resolved(function: FunctionType, name: str) -> Any:
    """What a name means in a function: in the functions around it, or in its module."""
    if name in function.__code__.co_freevars:
        cell = (function.__closure__ or ())[function.__code__.co_freevars.index(name)]
        try:
            return cell.cell_contents
        except ValueError:
            return _MISSING
    found = function.__globals__.get(name, _MISSING)
    return found if found is not getattr(builtins, name, None) else _MISSING


def _meaning(value: Any, helpers: list[Helper]) -> str:
    if isinstance(value, bool | int):
        return f"{'bool' if isinstance(value, bool) else 'int'} {value}"
    if isinstance(value, float) and type(value) is float:
        return f"float {value.hex()}"
    if isinstance(value, Helper):
        if value not in helpers:
            helpers.append(value)
        return f"function {helpers.index(value) + 1}"
    return _numpy_number(value) or _type_meaning(value) or f"other {_shown(value)}"


def _numpy_number(value: Any) -> str:
    """A scalar of NumPy's, which has a type of its own."""
    kind = type(value)
    if kind.__module__ != "numpy" or not hasattr(value, "dtype") or getattr(value, "shape", None) != ():
        return ""
    short = "b1" if value.dtype.kind == "b" else value.dtype.str[1:]
    if value.dtype.kind not in "biuf" or value.dtype.itemsize > 8 or kind.__name__ == "ndarray":
        return ""
    number = value.item()
    return f"number {short} {number.hex() if isinstance(number, float) else number}"


def _type_meaning(value: Any) -> str:
    """Modules, and what kernels know of them."""
    if isinstance(value, ModuleType):
        return f"module {value.__name__}"
    name = getattr(value, "__name__", None)
    if isinstance(value, Word) or (isinstance(value, type) and value.__module__ == Word.__module__):
        return f"name kernelkeep.{name}"
    home = getattr(value, "__module__", None)
    if home in ("math", "builtins") and callable(value):
        return f"name {home}.{name}"
    is_numpy = (
        type(value).__name__ in ("ufunc", "type") and (home or type(value).__module__).partition(".")[0] == "numpy"
    )
    return f"name numpy.{name}" if is_numpy else ""


def _shown(value: Any) -> str:
    kind = type(value).__name__
    if callable(value) and hasattr(value, "__name__"):
        return (
            f"a function without @kk.function ({value.__name__})"
            if kind == "function"
            else f"the {kind} {value.__name__}"
        )
    return f"{'an' if kind[:1] in 'aeiouAEIOU' else 'a'} {kind}"


def plain_function(value: Callable[..., Any], decorator: str) -> FunctionType:
    """The function that is decorated. Raises `ArgumentError` where it is none."""
    if not isinstance(value, FunctionType) or value.__name__ == "<lambda>":
        raise ArgumentError(f"@{decorator} stands before a def, got {value!r}")
    return value
