"""Tasks of the whole grid."""

from __future__ import annotations

from ...resident.resident import Resident
from ..device_parts.common import together
from .common import TIMEOUT, ResidentPart

__all__ = ["WideTests"]


class WideTests(ResidentPart):
    def test_all_blocks_run_a_wide_task(self, resident: Resident) -> None:
        assert resident.submit("everywhere", 3).result(TIMEOUT) == self.blocks
        part = self.read(resident, "part")
        assert part[: self.blocks].tolist() == [3] * self.blocks
        assert not part[self.blocks :].any()

    def test_wide_tasks_are_in_order_with_others_of_their_thread(self, resident: Resident) -> None:
        for number in range(20):
            resident.submit("note", 0, number)
            resident.submit("everywhere", 1)
        found = resident.submit_many("everywhere", [1] * 20).result(TIMEOUT)
        assert found.tolist() == [self.blocks] * 20
        assert self.read(resident, "part")[: self.blocks].tolist() == [40] * self.blocks
        assert self.read(resident, "log")[:20].tolist() == list(range(20))

    def test_blocks_that_call_each_other_do_not_wait_for_ever(self, resident: Resident) -> None:
        """Each thread has a lane of its own, so wide tasks of several blocks wait at the same time."""

        def produce(producer: int) -> None:
            for _ in range(25):
                resident.submit("everywhere", 1)
                resident.submit("count", producer, 1)
            assert resident.submit("everywhere", 1).result(TIMEOUT) == self.blocks

        together(produce, 4)
        assert self.read(resident, "part")[: self.blocks].tolist() == [4 * 26] * self.blocks
        assert self.read(resident, "total")[:4].tolist() == [25] * 4
