"""Elements of HTML and SVG. Every text that is not `Markup` is escaped, so that a name from a file cannot become an element."""

from __future__ import annotations

from collections.abc import Iterable

from ..escaping import escaped

_VOID = frozenset({"br", "hr", "input", "link", "meta"})
_LONGEST = 4000  # characters of one text; a planted file may hold megabytes


class Markup(str):
    """Text that is HTML already. `element` and `join` make it; make it yourself from constants only."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        return str(self)


def escape(value: object, longest: int = _LONGEST) -> Markup:
    """`value` as text of an element or an attribute. Characters that are not printable show as escapes, such as \\x1b."""
    if isinstance(value, Markup):
        return value
    try:
        text = str(value)
    except Exception as error:  # of an object whose `__str__` fails, or an integer with too many digits
        text = f"<{type(value).__name__}: {type(error).__name__}>"
    if len(text) > longest:
        text = f"{text[:longest]}…"
    text = escaped(text, keep="\n\t")
    for character, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;"), ("'", "&#x27;")):
        text = text.replace(character, entity)
    return Markup(text)


def element(tag: str, *children: object, **attributes: object) -> Markup:
    """`<tag attributes>children</tag>`.

    Children are markup, text, or lists of these; None is left out. In the names of attributes `_` stands for `-`, and one at the
    end is dropped: `class_="x"`, `data_sort=3`. An attribute that is None or False is left out, one that is True has no value.
    """
    opening = [tag]
    for name, value in attributes.items():
        if value is None or value is False:
            continue
        written = name.rstrip("_").replace("_", "-")
        opening.append(written if value is True else f'{written}="{escape(value)}"')
    start = f"<{' '.join(opening)}>"
    return Markup(start) if tag in _VOID else Markup(f"{start}{join(children)}</{tag}>")


def join(children: Iterable[object], between: str = "") -> Markup:
    """Markup, texts and lists of these, one after the other."""
    return Markup(between.join(_markup_of(child) for child in children if child is not None))


def _markup_of(child: object) -> str:
    if isinstance(child, str):
        return escape(child)
    if isinstance(child, Iterable):
        return join(child)
    return escape(child)
