"""The one part that pyproject.toml cannot say: three small C modules, left out where they cannot be compiled."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(f"kernelkeep.{name}", [f"src/kernelkeep/{name}.c"], optional=True)
        for name in ("_native", "_ring", "_guard")
    ]
)
