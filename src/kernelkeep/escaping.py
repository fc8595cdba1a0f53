"""Text from files and other people, made safe to show: nothing in it moves the cursor, hides or reorders what is read."""

from __future__ import annotations


def escaped(text: object, keep: str = "") -> str:
    """`str(text)` with every character that is not printable as an escape, such as \\x1b; those in `keep` stay.

    Not printable are control characters, marks that reverse the direction of writing, line separators and the like.
    """
    shown = str(text)
    if shown.isprintable():
        return shown
    return "".join(one if one.isprintable() or one in keep else _escape(one) for one in shown)


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
