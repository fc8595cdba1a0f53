"""Problems of texts in Python, which may stand in several files."""

from __future__ import annotations

import re

from msgspec import Struct

from ..problems import Problem, Problems, TooManyProblems
from ..tree import Place

_MOST = 20  # errors that are collected before the reader gives up
_OWN_NAME = re.compile(r"\bkk_(\w+)")


class PythonFunction(Struct, frozen=True, eq=False):
    """A function as it was written: its lines in their file, and what its free names mean (`python_names.py`)."""

    name: str
    text: str
    names: dict[str, str]
    file: str = ""
    first_line: int = 1


class PythonProblems(Problems):
    """The problems of a kernel and its helper functions. `text` is the function that is being read."""

    def __init__(self, text: PythonFunction) -> None:
        super().__init__(text.text, text.first_line)
        self.text = text
        self._file = text.file
        self._places: set[tuple[str, int, int]] = set()

    def error(self, at: Place, sentence: str) -> None:
        """Note a mistake. A second one at the same place follows from the first and is left out."""
        place = self.text.file, at.line, at.column
        if place not in self._places:
            self._places.add(place)
            self.errors.append(self._shown(at, sentence, is_warning=False))
            if len(self.errors) >= _MOST:
                raise TooManyProblems

    def warn(self, at: Place, sentence: str) -> None:
        """Note something that is allowed, and probably not meant."""
        self.warnings.append(self._shown(at, sentence, is_warning=True))

    def _shown(self, at: Place, sentence: str, *, is_warning: bool) -> Problem:
        """A problem with its line, and with the names that Python has for things."""
        where = "" if self.text.file == self._file else f" (in {self.text.file})"
        lines = self.text.text.splitlines()
        row = at.line - self.text.first_line
        shown = lines[row].rstrip() if 0 <= row < len(lines) else ""
        told = _OWN_NAME.sub(r"kk.\1", sentence) + where
        return Problem(told, at.line, at.column, shown, is_warning, file=self.text.file)
