"""The ring's protocol keeps its promises in every order of events, and every part of it is needed.

States of each case, all of them visited; `protocol_model` tells what a state is, and how weak memory is:

    tags return, seven tasks                        846
    all tasks write words, six tasks             12,183
    four slots, six tasks                         9,294
    four slots, an exit                          37,176
    two exits                                     3,080
    an exit, all tasks write words                6,452
    a crash                                      13,994
    two crashes                                   8,782
    an exit and a crash                          56,070
    copies, tags return, seven tasks             11,152
    copies of the first and the last, four slots 13,939
    copies, four slots                           21,897
    copies, a block holds one record              3,831
    copies, an exit                               6,624
    copies, two exits                            10,356
    copies, a crash                              39,350
    copies, two crashes                          10,563
    copies, an exit and a crash                  51,247
"""

from __future__ import annotations

import pytest

from .protocol_model import Case, Model, Rules, Violation

Y, N = True, False
CASES = {
    "tags return, seven tasks": Case((Y, N, N, Y, Y, N, Y)),
    "all tasks write words, six tasks": Case((Y, N, N, Y, Y, N), all_write_words=True),
    "four slots, six tasks": Case((Y, N, Y, Y, N, Y), capacity=4, tags=8),
    "four slots, an exit": Case((Y, N, Y, Y, N, Y), capacity=4, tags=8, exits=1),
    "two exits": Case((Y, N, Y, Y), exits=2),
    "an exit, all tasks write words": Case((Y, N, Y, Y), exits=1, all_write_words=True),
    "a crash": Case((Y, N, N, Y, Y), crashes=1),
    "two crashes": Case((Y, N, Y), crashes=2),
    "an exit and a crash": Case((Y, N, N, Y, Y), exits=1, crashes=1),
    "copies, tags return, seven tasks": Case((Y, N, N, Y, Y, N, Y), copies=(Y,) * 7),
    "copies of the first and the last, four slots": Case((N,) * 9, capacity=4, tags=8, copies=(Y, *(N,) * 7, Y)),
    "copies, four slots": Case((Y, N, Y, N), capacity=4, tags=8, copies=(Y, Y, N, Y)),
    "copies, a block holds one record": Case((Y, N, Y, Y), room=1, copies=(Y,) * 4),
    "copies, an exit": Case((Y, N, Y, N), exits=1, copies=(Y, Y, N, Y)),
    "copies, two exits": Case((Y, N, Y), exits=2, copies=(Y,) * 3),
    "copies, a crash": Case((Y, N, N, Y), crashes=1, copies=(Y, N, Y, Y)),
    "copies, two crashes": Case((N, Y), crashes=2, copies=(Y,) * 2),
    "copies, an exit and a crash": Case((Y, Y), exits=1, crashes=1, copies=(Y,) * 2),
}
PLAIN = CASES["tags return, seven tasks"]
EXIT = Case((Y, N, Y), exits=1)
CRASH = Case((Y, N, Y), crashes=1)
COPIES = Case((N, N), copies=(Y, Y))
COPY_TAG_RETURNS = Case((N,) * 5, copies=(Y, N, N, N, Y))
COPY_CRASH = Case((Y, Y), crashes=1, copies=(Y, Y))


@pytest.mark.parametrize("name", CASES)
def test_the_protocol_keeps_its_promises(name: str) -> None:
    """The number of states is as in the list above: a model that visits fewer would prove less."""
    model = Model(CASES[name], Rules())
    model.explore()
    assert f"    {name}{model.states:{51 - len(name)},}\n" in str(__doc__)


@pytest.mark.parametrize(
    ("rule", "case", "found"),
    [
        ("record_before_head", CRASH, "with the record of"),
        ("head_is_released", Case((N, N, N)), "with the record of"),
        ("room_is_waited_for", Case((N, N, N)), "with the record of 2"),
        ("results_are_collected", Case((Y, Y, Y)), "nothing goes on"),
        ("old_tags_are_spoilt", PLAIN, "finds the words"),
        ("producers_take_turns", Case((N, N), producers=2), r"nothing goes on|with the record of"),
        ("head_is_acquired", Case((N, N, N)), "with the record of"),
        ("fence_before_done", Case((N,)), "done = 1 arrives before what the tasks wrote"),
        ("tags_are_checked", Case((Y,)), "collect 0 finds the words"),
        ("both_words_are_checked", Case((Y,)), r"collect 0 finds the words \(\(1, 0\), \(0, -1\)\)"),
        ("exit_acknowledges", EXIT, "again"),
        ("end_is_waited_for", EXIT, r"which is acknowledged|again"),
        ("takeover_at_done", EXIT, "nothing goes on"),
        ("recovery_at_done", CRASH, r"before what the tasks wrote|nothing goes on"),
        ("copy_words_have_tags", COPIES, "with the record of -2"),
        ("copy_is_spoilt", COPY_TAG_RETURNS, "run 4 with the record of 0"),
        ("copy_is_spoilt_whole", COPY_TAG_RETURNS, "run 4 with the record of -2"),
        ("copy_is_released", COPIES._replace(crashes=1), "leaves a ring with head 0 and done 2"),
        ("copy_is_released", CASES["copies, tags return, seven tasks"], "finds the words"),
        ("old_tags_are_spoilt_before_copy", Case((Y,) * 5, copies=(Y,) * 5), "nothing goes on, with 5 tasks done"),
        ("head_is_compared", COPIES, "run 2 with the record of"),
        ("copy_needs_room", COPIES._replace(room=1), "run 0 with the record of 1"),
        ("run_copy_is_accepted", COPY_CRASH, "leaves a ring with head 1 and done 2"),
        ("recovery_spoils_copy", COPY_CRASH, "with the record of|not submitted"),
        ("recovery_spoils_result", COPY_CRASH, r"collect 1 finds the words \(\(2, 1\), \(2, 1\)\)"),
    ],
)
def test_every_rule_is_needed(rule: str, case: Case, found: str) -> None:
    with pytest.raises(Violation, match=found):
        Model(case, Rules()._replace(**{rule: False})).explore()
    Model(case, Rules()).explore()


def test_every_rule_has_its_test() -> None:
    [mark] = [mark for mark in test_every_rule_is_needed.pytestmark if mark.name == "parametrize"]  # type: ignore[attr-defined]
    assert {rule for rule, _, _ in mark.args[1]} == set(Rules._fields)


def test_tags_must_tell_the_tasks_of_a_whole_ring_apart() -> None:
    """With no more tags than slots, words of the task before, which nobody waits for, pass for the result."""
    late_words = Case((N, N, Y), all_write_words=True)
    Model(late_words, Rules()).explore()
    with pytest.raises(Violation, match="collect 2 finds the words"):
        Model(late_words._replace(tags=2), Rules()).explore()


AFTER_HEAD = {
    "six tags": Case((Y, N, N, Y, Y), copies=(Y,) * 5),
    "its tag returns": Case((N,) * 8, copies=(Y, N, N, N, N, N, Y, Y)),
    "an exit": Case((Y, N, Y, N), exits=1, copies=(Y, Y, N, Y)),
    "a crash": Case((Y, Y), crashes=1, copies=(Y,) * 2),
}


@pytest.mark.parametrize("name", AFTER_HEAD)
def test_a_copy_after_head_is_right_and_recovery_need_not_know_of_it(name: str) -> None:
    """Nothing runs without a head then; but the block sees the head first and reads the slot, which the copy should save it."""
    rules = Rules()._replace(
        head_is_compared=False, run_copy_is_accepted=False, recovery_spoils_copy=False, recovery_spoils_result=False
    )
    Model(AFTER_HEAD[name]._replace(copy_after_head=True, tags=6), rules).explore()


def test_a_copy_after_head_needs_tags_for_two_rings() -> None:
    """When head is visible the words beside it may still be those of the submission before."""
    with pytest.raises(Violation, match="with the record of"):
        Model(AFTER_HEAD["six tags"]._replace(copy_after_head=True, tags=5), Rules()).explore()
