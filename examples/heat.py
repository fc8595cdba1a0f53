"""Heat spreading over a plate, stopped half way and taken up again from its checkpoint under another strategy.

Run it with `python examples/heat.py`. The state program and its NumPy reference are in `kernelkeep.samples.states`.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import kernelkeep as kk
from kernelkeep.samples.states import HEAT

ITERATIONS = 600


def main() -> None:
    plate = HEAT.program(95)
    with tempfile.TemporaryDirectory() as folder, kk.open_device() as device, kk.ProgramCache(device) as cache:
        checkpoint = Path(folder) / "heat.kkpt"
        with kk.run(cache, plate, iterations=ITERATIONS // 2, strategy="redispatch", checkpoint=checkpoint) as first:
            print(f"{device.spec}: {first.iteration} iterations, of which every one was a dispatch")

        # In a new process, or on another backend, this line would be the same.
        with kk.resume(checkpoint, cache, plate, iterations=ITERATIONS) as run:
            print(run.report)
            error = HEAT.largest_error(run.state, plate, ITERATIONS)
            mean = float(run.state["u"].numpy().mean())
    if error > HEAT.tolerance:
        raise SystemExit(f"the plate is off by {error:g} from what NumPy has")
    print(f"after {ITERATIONS} iterations the mean is {mean:.4f}; NumPy's plate differs by {error:.1g} at most")


if __name__ == "__main__":
    main()
