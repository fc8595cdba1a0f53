"""Kernels made at random, to compare devices with each other.

    from hypothesis import given
    from kernelkeep.testing.generated_kernels import differences, expected, generated_kernels, run

    @given(generated_kernels())
    def test_my_device(program):
        assert not differences(program, expected(program), run(device, [program])[0])

    python -m kernelkeep.testing.generated_kernels --device opencl --count 1000

A generated kernel uses every kind of statement, every type, shared memory, barriers, atomics and helper functions, and nothing
that the kernel language leaves undefined. So every device must give the same integers, and the same floats up to rounding.

choices.py      the decisions of a generator: drawn by a seed or by hypothesis, recorded, repeated
scope.py        what a statement can name
floats.py integers.py vectors.py statements.py functions.py    the parts of a kernel
body.py         a whole kernel, and its inputs
execution.py    runs kernels, many in one program
comparison.py   what differs
shrinking.py    a smaller kernel with the same mistake
search.py       runs many seeds in processes of their own; __main__.py is the command
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .body import GeneratedKernel, generated_kernel
from .comparison import differences
from .execution import expected, features_of, run
from .scope import ALL, Features
from .search import Found, search

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

__all__ = [
    "Features",
    "Found",
    "GeneratedKernel",
    "differences",
    "expected",
    "features_of",
    "generated_kernel",
    "generated_kernels",
    "run",
    "search",
]


def generated_kernels(features: Features = ALL, size: int = 24) -> SearchStrategy[GeneratedKernel]:
    """A hypothesis strategy: kernels with up to `size` statements. It shrinks to short ones."""
    from hypothesis import strategies

    from .body import from_choices
    from .choices import Choices

    @strategies.composite
    def kernels(draw: strategies.DrawFn) -> GeneratedKernel:
        return from_choices(Choices(lambda limit: draw(strategies.integers(0, limit - 1))), features, size)

    return kernels()
