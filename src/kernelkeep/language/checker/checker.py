"""All parts of the checker for one text."""

from __future__ import annotations

from collections.abc import Mapping

from ..builtins import Spelling
from ..problems import Problems
from .calls import Calls
from .conversions import Conversions
from .declarations import Declarations
from .expressions import Expressions
from .scopes import Scopes


class Checker:
    """What a reader calls. `extra` has built-ins that not every body can use."""

    def __init__(self, problems: Problems, extra: Mapping[str, Spelling]) -> None:
        self.problems = problems
        self.scopes = Scopes(problems)
        self.conversions = Conversions(problems)
        self.expressions = Expressions(problems, self.scopes, self.conversions)
        self.calls = Calls(problems, self.scopes, self.conversions, self.expressions, extra)
        self.declarations = Declarations(problems, self.scopes, self.conversions)
