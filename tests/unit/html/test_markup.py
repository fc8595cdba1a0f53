"""Elements of HTML: text stays text."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest

from kernelkeep.html.markup import Markup, element, escape, join

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "</style><script>1</script>",
    "a & b &lt; c",
    "\x1b[31m\u202egnp.exe\x00",
)


class _Reader(HTMLParser):
    """What a browser would make of a text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, list[tuple[str, str | None]]]] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, attrs))

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.parametrize("hostile", HOSTILE)
def test_text_and_attributes_stay_text(hostile: str) -> None:
    read = _Reader(element("p", hostile, title=hostile))
    assert [tag for tag, _ in read.elements] == ["p"]
    assert [name for name, _ in read.elements[0][1]] == ["title"]
    assert read.elements[0][1][0][1] == read.text
    assert read.text.isprintable()


def test_escapes_show_what_is_not_printable() -> None:
    assert escape("a\x00\u202eb\n") == "a\\x00\\u202eb\n"


def test_markup_is_not_escaped_twice() -> None:
    assert element("b", element("i", "<")) == "<b><i>&lt;</i></b>"
    assert join(["<", Markup("<br>"), None, ["x", 3]]) == "&lt;<br>x3"


def test_attributes_are_named_and_left_out() -> None:
    made = element("td", "x", class_="kk-n", data_sort=3.5, title=None, hidden=False, data_sortable=True)
    assert made == '<td class="kk-n" data-sort="3.5" data-sortable>x</td>'


def test_a_long_text_is_cut_and_one_that_fails_is_named() -> None:
    class Bad:
        def __str__(self) -> str:
            raise RuntimeError("no")

    assert len(escape("x" * 10_000)) < 5000
    assert escape(Bad()) == "&lt;Bad: RuntimeError&gt;"
    assert "ValueError" in escape(10**6000)
