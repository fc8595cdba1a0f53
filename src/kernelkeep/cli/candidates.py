"""What a word on the command line may become: `kernelkeep --complete WORD…`, for the scripts of `completion.py`.

The last word is the one to complete. It must be quick and may never complain: what cannot be found out has no candidates.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ..escaping import escaped
from .commands import COMMANDS, SUMMARIES

FILES, FOLDERS = ":files", ":folders"
Candidate = tuple[str, str]  # a word, and what it means


def answer(words: list[str]) -> list[str]:
    """The lines for a shell: candidates with what they mean, behind a tab, or a word for the shell's own files or folders."""
    before, last = (words[:-1], words[-1]) if words else ([], "")
    try:
        found = [candidate for candidate in _candidates(before, last) if candidate[0].startswith((last, ":"))]
    except Exception:
        return []
    return [word if word.startswith(":") else f"{escaped(word)}\t{escaped(line)}" for word, line in found]


def _candidates(before: list[str], last: str) -> Iterable[Candidate]:
    if not before:
        options = [("-h", "this text"), ("--help", "this text"), ("--version", "the version")]
        return options if last.startswith("-") else SUMMARIES.items()
    if before[0] not in COMMANDS:
        return []
    import typer

    from .app import make_app

    command: Any = typer.main.get_command(make_app(before[0])).commands[before[0]]  # type: ignore[attr-defined]
    rest = before[1:]
    if hasattr(command, "commands"):
        names = [word for word in rest if not word.startswith("-")]
        if not names:
            subcommands = [(name, one.get_short_help_str(70)) for name, one in command.commands.items()]
            return [] if rest else [("--help", "more about them")] if last.startswith("-") else subcommands
        command, rest = command.commands.get(names[0]), rest[rest.index(names[0]) + 1 :]
    return [] if command is None else _of_command(before[0], command, rest, last)


def _of_command(name: str, command: Any, rest: list[str], last: str) -> Iterable[Candidate]:
    options = {word: one for one in command.params if one.param_type_name == "option" for word in one.opts}
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    taken = 0
    given: dict[str, str] = {}  # option by option, the word that stands behind it
    words = iter(rest)
    for word in words:
        if word in options:
            if not options[word].is_flag:
                value = next(words, None)
                if value is None:
                    return _values(name, options[word], given, last)
                given[options[word].name] = value
            else:
                given[options[word].name] = ""
        elif not word.startswith("-"):
            taken += 1
    option, equals, value_so_far = last.partition("=")
    if equals and option in options:
        values = _values(name, options[option], given, value_so_far)
        return [(f"{option}={word}", line) for word, line in values if not word.startswith(":")]
    if last.startswith("-"):
        free = {word: one for word, one in options.items() if one.multiple or one.name not in given}
        return [*((word, one.help or "") for word, one in free.items()), ("--help", "more about this command")]
    if not arguments:
        return []
    argument = arguments[min(taken, len(arguments) - 1)]
    if taken >= len(arguments) and argument.nargs == 1:
        return []
    return _values(name, argument, given, last)


def _values(command: str, parameter: Any, given: dict[str, str], last: str) -> Iterator[Candidate]:
    """What may stand for a parameter, told by its metavar, which the help shows as well."""
    kind = (parameter.metavar or "").strip("[].").split("[")[0]
    cache_dir = Path(given["cache_dir"]) if "cache_dir" in given else None
    if kind == "DIR":
        yield FOLDERS, ""
    elif kind in ("SPEC", "SPEC|FOLDER"):
        yield from _devices(cache_dir, last, folders="FOLDER" in kind)
    elif kind == "NAME" and command in ("show", "export"):
        yield from _programs(cache_dir)
    elif kind == "LANGUAGE":
        from ..language.writers import TARGETS

        yield from ((name, "a language of kernels") for name in TARGETS)
    elif kind == "SHELL":
        from .completion import SCRIPTS

        yield from ((name, "") for name in SCRIPTS)
    elif kind == "ID":
        from ..remote.keyring import Keyring

        yield from ((key.id, key.label) for key in Keyring().load().keys)
    elif kind == "KERNEL":
        from ..kernels.catalogue import SHIPPED

        yield from ((name, "a kernel that is shipped") for name in SHIPPED)
        yield FILES, ""
    elif "FILE" in kind or kind in ("OUT.kkb", "JOBS"):
        yield FILES, ""


def _devices(cache_dir: Path | None, last: str, folders: bool) -> Iterator[Candidate]:
    """Backends, the devices here and, where a command takes them, the folders of devices that need not be here.

    Drivers take long to ask: all of them only where nothing is typed yet, and one for `opencl:`.
    """
    from ..devices.registry import KINDS, backend_names
    from ..observe.inventory import find_devices

    yield from ((kind, f"every {kind.upper()}" if folders else f"the best {kind.upper()}") for kind in KINDS)
    yield from (
        (name, f"all devices of {name}" if folders else f"the best device of {name}") for name in backend_names()
    )
    if not last or ":" in last:
        backend = last.partition(":")[0] or None
        yield from ((info.spec, info.name) for info in find_devices(backend, cache_dir=cache_dir))
    if folders:
        from ..cache.stats import human_bytes
        from ..cache.upkeep import survey_root
        from .common import cache_root

        for one in survey_root(cache_root(cache_dir)).folders:
            yield one.folder, f"{one.entries} programs, {human_bytes(one.bytes)}"


def _programs(cache_dir: Path | None) -> Iterator[Candidate]:
    from ..cache.tiers.disk import gpu_folders
    from .common import cache_root

    names: dict[str, list[str]] = {}
    for folder in gpu_folders(cache_root(cache_dir)):
        for path in folder.files():
            names.setdefault(path.stem.rpartition("-")[0], []).append(folder.path.name.partition("_")[0])
    yield from ((name, ", ".join(dict.fromkeys(where))) for name, where in sorted(names.items()))
