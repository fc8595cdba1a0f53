"""A heat map as a table: values over two parameters, the strongest colour for the best."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .markup import Markup, element
from .numbers import finite, rounded

LEVELS = 9  # of colour: kk-heat-0 to kk-heat-8


@dataclass(frozen=True)
class Spot:
    """A cell. `value` gives its colour; None where there is none, such as where a variant failed."""

    value: float | None
    shown: str = ""
    title: str = ""
    best: bool = False


def heat_map(
    across: tuple[str, Sequence[object]],
    down: tuple[str, Sequence[object]],
    spots: Mapping[tuple[int, int], Spot],
    *,
    label: str,
    low_is_good: bool = True,
) -> Markup:
    """`across` and `down` are the name and the values of a parameter; `spots` has cells by (row, column).

    Colours follow the logarithm of the values. A cell that is missing stays empty.
    """
    known = [math.log(max(number, 1e-12)) for spot in spots.values() if (number := finite(spot.value)) is not None]
    low, high = min(known, default=0.0), max(known, default=0.0)

    def level(value: float) -> int:
        if high <= low:
            return LEVELS - 1
        strength = (math.log(max(value, 1e-12)) - low) / (high - low)
        return round((1 - strength if low_is_good else strength) * (LEVELS - 1))

    def cell(spot: Spot | None) -> Markup:
        if spot is None:
            return element("td", class_="kk-heat kk-heat-none")
        number = finite(spot.value)
        colour = "none" if number is None else str(level(number))
        shown = spot.shown or ("" if number is None else rounded(number))
        best = " kk-heat-best" if spot.best else ""
        return element("td", shown, class_=f"kk-heat kk-heat-{colour}{best}", title=spot.title or None)

    rows = [
        element("tr", element("th", value, scope="row"), [cell(spots.get((r, c))) for c in range(len(across[1]))])
        for r, value in enumerate(down[1])
    ]
    head = element(
        "tr",
        element("th", element("span", down[0]), " \\ ", element("span", across[0]), class_="kk-corner"),
        [element("th", value, scope="col") for value in across[1]],
    )
    table = element("table", element("thead", head), element("tbody", rows), class_="kk-heat-map", aria_label=label)
    return element("div", table, class_="kk-scroll", tabindex=0, role="region", aria_label=label)
