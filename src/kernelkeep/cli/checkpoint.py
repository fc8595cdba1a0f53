"""`kernelkeep checkpoint show`: what a checkpoint file holds. Needs no device and loads no GPU library."""

from __future__ import annotations

import time
from typing import Annotated, Any

import msgspec
import typer
from rich.markup import escape
from typer.core import TyperGroup

from ..cache.stats import human_bytes
from ..continuous.checkpoints.description import ArrayFacts, Description, FileFacts, describe
from ..errors import ArgumentError, CheckpointError
from .common import AsJson, CacheDir, DeviceSpec, Table, ago, print_fact, print_json, print_table


class _Commands(TyperGroup):
    """The commands of `kernelkeep checkpoint`; a file in the place of a command is told which one shows it."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] not in self.commands and ("." in args[0] or "/" in args[0]):
            file = args[0]
            raise ArgumentError(f"there is no command {file!r}: `kernelkeep checkpoint show {file}` shows a file")
        return super().resolve_command(ctx, args)


checkpoint = typer.Typer(cls=_Commands, rich_markup_mode=None, help="Show checkpoint files.")


@checkpoint.callback(invoke_without_command=True)
def _start(context: typer.Context) -> None:
    """Show checkpoint files."""
    if context.invoked_subcommand is None:
        print(context.get_help())
        raise typer.Exit(2)


@checkpoint.command()
def show(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="A checkpoint, such as heat.kkpt or s3://bucket/heat.kkpt.")
    ],
    cache_dir: CacheDir = None,
    device: DeviceSpec = None,
    as_json: AsJson = False,
) -> None:
    """Show a checkpoint, every byte of it checked, and the older ones beside it. Exits with 1 if it is damaged."""
    found = describe(file)
    if as_json:
        print_json(_as_json(found))
    else:
        _print(found)
    if not found.file.whole:
        raise CheckpointError(found.file.problem)


def _as_json(found: Description) -> dict[str, Any]:
    return {
        **_file_as_json(found.file),
        "raw_bytes": found.raw_bytes,
        "ratio": found.ratio,
        "arrays": msgspec.to_builtins(found.arrays),
        "others": [_file_as_json(other) for other in found.others],
    }


def _file_as_json(file: FileFacts) -> dict[str, Any]:
    return {
        "path": file.address or file.path,
        "nbytes": file.nbytes,
        "whole": file.whole,
        "problem": file.problem,
        "header": None if file.header is None else msgspec.to_builtins(file.header),
    }


def _print(found: Description) -> None:
    for label, value in _rows(found):
        print_fact(label, value)
    if found.arrays:
        _print_arrays(found.arrays)
    for other in found.others:
        facts = f"{other.header}, {ago(other.header.created)}" if other.header is not None else other.problem
        print_fact("beside it", f"{other.path.name}: {facts}")


def _rows(found: Description) -> list[tuple[str, str]]:
    header, size = found.file.header, human_bytes(found.file.nbytes)
    rows = [("file", found.file.address or str(found.file.path)), ("whole", "yes" if found.file.whole else "no")]
    if header is None:
        return [*rows, ("size", size)]
    created = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(header.created))
    rows += [
        ("size", f"{size} for {human_bytes(found.raw_bytes)} of arrays (ratio {found.ratio:.2f})"),
        ("program", header.program),
        ("program digest", header.program_digest),
        ("layout digest", header.layout_digest),
        ("coupling", header.coupling),
        ("items", f"{header.items:,}"),
        ("iteration", f"{header.iteration:,}{', finished' if header.finished else ''}"),
        ("generation", f"{header.generation:,}"),
        ("phase", f"{header.phase:,}"),
        *(
            (("queue", f"head {header.queue_head:,}, tail {header.queue_tail:,}"),)
            if header.coupling == "queue"
            else ()
        ),
        ("device", f"{header.device} {header.device_name}".strip() or "-"),
        ("written on", f"{created}, {ago(header.created)}"),
        ("by kernelkeep", header.version),
        (
            "lineage",
            header.lineage
            or "- (written by an earlier kernelkeep: the older files beside it are not known to be its own)",
        ),
    ]
    return rows + [("scalar", f"{name} = {one.numpy()!s} ({one.dtype})") for name, one in header.scalars.items()]


def _print_arrays(arrays: tuple[ArrayFacts, ...]) -> None:
    numbers = ("size", "min", "max", "NaN")
    made = Table("array", "dtype", "shape", *numbers, right=numbers, names=("array",), optional=("size", "dtype"))
    for array in arrays:
        shape = " × ".join(str(length) for length in array.shape) or "-"
        values = (human_bytes(array.nbytes), _number(array.minimum), _number(array.maximum), f"{array.nans:,}")
        made.add_row(escape(array.name), array.dtype, shape, *values)
    print_table(made)


def _number(value: bool | int | float | str | None) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return "-" if value is None else str(value)
