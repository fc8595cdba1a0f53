"""The `kernelkeep` command. It parses and prints; the work is done by functions that a program can call as well.

Exit codes: 0 success, 1 what was checked does not hold or something failed, 2 wrong use, 130 interrupted.
Errors are one sentence on stderr, never a traceback.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from typing import Any

from ..errors import ArgumentError, KernelKeepError
from .complaint import complain

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code."""
    try:
        import rich  # noqa: F401
        import typer
    except ImportError as error:
        return _fail(
            f"this command needs typer and rich ({error}); install them with: pip install 'kernelkeep[cli]'", 2
        )
    # Typer exports the subclass but not, in all versions, the base of everything the parser complains with.
    usage_error: type[Any] = typer.BadParameter.__bases__[0]
    try:
        # Not standalone: typer would print a panel of several lines, and its own exit codes.
        from .app import make_app

        words = sys.argv[1:] if argv is None else list(argv)
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            code = make_app(words)(args=words, prog_name="kernelkeep", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except usage_error as error:
        context = getattr(error, "ctx", None)
        asked = context.command_path if context is not None else "kernelkeep"
        return _fail(f"{error.format_message().rstrip('.')}; `{asked} --help` shows the use", 2)
    except ArgumentError as error:
        return _fail(str(error), 2)
    except KernelKeepError as error:
        return _fail(str(error), 1)
    except (KeyboardInterrupt, typer.Abort):
        return _fail("interrupted", 130)
    except BrokenPipeError:
        # The reader (`| head`) has enough. Python would complain again when it flushes at exit.
        sys.stderr.close()
        return 1
    except OSError as error:
        said = error.strerror or str(error)
        return _fail(said if error.filename is None else f"{error.filename}: {said}", 1)
    except Exception as error:
        if sys.flags.dev_mode:  # python -X dev -m kernelkeep …: for whoever looks for the cause
            raise
        return _fail(f"a mistake in kernelkeep itself ({type(error).__name__}: {error})", 1)


def _show_warning(message: Warning | str, category: type[Warning], *place: Any, **others: Any) -> None:
    """One sentence, like an error, without the line of our source that Python would show."""
    complain(f"warning: {message}")


def _fail(sentence: str, code: int) -> int:
    complain(sentence)
    return code
