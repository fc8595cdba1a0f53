"""The words that host and kernels share."""

from __future__ import annotations

from kernelkeep.continuous.mailbox import (
    CONTROL_WORDS,
    LINE,
    MAILBOX_WORDS,
    Commit,
    HostWord,
    Stopped,
    Word,
    control_words,
)


def test_the_control_words_do_not_overlap() -> None:
    places = [int(word) for word in Word]
    assert len(set(places)) == len(places) and max(places) < CONTROL_WORDS
    assert not {Word.COUNT + 1, Word.COUNT + 2} & set(places), "three copies of the queue are counted"
    made = control_words(generation=7, iteration=5, phase=3, taken=(9 << 32) + 8, tasks=6)
    assert [made[word] for word in (Word.GENERATION, Word.ITERATION, Word.PHASE, Word.COUNT)] == [7, 5, 3, 6]
    assert int(made[Word.TAKEN_LOW]) + (int(made[Word.TAKEN_HIGH]) << 32) == (9 << 32) + 8
    assert made[Word.CURRENT] == made[Word.STOPPED] == 0
    assert control_words(2**40 + 5, 0, 0, 0, 0)[Word.GENERATION] == 5


def test_a_commit_is_what_the_control_words_were_made_from() -> None:
    made = control_words(generation=7, iteration=5, phase=3, taken=(9 << 32) + 8, tasks=6)
    assert Commit.of(made) == Commit(0, 5, 3, 7, (9 << 32) + 8, 6, Stopped.NO)
    made[Word.CURRENT], made[Word.COUNT + 1] = 1, 4
    assert Commit.of(made).tasks == 4, "those of the committed copy"


def test_each_word_of_the_mailbox_has_a_line_of_its_own() -> None:
    lines = {word // LINE for word in HostWord}
    assert len(lines) == len(HostWord) and max(HostWord) < MAILBOX_WORDS
