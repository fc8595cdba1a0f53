"""`kk.report`: the report of a cache folder, to save, to show in a notebook, or to read as data."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

from ... import settings
from ...errors import ArgumentError
from ...html.markup import Markup, element
from ...html.style import fragment
from ...storage.files import write_whole
from ..inventory import folders_of
from .data import gather


class Report:
    """What a cache folder holds and what was done with it. `data` is plain data that JSON can hold; `html()` is the page."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.data = data

    def html(self) -> str:
        """The page: one file without references to others."""
        from .page import report_page

        return report_page(self.data)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the page. It appears whole or not at all; `ArgumentError` where it cannot be written."""
        target = Path(path)
        write_whole(target, self.html().encode())
        return target

    def _repr_html_(self) -> str:
        from ...html.page import PAGE_STYLE
        from .page import sections

        return str(fragment(element("style", Markup(PAGE_STYLE)), sections(self.data)))

    def __repr__(self) -> str:
        programs, folders = len(self.data["programs"]), len(self.data["folders"])
        return f"<Report of {self.data['cache_dir']}: {programs} programs in {folders} folders>"


def report(
    path: str | os.PathLike[str] | None = None,
    *,
    cache_dir: str | os.PathLike[str] | None = None,
    device: str | None = None,
) -> Report:
    """What a cache folder holds and what was done with it, across processes. Needs no device.

    With `path`, the page is written there: one HTML file that needs no network and follows the reader's light or dark setting.
    `cache_dir` is the cache folder, by default the one that caches use. `device` keeps to a backend or a device, such as
    "opencl" or "opencl:0". What was done comes from the diary of the folder, which is bounded and best-effort.
    """
    root = settings.cache_dir(cache_dir)
    made = report_of(root, folders_of(device, cache_dir=cache_dir))
    if path is not None:
        made.save(path)
    return made


def report_of(root: Path, only: Collection[str] | None = None) -> Report:
    """The report of a cache folder, or of some of the GPU folders in it."""
    try:
        return Report(gather(root, only))
    except OSError as error:
        raise ArgumentError(f"{root} cannot be reported on: {error.strerror or error}") from None
