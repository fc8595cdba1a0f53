"""A `Source`: everything the user says about a program before any device is involved."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ..errors import ArgumentError
from ..storage.files import NotRegular, open_regular
from .languages import DEFAULT_LANGUAGE, find_language, source_suffixes

if TYPE_CHECKING:
    from .includes import Header

__all__ = ["Source"]

_IDENTIFIER = re.compile(r"[A-Za-z_]\w*\Z")


@dataclass(frozen=True, eq=False)
class Source:
    """A program's text and how it is to be compiled.

    `name` is a label for people: it appears in tables and file names and never decides identity. For GLSL, whose
    only entry point is `main`, it is also the name of the kernel.

    Values of `defines`: str, int and float are written as they are, True is 1, and False or None leave the macro
    undefined and defined-without-value respectively.
    """

    text: str
    name: str = "program"
    language: str = DEFAULT_LANGUAGE
    options: tuple[str, ...] = ()
    defines: Mapping[str, Any] = field(default_factory=dict)
    include_dirs: tuple[Path, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.text, str):
            raise ArgumentError(f"a source's text is a str, not {type(self.text).__name__}")
        if self.text and "\n" not in self.text and self.text.endswith(tuple(source_suffixes())):
            raise ArgumentError(f"{self.text!r} is a path, not a text: use kk.Source.from_file")
        if "\0" in self.text:
            raise ArgumentError("a source's text has a NUL character in it")
        find_language(self.language)
        if not isinstance(self.name, str) or not self.name:
            raise ArgumentError("a source's name is a non-empty str")
        if isinstance(self.options, str) or not isinstance(self.options, Iterable):
            raise ArgumentError("options is a sequence of separate options, for example ('-cl-fast-relaxed-math',)")
        for option in self.options:
            _check_option(option)
        if not isinstance(self.defines, Mapping):
            raise ArgumentError(f"defines is a mapping of macro names to values, not {type(self.defines).__name__}")
        for macro, value in self.defines.items():
            if not isinstance(macro, str) or not _IDENTIFIER.match(macro):
                raise ArgumentError(f"define {macro!r} is not a macro name")
            if value is not None and not isinstance(value, str | int | float) and not hasattr(value, "__index__"):
                raise ArgumentError(
                    f"the value of define {macro} is a str, a number, True, False or None, not {value!r}"
                )
            if isinstance(value, str) and ("\n" in value or not _encodable(value)):
                raise ArgumentError(f"the value of define {macro} has a line break or a character no compiler takes")
        if not isinstance(self.include_dirs, Iterable | Path):
            raise ArgumentError(f"include_dirs is a sequence of folders, not {type(self.include_dirs).__name__}")
        object.__setattr__(self, "options", tuple(self.options))
        object.__setattr__(self, "defines", MappingProxyType(dict(self.defines)))
        object.__setattr__(self, "include_dirs", tuple(Path(folder) for folder in _several(self.include_dirs)))

    @classmethod
    def from_file(cls, path: str | Path, **fields: Any) -> Source:
        """Read a source file. Its own folder is searched first for headers; the suffix tells the language."""
        path = Path(path)
        try:
            with open_regular(path) as file, io.TextIOWrapper(file, encoding="utf-8") as lines:
                text = lines.read()
        except NotRegular as error:
            raise ArgumentError(f"cannot read the source {path}: it {error}") from None
        except (OSError, UnicodeDecodeError) as error:
            raise ArgumentError(f"cannot read the source {path}: {getattr(error, 'strerror', None) or error}") from None
        fields.setdefault("name", path.stem)
        if "language" not in fields:
            suffixes = source_suffixes()
            if path.suffix not in suffixes:
                raise ArgumentError(f"cannot tell the language of {path}: name it, or use {', '.join(suffixes)}")
            fields["language"] = suffixes[path.suffix]
        fields["include_dirs"] = (path.parent, *_several(fields.get("include_dirs", ())))
        return cls(text, **fields)

    @cached_property
    def macros(self) -> dict[str, str]:
        """The defines as the compiler sees them, in the order of their names; "" is defined without a value."""
        macros = {}
        for name in sorted(self.defines):
            value = self.defines[name]
            if value is False:
                continue
            macros[name] = "" if value is None else "1" if value is True else str(value)
        return macros

    @cached_property
    def headers(self) -> tuple[Header, ...]:
        """The headers this source really includes, nested ones too, with their contents, read once."""
        from .includes import find_headers

        return find_headers(self)

    def __repr__(self) -> str:
        return f"Source({self.name!r}, language={self.language!r}, {len(self.text)} characters)"


_INCLUDES = re.compile(r"(-I|-include|--include|--pre-include|-isystem|-iquote|-idirafter)")


def _check_option(option: object) -> None:
    if not isinstance(option, str) or not _encodable(option):
        raise ArgumentError(f"option {option!r} is not a str that a compiler takes")
    if _INCLUDES.match(option.strip()):
        # A header that only the compiler finds would not be part of the program's identity.
        raise ArgumentError(f"option {option!r} names headers: use include_dirs for that, so that their contents count")


def _encodable(text: str) -> bool:
    """Whether a text can be handed to a C library: no NUL, and no half characters from an undecodable file name."""
    return "\0" not in text and not re.search("[\ud800-\udfff]", text)


def _several(folders: Iterable[str | Path] | str | Path) -> tuple[str | Path, ...]:
    return (folders,) if isinstance(folders, str | Path) else tuple(folders)
