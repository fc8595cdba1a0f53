"""The translation unit: the one text a compiler is given, and what its complaints mean in the user's own lines."""

from __future__ import annotations

import re
from collections.abc import Callable

from ..errors import CompileError
from .includes import expand_includes
from .languages import find_language
from .source import Source

__all__ = ["compile_error", "translation_unit", "user_line"]

_BODY = "\n#line 1\n"


def translation_unit(source: Source) -> str:
    """Defines, then the text with its headers pasted in.

    Defines are written into the text rather than passed as options: no shell-like quoting to get wrong, and the same
    for every compiler.
    """
    text = expand_includes(source)
    if not text.isascii():  # half a character, from an undecodable file, cannot be handed to any compiler
        text = text.encode("utf-8", "replace").decode()
    return find_language(source.language).with_macros(text, source.macros) if source.macros else text


def user_line(unit: str, line: int) -> int:
    """Where a line of the translation unit is in the user's text, for compilers that do not heed `#line`."""
    number = line
    for at, text in enumerate(unit.split("\n")[: line - 1], start=1):
        marker = re.match(r"#line (\d+)", text)
        if marker:
            number = int(marker.group(1)) + line - at - 1
    return number


def compile_error(
    source: Source, log: str, *patterns: re.Pattern[str], locate: Callable[[int], int] | None = None
) -> CompileError:
    """The error for a compiler's log; a pattern finds the first complaint, with groups `line` and `message`.

    `locate` turns the compiler's line into the user's, where the compiler does not do so itself.
    """
    log = log.strip("\0 \n")
    complaints = [found for pattern in patterns if (found := pattern.search(log))]
    found = min(complaints, key=lambda match: match.start(), default=None)
    if found is None:
        first = next((line for line in log.splitlines() if line.strip()), "the compiler gave no reason")
        return CompileError(f"{source.name}: {first.strip()}", log=log, name=source.name)
    line = int(found.group("line")) if locate is None else locate(int(found.group("line")))
    said = f"{source.name}, line {line}: {found.group('message').strip()}"
    written = _user_lines(source)
    if 1 <= line <= len(written) and written[line - 1].strip():
        said += f"\n    {written[line - 1].strip()}"
    return CompileError(said, log=log, line=line, name=source.name)


def _user_lines(source: Source) -> list[str]:
    # A lowered portable kernel restarts the count where the user's body begins.
    return source.text.rpartition(_BODY)[2].split("\n")
