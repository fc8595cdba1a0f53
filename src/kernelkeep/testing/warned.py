"""That a cache's trouble is one warning, and no more."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from ..errors import CacheWarning

__all__ = ["one_warning"]


@contextmanager
def one_warning(text: str) -> Iterator[None]:
    """What is done inside gives exactly one `CacheWarning`, and `text` is in it."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    assert [warning.category for warning in caught] == [CacheWarning], [str(one.message) for one in caught]
    assert text in str(caught[0].message)
