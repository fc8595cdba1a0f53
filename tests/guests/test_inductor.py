"""torch.compile on the CPU: found by the next process, compiled once by those that start together, never taken damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

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
    for copy in kept_copies(guest):
        copy.unlink()
    assert guest.run(PROGRAM, "4") == "compiled"


def kept_copies(guest: Guest) -> list[Path]:
    found = list(guest.cache_dir.glob("*/driver/*.bytes"))
    assert found
    return found


def test_a_damaged_copy_is_written_again_from_the_entry(guest: Guest) -> None:
    guest.run(PROGRAM, "4")
    before = {path: path.read_bytes() for path in kept_copies(guest)}
    for path, data in before.items():
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    assert guest.run(PROGRAM, "4") == "found"
    looked_at = [path for path, data in before.items() if path.read_bytes() == data]
    assert looked_at  # who finds autograd's graph does not ask for the graphs in it


def test_without_the_entry_its_copy_is_not_used(guest: Guest) -> None:
    guest.run(PROGRAM, "4")
    for stored in guest.entries():
        stored.path.unlink()
    assert kept_copies(guest)
    assert guest.run(PROGRAM, "4") == "compiled"


# A version of PyTorch that decodes somewhere else: it gets base64 and JSON.
ELSEWHERE = """
from torch._inductor import codecache
import base64 as real
codecache.base64 = type("base64", (), {name: getattr(real, name) for name in dir(real)})
"""

NOT_BY_THE_METHOD = """
from torch._inductor import remote_cache

def get(self, key, sample):
    data = self._backend_get(key)
    return self.serde.decode(data) if data else None

remote_cache.RemoteCache._get = get
"""


@pytest.mark.parametrize("elsewhere", [ELSEWHERE, NOT_BY_THE_METHOD])
def test_where_pytorch_decodes_elsewhere_it_gets_what_it_put(guest: Guest, elsewhere: str) -> None:
    assert guest.run(elsewhere + PROGRAM, "6") == "compiled"
    assert guest.run(elsewhere + PROGRAM, "6") == "found"
    assert guest.run(PROGRAM, "6") == "found"


FORMS = """
import base64, json
import kernelkeep.guests.inductor_bytes as form

put = json.dumps({"data": base64.b64encode(b"graph").decode(), "time_taken_ms": 3}).encode()
packed = form.pack(put)
assert b"graph" in packed
assert json.loads(form.unpack(packed, door=False)) == json.loads(put)
taken = form.unpack(memoryview(packed), door=True)
assert taken["time_taken_ms"] == 3 and taken["data"] == b"" and taken["data"].content == b"graph"
for other in (b"", b"no JSON", b"[1]", b"{}", b'{"data": 1}', b'{"data": "no base64!"}', b'{"data": "YQ==", "a": 1e999}'):
    for door in (False, True):
        assert form.unpack(form.pack(other), door=door) == other, other
print("same")
"""


def test_what_is_put_comes_back(guest: Guest) -> None:
    assert guest.run(FORMS) == "same"


def test_explain_says_which_part_of_a_key_differs(guest: Guest) -> None:
    guest.run(PROGRAM, "5")
    guest.run(PROGRAM.replace("64)", "65)"), "5")
    for name in ("RemoteFxGraphCache", "RemoteAOTAutogradCache"):
        one, other = (stored.facts for stored in guest.entries() if stored.facts and stored.facts.name == name)
        differing = {label for label, value in one.key.fields.items() if other.key.fields.get(label) != value}
        assert differing == {"key", "example_inputs[0]"}
