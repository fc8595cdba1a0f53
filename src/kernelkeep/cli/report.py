"""`kernelkeep report`: one page about a cache folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..cache.stats import human_bytes
from ..observe.report.report import report_of
from .cache import chosen_folders
from .common import AsJson, CacheDir, DeviceSpec, print_json, print_line

_FILE = Path("kernelkeep-report.html")


def report(
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help=f"The file to write, by default {_FILE}.")
    ] = None,
    show: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    cache_dir: CacheDir = None,
    device: DeviceSpec = None,
    as_json: AsJson = False,
) -> None:
    """Write one HTML page: what is cached for which GPU, what was done, and how it went.

    The page needs no network and follows the reader's light or dark setting. With --json the data goes to standard output, and
    no page is written unless --output names one.
    """
    root, only = chosen_folders(cache_dir, device)
    made = report_of(root, only)
    if output is not None or not as_json:
        target = made.save(output or _FILE)
        if not as_json:
            print_line(
                f"wrote {target} ({human_bytes(target.stat().st_size)}): what is in {root}, and what was done with it"
            )
        if show:
            import webbrowser

            webbrowser.open(target.absolute().as_uri())
    if as_json:
        print_json(made.data)
