"""A pole that Python balances while its physics runs in a kernel that never exits.

The cart and the pole live in device arrays. Every decision is one task: Python sends a force, the GPU moves the cart on by a
hundredth of a millisecond, and the pole's angle comes back. No kernel is launched for it, so on a GPU hundreds of thousands of
decisions are made each second, faster than the pole moves: the loop could hold a real one. Now and then somebody pushes.

Run it with `python examples/balance.py [PICTURE.png]`. Without a GPU that can keep a kernel, host threads do the same, slowly:
there a decision moves the cart on by a whole millisecond.
"""

from __future__ import annotations

import sys
import time

import numpy as np

import kernelkeep as kk

SECONDS = 2.0  # of the pole's time
STEP, EMULATED_STEP = 1e-5, 1e-3  # seconds of it in a decision
PUSH_EVERY = 0.25  # seconds of it
PUSH = 0.6  # radians a second
GRAVITY, LENGTH, CART, POLE = 9.81, 0.5, 1.0, 0.1
PHYSICS = f"""
    if (kk_local_id(0) == 0) {{
        float angle = state[0], spin = state[1], speed = state[3];
        float sine = sin(angle), cosine = cos(angle), mass = {CART + POLE}f;
        float drive = (force + {POLE * LENGTH}f * spin * spin * sine) / mass;
        float turn = ({GRAVITY}f * sine - cosine * drive) / ({LENGTH}f * (1.3333333f - {POLE}f * cosine * cosine / mass));
        float along = drive - {POLE * LENGTH}f * turn * cosine / mass;
        state[1] = spin + turn * dt;
        state[0] = angle + state[1] * dt;
        state[3] = speed + along * dt;
        state[2] = state[2] + state[3] * dt;
        kk_result(state[0]);
    }}
"""
TASKS = {
    "step": kk.Task(PHYSICS, args={"force": "f4", "dt": "f4"}, result="f4"),
    "push": "(float spin) { if (kk_local_id(0) == 0) state[1] += spin; }",
}


def decide(angle: float, before: float, step: float) -> float:
    """The force on the cart: against the angle, and against its change."""
    return 120.0 * angle + 12.0 * (angle - before) / step


def balance(resident: kk.Resident, step: float, *, hands_off: bool = False) -> np.ndarray:
    """The pole's angle after each decision; with `hands_off` nothing is done against its fall."""
    angles = np.empty(round(SECONDS / step), "f4")
    push_every = round(PUSH_EVERY / step)
    before = angle = 0.01
    for turn in range(len(angles)):
        if turn % push_every == push_every // 2:
            resident.submit("push", PUSH if turn // push_every % 2 else -PUSH)
        force = 0.0 if hands_off else decide(angle, before, step)
        before, angle = angle, resident.submit("step", force, step).result()
        angles[turn] = angle
    return angles


def new_resident(cache: kk.ProgramCache) -> kk.Resident:
    """A grid of one block, with the pole a little off the vertical."""
    arrays = {"state": np.array([0.01, 0.0, 0.0, 0.0], "f4")}
    try:
        return kk.Resident(cache, TASKS, arrays, blocks=1)
    except kk.Unsupported:
        return kk.Resident.emulated(cache, TASKS, arrays, blocks=1)


def draw(path: str, held: np.ndarray, fallen: np.ndarray, rate: float, where: str) -> None:
    """Both angles over the pole's time, with a mark for each push."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3.6), layout="constrained")
    axes = figure.subplots()
    moments = np.linspace(0, SECONDS, len(held))
    pushes = np.arange(PUSH_EVERY / 2, SECONDS, PUSH_EVERY)
    axes.axhline(0, color="#d8d8d8", linewidth=0.8, zorder=0)
    axes.plot(moments, np.degrees(fallen), color="#a0a0a0", linewidth=1.5, label="nobody decides: it falls")
    axes.plot(moments, np.degrees(held), color="#0a6b5d", linewidth=1.5, label=f"{rate:,.0f} decisions a second")
    axes.plot(
        pushes, np.full(len(pushes), -5.6), "^", color="#c8553d", markersize=5, label="somebody pushes", clip_on=False
    )
    axes.set(xlabel="the pole's time, s", ylabel="angle, degrees", xlim=(0, SECONDS), ylim=(-6, 6))
    axes.set_title(f"a pole balanced by tasks of a resident grid, on {where}", loc="left", fontsize=10)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=3, frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)


def main() -> None:
    with kk.open_device() as device, kk.ProgramCache(device) as cache:
        step = STEP if "cuda" in device.spec else EMULATED_STEP
        with new_resident(cache) as resident:
            start = time.perf_counter()
            held = balance(resident, step)
            rate = len(held) / (time.perf_counter() - start)
        with new_resident(cache) as resident:
            fallen = balance(resident, step, hands_off=True)
        if len(sys.argv) > 1:
            draw(sys.argv[1], held, fallen, rate, device.info.name)
    largest, at_last = float(np.abs(held).max()), float(np.abs(fallen[-1]))
    if not largest < 0.2 or not at_last > 0.5:
        raise SystemExit(f"the pole was not held: {largest:.2f} rad at most, {at_last:.2f} rad at last with hands off")
    print(f"{device.spec}: {rate:,.0f} decisions a second held the pole within {np.degrees(largest):.1f} degrees")


if __name__ == "__main__":
    main()
