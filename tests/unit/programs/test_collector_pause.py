"""The garbage collector is off inside of a pause, and afterwards as it was before."""

from __future__ import annotations

import gc

import pytest

from kernelkeep.programs.collector_pause import CollectorPause


def test_the_collector_is_off_inside_and_on_again_afterwards() -> None:
    assert gc.isenabled()
    with CollectorPause():
        assert not gc.isenabled()
        with CollectorPause():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_an_error_ends_the_pause() -> None:
    with pytest.raises(ValueError, match="wrong"), CollectorPause():
        raise ValueError("wrong")
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()
    try:
        with CollectorPause():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
