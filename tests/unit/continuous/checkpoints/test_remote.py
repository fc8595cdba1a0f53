"""Checkpoints in a folder, in S3 (moto's server), in Redis and behind nginx: signed, whole, and never forked unseen."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import time
import uuid
import warnings
from pathlib import Path

import numpy as np
import pytest

import kernelkeep as kk
from kernelkeep.continuous.checkpoints.address import is_address, parse_address
from kernelkeep.continuous.checkpoints.checkpoint import Checkpoint
from kernelkeep.continuous.checkpoints.claim import CheckpointClaim
from kernelkeep.continuous.checkpoints.description import describe
from kernelkeep.continuous.checkpoints.files import newest_checkpoint, newest_header, read_checkpoint, write_checkpoint
from kernelkeep.continuous.checkpoints.header import CheckpointHeader
from kernelkeep.continuous.checkpoints.run_claim import claim_for_run, claim_to_continue
from kernelkeep.remote.address import open_store
from kernelkeep.remote.keyring import Keyring
from kernelkeep.testing.servers import NginxServer, NotInstalled, RedisServer, S3Server


def checkpoint(iteration: int, size: int = 100) -> Checkpoint:
    header = CheckpointHeader(
        program="heat",
        program_digest="p",
        layout_digest="l",
        coupling="neighbours",
        items=8,
        iteration=iteration,
        generation=iteration,
    )
    return Checkpoint(header, {"u": np.full(size, iteration, "i4")})


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machines:
    return Machines(tmp_path, monkeypatch)


class Machines:
    """Machines are folders: each has its own cache."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder = folder
        self._monkeypatch = monkeypatch
        monkeypatch.setenv("KERNELKEEP_KEYS_DIR", str(folder / "keys"))
        self.become("first")

    def become(self, name: str) -> Path:
        cache = self._folder / name
        self._monkeypatch.setenv("KERNELKEEP_CACHE_DIR", str(cache))
        return cache


def with_query(url: str, name: str, *options: str) -> str:
    """An address of a store, with the name of a checkpoint and more options."""
    path, _, query = url.partition("?")
    return f"{path.rstrip('/')}/{name}?{'&'.join([query, *options] if query else options)}"


@pytest.fixture
def folder_url(tmp_path: Path, machine: Machines) -> str:
    return f"file://{tmp_path}/store/run.kkpt?allow_unsigned=1&timeout_seconds=2"


@pytest.fixture(params=["file", "s3", "redis", "nginx"])
def url(request: pytest.FixtureRequest, tmp_path: Path, machine: Machines) -> str:
    name = f"{uuid.uuid4().hex}.kkpt"
    if request.param == "file":
        base = f"file://{tmp_path}/store"
    else:
        server: S3Server | RedisServer | NginxServer = request.getfixturevalue(f"{request.param}_server")
        base = server.url
    return with_query(base, name, "allow_unsigned=1", "timeout_seconds=5")


def names_at(url: str) -> list[str]:
    address = parse_address(url)
    store = open_store(address.remote)
    with contextlib.closing(store):
        found = sorted(name.removeprefix(address.name) for name in store.list(address.name))
    return [name for name in found if name != ".writer"]


def lockless(url: str) -> contextlib.AbstractContextManager[object]:
    """WebDAV has no conditional puts, and claims say so."""
    if url.startswith("http"):
        return pytest.warns(kk.CheckpointWarning, match="cannot lock it")
    return contextlib.nullcontext()


def test_a_checkpoint_goes_to_every_store_and_is_read_on_another_machine(url: str, machine: Machines) -> None:
    with lockless(url):
        for iteration in (1, 2, 3, 4):
            write_checkpoint(url, checkpoint(iteration, size=300_000))
    assert names_at(url) == ["", ".3"]  # the newest, and the one before it
    machine.become("second")
    assert read_checkpoint(url).arrays["u"][-1] == 4
    assert newest_header(url).iteration == 4
    shown = describe(url)
    assert shown.file.address == url.partition("?")[0]
    assert [other.address for other in shown.others] == [f"{url.partition('?')[0]}.3"]
    with lockless(url):
        write_checkpoint(url, checkpoint(5))
    machine.become("first")
    assert newest_checkpoint(url).checkpoint.iteration == 5
    with pytest.raises(kk.CheckpointError, match=r"there is no checkpoint \S+other.kkpt$"):
        read_checkpoint(with_query(url.partition("?")[0].rpartition("/")[0], "other.kkpt", url.partition("?")[2]))


def test_a_damaged_object_is_skipped_for_the_one_before_it_and_kept(folder_url: str, tmp_path: Path) -> None:
    for iteration in (1, 2):
        write_checkpoint(folder_url, checkpoint(iteration))
    stored = tmp_path / "store" / "run.kkpt"
    data = bytearray(stored.read_bytes())
    data[len(data) // 2] ^= 1
    stored.write_bytes(data)
    with pytest.raises(kk.CheckpointError, match=r"store/run\.kkpt is damaged"):
        read_checkpoint(folder_url)
    with pytest.warns(kk.CheckpointWarning, match="an older one is used"):
        assert newest_checkpoint(folder_url).checkpoint.iteration == 1


def test_every_machine_falls_back_to_the_older_object(folder_url: str, tmp_path: Path, machine: Machines) -> None:
    for iteration in (1, 2):
        write_checkpoint(folder_url, checkpoint(iteration))
    (tmp_path / "store" / "run.kkpt").write_bytes(b"not a checkpoint at all, whoever wrote it")
    machine.become("second")
    with pytest.warns(kk.CheckpointWarning, match=r"the older .*run\.kkpt\.1 is used"):
        claim, continues = claim_for_run(folder_url, True)
    with contextlib.closing(_Releasing(claim)):
        assert continues
        assert newest_checkpoint(claim.path).checkpoint.iteration == 1
        claim.continue_lineage(claim.files().all[0].header.lineage, holds_state=False)
        claim.write(checkpoint(7))
        assert claim.finish_uploads() is None
    assert newest_checkpoint(folder_url).checkpoint.iteration == 7
    kept = [name for name in names_at(folder_url) if ".before-" in name]
    assert kept, "what was there is not lost, even if nobody can read it"


class _Releasing:
    def __init__(self, claim: CheckpointClaim) -> None:
        self.close = claim.release


def test_with_nothing_good_there_no_run_begins(folder_url: str, tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "run.kkpt").write_bytes(b"x" * 1000)
    for resume in (None, True):
        with pytest.raises(kk.CheckpointError, match=r"store/run\.kkpt is not a checkpoint"):
            claim_for_run(folder_url, resume)


@pytest.mark.filterwarnings("ignore:.*cannot lock it")
def test_a_server_that_only_gets_and_puts_is_enough(machine: Machines) -> None:
    try:
        server = NginxServer(listing=False)
    except NotInstalled as missing:
        pytest.skip(str(missing))
    with server:
        url = with_query(server.url, "run.kkpt", "allow_unsigned=1")
        for iteration in (1, 2, 3):
            write_checkpoint(url, checkpoint(iteration))
        machine.become("second")
        assert read_checkpoint(url).iteration == 3
        assert read_checkpoint(url.replace("run.kkpt", "run.kkpt.2")).iteration == 2
        write_checkpoint(url, checkpoint(4))
        assert newest_checkpoint(url).checkpoint.iteration == 4


# --- who writes


def test_a_second_run_on_another_machine_is_refused(folder_url: str, machine: Machines) -> None:
    claim = claim_to_continue(folder_url)
    claim.write(checkpoint(1))
    machine.become("second")
    began = time.monotonic()
    with pytest.raises(
        kk.CheckpointError, match=r"is in use: a run in process \d+ on \S+ writes its checkpoints there"
    ):
        claim_to_continue(folder_url)
    assert time.monotonic() - began < 12  # as soon as the first one renewed its claim
    claim.finish_uploads()
    claim.release()
    claim_to_continue(folder_url).release()
    assert names_at(folder_url) == [""]


def test_a_run_that_was_taken_over_stores_nothing_any_more(folder_url: str, machine: Machines, tmp_path: Path) -> None:
    claim = claim_to_continue(folder_url)
    claim.write(checkpoint(1))
    assert claim.finish_uploads() is None
    (tmp_path / "store" / "run.kkpt.writer").write_text("{}")  # as if somebody else had taken over
    claim.write(checkpoint(2))
    problem = claim.finish_uploads()
    assert problem is not None and "another run has taken over" in str(problem)
    assert newest_checkpoint(folder_url).checkpoint.iteration == 1
    claim.release()
    assert (tmp_path / "store" / "run.kkpt.writer").read_text() == "{}"


# --- which of two states counts


def test_a_state_that_could_not_be_uploaded_counts_on_its_own_machine(machine: Machines, tmp_path: Path) -> None:
    with RedisServer() as server:
        url = with_query(server.url, "run.kkpt", "allow_unsigned=1", "timeout_seconds=1")
        write_checkpoint(url, checkpoint(1))
        held = server.ask("DUMP", "kernelkeep::run.kkpt")
        claim = claim_to_continue(url)
        server.kill()
        claim.write(checkpoint(2))
        problem = claim.finish_uploads()
        assert problem is not None and str(problem).startswith(
            f"redis://127.0.0.1:{server.port}/0/run.kkpt cannot be written"
        )
        claim.release()
        with pytest.raises(kk.CheckpointError, match="cannot be reached"):
            claim_to_continue(url)
        server.start()
        assert held
        with pytest.warns(kk.CheckpointWarning, match="there is no redis:.*: this machine's copy .* is used"):
            claim, continues = claim_for_run(url, True)
        assert continues and newest_checkpoint(claim.path).checkpoint.iteration == 2
        assert claim.finish_uploads() is None
        claim.release()
        machine.become("second")
        assert newest_header(url).iteration == 2


def test_who_is_killed_right_after_an_upload_keeps_what_came_after_it(folder_url: str, tmp_path: Path) -> None:
    write_checkpoint(folder_url, checkpoint(1))
    here = parse_address(folder_url).path
    mark = here.with_name("synchronised")
    before = mark.read_text()
    write_checkpoint(folder_url, checkpoint(2))
    mark.write_text(f"{before}\n{mark.read_text()}")  # as it is while the upload goes on
    write_checkpoint(here, checkpoint(3))  # and the run is killed before it is uploaded
    claim, _ = claim_for_run(folder_url, True)
    assert newest_checkpoint(claim.path).checkpoint.iteration == 3
    assert claim.finish_uploads() is None
    claim.release()
    assert read_checkpoint(folder_url).iteration == 3


def test_copies_that_nobody_uses_are_removed_where_the_store_has_the_state(folder_url: str) -> None:
    urls = [folder_url.replace("run.kkpt", f"{name}.kkpt") for name in ("stored", "unstored", "new")]
    for url in urls:
        write_checkpoint(url, checkpoint(1))
    stored, unstored, new = (parse_address(url).path for url in urls)
    write_checkpoint(unstored, checkpoint(2))
    for path in (stored, unstored):
        os.utime(path.with_name("synchronised"), (0, 0))
    write_checkpoint(urls[2], checkpoint(2))
    assert not stored.parent.exists() and unstored.exists() and new.exists()
    assert read_checkpoint(urls[0]).iteration == 1


def test_the_same_bucket_on_two_servers_has_two_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    url = "s3://bucket/run.kkpt?secret_access_key=one"
    assert parse_address(url).path == parse_address(url.replace("one", "two")).path
    assert parse_address(url).path != parse_address(f"{url}&endpoint=http://other:9000").path
    here = parse_address(url).path
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://other:9000")
    assert parse_address(url).path != here


def test_what_was_continued_elsewhere_wins_and_the_fork_is_kept(folder_url: str, machine: Machines) -> None:
    write_checkpoint(folder_url, checkpoint(1))
    here = parse_address(folder_url).path
    write_checkpoint(here, checkpoint(50))  # a state that was never uploaded
    machine.become("second")
    write_checkpoint(folder_url, checkpoint(2))
    machine.become("first")
    with pytest.warns(
        kk.CheckpointWarning, match="was continued elsewhere; what only this machine had is kept as"
    ) as said:
        claim, _ = claim_for_run(folder_url, True)
    claim.release()
    assert newest_checkpoint(here).checkpoint.iteration == 2
    kept = re.search(r"kept as (\S+)", str(said[0].message))
    assert kept and read_checkpoint(kept.group(1)).iteration == 50


def test_another_run_keeps_what_was_there_under_another_name(folder_url: str) -> None:
    for iteration in (1, 2):
        write_checkpoint(folder_url, checkpoint(iteration))
    with pytest.raises(kk.CheckpointError, match=r"run\.kkpt exists already \(iteration 2"):
        claim_for_run(folder_url, None)
    claim, continues = claim_for_run(folder_url, False)
    assert not continues
    claim.begin()
    claim.write(checkpoint(0))
    assert claim.finish_uploads() is None
    claim.release()
    found = names_at(folder_url)
    before = [name for name in found if name.startswith(".before-")]
    assert found[0] == "" and len(before) == 2 and before[1] == f"{before[0]}.1"
    base = folder_url.partition("?")
    assert read_checkpoint(f"{base[0]}{before[0]}?{base[2]}").iteration == 2


# --- trust


@pytest.fixture
def signed_url(tmp_path: Path, machine: Machines) -> str:
    Keyring().new("this machine")
    (tmp_path / "store").mkdir()
    (tmp_path / "store").chmod(0o777)  # nobody else could write to a private one, and nothing there need be signed
    return f"file://{tmp_path}/store/run.kkpt?timeout_seconds=2"


def test_objects_are_signed_for_their_name(signed_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for iteration in (1, 2):
        write_checkpoint(signed_url, checkpoint(iteration))
    store = tmp_path / "store"
    assert (store / "run.kkpt").read_bytes()[:4] == b"KKSG"
    assert read_checkpoint(signed_url).iteration == 2
    older = signed_url.replace("run.kkpt", "run.kkpt.1")
    assert read_checkpoint(older).iteration == 1  # signed as the newest, from which it was copied
    (store / "other.kkpt").write_bytes((store / "run.kkpt").read_bytes())
    with pytest.raises(kk.CheckpointError, match=r"other\.kkpt is refused: its signature does not hold"):
        read_checkpoint(signed_url.replace("run.kkpt", "other.kkpt"))
    monkeypatch.setenv("KERNELKEEP_KEYS_DIR", str(tmp_path / "nobody's keys"))
    with pytest.raises(kk.KernelKeepError, match="keys new"):
        read_checkpoint(signed_url)


def test_an_unsigned_object_is_refused(signed_url: str, tmp_path: Path, machine: Machines) -> None:
    write_checkpoint(signed_url.replace("?", "?allow_unsigned=1&"), checkpoint(1))
    stored = tmp_path / "store" / "run.kkpt"
    stored.write_bytes(stored.read_bytes()[104:])
    machine.become("second")
    with pytest.raises(kk.CheckpointError, match=r"run\.kkpt is refused: nobody signed it"):
        claim_for_run(signed_url, True)
    assert read_checkpoint(signed_url + "&allow_unsigned=1").iteration == 1


# --- words


def test_secrets_are_never_shown(machine: Machines) -> None:
    url = "redis://me:pa55word@127.0.0.1:1/0/run.kkpt?allow_unsigned=1&timeout_seconds=0.2"
    for call in (read_checkpoint, describe, newest_header, claim_to_continue, lambda one: claim_for_run(one, True)):
        with pytest.raises(kk.CheckpointError, match=r"127\.0\.0\.1:1/0/run\.kkpt cannot be") as said:
            call(url)
        assert "pa55word" not in str(said.value)
    assert "pa55word" not in repr(parse_address(url))
    from kernelkeep.continuous.run_options import RunOptions

    assert "pa55word" not in repr(RunOptions(iterations=1, checkpoint=url))
    assert "pa55word" not in str(parse_address(url).path)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("s3://bucket", "must end in a name"),
        ("s3://bucket/folder/", "must end in a name"),
        ("redis://host/0", "must end in a name"),
        ("redis://host/a/b/run.kkpt", "write redis://host/DATABASE/NAME"),
        ("ftp://host/run.kkpt", "must begin with one of"),
        ("unix:///run/redis.sock", "name the server by redis"),
    ],
)
def test_what_cannot_be_an_address_is_said(wrong: str, said: str) -> None:
    with pytest.raises(kk.ArgumentError, match=said):
        parse_address(wrong)


def test_an_address_in_capitals_is_no_file() -> None:
    assert is_address("S3://bucket/run.kkpt") and parse_address("S3://bucket/run.kkpt") == parse_address(
        "s3://bucket/run.kkpt"
    )


def test_an_address_in_a_path_is_refused(tmp_path: Path) -> None:
    with pytest.raises(kk.ArgumentError, match="an address must be a string"):
        read_checkpoint(Path("s3://bucket/run.kkpt"))


def test_reading_files_loads_no_library_of_stores(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "run.kkpt", checkpoint(1))
    code = (
        "import sys, kernelkeep as kk; kk.read_checkpoint(sys.argv[1]);"
        "print([name for name in ('obstore', 'redis', 'cryptography') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "run.kkpt")], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_a_run_is_told_once_that_the_store_does_not_answer(machine: Machines) -> None:
    from kernelkeep.continuous.checkpoints.writer import CheckpointWriter

    with RedisServer() as server:
        url = with_query(server.url, "run.kkpt", "allow_unsigned=1", "timeout_seconds=0.5")
        claim = claim_to_continue(url)
        server.kill()
        writer = CheckpointWriter(claim)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            for iteration in range(5):
                one = checkpoint(iteration)
                writer.submit(one.header, one.arrays)
                writer.flush()
                time.sleep(0.3)
            writer.close()
        texts = [str(one.message) for one in said]
        assert len(texts) == 2, texts
        assert texts[0].endswith("; the run goes on") and "cannot be written" in texts[0]
        assert f"the last state is in {claim.path}" in texts[1]
        claim.release()
        assert read_checkpoint(claim.path).iteration == 4
