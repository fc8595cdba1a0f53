"""JAX's compiled programs, on the CPU."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter

from .conftest import Guest, needs

pytestmark = needs("jax")

PROGRAM = """
import sys
import jax
import jax.numpy as jnp
import kernelkeep.guests.jax as guest

guest.turn_on()
events = []
jax.monitoring.register_event_listener(lambda event, **facts: events.append(event))

@jax.jit
def work(x):
    return jnp.sin(x) @ x + float(sys.argv[1])

assert work(jnp.eye(8)).shape == (8, 8)
hits = events.count("/jax/compilation_cache/cache_hits")
misses = events.count("/jax/compilation_cache/cache_misses")
print("compiled" if misses else "found" if hits else "neither")
"""


def test_the_next_process_finds_it_and_compiles_it_again_if_it_is_damaged(guest: Guest) -> None:
    assert guest.run(PROGRAM, "1") == "compiled"
    assert guest.run(PROGRAM, "1") == "found"
    assert guest.run(PROGRAM, "2") == "compiled"
    names = {stored.facts.name for stored in guest.entries() if stored.facts is not None}
    assert "jit_work" in names
    guest.flip(0.9)
    assert guest.run(PROGRAM, "1") == "compiled"


# Three programs, one after the other. Each process notes what it compiles, and what it puts.
TOGETHER = """
import os, pathlib, sys, time
import jax
import jax.numpy as jnp
import kernelkeep.guests.jax as guest
from jax._src import compilation_cache

guest.turn_on()
notes = pathlib.Path(sys.argv[1])
ours = compilation_cache._cache
get, put = ours.get, ours.put

def watched_get(key):
    found = get(key)
    if found is None:
        (notes / f"compiles+{key}+{os.getpid()}").touch()
        time.sleep(0.3)  # a compile that takes a while
    return found

def watched_put(key, value):
    (notes / f"puts+{key}+{os.getpid()}").touch()
    return put(key, value)

ours.get, ours.put = watched_get, watched_put
x = jnp.eye(8)
(notes / f"ready+{os.getpid()}").touch()
while not (notes / "go").exists():
    time.sleep(0.005)
jax.jit(lambda x: jnp.sin(x) @ x + 3)(x).block_until_ready()
jax.jit(lambda x: jnp.tanh(x) @ x)(x).block_until_ready()
jax.jit(lambda x: jnp.cosh(x).sum())(x).block_until_ready()
print("done")
"""


def test_when_a_process_that_compiles_is_killed_one_other_compiles_what_it_had_begun(guest: Guest) -> None:
    notes = guest.folder / "notes"
    notes.mkdir()
    children = [guest.start(TOGETHER, str(notes)) for _ in range(4)]

    def wait_for(pattern: str, number: int) -> list[str]:
        while len(found := sorted(path.name for path in notes.glob(pattern))) < number:
            for child in children:
                assert child.poll() is None, child.communicate()[1]
            time.sleep(0.01)
        return found

    wait_for("ready+*", len(children))
    before = {path.name for path in notes.glob("*+*+*")}  # what was compiled to get ready
    (notes / "go").touch()
    while not (new := {path.name for path in notes.glob("compiles+*")} - before):
        time.sleep(0.005)
    killed = int(new.pop().rpartition("+")[2])
    os.kill(killed, signal.SIGKILL)
    said = [child.communicate(timeout=300)[0].strip() for child in children if child.pid != killed]
    next(child for child in children if child.pid == killed).communicate()
    assert said == ["done"] * 3
    ended = [path.name.split("+") for path in notes.glob("*+*+*") if path.name not in before]
    compiled = Counter(key for what, key, process in ended if what == "compiles" and int(process) != killed)
    put = Counter(key for what, key, process in ended if what == "puts" and int(process) != killed)
    assert len({key for what, key, _ in ended if what == "puts"}) >= 3
    assert set(put.values()) == {1}  # of those that live, one process each
    assert compiled == put
