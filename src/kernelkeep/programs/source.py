"""`Source`: a program's text and how to compile it; no device is involved yet."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import FunctionType, MappingProxyType
from typing import TYPE_CHECKING, Any

from ..errors import ArgumentError
from ..storage.files import NotRegular, open_regular
from .languages import DEFAULT_LANGUAGE, find_language, source_suffixes

if TYPE_CHECKING:
    from .includes import Header

_IDENTIFIER = re.compile(r"[A-Za-z_]\w*\Z")
_NO_DEFINES: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, eq=False, init=False)
class Source:
    """A program's text and how it is to be compiled.

    `name` is a label: it appears in tables and file names and is not part of the key. In GLSL, whose only entry point is
    `main`, it is also the name of the kernel, and then it is part of the key.

    Values of `defines`: a str, an int or a float is written as it is, True is 1, None defines the macro without a value, and
    False leaves it undefined.
    """

    text: str
    name: str = "program"
    language: str = DEFAULT_LANGUAGE
    options: tuple[str, ...] = ()
    defines: Mapping[str, Any] = field(default_factory=dict)
    include_dirs: tuple[Path, ...] = ()

    def __init__(
        self,
        text: str,
        name: str = "program",
        language: str = DEFAULT_LANGUAGE,
        options: Iterable[str] = (),
        defines: Mapping[str, Any] = _NO_DEFINES,
        include_dirs: str | Path | Iterable[str | Path] = (),
    ) -> None:
        # All at once: a frozen dataclass sets one field after the other, with a call for each.
        self.__dict__.update(
            text=text, name=name, language=language, options=options, defines=defines, include_dirs=include_dirs
        )
        self._check_fields()

    def _check_fields(self) -> None:
        if not isinstance(self.text, str):
            raise ArgumentError(f"text must be a str, got {type(self.text).__name__}")
        if self.text and "\n" not in self.text and self.text.endswith(tuple(source_suffixes())):
            raise ArgumentError(f"text must be the program itself, got the path {self.text!r}; use kk.Source.from_file")
        if "\0" in self.text:
            raise ArgumentError("text must not contain a NUL character")
        find_language(self.language)
        if not isinstance(self.name, str) or not self.name:
            raise ArgumentError(f"name must be a non-empty str, got {self.name!r}")
        if self.options == () == self.include_dirs and self.defines is _NO_DEFINES:
            return  # most sources: every hit on disk comes through here
        if isinstance(self.options, str) or not isinstance(self.options, Iterable):
            raise ArgumentError(
                f"options must be a sequence of single options, such as ('-O2', '-g'), got {self.options!r}"
            )
        for option in self.options:
            _check_option(option)
        if not isinstance(self.defines, Mapping):
            raise ArgumentError(
                f"defines must be a mapping of macro names to values, got {type(self.defines).__name__}"
            )
        for macro, value in self.defines.items():
            if not isinstance(macro, str) or not _IDENTIFIER.match(macro):
                raise ArgumentError(f"defines must have names of macros as keys, got {macro!r}")
            if value is not None and not isinstance(value, str | int | float) and not hasattr(value, "__index__"):
                raise ArgumentError(f"defines[{macro!r}] must be a str, a number, True, False or None, got {value!r}")
            if isinstance(value, str) and ("\n" in value or not _encodable(value)):
                raise ArgumentError(
                    f"defines[{macro!r}] must not contain a line break or a character that no compiler accepts"
                )
        if not isinstance(self.include_dirs, Iterable | Path):
            raise ArgumentError(f"include_dirs must be a sequence of folders, got {type(self.include_dirs).__name__}")
        object.__setattr__(self, "options", tuple(self.options))
        object.__setattr__(self, "defines", MappingProxyType(dict(self.defines)))
        object.__setattr__(self, "include_dirs", tuple(Path(folder) for folder in _several(self.include_dirs)))

    @classmethod
    def from_file(cls, path: str | Path, **fields: Any) -> Source:
        """Read a source file. Its folder is the first of `include_dirs`; its suffix decides the language."""
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
                raise ArgumentError(
                    f"cannot tell the language of {path}: pass language=, or use one of the suffixes {', '.join(suffixes)}"
                )
            fields["language"] = suffixes[path.suffix]
        fields["include_dirs"] = (path.parent, *_several(fields.get("include_dirs", ())))
        return cls(text, **fields)

    @cached_property
    def macros(self) -> dict[str, str]:
        """The macros that `defines` defines, sorted by name; "" is a macro without a value."""
        macros = {}
        for name in sorted(self.defines):
            value = self.defines[name]
            if value is False:
                continue
            macros[name] = "" if value is None else "1" if value is True else str(value)
        return macros

    @cached_property
    def headers(self) -> tuple[Header, ...]:
        """The headers that this source includes, nested ones too, with their contents; read once."""
        from .includes import find_headers

        return find_headers(self)

    @property
    def may_include(self) -> bool:
        """Whether it may include headers, as far as a quick look tells."""
        return "include" in self.text

    @property
    def key_text(self) -> str:
        """What the key is made from in place of the text."""
        return self.text

    @property
    def writer(self) -> str:
        """What wrote the text, "" for a person."""
        return ""

    @property
    def is_translation_unit(self) -> bool:
        """Whether the text is what the compiler gets, without headers and macros to be put into it."""
        return False

    def place(self, line: int) -> tuple[int | None, str]:
        """For a line of the text that a compiler named: its number for the author, if it has one, and the line itself."""
        lines = self.text.split("\n")
        return line, lines[line - 1].strip() if 0 < line <= len(lines) else ""

    def __reduce__(self) -> tuple[Any, ...]:
        """A source travels to other processes without what was computed from it; headers are read again there."""
        fields = (self.text, self.name, self.language, self.options, dict(self.defines), self.include_dirs)
        return type(self), fields

    def __repr__(self) -> str:
        return f"Source({self.name!r}, language={self.language!r}, {len(self.text)} characters)"

    def _repr_html_(self) -> str:
        from .html import source_html

        return source_html(self)


_INCLUDES = re.compile(r"(-I|-include|--include|--pre-include|-isystem|-iquote|-idirafter)")


def _check_option(option: object) -> None:
    if not isinstance(option, str) or not _encodable(option):
        raise ArgumentError(f"options must be of type str without NUL or undecodable characters, got {option!r}")
    if _INCLUDES.match(option.strip()):
        # The contents of a header that only the compiler finds would not be part of the key.
        raise ArgumentError(
            f"options must not name headers, got {option!r}; use include_dirs, so that their contents are part of the key"
        )


def _encodable(text: str) -> bool:
    """Whether a C library accepts a text: no NUL, and no surrogates from an undecodable file name."""
    return "\0" not in text and not re.search("[\ud800-\udfff]", text)


def _several(folders: Iterable[str | Path] | str | Path) -> tuple[str | Path, ...]:
    return (folders,) if isinstance(folders, str | Path) else tuple(folders)


def not_a_source(given: object) -> ArgumentError:
    """The error for what is neither a source nor a portable kernel; a plain text is told how to become one."""
    hint = ": wrap it, as in kk.Source(text, name=…, language=…)" if isinstance(given, str) else ""
    hint = ": write @kk.kernel above it" if isinstance(given, FunctionType) else hint
    return ArgumentError(f"source must be a kk.Source or kk.PortableKernel, got a {type(given).__name__}{hint}")


def wrong_language(source: Source, spec: str, language: str) -> ArgumentError:
    """The error for a source in another language than the one that a device takes."""
    portable = "write it with @kk.kernel or as a kk.PortableKernel, which run on every device"
    return ArgumentError(
        f"source {source.name} is {source.language}, and {spec} takes {language}: "
        f"open a device that takes {source.language}, or {portable}"
    )
