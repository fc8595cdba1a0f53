"""The one part that pyproject.toml cannot say: small C modules for Linux, left out where they cannot be compiled.

KERNELKEEP_PURE=1 leaves them out: one wheel for every system. KERNELKEEP_REQUIRE_C=1 fails where they cannot be compiled.
"""

import os
import sys
import sysconfig

from setuptools import Extension, setup


def is_set(name: str) -> bool:
    return os.environ.get(name, "0") not in ("", "0")


MODULES = ["_native", "_ring", "_guard", "_copying", "_digest", "_caller", "_calls", "_enqueue", "_reading"]
if not sysconfig.get_config_var("Py_GIL_DISABLED"):
    MODULES.append("_leases")  # relies on the interpreter's lock

setup(
    ext_modules=[
        Extension(f"kernelkeep.{name}", [f"src/kernelkeep/{name}.c"], optional=not is_set("KERNELKEEP_REQUIRE_C"))
        for name in MODULES
        if sys.platform == "linux" and not is_set("KERNELKEEP_PURE")
    ]
)
