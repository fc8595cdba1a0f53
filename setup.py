"""The one part that pyproject.toml cannot say: three small C modules for Linux, left out where they cannot be compiled."""

import sys

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(f"kernelkeep.{name}", [f"src/kernelkeep/{name}.c"], optional=True)
        for name in ("_native", "_ring", "_guard")
        if sys.platform == "linux"
    ]
)
