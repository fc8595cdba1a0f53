"""`kernelkeep keys new`, `trust`, `list`, `revoke` and `rotate`: the keys that sign, and those that are trusted here."""

from __future__ import annotations

import shlex
import time
from datetime import datetime
from typing import Annotated, Any

import msgspec
import typer
from rich.markup import escape

from ..errors import ArgumentError
from ..remote.keyring import Keyring
from ..remote.keyring_files import KeyInfo
from .common import AsJson, CacheDir, DeviceSpec, Table, print_json, print_line, print_table
from .complaint import complain
from .output import fits_terminal

keys = typer.Typer(rich_markup_mode=None, help="The keys that sign what is shared, and those that are trusted here.")

Label = Annotated[
    str, typer.Option("--label", metavar="TEXT", help="What to call the key, such as the machine's name.")
]


@keys.callback(invoke_without_command=True)
def _start(context: typer.Context) -> None:
    """The keys that sign what is shared, and those that are trusted here."""
    if context.invoked_subcommand is None:
        print(context.get_help())
        raise typer.Exit(2)


@keys.command()
def new(
    label: Label = "",
    shared: Annotated[
        bool,
        typer.Option("--shared", help="A random secret that all machines share (HMAC), instead of a pair (Ed25519)."),
    ] = False,
    cache_dir: CacheDir = None,
    device: DeviceSpec = None,
    as_json: AsJson = False,
) -> None:
    """Make the key that signs here, and print the line with which other machines trust it."""
    keyring = Keyring()
    made = keyring.new(label, shared=shared)
    if as_json:
        print_json({"keys_dir": keyring.folder, "key": _as_json(made)})
    else:
        _print_new(keyring, made)


def _print_new(keyring: Keyring, made: KeyInfo) -> None:
    print_line(f"The key {made.id} signs here now. It is kept in {keyring.folder}.")
    if made.line is not None:
        print_line("On machines that should use what it signs, run:")
        print_line()
        print_line(f"    kernelkeep keys trust {shlex.quote(made.line)}")
    else:
        secret = keyring.folder / "own" / f"{made.id}.key"
        print_line("Bring this secret file to the other machines, where nobody else can read it, and run there:")
        print_line()
        print_line(f"    kernelkeep keys trust {shlex.quote(str(secret))}")


@keys.command()
def trust(
    key: Annotated[
        str, typer.Argument(metavar="LINE|FILE", help="A line that `keys new` printed, or a file with one.")
    ],
    label: Label = "",
    until: Annotated[
        str | None, typer.Option(metavar="DATE", help="Trust it up to this date, such as 2030-12-31, in UTC.")
    ] = None,
    cache_dir: CacheDir = None,
    device: DeviceSpec = None,
    as_json: AsJson = False,
) -> None:
    """Trust a key: use what it signs."""
    keyring = Keyring()
    trusted = keyring.trust(key, label, until=None if until is None else _seconds(until))
    if as_json:
        print_json({"keys_dir": keyring.folder, "key": _as_json(trusted)})
    else:
        print_line(
            f"The key {_named(trusted)} is trusted{_up_to(trusted)}{', and signs here' if trusted.signs else ''}."
        )


@keys.command("list")
def list_keys(cache_dir: CacheDir = None, device: DeviceSpec = None, as_json: AsJson = False) -> None:
    """List the keys. Ends with 1 if a file among them is not used."""
    keyring = Keyring()
    contents = keyring.load()
    if as_json:
        problems = list(contents.problems)
        print_json({"keys_dir": keyring.folder, "keys": [_as_json(key) for key in contents.keys], "problems": problems})
    elif not contents.keys:
        print_line(f"No key is kept in {keyring.folder}; `kernelkeep keys new` makes one.")
    else:
        made = Table("id", "label", "state", "kind", "added", "trusted until", optional=("kind", "added"))
        for key in contents.keys:
            # Its beginning is enough to name it.
            made.add_row(
                key.id[:12] if fits_terminal() else key.id,
                escape(key.label),
                _state(key),
                key.algorithm or "-",
                _day(key.added),
                _day(key.until),
            )
        print_table(made)
        for key in contents.keys:
            if key.signs and key.line is not None:
                print_line(f"to hand to others: {key.line}")
    if contents.problems:
        for problem in contents.problems:
            complain(problem)
        raise typer.Exit(1)


@keys.command()
def revoke(
    key: Annotated[str, typer.Argument(metavar="ID", help="A key's id, or its first six or more digits.")],
    cache_dir: CacheDir = None,
    device: DeviceSpec = None,
    as_json: AsJson = False,
) -> None:
    """Refuse what a key signed, from now on and for good. Do it on every machine that trusts the key."""
    keyring = Keyring()
    revoked = keyring.revoke(key)
    signs = keyring.load().signer is not None
    if as_json:
        print_json({"keys_dir": keyring.folder, "key": _as_json(revoked)})
        return
    print_line(f"The key {_named(revoked)} is revoked: nothing that it signed is used here any more.")
    if not signs:
        print_line("No key signs here; `kernelkeep keys new` makes one.")


@keys.command()
def rotate(
    label: Annotated[str | None, typer.Option("--label", metavar="TEXT", help="What to call the new key.")] = None,
    keep_days: Annotated[
        float, typer.Option(metavar="DAYS", help="For how many days the old key is still trusted here.")
    ] = 30,
    cache_dir: CacheDir = None,
    device: DeviceSpec = None,
    as_json: AsJson = False,
) -> None:
    """Replace the key that signs. What the old one signed is used for a while longer."""
    keyring = Keyring()
    made, old = keyring.rotate(label, keep_days=keep_days)
    if as_json:
        print_json({"keys_dir": keyring.folder, "key": _as_json(made), "old": _as_json(old)})
        return
    _print_new(keyring, made)
    print_line()
    print_line(f"The old key {_named(old)} signs no more, and is trusted here{_up_to(old)}.")


def _as_json(key: KeyInfo) -> dict[str, Any]:
    return {**msgspec.structs.asdict(key), "expired": key.is_expired, "trusted": key.is_trusted}


def _state(key: KeyInfo) -> str:
    if key.revoked:
        return "[red]revoked[/]"
    if key.is_expired:
        return "[yellow]expired[/]"
    return "signs here" if key.signs else "trusted"


def _named(key: KeyInfo) -> str:
    return f"{key.id} ({key.label})" if key.label else key.id


def _up_to(key: KeyInfo) -> str:
    return "" if key.until is None else f" until {_day(key.until)}"


def _day(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    try:
        return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(seconds))
    except (ValueError, OverflowError, OSError):
        return "a time that makes no sense"


def _seconds(date: str) -> float:
    try:
        return datetime.fromisoformat(f"{date}T00:00:00+00:00" if len(date) == 10 else date).timestamp()
    except (ValueError, OverflowError):
        raise ArgumentError(f"--until must be a date such as 2030-12-31, got {date!r}") from None
