"""What is wrong with a text: collected, shown with the line and a caret, and raised as one `CompileError`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from msgspec import Struct

from ..errors import CompileError

if TYPE_CHECKING:
    from .tree import Place

NESTED_TOO_DEEPLY = "the body is nested too deeply"
_MOST = 20  # errors that are collected before the reader gives up


class Problem(Struct, frozen=True):
    """A mistake, or a warning: one sentence, its place, and the line it is about.

    What one target lacks has the name of the `target`, and of the missing `capability`. What stands in a file has its name.
    """

    sentence: str
    line: int
    column: int
    shown: str = ""
    is_warning: bool = False
    target: str = ""
    capability: str = ""
    file: str = ""

    def __str__(self) -> str:
        return f"{self.headline}{self.picture}"

    @property
    def severity(self) -> str:
        """ "error" for a mistake, "unsupported" for what a target lacks, or "warning"."""
        return "warning" if self.is_warning else "unsupported" if self.capability else "error"

    @property
    def headline(self) -> str:
        """The line's number and the sentence."""
        where = f"line {self.line}: " if self.line else ""
        return f"{where}{'warning: ' if self.is_warning else ''}{self.sentence}"

    @property
    def picture(self) -> str:
        """The line of the text, and a caret below the column."""
        if not self.shown:
            return ""
        if not self.column:
            return f"\n    {self.shown}"
        # Tabs stay tabs, so that the caret is below its column however wide they are.
        before = "".join("\t" if sign == "\t" else " " for sign in self.shown[: self.column - 1])
        return f"\n    {self.shown}\n    {before}^"


class TooManyProblems(Exception):
    """There are so many errors that looking for more helps nobody."""


class Problems:
    """The problems of one text, in the order in which they were found."""

    def __init__(self, text: str, first_line: int = 1) -> None:
        self._text = text
        self._first_line = first_line
        self._seen: set[tuple[int, int]] = set()
        self._once: set[str] = set()
        self.errors: list[Problem] = []
        self.warnings: list[Problem] = []

    def error(self, at: Place, sentence: str) -> None:
        """Note a mistake. A second one at the same place follows from the first and is left out."""
        if (at.line, at.column) not in self._seen:
            self._seen.add((at.line, at.column))
            self.errors.append(self._problem(at, sentence))
            if len(self.errors) >= _MOST:
                raise TooManyProblems

    def error_once(self, at: Place, sentence: str) -> None:
        """Note a mistake, unless it was noted elsewhere."""
        if sentence not in self._once:
            self._once.add(sentence)
            self.error(at, sentence)

    def warn(self, at: Place, sentence: str) -> None:
        """Note something that is allowed, and probably not meant."""
        self.warnings.append(self._problem(at, sentence, is_warning=True))

    def _problem(self, at: Place, sentence: str, *, is_warning: bool = False) -> Problem:
        from .lines import line_with_number

        shown = line_with_number(self._text, at.line, self._first_line)
        where = f" (in macro {at.macro})" if at.macro else ""
        return Problem(f"{sentence}{where}", at.line, at.column, shown, is_warning)

    def raise_errors(self, what: str, name: str) -> None:
        """Raise all errors as one `CompileError`. `what` was read, such as "kernel saxpy"."""
        if not self.errors:
            return
        self.errors.sort(key=lambda problem: (problem.line, problem.column))
        first, more = self.errors[0], len(self.errors) - 1
        others = (
            f"\n({more} more {'error' if more == 1 else 'errors'}: kk.check and .log of this exception have all)"
            if more
            else ""
        )
        log = "\n".join(map(str, self.errors))
        raise CompileError(f"{what}, {first}{others}", log=log, line=first.line, name=name, problems=self.errors)


def nested_too_deeply(name: str) -> CompileError:
    """The error for a kernel that was read, and is nested more deeply than can be written."""
    return CompileError(f"kernel {name}: {NESTED_TOO_DEEPLY}", log=NESTED_TOO_DEEPLY, name=name)


def nearest(name: str, known: Iterable[str]) -> str:
    """A question that names the known name most like `name`, or nothing."""
    from difflib import get_close_matches  # only where there is a mistake

    found = get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"; did you mean {found[0]}?" if found else ""
