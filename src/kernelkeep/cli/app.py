"""The commands put together; everything here may count on typer and rich being installed."""

from __future__ import annotations

from typing import Annotated

import typer

from .. import __version__
from .bundle import export, import_
from .cache import clear, ls, prune, show, stats
from .check import check
from .checkpoint import checkpoint
from .demo import demo
from .devices import devices, doctor
from .fleet import fleet
from .keys import keys
from .programs import compile_ahead, explain, warm
from .sync import sync
from .trace import trace
from .tune import tune
from .verify import verify

# No markup: panels would be as wide as the terminal, with a type behind every flag (`--json <bool>`).
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
for command in (demo, devices, doctor, ls, show, stats, explain, warm, check, prune, verify, clear, tune):
    app.command(command.__name__)(command)
app.command("export")(export)
app.command("import")(import_)
app.command("compile-ahead")(compile_ahead)
app.add_typer(trace, name="trace")
app.add_typer(checkpoint, name="checkpoint")
app.add_typer(keys, name="keys")
app.add_typer(fleet, name="fleet")
app.add_typer(sync, name="sync")


@app.callback(invoke_without_command=True)
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
