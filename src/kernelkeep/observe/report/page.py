"""The page of a report, from its data."""

from __future__ import annotations

from ...html.axis import moment
from ...html.markup import Markup, element
from ...html.page import page
from .cache_sections import Data, activity, cached, compiles, tiles
from .work_sections import executors, residents, runs, variants

_NAVIGATION = [
    ("activity", "Over time"),
    ("cached", "Cached programs"),
    ("compiles", "Compiles"),
    ("variants", "Variants"),
    ("executors", "Executors"),
    ("runs", "Continuous runs"),
    ("residents", "Resident grids"),
]


def report_page(data: Data) -> str:
    """The whole file."""
    since = f", since {moment(data['since'])}" if data["since"] else ""
    chosen = f" · only {', '.join(data['chosen'])}" if data["chosen"] is not None else ""
    about = [element("code", data["cache_dir"]), chosen, f" · made {moment(data['made'])}{since}"]
    footer = (
        f"kernelkeep {data['version']} · the large numbers count since the folder exists, the rest is from its diary"
    )
    return page("kernelkeep report", about, _NAVIGATION, *sections(data), footer=footer)


def sections(data: Data) -> list[Markup]:
    """What is between the head and the foot of the page."""
    parts = (activity, cached, compiles, variants, executors, runs, residents)
    return [tiles(data), *(part(data) for part in parts)]
