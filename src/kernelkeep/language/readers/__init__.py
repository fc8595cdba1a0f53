"""Readers: from a text to the tree. c.py reads C, python_kernel.py Python; files whose names begin with these are their parts."""

from __future__ import annotations

from msgspec import Struct

from ..problems import Problem
from ..tree import Module

READERS = ("c", "python_kernel")  # the modules that have a `read_kernel`


class Reading(Struct, frozen=True, eq=False):
    """What a reader returns: the tree, and warnings about what is allowed and probably not meant."""

    module: Module
    warnings: tuple[Problem, ...]
