"""Tables and charts as elements: what a browser reads out of them."""

from __future__ import annotations

import math
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import pytest

from kernelkeep.html.axis import level_ticks, linear_ticks, time_ticks, upper_end
from kernelkeep.html.bars import Bar, bars
from kernelkeep.html.charts import Series, lines, stacked_columns, x_axis
from kernelkeep.html.gantt import Row, Span, gantt
from kernelkeep.html.heat_map import Spot, heat_map
from kernelkeep.html.markup import Markup
from kernelkeep.html.style import fragment
from kernelkeep.html.table import Cell, Column, facts, table

HOSTILE = '"><script>alert(1)</script>'
DAY = 86_400.0


def read(markup: Markup) -> ElementTree.Element:
    return ElementTree.fromstring(markup)


def all_charts(text: str, number: float) -> dict[str, Markup]:
    return {
        "table": table(
            ["a", Column(text, hint=text)], [(text, number), (Cell(text, sort=text, title=text), 1)], caption=text
        ),
        "facts": facts([(text, text)]),
        "bars": bars([Bar(text, number, title=text), Bar("b", 1)], label=text),
        "columns": stacked_columns([0, DAY], DAY, [Series(text, [number, 1])], label=text, describe=lambda i: text),
        "lines": lines([0, DAY, 2 * DAY], [Series(text, [number, 1, 2])], label=text, filled=True),
        "gantt": gantt([Row(text, [Span(number, 2, text), Span(1, 2), Span(1, 1, text)])], label=text),
        "heat map": heat_map(
            (text, [1, text]), (text, [2]), {(0, 0): Spot(number, text, text), (0, 1): Spot(3)}, label=text
        ),
    }


@pytest.mark.parametrize("name", list(all_charts("", 0)))
@pytest.mark.parametrize("number", [0, -1, 5, 1e300, math.nan, math.inf, 10**400])
def test_no_text_and_no_number_breaks_the_markup(name: str, number: float) -> None:
    root = read(all_charts(HOSTILE, number)[name])
    assert not [one for one in root.iter() if one.tag == "script"]
    for one in root.iter():
        for value in one.attrib.values():
            assert "nan" not in value.lower() and "inf" not in value.split("%")[0].split(",")


def test_numbers_stand_on_the_right_and_cells_say_how_they_sort() -> None:
    root = read(table(["name", "bytes", "when"], [("x", 1234, Cell("today", sort=7)), ("y", 5, Cell("then", sort=3))]))
    assert [cell.get("class") for cell in root.iter("th")] == [None, "kk-n", None]
    first = list(root.iter("tr"))[1].findall("td")
    assert [cell.text for cell in first] == ["x", "1,234", "today"]
    assert [cell.get("data-sort") for cell in first] == [None, "1234.0", "7.0"]


def test_columns_stack_in_proportion() -> None:
    made = stacked_columns([0, 60], 60, [Series("a", [10, 5]), Series("b", [0, 5], "warn")], label="hits", height=234)
    rects = list(read(made).iter("rect"))
    heights = [float(rect.get("height", "")) for rect in rects]
    assert heights == [200, 100, 100]
    assert [rect.get("class") for rect in rects] == ["kk-fill-accent", "kk-fill-accent", "kk-fill-warn"]
    assert float(rects[1].get("y", "")) == float(rects[2].get("y", "")) + 100, "the second part stands on the first"


def test_a_line_has_a_gap_where_there_is_no_number() -> None:
    made = lines([0, 1, 2, 3, 4], [Series("a", [1, 2, math.nan, 4, 4])], label="x")
    assert [one.get("points") for one in read(made).iter("polyline")] == ["0.0,75.0 25.0,50.0", "75.0,0.0 100.0,0.0"]


def test_a_line_of_many_points_is_whole() -> None:
    made = lines(range(2000), [Series("a", [x % 7 / 3 for x in range(2000)])], label="x", filled=True)
    assert made.count(",") >= 4000
    assert "…" not in made


def test_bars_are_as_long_as_their_values() -> None:
    made = read(bars([Bar("a", 8), Bar("b", 2, "two")], label="x"))
    shapes = [one.get("width") for one in made.iter("rect") if one.get("class") == "kk-fill-accent"]
    assert shapes == ["100.0%", "25.0%"]
    assert "two" in "".join(made.itertext())


def test_gantt_spans_lie_on_a_common_axis() -> None:
    made = read(gantt([Row("up", [Span(0, 5)]), Row("down", [Span(5, 10, "later")])], label="x"))
    spans = [one for one in made.iter("rect") if "kk-span" in one.get("class", "")]
    assert [(one.get("x"), one.get("width")) for one in spans] == [("0.0%", "50.000%"), ("50.0%", "50.000%")]
    assert "10 ms" in "".join(made.itertext())


def test_the_best_of_a_heat_map_has_the_strongest_colour() -> None:
    spots = {(0, 0): Spot(1.0, best=True), (0, 1): Spot(100.0), (1, 0): Spot(None, "compile")}
    cells = [one.get("class") for one in read(heat_map(("T", [1, 2]), ("V", [3, 4]), spots, label="x")).iter("td")]
    assert cells == [
        "kk-heat kk-heat-8 kk-heat-best",
        "kk-heat kk-heat-0",
        "kk-heat kk-heat-none",
        "kk-heat kk-heat-none",
    ]


@pytest.mark.parametrize(
    ("value", "top"), [(0, 1), (1, 1), (1.2, 1.5), (97, 100), (101, 150), (math.nan, 1), (0.03, 0.03)]
)
def test_the_top_of_an_axis_is_round(value: float, top: float) -> None:
    assert upper_end(value) == pytest.approx(top)


@pytest.mark.parametrize("top", [0.0015, 0.8, 1, 1.5, 2, 3, 4, 5, 6, 8, 10, 150, 40_000, 6e12])
def test_levels_reach_from_nothing_to_the_top(top: float) -> None:
    values = [value for value, _ in level_ticks(top, str)]
    assert values[0] == 0 and values[-1] == pytest.approx(top) and 4 <= len(values) <= 6


def test_labels_at_the_ends_give_way_to_their_neighbours() -> None:
    def labels(ticks: list[tuple[float, str]]) -> list[str]:
        return re.findall(r">([^<]+)</text>", x_axis(ticks, (0, 100), 10))

    crowded = [(float(at), f"12:{at:02}") for at in (0, 20, 40, 60, 80, 99)]
    assert labels(crowded) == ["12:20", "12:40", "12:60", "12:80"]
    assert labels([(0.0, "0"), *crowded[1:5]]) == ["0", "12:20", "12:40", "12:60", "12:80"]
    few = [(0.0, "1 Jan"), (50.0, "2 Jan"), (100.0, "3 Jan")]
    assert labels(few) == ["1 Jan", "2 Jan", "3 Jan"]


def test_ticks_are_round_and_few() -> None:
    assert [text for _, text in linear_ticks(0, 100, 5, str)] == ["0", "25", "50", "75", "100"]
    for span in (3, 90, 5000, DAY, 40 * DAY, 4000 * DAY, 1e12):
        assert 1 <= len(time_ticks(1_000_000_000, 1_000_000_000 + span)) <= 6


def test_a_fragment_brings_one_stylesheet_for_light_and_dark() -> None:
    made = fragment(Markup("<b>x</b>"))
    assert made.count("<style>") == 1 and made.endswith("<b>x</b></div>")
    assert "prefers-color-scheme: dark" in made and "data-jp-theme-light" in made
    used = set(re.findall(r"var\((--[\w-]+)\)", made))
    assert used <= set(re.findall(r"(--[\w-]+):", made)), "a colour is used that nobody defined"


def test_it_imports_nothing_heavy() -> None:
    code = (
        "import sys; import kernelkeep.html.charts, kernelkeep.html.table, kernelkeep.html.style, kernelkeep.html.gantt;"
        "print([name for name in ('numpy', 'msgspec', 'html', 'json', 'kernelkeep.storage') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-X", "frozen_modules", "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_values_without_a_label_have_no_tick() -> None:
    ticks = level_ticks(2.0, lambda value: str(round(value)) if value == round(value) else "")
    assert ticks == [(0.0, "0"), (1.0, "1"), (2.0, "2")]
