"""`kernelkeep explain` and `kernelkeep warm`: source files, a device and the cache."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from ..cache.program_cache import ProgramCache
from ..cache.report import PreloadReport
from ..errors import CompileError
from ..observe.inventory import open_device_for
from ..programs.source import Source
from .common import AsJson, CacheDir, RemoteUrl, cache_root, print_json, print_line
from .complaint import complain

_Device = Annotated[
    str | None,
    typer.Option(
        "--device", metavar="SPEC", help="A device, such as cuda:0, instead of the best that takes the language."
    ),
]
_Defines = Annotated[list[str] | None, typer.Option("-D", "--define", metavar="NAME[=VALUE]", help="Define a macro.")]
_Includes = Annotated[list[Path] | None, typer.Option("-I", "--include", metavar="DIR", help="Look there for headers.")]
_Options = Annotated[
    list[str] | None,
    typer.Option("--option", metavar="TEXT", help="Hand an option to the compiler: --option=-cl-mad-enable."),
]


def explain(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A source: .cu, .cl, .comp or .glsl.")],
    define: _Defines = None,
    include: _Includes = None,
    option: _Options = None,
    cache_dir: CacheDir = None,
    device: _Device = None,
    as_json: AsJson = False,
) -> None:
    """Say whether a source is in the cache and, if not, what differs.

    The fields of its key are compared with those of the nearest entry.
    """
    source = _source(file, define, include, option)
    with _cache(source.language, device, cache_dir) as cache:
        explanation = cache.explain(source)
        spec = cache.device.spec
    if as_json:
        print_json({"device": spec, "explanation": explanation})
    else:
        print_line(str(explanation))


def warm(
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help="Sources: .cu, .cl, .comp or .glsl.")],
    define: _Defines = None,
    include: _Includes = None,
    option: _Options = None,
    cache_dir: CacheDir = None,
    device: _Device = None,
    remote: RemoteUrl = None,
    as_json: AsJson = False,
) -> None:
    """Compile sources into the cache, those that are not there yet. Ends with 1 if any of them fails."""
    by_language: dict[str, list[Source]] = {}
    for file in files:
        source = _source(file, define, include, option)
        by_language.setdefault(source.language, []).append(source)
    reports: list[tuple[str, PreloadReport]] = []
    for language, sources in by_language.items():
        with _cache(language, device, cache_dir, remote) as cache:
            # Only on a terminal: a bar is noise in a log.
            report = cache.preload(sources, progress=not as_json and sys.stderr.isatty())
            reports.append((cache.device.spec, report))
    if as_json:
        print_json([_as_json(spec, report) for spec, report in reports])
    else:
        for spec, report in reports:
            failed = f", {len(report.failed)} failed" if report.failed else ""
            print_line(f"{spec}: {str(report).partition(chr(10))[0]}{failed}")
            for failure in report.failed:
                said = str(failure.error)
                complain(said if said.startswith(failure.name) else str(failure))
    if not all(report.ok for _, report in reports):
        raise typer.Exit(1)


def _as_json(spec: str, report: PreloadReport) -> dict[str, Any]:
    failed = []
    for failure in report.failed:
        error = failure.error
        log, line = (error.log, error.line) if isinstance(error, CompileError) else ("", None)
        failed.append({"name": failure.name, "error": str(error), "line": line, "log": log})
    counts = {
        "memory": report.memory,
        "disk": report.disk,
        "remote": report.remote,
        "compiled": report.compiled,
    }
    return {"device": spec, "ok": report.ok, "seconds": report.seconds, **counts, "failed": failed}


def _source(file: Path, define: list[str] | None, include: list[Path] | None, option: list[str] | None) -> Source:
    defines: dict[str, Any] = {}
    for text in define or ():
        name, equals, value = text.partition("=")
        defines[name] = value if equals else True
    return Source.from_file(file, defines=defines, include_dirs=tuple(include or ()), options=tuple(option or ()))


@contextlib.contextmanager
def _cache(
    language: str, spec: str | None, cache_dir: Path | None, remote: str | None = None
) -> Iterator[ProgramCache]:
    cache_root(cache_dir)
    with open_device_for(language, spec, cache_dir=cache_dir) as device:
        with ProgramCache(device, cache_dir, remote=remote) as cache:
            yield cache
