"""The one part that pyproject.toml cannot say: a small C module, left out where it cannot be compiled."""

from setuptools import Extension, setup

setup(ext_modules=[Extension("kernelkeep._native", ["src/kernelkeep/_native.c"], optional=True)])
