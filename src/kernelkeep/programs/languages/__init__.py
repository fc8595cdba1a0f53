"""The languages that kernels are written in: one file each, and the registry.

A further language is one file: a subclass of `Language`, and its instance as `LANGUAGE`. A backend outside this package calls
`register_language` when it is imported.
"""

from __future__ import annotations

from importlib import import_module

from ...errors import ArgumentError
from .base import Language

__all__ = [
    "DEFAULT_LANGUAGE",
    "Language",
    "find_language",
    "known_languages",
    "register_language",
    "source_suffixes",
]

DEFAULT_LANGUAGE = "opencl"
_MODULES = ("cuda", "opencl", "glsl", "wgsl", "reference")  # imported when they are asked for
_loaded: dict[str, Language] = {}


def known_languages() -> tuple[str, ...]:
    """The names of all languages."""
    return (*_MODULES, *(name for name in _loaded if name not in _MODULES))


def find_language(name: str) -> Language:
    """The language of that name. `ArgumentError` where there is none."""
    found = _loaded.get(name) if isinstance(name, str) else None
    if found is None:
        if name not in _MODULES:
            raise ArgumentError(f"language must be one of {', '.join(known_languages())}, got {name!r}")
        found = _loaded.setdefault(name, import_module(f".{name}", __name__).LANGUAGE)
    return found


def register_language(language: Language) -> None:
    """Make a language known to `Source`, to portable kernels and to the tests. A second one of the same name replaces it."""
    if not isinstance(language, Language) or not isinstance(getattr(language, "name", None), str):
        raise ArgumentError(f"language must be an instance of a subclass of Language with a name, got {language!r}")
    _loaded[language.name] = language


def source_suffixes() -> dict[str, str]:
    """The suffixes of source files, each with the name of its language."""
    return {suffix: name for name in known_languages() for suffix in find_language(name).suffixes}
