"""Reads the texts of the reference device: which kernels there are, and the typed tree of each."""

from __future__ import annotations

import json
import re
from functools import lru_cache
from importlib import import_module
from typing import NamedTuple

from ...errors import CompileError
from ...language.lines import line_numbers, line_with_number
from ...language.readers import READERS
from ...language.readers.c import Reading, read_body
from ...language.tree import Module
from ...programs.kernel_parts import parameters_of
from ...programs.signature import KernelSignature, declared

_HEAD = re.compile(r"[ \t]*//kk:[ \t]*kernel[ \t]+(\w+)")
_READER = re.compile(r"^//kk: reader (\w+) (.*)$", re.MULTILINE)
_TRUSTED = re.compile(r"^[ \t]*#[ \t]*pragma[ \t]+kk[ \t]+trusted[ \t]+([^\n]*)$", re.MULTILINE)


class KernelText(NamedTuple):
    """One kernel of a text.

    `text` has as many lines as the whole, with those of other kernels left empty. `lines` has the number that each line has for
    the user, who is told no other. Elements of `trusted` arrays are not watched for races.
    """

    signature: KernelSignature
    text: str
    lines: tuple[int, ...]
    trusted: frozenset[str]

    def shown(self, number: int) -> str:
        """The line that has this number."""
        return line_with_number(self.text, number)


def signatures_in(text: str, name: str) -> tuple[KernelSignature, ...]:
    """The kernels that a text declares. `CompileError` where there are none."""
    found = tuple(declared(text).values())
    if not found:
        message = "there is no kernel in this text: declare one, like //kk: kernel saxpy x:buffer:f4:r n:scalar:i4"
        raise CompileError(f"{name}: {message}", log=message, name=name)
    return found


@lru_cache(maxsize=256)
def kernel_texts(text: str) -> dict[str, KernelText]:
    """Each kernel of a text by its name."""
    lines = text.split("\n")
    numbers = line_numbers(text) or range(1, len(lines) + 1)
    owner, owners = "", []
    for line in lines:
        head = _HEAD.match(line)
        owner = head.group(1) if head else owner
        owners.append(owner)
    trusted = frozenset(name for names in _TRUSTED.findall(text) for name in names.split())
    return {
        name: KernelText(
            signature,
            "\n".join(line if own in ("", name) else "" for line, own in zip(lines, owners, strict=True)),
            tuple(numbers),
            trusted,
        )
        for name, signature in declared(text).items()
    }


def read_kernel(kernel: KernelText) -> Module:
    """The tree of a kernel."""
    signature = kernel.signature
    if (found := _READER.search(kernel.text)) is not None:
        return _read_other(kernel, found.group(1), found.group(2))
    return read_body(signature.name, parameters_of(signature), kernel.text, group=signature.group).module


def _read_other(kernel: KernelText, reader: str, facts: str) -> Module:
    """The tree of a kernel that is not written in C. `facts` is what `programs/languages/reference.py` wrote."""
    signature = kernel.signature
    try:
        if reader not in READERS:
            raise ValueError(reader)
        body, functions, macros, first_line, file = json.loads(facts)
        read = import_module(f"...language.readers.{reader}", __package__).read_kernel
        parameters = parameters_of(signature)
        found: Reading = read(
            signature.name,
            parameters,
            body,
            functions=functions,
            defines=macros,
            group=signature.group,
            first_line=first_line,
            file=file,
        )
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        message = "the line that begins with //kk: reader was not written by kernelkeep"
        raise CompileError(f"{signature.name}: {message}", log=message, name=signature.name) from None
    return found.module
