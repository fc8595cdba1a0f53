"""What the reference shows of classes that hold facts: a table of their fields, with the comments beside them in the code."""

from __future__ import annotations

import re
from typing import Any

import griffe

_COMMENT = re.compile(r"\s#\s+(?P<words>.+)$")


class FieldTables(griffe.Extension):
    """Adds a section `Attributes` to the docstring of each class that is a list of fields."""

    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:
        marks = [*(one.value for one in cls.decorators), *cls.bases]
        is_fields = any("dataclass" in str(mark) or "Struct" in str(mark) for mark in marks)
        if not is_fields or cls.docstring is None or "Attributes:" in cls.docstring.value:
            return
        found = [member for member in cls.members.values() if member.is_attribute and member.docstring is None]
        fields = [one for one in found if one.annotation and not one.name.startswith("_") and "property" not in one.labels]
        if fields:
            rows = [f"    {one.name}: {_said_of(one)}" for one in fields]
            cls.docstring.value += "\n\nAttributes:\n" + "\n".join(rows)


def _said_of(field: Any) -> str:
    comment = _COMMENT.search(field.lines[-1]) if field.lines else None
    words = comment["words"].strip() if comment else ""
    return words[:1].upper() + words[1:] + "." if words and not words.endswith(".") else words or "&nbsp;"  # an empty cell; without any text there is no row
