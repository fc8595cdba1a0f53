"""What is open in this process: shown while it is, its counts kept when it is not, and never in anybody's way."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from kernelkeep.activity import live
from kernelkeep.activity.facts import Facts, Histogram, Sums

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs forks")


class Thing:
    """An object with a count, which may refer to itself."""

    def __init__(self, name: str, number: int) -> None:
        self.name, self.number = name, number
        self.itself: Thing | None = None
        self.closes = True

    def facts(self) -> Facts:
        histogram = Histogram((1.0, 2.0))
        histogram.add(self.number)
        return Facts({"device": "d", "name": self.name}, {"n": self.number}, {"x": 1}, {"h": histogram.read()})

    def __del__(self) -> None:
        if self.closes:
            live.remove(self)


def shown(name: str) -> list[dict[str, Any]]:
    return [one for one in live.snapshot()["open"] if one["about"].get("name") == name]


def closed(name: str) -> dict[str, Any]:
    return next((one for one in live.snapshot()["closed"] if one["about"].get("name") == name), {})


def test_what_is_added_is_shown_until_it_is_removed() -> None:
    thing = Thing("added", 3)
    live.add("thing", thing, Thing.facts)
    (found,) = shown("added")
    assert found["kind"] == "thing" and found["counts"] == {"n": 3} and found["now"] == {"x": 1}
    assert found["seconds"] >= 0
    live.remove(thing)
    live.remove(thing)
    assert not shown("added")
    assert closed("added")["counts"] == {"n": 3} and closed("added")["objects"] == 1


def test_a_snapshot_is_json() -> None:
    thing = Thing("json", 1)
    live.add("thing", thing, Thing.facts)
    found = live.snapshot()
    assert json.loads(json.dumps(found)) == found
    assert found["process"]["pid"] == os.getpid()


@pytest.mark.parametrize("cyclic", [False, True])
def test_counts_of_collected_objects_are_kept(cyclic: bool) -> None:
    thing: Thing | None = Thing(f"collected {cyclic}", 5)
    assert thing is not None
    live.add("thing", thing, Thing.facts)
    thing.itself = thing if cyclic else None
    thing = None
    gc.collect()
    assert not shown(f"collected {cyclic}")
    assert closed(f"collected {cyclic}")["counts"] == {"n": 5}


def test_an_object_that_is_gone_without_a_word_is_not_shown() -> None:
    for number in range(600):
        thing = Thing("silent", number)
        thing.closes = False
        live.add("thing", thing, Thing.facts)
    del thing
    assert not shown("silent") and not closed("silent")
    assert len(live._opened) < 600, "entries of collected objects are forgotten some time"


def test_counts_are_added_up_and_histograms_too() -> None:
    for number in (1, 2, 7):
        thing = Thing("summed", number)
        live.add("thing", thing, Thing.facts)
        live.remove(thing)
    found = closed("summed")
    assert found["counts"] == {"n": 10} and found["objects"] == 3
    assert found["histograms"]["h"] == {"bounds": [1.0, 2.0], "counts": [1, 1, 1], "sum": 10.0}


def test_facts_that_raise_hide_one_object_only() -> None:
    good, bad = Thing("good", 1), Thing("bad", 1)
    live.add("thing", good, Thing.facts)
    live.add("thing", bad, lambda one: Facts({"name": one.no_such_thing}))  # type: ignore[attr-defined]
    assert shown("good")
    live.remove(bad)
    live.remove(good)


def test_names_without_end_do_not_fill_the_memory() -> None:
    sums = Sums()
    for number in range(2000):
        sums.add("run", Facts({"device": "d", "name": f"program {number}"}, {"n": 1}))
    found = sums.read()
    assert len(found) <= 501
    assert sum(one["counts"]["n"] for one in found) == 2000
    assert next(one for one in found if one["about"]["name"] == "others")["objects"] == 1500


def test_no_count_is_ever_seen_to_go_back() -> None:
    """Objects are closed by some threads while another one looks."""
    stop = threading.Event()
    seen: list[float] = []

    def look() -> None:
        while not stop.is_set():
            found = live.snapshot()
            seen.append(
                sum(
                    one["counts"]["n"]
                    for one in (*found["open"], *found["closed"])
                    if one["about"].get("name") == "steady"
                )
            )

    def work() -> None:
        for _ in range(300):
            thing = Thing("steady", 1)
            live.add("thing", thing, Thing.facts)
            live.remove(thing)

    looker = threading.Thread(target=look)
    looker.start()
    workers = [threading.Thread(target=work) for _ in range(3)]
    for one in workers:
        one.start()
    for one in workers:
        one.join()
    stop.set()
    looker.join()
    assert seen == sorted(seen)
    assert closed("steady")["counts"]["n"] == 900


def test_work_counts_its_steps() -> None:
    with live.work("preload", "work", "d", 3) as work:
        work.step("one")
        work.step("two")
        (found,) = shown("work")
        assert found["now"] == {"done": 2, "total": 3, "last": "two"}
    assert not shown("work") and closed("work")["counts"] == {"steps": 2}


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_shows_nothing_of_its_parent() -> None:
    thing = Thing("of the parent", 1)
    live.add("thing", thing, Thing.facts)
    live._lock.acquire()  # as if another thread held it at the moment of the fork
    child = os.fork()
    if child == 0:
        found = live.snapshot()
        os._exit(0 if not found["open"] and found["process"]["pid"] == os.getpid() else 1)
    live._lock.release()
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


@pytest.mark.parametrize("switch", ["0", None])
def test_the_switch(switch: str | None, tmp_path: Path) -> None:
    code = """
import threading
from kernelkeep.activity import live
class Thing: pass
thing = Thing()
live.add("thing", thing, lambda one: None)
print([one.name for one in threading.enumerate() if "live" in one.name])
"""
    environment = {**os.environ, "KERNELKEEP_LIVE": switch or str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.strip() == ("[]" if switch else "['kernelkeep-live']")


def test_the_program_is_named_without_its_arguments() -> None:
    code = "import sys; sys.argv = ['/home/a/train.py', '--token=secret']\n"
    code += "from kernelkeep.activity import live; print(live.snapshot())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "'program': 'train.py'" in done.stdout and "secret" not in done.stdout
