"""What somebody changed in the cache folder or in a shared store never reaches a guest's own decoder."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelkeep.remote.keyring import Keyring
from kernelkeep.testing.servers import RedisServer

from .conftest import Guest, needs
from .test_triton import KERNEL
from .test_triton import ON as TRITON_ON

SETUP = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\nimport tampering\ndecoded = []\n"

JAX = (
    SETUP
    + """
import jax
import jax.numpy as jnp
import kernelkeep.guests.jax as guest
from jax._src import compilation_cache as real

guest.turn_on()
asked = []
decompress, get = real.decompress_executable, real.get_executable_and_time

def watched_decompress(data):
    decoded.append(len(data))
    return decompress(data)

def watched_get(*args):
    asked.append(args)
    return get(*args)

real.decompress_executable, real.get_executable_and_time = watched_decompress, watched_get
jax.jit(lambda x: jnp.sin(x) + 1)(jnp.ones(4))  # several programs: there is another key of this guest
assert len(asked) > 1
tampering.add_entry_of_another_guest()
cache = real._cache
digest = cache._key(asked[-1][0])[0].digest
print(tampering.attack(cache._cache, digest, lambda: get(*asked[-1])[0] is not None, decoded))
"""
)

TRITON = (
    SETUP
    + KERNEL
    + """
import triton.compiler.compiler as real
from triton.runtime import build, cache as triton_cache
import kernelkeep.guests.triton as guest
import shutil
from kernelkeep.guests.process_folder import ProcessFolder

class Missed(Exception):
    pass

def missed(*args, **settings):
    raise Missed

for size in (64, 128):  # another key of this guest
    triton.compile(make_source(size), target=target)
tampering.add_entry_of_another_guest()
source = make_source(64)
make_ir, loads, init = ASTSource.make_ir, real.json.loads, real.CompiledKernel.__init__

def watched_loads(data, **settings):
    decoded.append(len(data))
    return loads(data, **settings)

def watched_init(self, source, group, hash):
    decoded.append(sorted(group))
    init(self, source, group, hash)

real.json.loads, real.CompiledKernel.__init__ = watched_loads, watched_init
ASTSource.make_ir = missed  # what Triton does next after a miss

def ask(*, kept=False):
    guest._folder = ProcessFolder()  # as a process that has none of the files yet
    if not kept:
        shutil.rmtree(kept_folder, ignore_errors=True)
    try:
        return triton.compile(source, target=target) is not None
    except Missed:
        return False

cache = guest.guest_cache("triton")
kept_folder = cache.disk.folder.foreign.path
good = triton.compile(source, target=target).asm
fields = {stored.facts.key.digest: stored.facts.key.fields for stored in cache.disk.folder.scan()}
wanted = triton_cache._base32(triton.compile(source, target=target).hash)
(digest,) = (digest for digest, facts in fields.items() if facts["hash"] == wanted)
print(tampering.attack(cache, digest, ask, decoded))

# The files that are kept beside the entry: Triton gets what the entry has.
for size in (64, 128):  # back in the cache, with another key's files beside them
    ASTSource.make_ir = make_ir
    triton.compile(make_source(size), target=target)
ASTSource.make_ir = missed

def read_by_triton(self, source, group, hash):
    decoded.append({name.rpartition(".")[2]: open(path, "rb").read() for name, path in group.items()})
    init(self, source, group, hash)

real.json.loads, real.CompiledKernel.__init__ = loads, read_by_triton
assert ask(kept=True)
entry = decoded[-1]
assert entry["cubin"] == good["cubin"]
print(tampering.attack_kept(kept_folder, lambda: ask(kept=True) and decoded[-1] == entry))

# A launcher: a module in C that Triton imports.
import msgspec._core
load = build._load_module_from_path

def watched_load(name, path):
    decoded.append(path)
    return load(name, path)

build._load_module_from_path = watched_load
before = {*fields}
build._build = lambda *args, **settings: msgspec._core.__file__
build.compile_module_from_src("source", "_core")
build._build = missed
(digest,) = {stored.facts.key.digest for stored in cache.disk.folder.scan()} - before

def ask_for_launcher():
    guest._folder = ProcessFolder()
    try:
        return build.compile_module_from_src("source", "_core") is not None
    except Missed:
        return False

print(tampering.attack(cache, digest, ask_for_launcher, decoded))
"""
)

INDUCTOR = (
    SETUP
    + """
import pickle, shutil
import torch
import kernelkeep.guests.inductor as guest
from torch._inductor import codecache, remote_cache as real

guest.turn_on()
asked = {}
find = codecache.GuardedCache.iterate_over_candidates.__func__

def watched_find(cls, local, remote_cache, key):
    asked[type(remote_cache).__name__] = (cls, local, remote_cache, key)
    return find(cls, local, remote_cache, key)

codecache.GuardedCache.iterate_over_candidates = classmethod(watched_find)
torch.compile(lambda x: x @ x)(torch.ones(4, 4))
tampering.add_entry_of_another_guest()
loads, decode = pickle.loads, real.RemoteCacheJsonSerde.decode

def watched_loads(data, **settings):
    decoded.append(len(data))
    return loads(data, **settings)

def watched_decode(self, data):
    decoded.append(len(data))
    return decode(self, data)

pickle.loads, real.RemoteCacheJsonSerde.decode = watched_loads, watched_decode
cache = guest.guest_cache("inductor")
assert set(asked) == {"RemoteFxGraphCache", "RemoteAOTAutogradCache"}, asked
kept_folder, saved = cache.disk.folder.foreign.path, cache.disk.root.parent / "saved"

def ask():
    shutil.rmtree(kept_folder, ignore_errors=True)
    return len(list(find(*args))) > 0

for kind, args in asked.items():
    backend = args[2].backend
    digest = backend._key(args[2]._get_key(args[3])).digest
    good = [content for _, content, _ in find(*args)]
    assert good
    shutil.copytree(cache.disk.folder.path / "programs", saved)
    print(tampering.attack(cache, digest, ask, decoded))

    # The copies that are kept beside the entries: PyTorch unpickles what the entry has.
    shutil.copytree(saved, cache.disk.folder.path / "programs", dirs_exist_ok=True)
    shutil.rmtree(saved)
    shutil.rmtree(kept_folder, ignore_errors=True)
    for one in asked.values():  # with the copy of another key beside it
        assert list(find(*one))
    seen = []
    pickle.loads = lambda data: seen.append(data) or loads(data)

    def ask_kept():
        seen.clear()
        return [content for _, content, _ in find(*args)] == good == seen

    print(tampering.attack_kept(kept_folder, ask_kept))
    pickle.loads = watched_loads
"""
)


@pytest.fixture
def stores(guest: Guest, redis_server: RedisServer, namespace: str) -> dict[str, str]:
    """A shared folder and a server, where only what a trusted key signed is taken."""
    Keyring(guest.folder / "keys").new("tests")
    shared = guest.folder / "shared"
    shared.mkdir()
    shared.chmod(0o777)  # others can write there: a signature is needed
    options = f"namespace={namespace}&timeout_seconds=20"
    return {
        "KERNELKEEP_KEYS_DIR": str(guest.folder / "keys"),
        "KERNELKEEP_REMOTE": f"file://{shared}?{options},{redis_server.url}?{options}",
    }


@needs("jax")
def test_no_changed_byte_reaches_jax(guest: Guest, stores: dict[str, str]) -> None:
    said = guest.run(JAX, **stores)
    print(said)
    assert said.count(" bytes flipped") == 3


@needs("triton")
def test_no_changed_byte_reaches_triton(guest: Guest, stores: dict[str, str]) -> None:
    said = guest.run(TRITON, **stores, **TRITON_ON)
    print(said)
    assert said.count(" bytes flipped") == 7


@needs("torch")
def test_no_changed_byte_reaches_pickle(guest: Guest, stores: dict[str, str]) -> None:
    said = guest.run(INDUCTOR, **stores)
    print(said)
    assert said.count(" bytes flipped") == 8
