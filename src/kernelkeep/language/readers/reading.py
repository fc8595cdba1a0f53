"""What a reader returns."""

from __future__ import annotations

from msgspec import Struct

from ..problems import Problem
from ..tree import Module


class Reading(Struct, frozen=True, eq=False):
    """What a reader returns: the tree, and warnings about what is allowed and probably not meant."""

    module: Module
    warnings: tuple[Problem, ...]
