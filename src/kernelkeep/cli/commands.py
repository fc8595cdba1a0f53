"""Every command, by group, with its one line: what `kernelkeep --help`, completion and docs/command-line.md show.

Needs neither typer nor rich, and loads none of the commands.
"""

from __future__ import annotations

import textwrap

# In the order of `kernelkeep --help`. For each: its module here with its function or group of commands, and its line, which
# leaves room for the name in 80 columns.
GROUPS: dict[str, dict[str, tuple[str, str]]] = {
    "Begin": {
        "demo": ("demo.demo", "run kernels on every device, checked, timed, cold and warm"),
        "devices": ("devices.devices", "list the devices that can be used, the best first"),
        "doctor": ("devices.doctor", "say what is missing for each backend, and how to get it"),
        "bench": ("bench.bench", "measure compiles, cache hits, launches and the executor"),
    },
    "Look into the cache folder": {
        "ls": ("cache.ls", "list the programs on disk"),
        "show": ("cache.show", "show everything about a program"),
        "stats": ("stats.stats", "show how much is kept, and what all processes did with it"),
        "explain": ("programs.explain", "say whether a source is in the cache and, if not, why"),
        "verify": ("verify.verify", "check every byte of every entry, here or in shared stores"),
    },
    "Fill and empty it": {
        "warm": ("programs.warm", "compile sources into the cache"),
        "compile-ahead": ("programs.compile_ahead", "compile for GPUs that are not in this machine"),
        "prune": ("cache.prune", "remove what was not used for a while, or is too much"),
        "clear": ("cache.clear", "remove every program; asks first"),
    },
    "See what happens": {
        "report": ("report.report", "write one HTML page: what is cached, what was done, and how"),
        "top": ("top.top", "show what running processes do now"),
        "trace": ("trace.trace", "write a timeline of what overlapped: trace demo"),
    },
    "Work on kernels and runs": {
        "check": ("check.check", "find mistakes and bugs in portable kernels, without a driver"),
        "tune": ("tune.tune", "find the fastest variant of a kernel, and remember it"),
        "checkpoint": ("checkpoint.checkpoint", "say what is in a checkpoint: checkpoint show"),
    },
    "Share with other machines": {
        "export": ("bundle.export", "write programs and tuning results to one file, a bundle"),
        "import": ("bundle.import_", "add what is in a bundle to the cache folder"),
        "sync": ("sync.sync", "copy to or from a shared store: sync push, pull"),
        "keys": ("keys.keys", "keys that sign and are trusted: new, trust, list, revoke, …"),
        "guests": ("guests.guests", "say which other libraries can use this cache, and how"),
        "fleet": ("fleet.fleet", "many processes or a Ray cluster: fleet warm, tune, run"),
    },
    "The command itself": {
        "completion": ("completion.completion", "print what makes bash, zsh or fish complete this command"),
    },
}  # fmt: skip
COMMANDS = {name: home for group in GROUPS.values() for name, (home, _) in group.items()}
SUMMARIES = {name: line for group in GROUPS.values() for name, (_, line) in group.items()}


def overview(width: int) -> str:
    """What `kernelkeep --help` prints."""
    room = max(width, 40)
    column = max(map(len, SUMMARIES)) + 4
    lines = ["Usage: kernelkeep COMMAND [OPTIONS] [ARGUMENTS]", ""]
    lines += textwrap.wrap("Keep GPU compute programs and their state alive.", room)
    for title, group in GROUPS.items():
        lines += ["", f"{title}:"]
        for name, (_, line) in group.items():
            lines += textwrap.wrap(f"  {name:<{column - 2}}{line}", room, subsequent_indent=" " * column)
    lines += ["", "Options:", f"  {'-h, --help':<{column - 2}}this text; `kernelkeep COMMAND -h` has more"]
    lines += [f"  {'--version':<{column - 2}}the version", ""]
    lines += textwrap.wrap(
        "Every command takes --cache-dir DIR, --device SPEC and --json. It exits with 0, with 1 if what it checks does not hold "
        "or something failed, with 2 for wrong use, and with 130 after Ctrl-C.",
        room,
    )
    return "\n".join(lines)


def unknown(word: str) -> str:
    """The sentence for a command that does not exist, with the nearest one that does."""
    import difflib

    close = difflib.get_close_matches(word, COMMANDS, n=1)
    hint = f"did you mean {close[0]}? " if close else ""
    return f"there is no command {word!r}; {hint}`kernelkeep --help` lists them all"
