"""Finds the headers that a source includes, and pastes them into its text.

A changed header must make another key; an unrelated header must not. So headers are found as a compiler finds them (first the
including file's folder for the quoted form, then `include_dirs` in order), nested ones too, and are identified by content.

Limits: conditions are not evaluated, so an include inside `#if` counts even when the condition is false. That costs a
needless compile at worst, never a stale binary. A header that is missing inside `#if` is no error, because the compiler may
never look for it. `#include MACRO` is an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import CompileError
from .languages import find_language

if TYPE_CHECKING:
    from .source import Source

_DIRECTIVE = re.compile(r"[ \t]*#[ \t]*(include|ifdef|ifndef|if|endif)\b[ \t]*(.*)")
_TARGET = re.compile(r'"([^"]+)"|<([^>]+)>')
_COMMENT_OR_STRING = re.compile(r'"(?:\\.|[^"\\\n])*"|//(?:\\\n|[^\n])*|/\*.*?\*/', re.DOTALL)

_GUARD = re.compile(r"\s*#\s*ifndef\s+(\w+)\s*\n\s*#\s*define\s+\1\b")
_PRAGMA_ONCE = re.compile(r"^[ \t]*#[ \t]*pragma[ \t]+once\b.*$", re.MULTILINE)


@dataclass(frozen=True)
class Header:
    """One included file: the name in the `#include`, the path where it was found, its content."""

    spelled: str
    path: Path
    content: bytes


@dataclass(frozen=True)
class _Include:
    spelled: str
    quoted: bool
    conditional: bool
    line: int


def without_comments(text: str) -> str:
    """The text with every comment replaced by a space; strings and line numbers stay."""

    def blank(match: re.Match[str]) -> str:
        found = match.group()
        return found if found.startswith('"') else " " + "\n" * found.count("\n")

    return _COMMENT_OR_STRING.sub(blank, text)


def find_headers(source: Source) -> tuple[Header, ...]:
    """Every header that `source` includes, each file once, in the order a compiler would meet them."""
    found: dict[Path, Header] = {}
    if "include" not in source.text:
        return ()  # a short cut for most sources: every hit on disk comes through here

    def follow(text: str, folder: Path | None, name: str) -> None:
        for include in _includes(text, name):
            path = _locate(include, folder, source)
            if path is None:
                _tolerate_missing(include, source, name)
            elif path not in found:
                header = found[path] = Header(include.spelled, path, _read(path, include, name))
                follow(header.content.decode("utf-8", "replace"), path.parent, path.name)

    follow(source.text, None, source.name)
    return tuple(found.values())


def expand_includes(source: Source) -> str:
    """The text with every header pasted in, so that the compiler gets exactly what the key was made from.

    GLSL compilers cannot include at all. The others can, but if a header changed between hashing and compiling, the binary
    would be stored under the wrong key. `#line` markers keep the line numbers of the user's files.
    """
    contents = {header.path: header.content.decode("utf-8", "replace") for header in source.headers}
    if not contents:
        return source.text
    pasted_once: set[Path] = set()
    language = find_language(source.language)

    def paste(text: str, folder: Path | None, name: str, open_files: tuple[Path, ...]) -> str:
        lines = text.split("\n")
        for include in _includes(text, name):
            path = _locate(include, folder, source)
            content = contents.get(path) if path is not None else None
            if path is None or content is None:
                continue  # a header of the compiler, or one that it may never look for: it keeps its line
            if path in pasted_once or (path in open_files and _guard(content)):
                lines[include.line - 1] = ""
                continue
            if path in open_files:
                raise CompileError(f"{name}: {include.spelled} includes itself", line=include.line, name=source.name)
            if _PRAGMA_ONCE.search(content):
                pasted_once.add(path)
                content = _PRAGMA_ONCE.sub("", content)
            inner = paste(content, path.parent, path.name, (*open_files, path))
            begin, end = language.line_marker(1, path.name), language.line_marker(include.line + 1, name)
            lines[include.line - 1] = f"{begin}\n{inner}\n{end}"
        return "\n".join(lines)

    return paste(source.text, None, source.name, ())


def _includes(text: str, name: str) -> Iterator[_Include]:
    depth = 0
    # Includes that a backslash splits over two lines are not found.
    for number, line in enumerate(without_comments(text).split("\n"), start=1):
        directive = _DIRECTIVE.match(line)
        if not directive:
            continue
        word, rest = directive.groups()
        if word == "endif":
            depth -= 1
        elif word != "include":
            depth += 1
        else:
            target = _TARGET.match(rest)
            if not target:
                raise CompileError(
                    f"{name}, line {number}: #include must name a file, got '{rest.strip()}'", line=number
                )
            quoted, angled = target.groups()
            conditional = depth > (1 if _guard(text) else 0)
            yield _Include(quoted or angled, quoted is not None, conditional, number)


def _guard(text: str) -> bool:
    """Whether a header begins with the classic `#ifndef X / #define X`."""
    return _GUARD.match(without_comments(text)) is not None


def _locate(include: _Include, folder: Path | None, source: Source) -> Path | None:
    folders = [folder] if include.quoted and folder is not None else []
    for candidate in (*folders, *source.include_dirs):
        path = candidate / include.spelled
        if path.is_file():
            return path.resolve()
    return None


def _tolerate_missing(include: _Include, source: Source, name: str) -> None:
    # The compiler's own headers are part of the compiler, which is named in the fingerprint.
    if include.conditional or (not include.quoted and find_language(source.language).has_system_headers):
        return
    searched = ", ".join(str(folder) for folder in source.include_dirs) or "no include_dirs were given"
    message = f"{name}, line {include.line}: the header {include.spelled} was not found ({searched})"
    raise CompileError(message, line=include.line, name=source.name)


def _read(path: Path, include: _Include, name: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        message = f"{name}, line {include.line}: the header {path} cannot be read ({error.strerror})"
        raise CompileError(message, line=include.line) from None
