"""`kernelkeep sync push|pull` and its twin in Python: a cache folder travels through a store, without a device."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import kernelkeep as kk
from kernelkeep.cli import main
from kernelkeep.remote.address import open_store, parse_remotes
from kernelkeep.testing import FakeDevice
from kernelkeep.testing.servers import NginxServer, RedisServer
from kernelkeep.variants.records import Record, Records

pytest.importorskip("obstore", reason="obstore is not installed: pip install 'kernelkeep[remote]'")
PROGRAMS = 5


@pytest.fixture(autouse=True)
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELKEEP_KEYS_DIR", str(tmp_path / "keys"))
    monkeypatch.delenv("KERNELKEEP_REMOTE", raising=False)
    assert main(["keys", "new", "--shared"]) == 0


def adder(term: int) -> kk.Source:
    text = f'def adder(y: "i4[]", n: "i4"):\n    y[:n] += {term}\n'
    return kk.Source(text, name=f"adder{term}", language="python")


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    with FakeDevice() as device, kk.ProgramCache(device, tmp_path / "first", remote=[]) as cache:
        cache.preload([adder(term) for term in range(PROGRAMS)])
    return tmp_path / "first"


@pytest.fixture(params=["redis", "nginx", "folder"])
def url(request: pytest.FixtureRequest, tmp_path: Path, namespace: str) -> str:
    if request.param == "folder":
        return (tmp_path / "shared").as_uri()
    server: Any = request.getfixturevalue(f"{request.param}_server")
    if isinstance(server, NginxServer) and not server.listing:
        pytest.skip("nginx lists nothing without its dav-ext module")
    return f"{server.url}?namespace={namespace}"


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, dict[str, Any], str]:
    capsys.readouterr()
    code = main([*map(str, arguments), "--json"])
    said = capsys.readouterr()
    return code, json.loads(said.out) if said.out else {}, said.err


def test_a_cache_folder_travels(filled: Path, tmp_path: Path, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, said, _ = run(capsys, "sync", "push", "--cache-dir", filled, "--remote", url)
    assert code == 0 and [store["copied"] for store in said["stores"]] == [PROGRAMS]
    code, said, _ = run(capsys, "sync", "push", "--cache-dir", filled, "--remote", url)
    assert code == 0 and (said["stores"][0]["copied"], said["stores"][0]["present"]) == (0, PROGRAMS)
    second = tmp_path / "second"
    code, said, _ = run(capsys, "sync", "pull", "--cache-dir", second, "--remote", url)
    assert code == 0 and said["stores"][0]["copied"] == PROGRAMS
    assert sorted(path.name for path in second.iterdir() if path.is_dir()) == said["stores"][0]["folders"]
    with FakeDevice() as device, kk.ProgramCache(device, second, remote=[]) as cache:
        assert cache.preload([adder(term) for term in range(PROGRAMS)]).disk == PROGRAMS
    assert main(["verify", "--cache-dir", str(second)]) == 0
    assert main(["verify", "--cache-dir", str(second), "--remote", url]) == 0
    heard: list[kk.Progress] = []
    assert kk.pull_cache(second, url, progress=heard.append)[0].present == PROGRAMS and not heard, "nothing was brought"
    assert kk.pull_cache(tmp_path / "third", url, progress=heard.append)[0].copied == PROGRAMS
    assert (heard[-1].done, heard[-1].unit) == (PROGRAMS, "programs") and heard[-1].title.startswith("pulling from ")


def test_what_a_program_stored_by_itself_is_pulled(tmp_path: Path, url: str) -> None:
    with FakeDevice() as device, kk.ProgramCache(device, tmp_path / "first", remote=url, remote_timeout=30) as cache:
        cache.get(adder(1)).release()
    assert kk.pull_cache(tmp_path / "second", url)[0].copied == 1
    with FakeDevice() as device, kk.ProgramCache(device, tmp_path / "second", remote=[]) as cache:
        with cache.get(adder(1)) as lease:
            assert lease.origin == "disk"


def test_a_mistyped_folder_is_said_and_not_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = (tmp_path / "nope").as_uri()
    for command in (["sync", "pull", "--cache-dir", tmp_path / "cache", "--remote", url], ["verify", "--remote", url]):
        code, _, said = run(capsys, *command)
        assert (code, said) == (1, f"kernelkeep: there is no folder {url}\n")
    assert not (tmp_path / "nope").exists()


def test_a_folder_without_programs_is_left_out(filled: Path, tmp_path: Path, url: str) -> None:
    gpu = next(path for path in filled.iterdir() if path.is_dir())
    (filled / "opencl_pocl_0123456789ab" / "driver").mkdir(parents=True, mode=0o700)
    (filled / "opencl_pocl_0123456789ab").chmod(0o700)
    (filled / "opencl_pocl_0123456789ab" / "manifest.json").write_text("{}")
    (report,) = kk.push_cache(filled, url)
    assert report.ok and report.copied == PROGRAMS and report.folders == (gpu.name,)


def test_what_is_damaged_or_forged_does_not_travel(
    filled: Path, tmp_path: Path, redis_server: RedisServer, namespace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"{redis_server.url}?namespace={namespace}"
    damaged = next(filled.glob("*/programs/*/*.bin"))
    damaged.write_bytes(damaged.read_bytes()[:-1])
    code, said, complaint = run(capsys, "sync", "push", "--cache-dir", filled, "--remote", url)
    assert code == 1 and said["stores"][0]["copied"] == PROGRAMS - 1 and damaged.name in complaint
    (remote,) = parse_remotes(url, timeout_seconds=30)
    store = open_store(remote)
    name = next(iter(store.list("programs/")))
    data = store.get(name)
    assert data is not None
    store.put(name, data[:-1] + bytes([data[-1] ^ 1]))
    code, said, complaint = run(capsys, "sync", "pull", "--cache-dir", tmp_path / "second", "--remote", url)
    assert code == 1 and said["stores"][0]["copied"] == PROGRAMS - 2 and "signature" in complaint
    (folder,) = store.list("folders/")
    store.put(folder, b'{"folder": "../../up", "fingerprint": {}}')
    code, said, complaint = run(capsys, "sync", "pull", "--cache-dir", tmp_path / "third", "--remote", url)
    assert code == 1 and said["stores"][0]["copied"] == 0 and "nobody signed it" in complaint
    assert not (tmp_path / "third").exists()


def test_wrong_use_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, _, complaint = run(capsys, "sync", "push", "--cache-dir", tmp_path / "none")
    assert code == 2 and "KERNELKEEP_REMOTE" in complaint and complaint.count("\n") == 1
    code, _, complaint = run(
        capsys, "sync", "pull", "--cache-dir", tmp_path, "--remote", "redis://user:secret@127.0.0.1:1/0"
    )
    assert code == 1 and "secret" not in complaint and complaint.count("\n") == 1
    monkeypatch.setenv("KERNELKEEP_KEYS_DIR", str(tmp_path / "no-keys"))
    with pytest.raises(kk.ArgumentError, match="allow_unsigned"):
        kk.push_cache(tmp_path / "none", "redis://127.0.0.1:1/0")


def test_warm_stores_and_finds_programs_and_stats_count_them(
    pocl: str, tmp_path: Path, redis_server: RedisServer, namespace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "scale.cl"
    file.write_text(f"__kernel void scale(__global float* x) {{ x[get_global_id(0)] *= {hash(namespace) % 1000}.5f; }}")
    url = f"{redis_server.url}?namespace={namespace}&timeout_seconds=30"
    for machine, found in (("a", "compiled"), ("b", "remote")):
        options = ("--device", pocl, "--cache-dir", tmp_path / machine, "--remote", url)
        code, said, _ = run(capsys, "warm", file, *options)
        assert code == 0 and said[0][found] == 1  # type: ignore[index]
    code, said, _ = run(capsys, "stats", "--cache-dir", tmp_path / "b")
    assert code == 0 and (said["lifetime"]["hits_remote"], said["lifetime"]["compiles"]) == (1, 0)
    capsys.readouterr()
    assert main(["stats", "--cache-dir", str(tmp_path / "b")]) == 0
    assert "remote hits" in capsys.readouterr().out


def test_tuning_results_travel_with_the_programs(filled: Path, url: str, tmp_path: Path) -> None:
    record = Record(
        tuned="scale",
        source="0" * 64,
        space="",
        device="d" * 64,
        device_name="some GPU",
        architecture="",
        problem={"n": 1},
        variant={"PER": 2},
        samples_ms=[1.0],
        verified=True,
    )
    with Records(filled) as records:
        records.add(record)
    assert main(["sync", "push", "--remote", url, "--cache-dir", str(filled)]) == 0
    assert main(["sync", "pull", "--remote", url, "--cache-dir", str(tmp_path / "second")]) == 0
    with Records(tmp_path / "second") as records:
        assert [one.variant for one in records.of_device("scale", "d" * 64)] == [{"PER": 2}]
