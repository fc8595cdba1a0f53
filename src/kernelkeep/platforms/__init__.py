"""What differs between operating systems, behind one name: `system`.

    from ..platforms import system

`posix.py` is for Linux and macOS, `windows.py` for Windows. Both have the same names with the same meaning. Nothing else in
kernelkeep imports a module or uses a function that one of these systems lacks.
"""

from __future__ import annotations

import sys

if sys.platform == "win32":
    from . import windows as system
else:
    from . import posix as system

__all__ = ["system"]
