"""A weak set under threads: what `weakref.WeakSet` does not promise."""

import gc
import threading

from kernelkeep.weak_set import WeakSet


class Thing:
    pass


def test_members_that_nobody_else_holds_are_gone():
    members: WeakSet[Thing] = WeakSet()
    kept, dropped = Thing(), Thing()
    members.add(kept)
    members.add(kept)
    members.add(dropped)
    del dropped
    gc.collect()
    assert list(members) == [kept]
    members.discard(kept)
    members.discard(kept)
    assert list(members) == []


def test_one_thread_goes_through_while_others_add_and_discard():
    members: WeakSet[Thing] = WeakSet()
    stop = threading.Event()

    def churn() -> None:
        while not stop.is_set():
            things = [Thing() for _ in range(50)]
            for thing in things:
                members.add(thing)
            for thing in things[::2]:
                members.discard(thing)

    threads = [threading.Thread(target=churn) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(5_000):
            assert all(isinstance(member, Thing) for member in members)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert list(members) == []
