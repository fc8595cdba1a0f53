"""What cannot be run raises an error that says why, and leaves nothing behind."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ...cache.program_cache import ProgramCache
from ...continuous.program import StateProgram
from ...continuous.runner import resume, run
from ...devices.base import Device
from ...errors import ArgumentError, CheckpointError, CompileError, Unsupported
from ...programs.portable import PortableKernel
from ...samples.states import COLLATZ, SCRAMBLE
from .common import STRATEGIES, StrategyPart, check

__all__ = ["RefusalTests"]


def _program(body: str = "x_next[kk_item()] = x[kk_item()];", **fields: Any) -> StateProgram:
    fields = {"coupling": "independent", "state": {"x": np.zeros(4, "f4")}} | fields
    return StateProgram(fields.pop("name", "refused"), body=body, **fields)


class RefusalTests(StrategyPart):
    """Errors that a user can act on."""

    @pytest.mark.parametrize("iterations", [0, 5])
    def test_run_rejects_an_unknown_strategy(self, cache: ProgramCache, iterations: int) -> None:
        with pytest.raises(ArgumentError, match="'fastest'") as caught:
            run(cache, SCRAMBLE.program(9), iterations, "fastest")  # type: ignore[arg-type]
        assert all(name in str(caught.value) for name in STRATEGIES)

    def test_run_rejects_what_is_not_a_state_program_or_cache(
        self, device: Device, cache: ProgramCache, tmp_path: Path
    ) -> None:
        kernel = PortableKernel("k", params=[], body="")
        wrong: Any
        for wrong in (kernel, None, "heat", StateProgram):
            with pytest.raises(ArgumentError, match=r"kk\.StateProgram"):
                run(cache, wrong, 5)
            with pytest.raises(ArgumentError, match=r"kk\.StateProgram"):
                resume(tmp_path / "none.kkpt", cache, wrong, 5)
        for wrong in (device, None, "cache"):
            with pytest.raises(ArgumentError, match=r"kk\.ProgramCache"):
                run(wrong, SCRAMBLE.program(9), 5)

    def test_run_rejects_what_would_never_end(self, device: Device, cache: ProgramCache) -> None:
        for strategy in self.strategies(device):
            with pytest.raises(ArgumentError, match="never end"):
                run(cache, SCRAMBLE.program(9), None, strategy)

    @pytest.mark.parametrize(
        ("option", "value"),
        [
            ("iterations", -1),
            ("iterations", 1.5),
            ("iterations", "many"),
            ("iterations", 2**31),
            ("deadline_seconds", 0),
            ("deadline_seconds", -1.0),
            ("checkpoint_every", 0),
            ("checkpoint_iterations", 0),
            ("keep_checkpoints", 0),
            ("ahead", 0),
            ("iterations_per_dispatch", 0),
            ("iterations_per_dispatch", -3),
        ],
    )
    def test_run_rejects_values_out_of_range(
        self, cache: ProgramCache, tmp_path: Path, option: str, value: Any
    ) -> None:
        options = {"iterations": 5, "checkpoint": tmp_path / "x.kkpt", option: value}
        with pytest.raises(ArgumentError, match=option):
            run(cache, SCRAMBLE.program(9), **options)
        assert not list(tmp_path.iterdir())

    def test_run_rejects_an_option_that_does_not_exist(self, cache: ProgramCache) -> None:
        wrong: Any = {"deadline": 1.0}
        with pytest.raises(ArgumentError, match="no option 'deadline'"):
            run(cache, SCRAMBLE.program(9), 5, **wrong)

    def test_a_mistake_in_the_body_names_its_line(self, device: Device, cache: ProgramCache) -> None:
        body = "int i = kk_item();\nx_next[i] = x[i];\n  x_next[i] = nonsense + 1.0f;\n"
        tasks = {"t": np.zeros(3, "i4")}
        for program in (
            _program(body, name="broken_a"),
            _program(body, name="broken_b", coupling="neighbours"),
            _program(
                "int i = t;\nx[i] = 0.0f;\nkk_push(t);\nx[i] = nonsense;\n",
                name="broken_c",
                coupling="queue",
                tasks=tasks,
            ),
        ):
            line = 3 if "kk_item" in program.body else 4
            for strategy in self.strategies(device):
                with pytest.raises(CompileError, match="nonsense") as caught:
                    run(cache, program, 5, strategy)
                assert caught.value.line == line, strategy

    def test_a_mistake_in_a_condition_is_a_compile_error(self, device: Device, cache: ProgramCache) -> None:
        program = _program("int i = kk_item();\nx_next[i] = x[i];")
        for strategy in self.strategies(device):
            with pytest.raises(CompileError, match="nonsense"):
                run(cache, program, 5, strategy, until="nonsense > 1")

    def test_atomics_on_floats_that_the_device_lacks_are_unsupported(self, device: Device, cache: ProgramCache) -> None:
        tasks = {"t": np.arange(50, dtype="i4")}
        program = _program("kk_atomic_xor(x[0], 1);", coupling="queue", tasks=tasks)
        for strategy in self.strategies(device):
            with pytest.raises(CompileError, match="kk_atomic_xor"):
                run(cache, program, 5, strategy)
        add = _program("kk_atomic_add(x[t % 4], 0.5f);", coupling="queue", tasks=tasks)
        for strategy in self.strategies(device):
            if device.capabilities.float_atomics:
                with run(cache, add, None, strategy) as done:
                    assert done.state["x"].numpy().tolist() == [6.5, 6.5, 6.0, 6.0]
            else:
                with pytest.raises(Unsupported, match="atomics on floats") as caught:
                    run(cache, add, None, strategy)
                assert caught.value.capability == "float_atomics"

    def test_types_that_the_device_lacks_are_unsupported(self, device: Device, cache: ProgramCache) -> None:
        for dtype, capability in (("f8", "float64"), ("i8", "int64"), ("i1", "int8")):
            program = _program(state={"x": np.zeros(4, dtype)})
            if getattr(device.capabilities, capability):
                with run(cache, program, 2, "mega") as done:
                    assert done.state["x"].dtype == np.dtype(dtype)
                continue
            for strategy in self.strategies(device):
                with pytest.raises(Unsupported) as caught:
                    run(cache, program, 2, strategy)
                assert caught.value.capability == capability

    def test_resume_rejects_a_checkpoint_of_another_program(self, cache: ProgramCache, tmp_path: Path) -> None:
        path = tmp_path / "scramble.kkpt"
        program = SCRAMBLE.program(50)
        run(cache, program, 3, "redispatch", checkpoint=path).close()
        before = path.read_bytes()
        body = program.body.replace("1664525u", "1664527u")
        other = StateProgram("scramble", coupling="neighbours", state=program.state, body=body)
        with pytest.raises(CheckpointError, match="does not fit scramble: the body differs, first in line") as caught:
            resume(path, cache, other, 9)
        assert str(path) in str(caught.value) and "1664525u" in str(caught.value) and "1664527u" in str(caught.value)
        with pytest.raises(CheckpointError, match=r"items: 50 → 51; shape of \w+: \(50,\) → \(51,\)"):
            resume(path, cache, SCRAMBLE.program(51), 9)
        with pytest.raises(
            CheckpointError, match=r"coupling: 'neighbours' → 'independent'; .* is not in the checkpoint"
        ):
            resume(path, cache, COLLATZ.program(50), 9)
        with pytest.raises(CheckpointError, match=re.escape(str(tmp_path / "nothing.kkpt"))):
            resume(tmp_path / "nothing.kkpt", cache, program, 9)
        assert path.read_bytes() == before
        renamed = StateProgram("another_name", coupling="neighbours", state=program.state, body=program.body)
        with resume(path, cache, renamed, 9) as done:
            check(SCRAMBLE, done.state, program, 9)

    def test_a_run_that_failed_leaves_no_memory_behind(self, device: Device, cache: ProgramCache) -> None:
        """The cache can evict its programs, and the next run works."""
        program = SCRAMBLE.program(SCRAMBLE.size)
        for _ in range(3):
            with pytest.raises(ArgumentError):
                run(cache, program, 5, "fastest")  # type: ignore[arg-type]
            with pytest.raises(CompileError):
                run(cache, program, 5, "mega", until="nonsense")
        with run(cache, program, 5, "mega") as done:
            check(SCRAMBLE, done.state, program, 5)
        cache.finish_saving()  # which holds a program while it is written
        cache.trim(0)
        assert cache.stats().programs == 0, "nothing holds a lease"
        with run(cache, program, 5, "mega") as done:
            check(SCRAMBLE, done.state, program, 5)
