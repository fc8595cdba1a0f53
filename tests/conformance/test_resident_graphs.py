"""Graphs of a resident grid: the suite on every backend, and 10,000 made graphs on a GPU."""

from __future__ import annotations

import random

import pytest

from kernelkeep.cache.program_cache import ProgramCache
from kernelkeep.devices.base import Device
from kernelkeep.testing.device_parts.common import together
from kernelkeep.testing.resident_parts.common import TIMEOUT
from kernelkeep.testing.resident_parts.graphs import GraphTests
from kernelkeep.testing.resident_parts.made_graphs import MadeGraphs, make_graph


@pytest.mark.opencl
class TestOpenCL(GraphTests):
    backend = "opencl"


class TestReference(GraphTests):
    backend = "reference"
    graph_count = 6


@pytest.mark.cuda
class TestCUDA(GraphTests):
    backend = "cuda"
    emulated = False
    graph_count = 60

    def test_10_000_graphs(self, cache: ProgramCache, device: Device) -> None:
        """Four threads, all blocks, three runs of each; some have 1,000 nodes. Emulators get fewer."""
        chance = random.Random(5)
        count, large = (10_000, 10) if device.info.is_gpu else (100, 1)
        sizes = [1000] * large + [chance.randint(1, 60) for _ in range(count - large)]
        graphs = [make_graph(chance, size, wide=0.02) for size in chance.sample(sizes, len(sizes))]
        made = MadeGraphs(graphs, chance)
        with self.folding(cache, made, blocks=None) as resident:

            def produce(producer: int) -> None:
                mine = random.Random(producer)
                for one in graphs[producer::4]:
                    graph = one.build(resident, mine)
                    one.runs = 3
                    for _ in range(one.runs):
                        future = graph.run()
                future.result(TIMEOUT)

            together(produce, 4)
            self.settle(resident, made)
