"""How many steps of Collatz's rule lead from n to 1, for many n: numbers that have nothing to do with each other.

An iteration does eight steps of each number and leaves the rest for the next one, so that no dispatch is long, however long
the way of a number is. The run ends by itself when all have arrived, which the host looks for now and then.

Run it with `python examples/collatz.py`.
"""

from __future__ import annotations

import numpy as np

import kernelkeep as kk
from kernelkeep.samples.states import COLLATZ


def all_arrived(run: kk.Run) -> bool:
    return bool((run.state["value"].numpy() == 1).all())


def main() -> None:
    numbers = COLLATZ.program(20_001)
    with kk.open_device() as device, kk.ProgramCache(device) as cache:
        with kk.run(cache, numbers, strategy="checkpointed", deadline_seconds=0.2, until=all_arrived) as run:
            steps = run.state["steps"].numpy()
            error = COLLATZ.largest_error(run.state, numbers, run.iteration)
            print(run.report)
    if error or (steps[[0, 1, 26]] != [0, 1, 111]).any():
        raise SystemExit("NumPy has other lengths")
    longest = int(steps.argmax())
    print(
        f"{device.spec}: {np.mean(steps):.1f} steps on average, and {steps[longest]} from {longest + 1:,}, as NumPy has it"
    )


if __name__ == "__main__":
    main()
