"""What can be seen only in a whole function."""

from __future__ import annotations

from ..problems import Problems
from ..tree import Module, Statement


def can_complete(statement: Statement) -> bool:
    return True

def check_flow(module: Module, problems: Problems) -> None:
    pass
