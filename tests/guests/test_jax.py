"""JAX's compiled programs, on the CPU."""

from __future__ import annotations

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


def test_the_next_process_finds_it(guest: Guest) -> None:
    assert guest.run(PROGRAM, "1") == "compiled"
    assert guest.run(PROGRAM, "1") == "found"
    assert guest.run(PROGRAM, "2") == "compiled"
    names = {stored.facts.name for stored in guest.entries() if stored.facts is not None}
    assert "jit_work" in names


def test_a_damaged_entry_is_compiled_again(guest: Guest) -> None:
    guest.run(PROGRAM, "1")
    guest.flip(0.9)
    assert guest.run(PROGRAM, "1") == "compiled"
