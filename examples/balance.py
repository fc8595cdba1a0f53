"""A pole that Python balances while its physics runs in a kernel that never exits.

The cart and the pole live in device arrays. Every decision is one task: Python sends a force, the GPU moves the cart on by a
hundredth of a millisecond, and the pole's angle comes back. No kernel is launched for it, so on a GPU hundreds of thousands of
decisions are made each second, faster than the pole moves: the loop could hold a real one. Now and then somebody pushes.

Run it with `python examples/balance.py [PICTURE.png]`. Without a GPU that can keep a kernel, host threads do the same, slowly.
"""

from __future__ import annotations

import sys
import time

import numpy as np

import kernelkeep as kk

STEP = 1e-5  # seconds of the pole's time in a decision
PUSH_EVERY = 10_000  # decisions
GRAVITY, LENGTH, CART, POLE = 9.81, 0.5, 1.0, 0.1
PHYSICS = f"""
    if (kk_local_id(0) == 0) {{
        float angle = state[0], spin = state[1], speed = state[3];
        float sine = sin(angle), cosine = cos(angle), mass = {CART + POLE}f;
        float drive = (force + {POLE * LENGTH}f * spin * spin * sine) / mass;
        float turn = ({GRAVITY}f * sine - cosine * drive) / ({LENGTH}f * (1.3333333f - {POLE}f * cosine * cosine / mass));
        float along = drive - {POLE * LENGTH}f * turn * cosine / mass;
        state[1] = spin + turn * {STEP}f;
        state[0] = angle + state[1] * {STEP}f;
        state[3] = speed + along * {STEP}f;
        state[2] = state[2] + state[3] * {STEP}f;
        kk_result(state[0]);
    }}
"""
TASKS = {
    "step": kk.Task(PHYSICS, args={"force": "f4"}, result="f4"),
    "push": "(float spin) { if (kk_local_id(0) == 0) state[1] += spin; }",
}


def decide(angle: float, before: float) -> float:
    """The force on the cart: against the angle, and against its change."""
    return 120.0 * angle + 12.0 * (angle - before) / STEP


def balance(resident: kk.Resident, decisions: int, *, hands_off: bool = False) -> np.ndarray:
    """The pole's angle after each decision; with `hands_off` nothing is done against its fall."""
    angles = np.empty(decisions, "f4")
    before = angle = 0.01
    for turn in range(decisions):
        if turn % PUSH_EVERY == PUSH_EVERY // 2:
            resident.submit("push", 0.6 if turn // PUSH_EVERY % 2 else -0.6)
        force = 0.0 if hands_off else decide(angle, before)
        before, angle = angle, resident.submit("step", force).result()
        angles[turn] = angle
    return angles


def new_resident(cache: kk.ProgramCache) -> kk.Resident:
    """A grid of one block, with the pole a little off the vertical."""
    arrays = {"state": np.array([0.01, 0.0, 0.0, 0.0], "f4")}
    try:
        return kk.Resident(cache, TASKS, arrays, blocks=1)
    except kk.Unsupported:
        return kk.Resident.emulated(cache, TASKS, arrays, blocks=1)


def draw(path: str, held: np.ndarray, fallen: np.ndarray, rate: float) -> None:
    """Both angles over the pole's time."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3.6), layout="constrained")
    axes = figure.subplots()
    moments = np.arange(len(held)) * STEP
    axes.plot(moments, np.degrees(fallen), color="#b0b0b0", label="nobody decides")
    axes.plot(moments, np.degrees(held), color="#0a6b5d", label=f"{rate:,.0f} decisions a second")
    axes.set(xlabel="the pole's time, s", ylabel="angle, degrees", ylim=(-15, 15))
    axes.legend(loc="upper left", frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)


def main() -> None:
    with kk.open_device() as device, kk.ProgramCache(device) as cache:
        with new_resident(cache) as resident:
            decisions = 200_000 if "cuda" in device.spec else 500
            start = time.perf_counter()
            held = balance(resident, decisions)
            rate = decisions / (time.perf_counter() - start)
        with new_resident(cache) as resident:
            fallen = balance(resident, decisions, hands_off=True)
        if len(sys.argv) > 1:
            draw(sys.argv[1], held, fallen, rate)
    largest, at_last = float(np.abs(held).max()), float(np.abs(fallen[-1]))
    if not largest < 0.2 or (decisions > 100_000 and not at_last > 0.5):
        raise SystemExit(f"the pole was not held: {largest:.2f} rad at most")
    print(f"{device.spec}: {rate:,.0f} decisions a second held the pole within {np.degrees(largest):.1f} degrees")


if __name__ == "__main__":
    main()
