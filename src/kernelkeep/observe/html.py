"""What notebooks show of checks: each problem with its line and a caret."""

from __future__ import annotations

from textwrap import dedent
from typing import TYPE_CHECKING

from ..html.card import badge, card
from ..html.markup import Markup, element, join

if TYPE_CHECKING:
    from ..language.problems import Problem
    from .kernel_check import CheckReport

_KINDS = {"error": "bad", "unsupported": "warn", "warning": "quiet"}


def check_html(report: CheckReport, targets: str) -> str:
    """The problems of a kernel, or that there are none."""
    if not report.problems:
        return card(report.name, badge("no mistakes", "accent"), element("div", f"in {targets}", class_="kk-soft"))
    number = f"{len(report)} problem{'' if len(report) == 1 else 's'}"
    return card(report.name, f"{number} in {targets}", [_problem(one) for one in report])


def _problem(problem: Problem) -> Markup:
    place = f"line {problem.line}" if problem.line else ""
    where = join([part for part in (place, problem.file, problem.target) if part], ", ")
    return element(
        "div",
        element("div", badge(problem.severity, _KINDS[problem.severity]), " ", problem.sentence),
        element("pre", dedent(problem.picture.lstrip("\n"))) if problem.picture else None,
        element("div", where, class_="kk-label"),
        class_="kk-section",
    )
