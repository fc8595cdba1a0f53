"""torch.compile on the CPU: found by the next process, compiled once by those that start together, never taken damaged."""

from __future__ import annotations

from .conftest import Guest, needs

pytestmark = needs("torch")

PROGRAM = """
import sys
import torch
import kernelkeep.guests.inductor as guest

guest.turn_on()
from torch._dynamo.utils import counters

@torch.compile
def work(x):
    return torch.sin(x) * int(sys.argv[1]) + torch.relu(x)

x = torch.linspace(-1, 1, 64)
assert torch.allclose(work(x), torch.sin(x) * int(sys.argv[1]) + torch.relu(x))
found = counters["inductor"]["fxgraph_cache_hit"] + counters["aot_autograd"]["autograd_cache_hit"]
missed = counters["inductor"]["fxgraph_cache_miss"]
print("compiled" if missed else "found" if found else "neither")
"""


def test_the_next_process_finds_it(guest: Guest) -> None:
    assert guest.run(PROGRAM, "2") == "compiled"
    assert guest.run(PROGRAM, "2") == "found"
    names = {stored.facts.name for stored in guest.entries() if stored.facts is not None}
    assert {"RemoteFxGraphCache", "RemoteAOTAutogradCache"} <= names


# On a busy machine a compile may take longer than others wait for it.
PATIENT = """
from kernelkeep.guests.guest_cache import GuestCache
GuestCache.__init__.__kwdefaults__["wait_seconds"] = 3600.0
"""


def test_processes_that_start_together_compile_once(guest: Guest) -> None:
    children = [guest.start(PATIENT + PROGRAM, "3") for _ in range(4)]
    said = [child.communicate(timeout=600)[0].strip() for child in children]
    assert sorted(said) == ["compiled", "found", "found", "found"]


def test_a_damaged_entry_is_compiled_again(guest: Guest) -> None:
    guest.run(PROGRAM, "4")
    guest.flip(0.9)
    assert guest.run(PROGRAM, "4") == "compiled"


def test_explain_says_which_part_of_a_key_differs(guest: Guest) -> None:
    guest.run(PROGRAM, "5")
    guest.run(PROGRAM.replace("64)", "65)"), "5")
    for name in ("RemoteFxGraphCache", "RemoteAOTAutogradCache"):
        one, other = (stored.facts for stored in guest.entries() if stored.facts and stored.facts.name == name)
        differing = {label for label, value in one.key.fields.items() if other.key.fields.get(label) != value}
        assert differing == {"key", "example_inputs[0]"}
