"""The generator of kernels: what it makes is defined, repeatable and varied, and mistakes are found and made short."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import kernelkeep as kk
from kernelkeep.testing.generated_kernels import (
    Features,
    GeneratedKernel,
    differences,
    execution,
    expected,
    generated_kernel,
    generated_kernels,
    run,
)
from kernelkeep.testing.generated_kernels.body import from_decisions
from kernelkeep.testing.generated_kernels.comparison import Arrays
from kernelkeep.testing.generated_kernels.search import compared
from kernelkeep.testing.generated_kernels.shrinking import shrunk

CONSTRUCTS = """for ( while ( do { switch ( default: break; continue; return; else { ++ -- <<= ? && || #define #if #else
kk_unroll kk_shared kk_barrier kk_atomic_add(counts kk_atomic_cas kk_atomic_exchange kk_atomic_add(sums kk_atomic_max(sums
struct pair const float4 int3 uint2 make_float2 unsigned char short bool long half double (float) isnan fma( sqrt( clz( popcount(
clamp( fmod( as_uint( dot( * p &mixed[ return TABLE MIX""".split()


def test_a_seed_always_makes_the_same_kernel() -> None:
    one, other = generated_kernel(5), generated_kernel(5)
    assert one.kernel.body == other.kernel.body
    assert all(
        np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for a, b in zip(one.arrays, other.arrays, strict=True)
    )
    assert from_decisions(one.decisions, one.features).kernel.body == one.kernel.body
    assert generated_kernel(6).kernel.body != one.kernel.body


def test_every_construct_of_the_language_occurs() -> None:
    text = "\n".join(generated_kernel(seed).kernel.body for seed in range(300))
    assert [one for one in CONSTRUCTS if one not in text] == []


def test_types_that_a_device_lacks_do_not_occur() -> None:
    for seed in range(100):
        program = generated_kernel(seed, Features(float64=False, int64=False))
        assert "double" not in program.kernel.body
        assert "long" not in program.kernel.body
        assert not {"i8", "u8", "f8"} & {one.dtype for one in program.kernel.params}


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_the_reference_device_finds_nothing_wrong_with_generated_kernels(first: int) -> None:
    for seed in range(first, first + 20):
        program = generated_kernel(seed)
        assert differences(program, program.arrays, expected(program)), "a kernel that changes nothing compares nothing"


@given(generated_kernels(size=6))
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck), database=None)
def test_hypothesis_makes_kernels(program: GeneratedKernel) -> None:
    expected(program)


def test_a_kernel_is_made_shorter() -> None:
    def has_popcount(decisions: tuple[int, ...]) -> bool:
        return "popcount" in from_decisions(decisions, Features()).kernel.body

    seed = next(seed for seed in range(100) if "popcount" in generated_kernel(seed).kernel.body)
    before = generated_kernel(seed)
    after = from_decisions(shrunk(before.decisions, has_popcount, 20), before.features)
    assert "popcount" in after.kernel.body
    assert after.kernel.body.count("\n") < 12


def test_integers_must_be_equal_and_floats_within_their_bounds() -> None:
    program = generated_kernel(1)
    wanted = [one.copy() for one in program.arrays]
    floats = wanted[5].reshape(-1, 6)
    floats[:, 2], floats[:, 4] = 1.0, 3.0  # three operations, of which no intermediate result is above 1

    def found(at: int, where: int, value: float) -> list[str]:
        got = [one.copy() for one in wanted]
        got[at][where] = value
        return differences(program, wanted, got)

    assert found(3, 0, 0) == []
    assert found(3, 2, 1) == ["outs[2]: expected 0, got 1; 1 elements differ"]
    assert found(5, 0, 2.0**-20)[0].startswith("floats[0]: expected 0.0, got")
    assert found(5, 2, 1 + 5 * 2.0**-23) == []
    assert found(5, 2, 1 + 7 * 2.0**-23) != []
    assert found(5, 2, np.nan) != []


def test_a_device_that_computes_wrong_is_found_and_shown_by_a_short_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    with kk.open_device("reference") as device:

        def wrong(used: object, programs: list[GeneratedKernel], options: object = ()) -> list[Arrays]:
            found = run(device, programs)
            for program, arrays in zip(programs, found, strict=True):
                if used is device and "popcount" in program.kernel.body:
                    arrays[3][1] ^= 1
            return found

        monkeypatch.setattr(execution, "run", wrong)
        seeds = range(4)
        found = compared(device, seeds, 20)
    assert [one.seed for one in found] == [one for one in seeds if "popcount" in generated_kernel(one).kernel.body]
    assert found[0].lines[0].startswith("outs[1]: expected ")
    assert "popcount" in found[0].body
    assert found[0].body.count("\n") < 16
