"""Copies between host arrays and blocks: in C, by threads of Python's, and alone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from kernelkeep.execution.copying import Copier
from kernelkeep.testing.process import run_python


@pytest.fixture(params=["native", "python", "alone"])
def copier(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Copier]:
    if request.param != "native":
        monkeypatch.setenv("KERNELKEEP_NATIVE", "0")
    else:
        pytest.importorskip("kernelkeep._copying")
    monkeypatch.setattr(os, "cpu_count", lambda: 1 if request.param == "alone" else 8)
    made = Copier()
    assert (made.helpers == 0) == (request.param == "alone")
    yield made
    made.close()


@pytest.mark.parametrize("nbytes", [1, 63, 4096, 131_072, 131_073, 1 << 20, 3_000_001, 9_999_999])
@pytest.mark.parametrize("streaming", [False, True])
def test_every_byte_arrives_and_none_beyond(copier: Copier, nbytes: int, streaming: bool) -> None:
    host = np.random.default_rng(nbytes).integers(1, 256, nbytes, "u1")
    for shift in (0, 1, 37):
        room = np.zeros(nbytes + 128, "u1")
        copier.copy(room[shift:], host, streaming=streaming)
        np.testing.assert_array_equal(room[shift : shift + nbytes], host)
        assert not room[:shift].any() and not room[shift + nbytes :].any()
        back = np.empty(nbytes, "u1")
        copier.copy_back(back, room[shift:])
        np.testing.assert_array_equal(back, host)


@pytest.mark.parametrize("kind", ["strided", "reversed", "transposed", "0-d", "records", "dates", "complex", "bool"])
def test_arrays_of_every_kind(copier: Copier, kind: str) -> None:
    numbers = np.random.default_rng(1).integers(0, 1000, (700, 900)).astype("f4")
    host: Any = {
        "strided": numbers[::2, ::3], "reversed": numbers[::-1], "transposed": numbers.T, "0-d": numbers[0, 0].reshape(()),
        "records": numbers.view([("a", "f4")]), "complex": numbers.astype("c8"),
        "dates": numbers.astype("i8").view("M8[s]"), "bool": numbers > 500,
    }[kind]  # fmt: skip
    block = np.zeros(host.nbytes + 64, "u1")
    copier.copy(block, host, streaming=True)
    expected = np.ascontiguousarray(host)
    assert block[: host.nbytes].tobytes() == expected.tobytes()
    back = np.empty(host.shape, host.dtype)
    copier.copy_back(back, block)
    assert back.tobytes() == expected.tobytes()


def test_a_block_that_is_too_small_is_refused() -> None:
    copying = pytest.importorskip("kernelkeep._copying")
    with pytest.raises(ValueError, match="origin must have at most 10 bytes"):
        copying.copy(np.zeros(10, "u1"), np.zeros(11, "u1"), 0, False)
    with pytest.raises(ValueError, match="helpers must be between 0 and"):
        copying.copy(np.zeros(10, "u1"), np.zeros(10, "u1"), 1000, False)
    with pytest.raises(TypeError):
        copying.copy(b"read-only", np.zeros(9, "u1"), 0, False)


_FORKING = """
import os, threading, numpy as np
from kernelkeep import _copying

host = np.random.default_rng(1).integers(0, 256, 5_000_000, "u1")
def copied():
    target = np.zeros_like(host)
    for _ in range(20):
        target[:] = 0
        _copying.copy(target, host, 3, True)
        assert (target == host).all()
threads = [threading.Thread(target=copied) for _ in range(3)]  # one of them has the helpers, the others copy alone
for thread in threads: thread.start()
for thread in threads: thread.join()
child = os.fork()
if child == 0:
    copied()
    os._exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
copied()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_threads_and_forked_children_copy_too() -> None:
    pytest.importorskip("kernelkeep._copying")
    done = run_python(_FORKING)
    assert (done.stdout.strip(), done.stderr) == ("7", "")
