"""The text of an explanation."""

from __future__ import annotations

from kernelkeep.cache.report import Difference, Explanation


def test_another_text_of_the_same_length_is_told_as_such() -> None:
    changed = Difference("source", "aa (304 bytes)", "bb (304 bytes)")
    told = Explanation(
        "saxpy", None, "0" * 64, {"language": "c", "source": "bb (304 bytes)"}, "saxpy 1 of today", (changed,)
    )
    assert str(told).splitlines()[1:] == [
        "  source: the text differs: aa (304 bytes) there, bb (304 bytes) here",
        "its key is made of:",
        "    language: c",
        "    source: bb (304 bytes)",
    ]
