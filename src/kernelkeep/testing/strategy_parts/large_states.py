"""Checkpoints of large states: digested on the device, and written where they changed."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ...cache.program_cache import ProgramCache
from ...continuous.checkpoints.arriving import Arriving
from ...continuous.checkpoints.block_digest import BLOCK_BYTES, digest_blocks, key_of
from ...continuous.checkpoints.checkpoint import Checkpoint, Written
from ...continuous.checkpoints.claim import CheckpointClaim
from ...continuous.checkpoints.device_digest import DeviceDigest
from ...continuous.checkpoints.files import read_checkpoint
from ...continuous.checkpoints.header import CheckpointHeader
from ...continuous.checkpoints.host_copy import HostCopy
from ...continuous.checkpoints.snapshot import Snapshots
from ...continuous.initial_state import InitialState
from ...continuous.program import StateProgram
from ...continuous.run_options import RunOptions
from ...continuous.runner import resume
from ...continuous.session import Session
from ...devices.base import Device
from .common import StrategyPart

__all__ = ["LargeStateTests"]

_ITEMS = 320_000  # 1.2 MiB: 20 blocks, the last one not whole
_PART = 10_000  # items that an iteration changes
_LINEAGE = "0123456789abcdef0011223344556677"


def _program() -> StateProgram:
    return StateProgram(
        "mostly_still",
        coupling="independent",
        items=_ITEMS,
        state={"x": np.arange(_ITEMS, dtype="i4"), "few": np.zeros(5, "i4")},
        scalars={"part": _PART},
        body="""int i = kk_item(), at = kk_iteration() * part;
                x_next[i] = x[i] + (i >= at && i < at + part ? 1 : 0);
                if (i < 5) few_next[i] = few[i] + i;""",
    )


def _expected(iterations: int) -> dict[str, np.ndarray[Any, Any]]:
    x = np.arange(_ITEMS, dtype="i4")
    x[: iterations * _PART] += 1
    return {"x": x, "few": np.arange(5, dtype="i4") * iterations}


class LargeStateTests(StrategyPart):
    """Digests of blocks, and checkpoints made with them."""

    def test_blocks_have_the_same_digests_on_the_device_as_on_the_host(
        self, device: Device, cache: ProgramCache
    ) -> None:
        key = key_of(_LINEAGE)
        dice = np.random.default_rng(4)
        digester = DeviceDigest(cache, key)
        try:
            for nbytes in (4, BLOCK_BYTES - 4, BLOCK_BYTES, 3 * BLOCK_BYTES + 1000):
                host = dice.integers(0, 256, nbytes, dtype="u1")
                array = device.array(host.view("f4") if nbytes % 8 else host.view("i4"))
                np.testing.assert_array_equal(digester.digest(array, nbytes), digest_blocks(host.data, key))
                array.close()
        finally:
            digester.close()

    def test_parts_of_an_array_come_to_the_host_through_small_buffers(self, device: Device) -> None:
        dice = np.random.default_rng(5)
        host = dice.integers(0, 2**31, 300_000, dtype="i4")
        array, lanes = device.array(host), device.open_lanes()
        # A device with queues copies to any memory; most of those without pinned memory are CPUs, so the buffers are asked for.
        copy = HostCopy(device, lanes, staging_bytes=2 * BLOCK_BYTES, staged=device.capabilities.queues)
        try:
            expected = np.zeros(host.nbytes, "u1")
            some = [(0, 2), (3, 4), (5, 7), (8, 9), (10, 14), (16, 17)]  # blocks: as large as a buffer, smaller, larger
            for blocks in ([(0, 100)], some, [(1, 7)], some[1:], [(5, 100)]):
                spans = [(begin * BLOCK_BYTES, min(end * BLOCK_BYTES, host.nbytes)) for begin, end in blocks]
                host += 1
                array.copy_from(host)
                device.synchronize()
                reached = [0]
                copy.update("x", array, spans, lambda _, end, reached=reached: reached.append(end))  # type: ignore[misc]
                for begin, end in spans:
                    expected[begin:end] = host.view("u1")[begin:end]
                np.testing.assert_array_equal(copy.memory("x", host.nbytes), expected)
                assert reached == sorted(reached) and reached[-1] <= spans[-1][1]
        finally:
            copy.close()
            array.close()
            lanes.close()

    @pytest.mark.parametrize("on_device", [True, False], ids=["digests on the device", "digests on the host"])
    def test_only_changed_blocks_are_written_and_the_file_is_whole(
        self, cache: ProgramCache, tmp_path: Path, on_device: bool
    ) -> None:
        program, path = _program(), tmp_path / "still.kkpt"
        session = Session(cache, program, InitialState.of(program), RunOptions())
        claim = CheckpointClaim(path).acquire()
        snapshots = Snapshots(session, key_of(claim.lineage), digests_on_device=on_device)
        made: list[Written] = []
        try:
            for iteration in range(1, 7):
                session.slice("step")
                session.synchronize()
                writing = threading.Thread(target=lambda: None)

                def write(
                    header: CheckpointHeader, arrays: dict[str, np.ndarray[Any, Any]], arriving: Arriving
                ) -> None:
                    nonlocal writing
                    assert (arriving.digests is not None) == on_device
                    writing = threading.Thread(
                        target=lambda: made.append(claim.write(Checkpoint(header, arrays), 2, arriving))
                    )
                    writing.start()  # while the state comes

                assert snapshots.take(write) > 0
                writing.join()
                found = read_checkpoint(path)
                assert found.iteration == iteration
                for name, expected in _expected(iteration).items():
                    np.testing.assert_array_equal(found.state[name], expected)
        finally:
            claim.release()
            snapshots.close()
            session.close()
        assert all(one.written_bytes >= one.raw_bytes for one in made[:1])
        # Two iterations change two or three of the twenty blocks, and the short one.
        assert all(one.written_bytes < one.nbytes / 3 for one in made[2:]), made
        with resume(path, cache, program, 9) as done:
            for name, expected in _expected(9).items():
                np.testing.assert_array_equal(done.state[name].numpy(), expected)
