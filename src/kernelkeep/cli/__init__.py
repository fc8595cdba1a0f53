"""The `kernelkeep` command. It parses and prints; the work is done by functions that a program can call as well.

Exit codes: 0 success, 1 what was checked does not hold or something failed, 2 wrong use, 130 interrupted.
Errors are one sentence on stderr, never a traceback.
"""

from __future__ import annotations

import os
import sys
import warnings

from ..errors import ArgumentError, KernelKeepError
from ..installation import install_command
from .commands import COMMANDS, overview, unknown
from .complaint import complain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

__all__ = ["main"]


def main(argv: Sequence[str] | None = None, *, on_start: Callable[[], object] = lambda: None) -> int:
    """Run a command line and return its exit code. `on_start` is called when everything is loaded and the command begins."""
    words = sys.argv[1:] if argv is None else list(argv)
    try:
        if not words or words[0] in ("-h", "--help"):
            print(overview(_width()))
            return 0 if words else 2
        if words[0] == "--version":
            from .. import __version__

            print(f"kernelkeep {__version__}")
            return 0
        if words[0] == "--complete":  # what the scripts of `kernelkeep completion` ask
            from .candidates import answer

            print("\n".join(answer(words[1:])))
            return 0
        if words[0] not in COMMANDS:
            return _fail(unknown(words[0]), 2)
        return _run(words, on_start)
    except KeyboardInterrupt:
        return _fail("interrupted", 130)
    except BrokenPipeError:
        # The reader (`| head`) has enough. Python would complain again when it flushes at exit.
        sys.stderr.close()
        return 1


def _run(words: list[str], on_start: Callable[[], object]) -> int:
    try:
        import rich  # noqa: F401
        import typer
    except ImportError as error:
        return _fail(f"this command needs typer and rich ({error}); install them with: {install_command('cli')}", 2)
    # Typer exports the subclass but not, in all versions, the base of everything the parser complains with.
    usage_error: type[Any] = typer.BadParameter.__bases__[0]
    try:
        from .app import make_app

        # Not by calling the app: typer would print a panel of several lines, and end quietly after Ctrl-C.
        command = typer.main.get_command(make_app(words[0]))
        on_start()
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            with command.make_context("kernelkeep", words) as context:
                command.invoke(context)
        return 0
    except typer.Exit as end:
        return end.exit_code
    except usage_error as error:
        where = getattr(error, "ctx", None)
        asked = where.command_path if where is not None else "kernelkeep"
        said = error.format_message().rstrip(".")
        return _fail(f"{said}{'' if said.endswith('?') else ';'} `{asked} --help` shows the use", 2)
    except ArgumentError as error:
        return _fail(str(error), 2)
    except KernelKeepError as error:
        return _fail(str(error), 1)
    except typer.Abort:
        return _fail("interrupted", 130)
    except BrokenPipeError:
        raise
    except OSError as error:
        said = error.strerror or str(error)
        return _fail(said if error.filename is None else f"{error.filename}: {said}", 1)
    except Exception as error:
        if sys.flags.dev_mode:  # python -X dev -m kernelkeep …: for whoever looks for the cause
            raise
        return _fail(f"a mistake in kernelkeep itself ({type(error).__name__}: {error})", 1)


def _width() -> int:
    asked = os.environ.get("COLUMNS", "")
    if asked.isdecimal() and int(asked) > 0:
        return int(asked)
    try:
        return min(os.get_terminal_size().columns, 100) or 80
    except OSError:  # not a terminal
        return 80


def _show_warning(message: Warning | str, category: type[Warning], *place: Any, **others: Any) -> None:
    """One sentence, like an error, without the line of our source that Python would show."""
    complain(f"warning: {message}")


def _fail(sentence: str, code: int) -> int:
    complain(sentence)
    return code
