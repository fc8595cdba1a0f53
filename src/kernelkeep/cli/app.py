"""A command put together; everything here may count on typer and rich being installed.

A command line needs one command, so only its module is loaded: together they load most of the package.
"""

from __future__ import annotations

from importlib import import_module

import typer

from .commands import COMMANDS


def make_app(command: str) -> typer.Typer:
    """What runs the command lines of one command."""
    # No markup: panels would be as wide as the terminal, with a type behind every flag (`--json <bool>`).
    app = typer.Typer(
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_start)
    module, _, attribute = COMMANDS[command].partition(".")
    found = getattr(import_module(f".{module}", __package__), attribute)
    if isinstance(found, typer.Typer):
        app.add_typer(found, name=command)
    else:
        app.command(command)(found)
    return app


def _start() -> None:
    """Keep GPU compute programs and their state alive."""
