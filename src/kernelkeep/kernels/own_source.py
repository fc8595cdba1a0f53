"""Kernels that are written in a device's own language, in a file beside the module that describes them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ..programs.includes import expand_includes
from ..programs.languages import source_suffixes
from ..programs.source import Source


def own_source(module_file: str, kernel: str) -> Source:
    """The source beside a module: `vectors.cl` beside `vectors.py`; its suffix tells the language.

    Headers are pasted in once: every variant is a source of its own, and would read them again.
    """
    beside = (Path(module_file).with_suffix(suffix) for suffix in source_suffixes())
    source = Source.from_file(next(path for path in beside if path.is_file()), name=kernel)
    return replace(source, text=expand_includes(source), include_dirs=())
