"""The commands put together; everything here may count on typer and rich being installed.

A command line needs one of them, so only its module is loaded: together they load most of the package.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Annotated

import typer

from .. import __version__

# In the order of `kernelkeep --help`. For each: its module here, and its function or group of commands there.
COMMANDS = {
    "demo": "demo.demo", "devices": "devices.devices", "doctor": "devices.doctor", "ls": "cache.ls", "show": "cache.show",
    "stats": "cache.stats", "explain": "programs.explain", "warm": "programs.warm", "check": "check.check",
    "prune": "cache.prune", "verify": "verify.verify", "clear": "cache.clear", "tune": "tune.tune", "export": "bundle.export",
    "import": "bundle.import_", "compile-ahead": "programs.compile_ahead", "trace": "trace.trace",
    "checkpoint": "checkpoint.checkpoint", "keys": "keys.keys", "fleet": "fleet.fleet", "sync": "sync.sync",
}  # fmt: skip


def make_app(words: Sequence[str]) -> typer.Typer:
    """What runs a command line: with the command that its first word names, or with all of them where that is none."""
    # No markup: panels would be as wide as the terminal, with a type behind every flag (`--json <bool>`).
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    app.callback(invoke_without_command=True)(start)
    for name in words[:1] if words and words[0] in COMMANDS else COMMANDS:
        module, _, attribute = COMMANDS[name].partition(".")
        found = getattr(import_module(f".{module}", __package__), attribute)
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=name)
        else:
            app.command(name)(found)
    return app


def start(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and end.")] = False,
) -> None:
    """Keep GPU compute programs and their state alive."""
    if version:
        print(f"kernelkeep {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(context.get_help())
        raise typer.Exit(2)
