"""Programs that a fleet compiles on this machine go to the store, where other machines and `sync pull` find them."""

from __future__ import annotations

from pathlib import Path

import pytest

import kernelkeep as kk
from kernelkeep import fleet
from kernelkeep.testing.servers import RedisServer


def adder(name: str, term: int) -> kk.PortableKernel:
    return kk.PortableKernel(name, params=[kk.Buffer("x", "f4", "rw")], body=f"x[kk_global_id(0)] += {term}.0f;")


def test_programs_are_stored_once_and_pulled(
    pocl: str, redis_server: RedisServer, namespace: str, tmp_path: Path
) -> None:
    store = f"{redis_server.url}?namespace={namespace}&allow_unsigned=1"
    kernels = [adder("one", 1), adder("two", 2)]
    report = fleet.warm(kernels, pocl, remote=store, cache_dir=tmp_path / "first", cluster="local", workers=1)
    assert report.ok and [part.result.origin for part in report.parts] == ["compiled", "compiled"]
    again = fleet.warm(kernels[0], pocl, remote=store, cache_dir=tmp_path / "second", cluster="local", workers=1)
    assert [(part.result.origin, part.result.stored) for part in again.parts] == [("remote", 0)]
    (pulled,) = kk.pull_cache(tmp_path / "third", store)
    assert pulled.copied == 2 and pulled.ok
    with kk.open_device(pocl) as device, kk.ProgramCache(device, tmp_path / "third", remote=[]) as cache:
        with cache.get(kernels[1]) as lease:
            assert lease.origin == "disk"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (dict(sources=[]), "sources must be one or several of Source, PortableKernel"),
        (dict(sources="x.cl"), "sources must be one or several of"),
        (dict(sources=adder("a", 1), targets=["cuda:sm_1"]), "the architecture in target 'cuda:sm_1'"),
        (dict(sources=adder("a", 1), workers=0), "workers must be a positive integer, got 0"),
        (dict(sources=adder("a", 1), cluster=5), "cluster must be the address of a Ray cluster"),
    ],
)
def test_wrong_arguments_are_said_before_any_work(arguments: dict[str, object], said: str) -> None:
    if "targets" in arguments:
        pytest.importorskip("cuda.bindings", reason="the compiler for CUDA is not installed")
    with pytest.raises(kk.ArgumentError, match=said):
        fleet.warm(**arguments)  # type: ignore[arg-type]
