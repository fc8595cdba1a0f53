"""`kernelkeep explain`, `warm` and `compile-ahead`: kernels in files, a device or an architecture, and the cache."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from ..cache.entry import Facts
from ..cache.explain import compare_entries
from ..cache.program_cache import ProgramCache
from ..cache.report import PreloadReport
from ..cache.upkeep import find_entries, is_key
from ..devices.ahead import parse_target
from ..devices.registry import open_device
from ..errors import ArgumentError, CompileError, KernelKeepError
from ..fleet import compile_ahead as fleet
from ..fleet.bundle import export_bundle
from ..kernels.user_files import Kernels, compilable, is_python_file, kernels_in
from ..observe.inventory import open_device_for, target_of
from ..programs.portable import PortableKernel
from ..programs.source import Source
from .common import AsJson, CacheDir, RemoteUrl, SigningKey, cache_root, print_folded, print_json, print_line
from .complaint import complain

_Device = Annotated[
    str | None,
    typer.Option(
        "--device", metavar="SPEC", help="A device, such as cuda:0, instead of the best that takes the language."
    ),
]
Defines = Annotated[list[str] | None, typer.Option("-D", "--define", metavar="NAME[=VALUE]", help="Define a macro.")]
Includes = Annotated[list[Path] | None, typer.Option("-I", "--include", metavar="DIR", help="Look there for headers.")]
Options = Annotated[
    list[str] | None,
    typer.Option("--option", metavar="TEXT", help="Hand an option to the compiler: --option=-cl-mad-enable."),
]
_File = Annotated[
    str,
    typer.Argument(
        metavar="FILE", help="A source (.cu, .cl, .comp, .glsl, .wgsl), or FILE.py or FILE.py:NAME with kernels."
    ),
]
Files = Annotated[
    list[str],
    typer.Argument(
        metavar="FILE", help="Sources (.cu, .cl, .comp, .glsl, .wgsl), or FILE.py or FILE.py:NAME with kernels."
    ),
]


def explain(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE|KEY",
            help="A source (.cu, .cl, .comp, .glsl, .wgsl), FILE.py or FILE.py:NAME with kernels, or the key of an entry.",
        ),
    ],
    other: Annotated[
        str | None,
        typer.Option("--with", metavar="KEY", help="Compare the entry KEY with this one, not with the nearest."),
    ] = None,
    define: Defines = None,
    include: Includes = None,
    option: Options = None,
    cache_dir: CacheDir = None,
    device: _Device = None,
    as_json: AsJson = False,
) -> None:
    """Say whether a source is in the cache and, if not, what differs. Of two entries, say in what their keys differ.

    The fields of its key are compared with those of the nearest entry.
    """
    if is_key(file) and not Path(file).exists():
        _explain_entry(cache_root(cache_dir), file, other, as_json)
        return
    if not Path(file).suffix and not Path(file).exists():  # a name, or the beginning of a key that is too short
        raise ArgumentError(
            f"FILE|KEY must be a file, as in hello.py:saxpy, or six digits of a key or more, got {file}; "
            "`kernelkeep ls` lists keys"
        )
    explained = []
    for language, found in _by_language([file], define, include, option).items():
        with _cache(language, device, cache_dir) as cache:
            sources = compilable(found, cooperative=cache.device.capabilities.cooperative)
            explained += [{"device": cache.device.spec, "explanation": cache.explain(source)} for source in sources]
    if as_json:
        # A file with several kernels has a list of them.
        print_json(explained[0] if len(explained) == 1 else explained)
        return
    for number, one in enumerate(explained):
        if number:
            print_line()
        for line in str(one["explanation"]).splitlines():
            print_folded(line, len(line) - len(line.lstrip()) + 4)


def _explain_entry(root: Path, key: str, other: str | None, as_json: bool) -> None:
    """Compare an entry with another, or with the nearest of the same name; also of what guests compiled."""
    asked = _entry(root, key)
    others = [_entry(root, other)] if other is not None else _namesakes(root, asked)
    try:
        found = compare_entries(asked, others)
    except LookupError:
        raise KernelKeepError(
            f"there is no other entry named {asked.name} to compare {key} with: name one by --with KEY"
        ) from None
    if as_json:
        print_json({"device": asked.device, "explanation": found})
        return
    print_folded(f"{asked.name}, key {asked.key.digest[:16]}, differs from {found.nearest} in:", 4)
    for one in found.differences:
        print_folded(f"  {one.field}: {one.asked or 'nothing'} here, {one.stored or 'nothing'} there", 6)


def _entry(root: Path, key: str) -> Facts:
    found = [stored.facts for stored in find_entries(root, key) if stored.facts is not None]
    if not found:
        raise KernelKeepError(f"no entry in {root} has a key that begins with {key}; `kernelkeep ls` lists them")
    return found[0]


def _namesakes(root: Path, asked: Facts) -> list[Facts]:
    found = (stored.facts for stored in find_entries(root, asked.name, [asked.device]))
    return [facts for facts in found if facts is not None]


def warm(
    files: Files,
    define: Defines = None,
    include: Includes = None,
    option: Options = None,
    cache_dir: CacheDir = None,
    device: _Device = None,
    remote: RemoteUrl = None,
    as_json: AsJson = False,
) -> None:
    """Compile sources into the cache, those that are not there yet. Ends with 1 if any of them fails."""
    reports: list[tuple[str, PreloadReport]] = []
    for language, found in _by_language(files, define, include, option).items():
        with _cache(language, device, cache_dir, remote) as cache:
            sources = compilable(found, cooperative=cache.device.capabilities.cooperative)
            report = cache.preload(sources, progress=not as_json)
            reports.append((cache.device.spec, report))
    if as_json:
        print_json([_as_json(spec, report) for spec, report in reports])
    else:
        for spec, report in reports:
            failed = f", {len(report.failed)} failed" if report.failed else ""
            print_line(f"{spec}: {str(report).partition(chr(10))[0]}{failed}")
            for failure in report.failed:
                said = str(failure.error)
                complain(said if said.startswith((failure.name, f"kernel {failure.name}")) else str(failure))
    if not all(report.ok for _, report in reports):
        raise typer.Exit(1)


def _as_json(spec: str, report: PreloadReport) -> dict[str, Any]:
    failed = []
    for failure in report.failed:
        failed.append({"name": failure.name, **_error(failure.error)})
    counts = {
        "memory": report.memory,
        "disk": report.disk,
        "remote": report.remote,
        "compiled": report.compiled,
    }
    return {"device": spec, "ok": report.ok, "seconds": report.seconds, **counts, "failed": failed}


def compile_ahead(
    files: Files,
    target: Annotated[
        list[str] | None,
        typer.Option("--target", metavar="TARGET", help="Such as cuda:sm_90 or hip:gfx90a; several times for several."),
    ] = None,
    bundle: Annotated[
        Path | None, typer.Option("--bundle", metavar="OUT.kkb", help="Then write these programs to a bundle.")
    ] = None,
    key: SigningKey = None,
    define: Defines = None,
    include: Includes = None,
    option: Options = None,
    cache_dir: CacheDir = None,
    device: Annotated[
        str | None, typer.Option("--device", metavar="SPEC", help="Also for the architecture of a device that is here.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compile sources for GPUs that are not in this machine. Ends with 1 if any of them fails.

    A machine with such a GPU finds them in its cache folder, and compiles nothing. The bundle carries them there.
    """
    cache_root(cache_dir)
    target = [*(target or ()), *([] if device is None else [target_of(device, cache_dir)])]
    if not target:
        raise ArgumentError("--target is missing: name at least one, such as --target cuda:sm_90")
    sources = [source for file in files for source in sources_from(file, define, include, option)]
    report = fleet.compile_ahead(sources, target, cache_dir, progress=not as_json)
    exported = None
    if bundle is not None and report.ok:
        parsed = [parse_target(one) for one in target]
        folders = {one.compiler.fingerprint(one.architecture).folder for one in parsed}
        exported = export_bundle(
            report.cache_dir,
            bundle,
            sources=sources,
            devices=folders,
            tuning=False,
            driver_cache=False,
            signing_key=key,
        )
    if as_json:
        failed = [{"name": one.name, "target": one.target, **_error(one.error)} for one in report.failed]
        counts = {"compiled": report.compiled, "kept": report.kept, "bytes": report.bytes, "seconds": report.seconds}
        shown = {"cache_dir": report.cache_dir, "ok": report.ok, "targets": report.targets, **counts, "failed": failed}
        print_json(shown | {"bundle": exported})
    else:
        print_line(str(report).partition("\n")[0])
        for failure in report.failed:
            complain(str(failure))
        if exported is not None:
            print_line(str(exported))
    if not report.ok:
        raise typer.Exit(1)


def _error(error: Exception) -> dict[str, Any]:
    log, line = (error.log, error.line) if isinstance(error, CompileError) else ("", None)
    return {"error": str(error), "line": line, "log": log}


def sources_from(
    file: str, define: list[str] | None, include: list[Path] | None, option: list[str] | None
) -> list[Source | PortableKernel]:
    """What is to be compiled of a file on the command line, for any device."""
    return compilable(_kernels_from(file, define, include, option), cooperative=True)


def _kernels_from(
    file: str, define: list[str] | None, include: list[Path] | None, option: list[str] | None
) -> list[Kernels]:
    """What a file on the command line holds."""
    if is_python_file(file):
        if define or include or option:
            raise ArgumentError(f"-D, -I and --option are for source files; {file} decides for itself")
        return kernels_in(file)
    defines: dict[str, Any] = {}
    for text in define or ():
        name, equals, value = text.partition("=")
        defines[name] = value if equals else True
    fields = {"defines": defines, "include_dirs": tuple(include or ()), "options": tuple(option or ())}
    return [Source.from_file(file, **fields)]


def _by_language(
    files: list[str], define: list[str] | None, include: list[Path] | None, option: list[str] | None
) -> dict[str | None, list[Kernels]]:
    """What the files hold, by language; what runs on any device under None."""
    found: dict[str | None, list[Kernels]] = {}
    for file in files:
        for source in _kernels_from(file, define, include, option):
            language = source.language if isinstance(source, Source) else None
            found.setdefault(language, []).append(source)
    return found


@contextlib.contextmanager
def _cache(
    language: str | None, spec: str | None, cache_dir: Path | None, remote: str | None = None
) -> Iterator[ProgramCache]:
    cache_root(cache_dir)
    opened = (
        open_device(spec, cache_dir=cache_dir)
        if language is None
        else open_device_for(language, spec, cache_dir=cache_dir)
    )
    with opened as device:
        with ProgramCache(device, cache_dir, remote=remote) as cache:
            yield cache
