"""Doing all parts of a fleet's work: what is lost is done again, what fails is reported, and the others go on."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence

from .parts import Part, PartFailed, PartLost, PartStatus, State
from .workers import Ended, Workers

MOST_LOSSES = 5  # of one part: one that kills every worker must end some time
_TICK_SECONDS = 0.25
_PAUSE_SECONDS = 0.5  # after a loss, so that the cluster notices what is gone


def run_parts(
    parts: Sequence[Part],
    workers: Workers,
    show: Callable[[Sequence[PartStatus]], None],
    most_losses: int = MOST_LOSSES,
) -> list[PartStatus]:
    """Do every part once; returns what became of each, in order. Ctrl-C asks the workers to stop, and is raised."""
    statuses = [PartStatus(part) for part in parts]
    waiting = deque(statuses)
    running: dict[int, PartStatus] = {}
    resting_until = 0.0
    try:
        while waiting or running:
            while waiting and time.monotonic() >= resting_until:
                token = workers.start(waiting[0].part)
                if token is None:
                    break
                status = waiting.popleft()
                status.state, status.began, status.where = State.RUNNING, time.monotonic(), ""
                running[token] = status
            show(statuses)
            if not running:
                time.sleep(_TICK_SECONDS)
            for event in workers.wait(_TICK_SECONDS):
                if event.token not in running:
                    continue
                if not isinstance(event, Ended):
                    running[event.token].where = event.where
                    running[event.token].note = event.note or running[event.token].note
                    continue
                status = running.pop(event.token)
                status.seconds = time.monotonic() - status.began
                if _note_end(status, event.outcome, most_losses):
                    waiting.append(status)
                    resting_until = time.monotonic() + _PAUSE_SECONDS
    except KeyboardInterrupt:
        workers.interrupt()
        raise
    finally:
        show(statuses)
    return statuses


def _note_end(status: PartStatus, outcome: object, most_losses: int) -> bool:
    """Note how a part ended; whether it is to be done again."""
    if isinstance(outcome, PartLost):
        status.losses += 1
        status.lost_because.append(outcome.why)
        if status.losses <= most_losses:
            status.state = State.WAITING
            return True
        outcome = PartFailed(f"its worker was lost {status.losses} times, the last time because {outcome.why}")
    if isinstance(outcome, PartFailed):
        status.state, status.error = State.FAILED, outcome.sentence
    else:
        status.state, status.result = State.DONE, outcome
    return False
