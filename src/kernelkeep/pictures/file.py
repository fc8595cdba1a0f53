"""Writing a matplotlib figure to a file. The same data gives the same SVG, byte for byte.

matplotlib is imported when a picture is made.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ArgumentError, Unsupported
from ..installation import install_command
from ..storage.files import NotRegular, check_destination, write_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_FORMATS = (".png", ".svg", ".pdf")
# A date in the metadata would make every file different.
_METADATA: dict[str, dict[str, Any]] = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}, ".png": {}}
_STYLE: dict[Any, Any] = {
    "svg.hashsalt": "kernelkeep",  # element names in an SVG are random otherwise
    "text.parse_math": False,  # a dollar sign in a name is a dollar sign
    "font.size": 9.0,
    "axes.edgecolor": "#8a8f98",
    "axes.labelcolor": "#3c4149",
    "xtick.color": "#5b616b",
    "ytick.color": "#5b616b",
    "xtick.labelcolor": "#3c4149",
    "ytick.labelcolor": "#3c4149",
}


def check_picture(path: str | PathLike[str]) -> Path:
    """Raise unless a picture can be written to `path`. Call it before the work whose result is drawn."""
    target = Path(path)
    if target.suffix.lower() not in _FORMATS:
        raise ArgumentError(f"the picture must be a .png, .svg or .pdf file, got {target.name!r}")
    if not target.parent.is_dir():
        raise ArgumentError(f"{target} cannot be written: there is no folder {target.parent}")
    try:
        check_destination(target)
    except NotRegular as error:
        raise ArgumentError(f"{target} cannot be written: it {error}") from None
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise Unsupported("matplotlib", f"pictures need matplotlib: {install_command('tune')}") from None
    return target


def save_figure(path: str | PathLike[str], draw: Callable[[], Figure]) -> None:
    """Write what `draw` draws as PNG, SVG or PDF, by the file's suffix. The file appears whole or not at all."""
    target = check_picture(path)
    import matplotlib

    suffix = target.suffix.lower()
    file = io.BytesIO()
    with matplotlib.rc_context(), warnings.catch_warnings():
        matplotlib.rcdefaults()  # the user's own settings must not change the picture
        matplotlib.rcParams.update(_STYLE)
        warnings.filterwarnings("ignore", "Glyph .* missing")  # a device's or parameter's name may hold anything
        draw().savefig(file, format=suffix[1:], dpi=160, metadata=_METADATA[suffix])
    write_whole(target, file.getvalue())
