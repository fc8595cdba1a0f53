"""What IPython and Jupyter show of our errors: the way to the user's call and the sentence, without the frames inside kernelkeep.

`%tb` shows every frame, as does `%xmode Verbose`. Outside IPython nothing changes.
"""

from __future__ import annotations

import functools
import re
import sys
import sysconfig
from pathlib import Path
from types import TracebackType
from typing import Any

_OURS = str(Path(__file__).parent)
_GENERATED = "<kernelkeep"  # how the names of generated code begin
_INSIDE = (_OURS, _GENERATED, functools.__file__)  # our cached properties come from there
_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
_SHORTENED_MODE = "Context"  # IPython's default; who chose another one gets it
_CELL = re.compile(r"<ipython-input-[^>\s]+>|\S*ipykernel_\d+[/\\]\d+\.py")  # the names that a cell has as a file


def render_traceback(error: BaseException) -> list[str]:
    """The lines for IPython, which calls `_render_traceback_` of an error to get them."""
    from IPython import get_ipython

    shell: Any = get_ipython()
    formatter = shell.InteractiveTB
    # IPython shows an error while it handles it; `%tb` asks for it later, and gets all there is.
    is_new = sys.exc_info()[1] is error
    kept, hidden = users_frames(error.__traceback__, skip=formatter.tb_offset)
    if not is_new or formatter.mode != _SHORTENED_MODE or not kept or not hidden:
        return _formatted(formatter, error, error.__traceback__, None)
    reason, is_hidden = (error.__cause__, error.__context__), error.__suppress_context__
    try:
        if not _comes_from_user(error.__cause__ or error.__context__):
            error.__cause__ = error.__context__ = None
        lines = _formatted(formatter, error, _linked(kept), 0)
    finally:
        error.__cause__, error.__context__ = reason
        error.__suppress_context__ = is_hidden
    lines[-1] = _CELL.sub(lambda name: _cell_name(shell, name[0]), lines[-1])
    return [*lines, f"\n({hidden} {'call' if hidden == 1 else 'calls'} inside kernelkeep left out; %tb shows all)"]


def users_frames(traceback: TracebackType | None, *, skip: int = 0) -> tuple[list[TracebackType], int]:
    """The frames that a user wrote or called on the way to us, and how many others there are. `skip` are the shell's."""
    kept: list[TracebackType] = []
    hidden, inside = 0, False
    while traceback is not None:
        file = traceback.tb_frame.f_code.co_filename
        ours = file.startswith(_INSIDE)
        inside = inside or ours
        if skip > 0:
            skip -= 1
        elif ours or (inside and file.startswith(_LIBRARIES)):
            hidden += 1
        else:
            kept.append(traceback)
        traceback = traceback.tb_next
    return kept, hidden


def _cell_name(shell: Any, file: str) -> str:
    """A cell as IPython writes it, such as "Cell In[3]"; the file's own name where it is none."""
    found = getattr(shell.compile, "format_code_name", lambda name: None)(file)
    return file if found is None else " ".join(found)


def _comes_from_user(error: BaseException | None) -> bool:
    """Whether a user's code raised an error, rather than ours or a driver's under it."""
    if error is None or error.__traceback__ is None:
        return False
    last = error.__traceback__
    while last.tb_next is not None:
        last = last.tb_next
    kept, _ = users_frames(error.__traceback__)
    return bool(kept) and kept[-1] is last


def _linked(frames: list[TracebackType]) -> TracebackType | None:
    """A traceback of these frames only."""
    linked: TracebackType | None = None
    for one in reversed(frames):
        linked = TracebackType(linked, one.tb_frame, one.tb_lasti, one.tb_lineno)
    return linked


def _formatted(formatter: Any, error: BaseException, traceback: TracebackType | None, offset: int | None) -> list[str]:
    lines: list[str] = formatter.structured_traceback(type(error), error, traceback, tb_offset=offset)
    return lines
