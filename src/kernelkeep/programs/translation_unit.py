"""The translation unit, which is the text that a compiler gets, and errors in terms of the user's own lines."""

from __future__ import annotations

import re
from collections.abc import Callable

from ..errors import CompileError
from .languages import find_language, known_languages
from .source import Source


def translation_unit(source: Source) -> str:
    """The text with its headers pasted in, after its defines.

    Defines are written into the text rather than passed as options: no shell-like quoting to get wrong, and the same
    for every compiler.
    """
    from .includes import expand_includes  # a program that a cache has needs none

    text = source.text if source.is_translation_unit else expand_includes(source)
    if not text.isascii():  # surrogates, from an undecodable file, are replaced: no compiler accepts them
        text = text.encode("utf-8", "replace").decode()
    if source.is_translation_unit or not source.macros:
        return text
    return find_language(source.language).with_macros(text, source.macros)


def user_line(unit: str, line: int) -> int:
    """The line of the user's text for a line of the translation unit, for compilers that ignore `#line`."""
    number = line
    for at, text in enumerate(unit.split("\n")[: line - 1], start=1):
        marker = re.match(r"#line (\d+)", text)
        if marker:
            number = int(marker.group(1)) + line - at - 1
    return number


def compile_error(
    source: Source, log: str, *patterns: re.Pattern[str], locate: Callable[[int], int] | None = None
) -> CompileError:
    """The `CompileError` for a compiler's log. `patterns` find an error in it, with the groups `line` and `message`.

    `locate` turns the compiler's line into the user's, for compilers that ignore `#line`.
    """
    log = log.strip("\0 \n")
    errors = [found for pattern in patterns if (found := pattern.search(log))]
    found = min(errors, key=lambda match: match.start(), default=None)
    if found is None:
        first = next((line for line in log.splitlines() if line.strip()), "the compiler gave no reason")
        return CompileError(f"{source.name}: {first.strip()}{_meant_language(source)}", log=log, name=source.name)
    line = int(found.group("line")) if locate is None else locate(int(found.group("line")))
    number, shown = source.place(line)
    message = f"{source.name}{'' if number is None else f', line {number}'}: {found.group('message').strip()}"
    if shown.strip():
        message += f"\n    {shown.strip()}"
    return CompileError(message + _meant_language(source), log=log, line=number, name=source.name)


def _meant_language(source: Source) -> str:
    """A line that names the language in which a text seems to be written, where that is not the source's; else nothing."""
    languages = [find_language(name) for name in known_languages()]
    found = [one for one in languages if one.kernel_mark and re.search(one.kernel_mark, source.text)]
    if not found or any(one.name == source.language for one in found):
        return ""
    meant = found[0]
    return f"\n(this looks like {meant.title}, and the source has language={source.language!r}: pass language={meant.name!r})"
