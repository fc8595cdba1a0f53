"""`python -m kernelkeep` is the `kernelkeep` command.

Ctrl-C is one line and exit code 130, whenever it comes: while modules are loaded, in the command, and in what Python does at its
end. Only the command itself has something to finish or to save, so only there it is a `KeyboardInterrupt`.
"""

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn


def run() -> int:
    """Run the command line of this process."""
    try:
        import signal

        # What a shell ignores for a job in the background stays ignored.
        takes_signals = signal.getsignal(signal.SIGINT) is signal.default_int_handler

        def interrupts_with(handler: "Any") -> None:
            if takes_signals:
                signal.signal(signal.SIGINT, handler)

        interrupts_with(_end)
        sys.unraisablehook = _end_if_interrupted
        from .cli import main

        try:
            return main(on_start=lambda: interrupts_with(signal.default_int_handler))
        finally:
            interrupts_with(_end)
    except KeyboardInterrupt:
        _end()


def _end(*signal: object) -> "NoReturn":
    import os

    try:
        sys.stdout.flush()
    except (OSError, RuntimeError):  # a closed pipe, or a write that the signal interrupted
        pass
    os.write(2, b"kernelkeep: interrupted\n")
    os._exit(130)


def _end_if_interrupted(unraisable: "Any") -> None:
    """Python ignores an exception in a destructor or a callback, after a traceback; an interrupt must not be lost there."""
    if isinstance(unraisable.exc_value, KeyboardInterrupt):
        _end()
    sys.__unraisablehook__(unraisable)


if __name__ == "__main__":
    sys.exit(run())
