"""Bodies in Python inside of a text in C, as state programs have them.

The generated kernels of a state program are C around the user's body. Where that is Python, three lines stand for it. They become
C when the text is read, so that a key is made without reading anything:

    #pragma kk places […]     where it stands: the number of its first line, and its files; for errors only, and in no key
    #pragma kk python {…}     outside all functions: the helper functions; all that is known is behind it, as JSON
    #pragma kk body           in the function that is the body: its statements
"""

from __future__ import annotations

import json
import re

from ...errors import CompileError
from ..builtins import state_builtins
from ..lines import line_with_number
from ..tree import kernel_parameter
from ..types import SCALARS
from ..writers.portable import PortableWriter
from .python_kernel import read_kernel

_FUNCTIONS = re.compile(r"^#pragma kk places (.*)\n#pragma kk python (.*)$", re.MULTILINE)
_BODY = re.compile(r"^#pragma kk body$", re.MULTILINE)


def python_line(text: str, number: int) -> str:
    """The line with this number of the Python in a text, or nothing."""
    found = _FUNCTIONS.search(text)
    if found is None:
        return ""
    first_line, _ = json.loads(found.group(1))
    return line_with_number(str(json.loads(found.group(2))["text"]), number, first_line)


def with_python(text: str, name: str) -> str:
    """The text with its Python as C. Raises `CompileError` with the places of the Python text."""
    found = _FUNCTIONS.search(text)
    if found is None:
        return text
    try:
        first_line, file = json.loads(found.group(1))
        facts = json.loads(found.group(2))
        parameters = [kernel_parameter(*one) for one in facts["parameters"]]
        tasks = None if facts["tasks"] is None else [SCALARS[one] for one in facts["tasks"]]
        body, functions = facts["text"], facts["functions"]
        program, taken = str(facts["name"]), list(map(str, facts["taken"]))
    except (KeyError, TypeError, ValueError):
        message = "the line that begins with #pragma kk python was not written by kernelkeep"
        raise CompileError(f"{name}: {message}", log=message, name=name) from None
    module = read_kernel(
        program,
        parameters,
        body,
        functions=functions,
        extra=state_builtins(tasks),
        first_line=first_line,
        file=file,
    ).module
    writer = PortableWriter(module, taken)
    before, inside = writer.functions(), writer.body()
    text = text[: found.start()] + before + text[found.end() :]
    return _BODY.sub(lambda _: inside, text)
