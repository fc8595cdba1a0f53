"""`kernelkeep keys` and `kernelkeep verify --remote` as a person runs them."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import kernelkeep as kk
from kernelkeep.cache.entry import encode
from kernelkeep.cache.tiers.remote import stored_name
from kernelkeep.cli import main
from kernelkeep.remote.address import Remote, open_store
from kernelkeep.testing.entries import sample_entry
from kernelkeep.testing.servers import RedisServer

SOURCES = str(Path(kk.__file__).parents[1])


class Done(NamedTuple):
    stdout: str
    stderr: str


class Machine:
    """A user with a keyring. Commands run in this process, which is twenty times as fast as starting one for each."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run(self, *arguments: str | Path, code: int = 0) -> Done:
        out, err = io.StringIO(), io.StringIO()
        with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            patch.setenv("KERNELKEEP_KEYS_DIR", str(self.folder))
            patch.setenv("NO_COLOR", "1")
            assert main([str(argument) for argument in arguments]) == code, err.getvalue()
        return Done(out.getvalue(), err.getvalue())

    def json(self, *arguments: str | Path, code: int = 0) -> Any:
        return json.loads(self.run(*arguments, "--json", code=code).stdout)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "one")


@pytest.fixture
def other(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "two")


def test_keys_from_new_to_revoke(machine: Machine, other: Machine) -> None:
    assert "No key is kept" in machine.run("keys", "list").stdout
    said = machine.run("keys", "new", "--label", "it's mine").stdout
    (line,) = (line for line in said.splitlines() if "keys trust" in line)
    words = shlex.split(line)  # what is printed works in a shell
    assert words[:3] == ["kernelkeep", "keys", "trust"]
    assert "signs here already" in machine.run("keys", "new", code=2).stderr

    trusted = other.json("keys", "trust", words[3], "--until", "2999-12-31")["key"]
    assert trusted["label"] == "it's mine" and trusted["trusted"] and not trusted["signs"]
    assert trusted["id"] in other.run("keys", "list").stdout

    rotated = machine.json("keys", "rotate", "--keep-days", "7")
    assert rotated["old"]["id"] == trusted["id"] and rotated["key"]["signs"]
    listed = machine.json("keys", "list")
    assert [key["id"] for key in listed["keys"]] == [rotated["key"]["id"], trusted["id"]]

    assert other.json("keys", "revoke", trusted["id"][:8])["key"]["revoked"]
    assert "revoked" in other.run("keys", "list").stdout
    assert "cannot be trusted again" in other.run("keys", "trust", words[3], code=2).stderr
    assert "No key signs here" in machine.run("keys", "revoke", rotated["key"]["id"]).stdout


def test_a_shared_secret_is_never_printed(machine: Machine, other: Machine) -> None:
    said = machine.run("keys", "new", "--shared")
    (file,) = (machine.folder / "own").iterdir()
    secret = file.read_text().split()[1]
    assert other.json("keys", "trust", file)["key"]["signs"]
    for done in (said, machine.run("keys", "list"), machine.run("keys", "list", "--json"), other.run("keys", "list")):
        assert secret not in done.stdout + done.stderr


def test_wrong_use(machine: Machine) -> None:
    for arguments in (
        ("keys",),
        ("keys", "trust"),
        ("keys", "trust", "nonsense"),
        ("keys", "trust", "kernelkeep-ed25519 AAAA"),
        ("keys", "revoke", "12"),
        ("keys", "revoke", "123456"),
        ("keys", "rotate"),
        ("verify", "redis://host/0"),
        ("verify", "--remote"),
        ("verify", "--remote", "nonsense"),
        ("verify", "--remote", "--repair", "redis://host/0"),
        ("verify", "--remote", "redis://host/0"),  # no key, and unsigned is not allowed
    ):
        machine.run(*arguments, code=2)


def test_a_damaged_keyring_is_reported(machine: Machine) -> None:
    key = machine.json("keys", "new")["key"]
    (machine.folder / "trusted" / f"{key['id']}.json").write_text("{")
    assert machine.json("keys", "list", code=1)["problems"]
    machine.folder.chmod(0o777)
    assert "may be written to by others" in machine.run("keys", "list", code=1).stderr


def test_verify_remote(
    machine: Machine, redis_server: RedisServer, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"{redis_server.url}?namespace={namespace}"
    machine.json("keys", "new")
    assert machine.json("verify", "--remote", address) == {
        "ok": True,
        "remotes": [
            {
                "location": redis_server.url,
                "namespace": namespace,
                "objects": 0,
                "bytes": 0,
                "others": 0,
                "refused": [],
                "ok": True,
            }
        ],
    }
    entry = sample_entry(1)
    name = stored_name("f" * 64, entry.facts.key.digest)
    open_store(Remote(redis_server.url, namespace=namespace)).put(name, encode(entry))
    refused = machine.json("verify", "--remote", address, code=1)["remotes"][0]["refused"]
    assert [(one["name"], one["kind"]) for one in refused] == [(name, "unsigned")]
    assert f"{name}: unsigned: nobody signed it" in machine.run("verify", "--remote", address, code=1).stdout
    monkeypatch.setenv("KERNELKEEP_REMOTE", address + "&allow_unsigned=1")
    assert "1 object" in machine.run("verify", "--remote").stdout


def test_verify_a_folder_of_ones_own(machine: Machine, tmp_path: Path) -> None:
    """It needs no keys, as in a program cache."""
    (tmp_path / "shared").mkdir(mode=0o700)
    assert machine.json("verify", "--remote", (tmp_path / "shared").as_uri())["ok"]
    (tmp_path / "shared").chmod(0o777)
    assert (
        "signing_key must be given" in machine.run("verify", "--remote", (tmp_path / "shared").as_uri(), code=2).stderr
    )


def test_a_password_in_an_address_is_never_printed(machine: Machine) -> None:
    """In a process of its own, as everything that it could print is looked at."""
    machine.json("keys", "new")
    command = [
        sys.executable,
        "-X",
        "dev",
        "-m",
        "kernelkeep",
        "verify",
        "--remote",
        "redis://somebody:pass-word@127.0.0.1:1/0",
    ]
    env = {**os.environ, "PYTHONPATH": SOURCES, "KERNELKEEP_KEYS_DIR": str(machine.folder)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=env)
    assert done.returncode == 1
    assert "pass-word" not in done.stdout + done.stderr
    assert "redis://127.0.0.1:1/0" in done.stderr and "Traceback" not in done.stderr
