"""The numbers that the lines of a text have for its author: `#line 7` gives the next line the number 7."""

from __future__ import annotations

import re


def line_with_number(text: str, number: int, first_line: int = 1) -> str:
    """The line with this number, or nothing. Of several it is the last: a user's text stands behind what was put before it."""
    lines, numbers = text.split("\n"), line_numbers(text, first_line)
    found = [number - first_line] if numbers is None else [at for at, one in enumerate(numbers) if one == number]
    return lines[found[-1]].rstrip() if found and 0 <= found[-1] < len(lines) else ""


def line_numbers(text: str, first_line: int = 1) -> list[int] | None:
    """The number of each line, or None where they simply count up from `first_line`."""
    if "line" not in text or "#" not in text:
        return None
    marker = re.compile(r"[ \t]*#[ \t]*line[ \t]+(\d+)")
    numbers, number, is_marked = [], first_line, False
    for line in text.split("\n"):
        numbers.append(number)
        found = marker.match(line)
        is_marked |= found is not None
        number = number + 1 if found is None else int(found.group(1))
    return numbers if is_marked else None
