"""`kk.Progress`: how far a long call is, and the words for it, which are the same everywhere."""

from __future__ import annotations

from dataclasses import dataclass

from ..escaping import escaped

_LEAST_SECONDS = 0.1  # a shorter time so far is not worth a word


@dataclass(frozen=True)
class Progress:
    """How far a long call is. `str()` is the line that a log gets."""

    title: str  # what is going on: "preloading", or the name of the program that runs
    done: int  # of a run: iterations, counted from the very beginning
    total: int | None  # where it ends, if that is known
    seconds: float  # since the call began
    unit: str = "items"  # what is counted
    rate: float = 0.0  # how many each second, lately; 0 as long as that is not known
    doing: str = ""  # what is being done now
    failed: int = 0  # those of them that failed
    pending_tasks: int = 0  # of a run with a queue
    limit_seconds: float | None = None  # after which it ends, whatever is done then

    @property
    def iteration(self) -> int:
        """Of a run: the same as `done`."""
        return self.done

    @property
    def iterations(self) -> int | None:
        """Of a run: the same as `total`."""
        return self.total

    @property
    def share(self) -> float | None:
        """The share that is done, 0 to 1; None where the total is not known."""
        if self.total is None:
            return None
        return min(1.0, self.done / self.total) if self.total else 1.0

    @property
    def seconds_left(self) -> float | None:
        """How long the rest takes at the present rate; None where that is not known."""
        left = [] if self.total is None or not self.rate else [max(0, self.total - self.done) / self.rate]
        if self.limit_seconds is not None:
            left.append(max(0.0, self.limit_seconds - self.seconds))
        return min(left, default=None)

    @property
    def counts(self) -> str:
        """`12 of 24 programs`"""
        of_all = "" if self.total is None else f" of {self.total:,}"
        number = self.done if self.total is None else self.total
        return f"{self.done:,}{of_all} {_one(self.unit) if number == 1 else self.unit}"

    def words(self, elapsed: bool = True) -> str:
        """`12 of 24 programs, 1 failed, 6.0/s, 2.0 s left`; without a time left, the time so far where `elapsed` asks for it."""
        words = [self.counts, *self._failures]
        if self.rate:
            words.append(_rate(self.rate, self.unit))
        left = self.seconds_left
        if left is not None:
            words.append(f"{duration(left)} left")
        elif elapsed and self.seconds >= _LEAST_SECONDS:
            words.append(f"{duration(self.seconds)} so far")
        return ", ".join(words)

    def __str__(self) -> str:
        doing = f", {escaped(self.doing)}" if self.doing else ""
        return f"{escaped(self.title)}: {self.words()}{doing}"

    def ending(self, is_whole: bool) -> str:
        """The last line: how much was done in which time. `is_whole` is False where an error ended it."""
        time = duration(self.seconds)
        words = f"{self.counts} in {time}" if is_whole else f"stopped at {self.counts}, after {time}"
        return ", ".join([f"{escaped(self.title)}: {words}", *self._failures])

    @property
    def _failures(self) -> list[str]:
        return [f"{self.failed:,} failed"] if self.failed else []


def duration(seconds: float) -> str:
    """A time in words: `0.4 s`, `12 s`, `3 min 20 s`, `2 h 5 min`, `3 d 4 h`."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for large, small, size in (("d", "h", 86400), ("h", "min", 3600), ("min", "s", 60)):
        if whole >= size:
            rest = whole % size // {"h": 3600, "min": 60, "s": 1}[small]
            return f"{whole // size} {large}" + (f" {rest} {small}" if rest else "")
    return f"{whole} s"


def _one(unit: str) -> str:
    return unit.removesuffix("es" if unit.endswith("ches") else "s")


def _rate(rate: float, unit: str) -> str:
    if rate < 1:
        return f"{duration(1 / rate)} each"
    if unit == "iterations":
        return f"{1e3 / rate:.3g} ms each"
    return f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.1f}/s"
