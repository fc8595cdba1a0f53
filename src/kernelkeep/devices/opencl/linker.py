"""What PoCL links kernels with: `ld`, and the libraries of a C compiler. Without them PoCL ends the process."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

ADVICE = "apt-get install gcc libc6-dev"
# Where the compiler inside of PoCL looks for them.
_LIBGCC = ("usr/lib*/gcc/*/*/libgcc.a", "usr/lib*/gcc-cross/*/*/libgcc.a", "opt/rh/*/root/usr/lib*/gcc/*/*/libgcc.a")
_LIBC = ("usr/lib*/libc.so", "usr/lib*/*/libc.so", "lib*/libc.so", "lib*/*/libc.so")

_found: dict[Path, bool] = {}


def missing_part(root: Path = Path("/")) -> str | None:
    """What PoCL lacks to link a kernel, in words; None where it has everything."""
    if shutil.which("ld") is None:
        return "the linker `ld` is not on the PATH"
    if not sys.platform.startswith("linux"):
        return None  # the linkers of other systems bring their libraries
    if not _found.get(root):  # only what was found is remembered: the rest may be installed while this process runs
        _found[root] = all(any(next(root.glob(each), None) for each in patterns) for patterns in (_LIBGCC, _LIBC))
    return None if _found[root] else "libgcc or libc.so, which every kernel is linked with, is not under /usr/lib"
