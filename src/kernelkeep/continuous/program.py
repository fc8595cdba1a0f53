"""State programs: `new_state = f(old_state)`, written once for every strategy and every backend.

A body handles one item (or one task) of one iteration. What it may use beside the portable helpers:

    kk_item() kk_items()                 which item this is, and how many there are
    kk_iteration()                       the iteration, counted from 0 over the whole run, resumed or not
    u[i], u_next[i]                      an array of the state, old and new; the body writes the new one
    kk_phase() kk_set_phase(p)           a number from 0 on that is part of the state; a new one holds from the next iteration
    kk_stop()                            this iteration is the last

What an iteration does not write keeps its old value. "independent": item i reads and writes index i only. "neighbours": item i
reads anything old and writes its own index of the new. "queue": the body handles one task, whose fields are variables by their
names; it may push tasks for the next round with `kk_push(field, …)`, and works on the state's arrays in place (`total[0]`), with
atomics where tasks may meet.

A body may begin with helper functions, and with structs, typedefs, constants and macros before these, as that of a kernel.

A body may also be a Python function, whose parameters are the arrays, scalars and fields that it uses, by their names:

    def heat(u, u_next, k):
        i = kk.item()
        u_next[i] = u[i] * k
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from ..devices.host_data import narrowed, parse_dtype
from ..errors import ArgumentError
from ..programs.portable import Buffer, PortableKernel, Scalar
from ..words import Coupling, did_you_mean
from .body_parts import BodyParts, split_body
from .body_writes import Keep, always_written, arrays_to_keep, neighbour_read, old_arrays_written

if TYPE_CHECKING:
    from .python_body import PythonBody

COUPLINGS = ("independent", "neighbours", "queue")
_STEERING = re.compile(r"\bkk_(stop|set_phase|phase)\s*\(")
_GROUPED = re.compile(r"\bkk_(shared|barrier|local_id|group_id|global_id)\b")
MOST_ITEMS = 2**31 - 2**22  # a loop over items adds up to four million to the last one, and counts in 32 bits


class StateProgram:
    """A restartable computation: typed arrays, and what one iteration does to them.

    `state` holds the arrays as they are at the beginning. `items` is how often the body runs in an iteration; without it there is
    an item for every element of the arrays that the body writes. For "queue", `tasks` holds the first tasks: a mapping of field
    names to arrays of one length; `queue_capacity` is its size at the beginning; it grows.
    """

    def __init__(
        self,
        name: str,
        *,
        coupling: Coupling,
        body: str | Callable[..., Any],
        state: Mapping[str, Any],
        items: int | None = None,
        scalars: Mapping[str, Any] | None = None,
        tasks: Mapping[str, Any] | None = None,
        queue_capacity: int = 65536,
        group: int = 128,
    ) -> None:
        if coupling not in COUPLINGS:
            hint = did_you_mean(coupling, COUPLINGS)
            raise ArgumentError(f"coupling must be one of {', '.join(COUPLINGS)}, got {coupling!r}{hint}")
        self.python: PythonBody | None = None
        if callable(body):
            from .python_body import python_body

            self.python = python_body(body, name)
            body = self.python.identity
        if not isinstance(body, str) or not body.strip():
            raise ArgumentError(f"body of {name} must be a text in C or a Python function, got {body!r}")
        # What the body does, in the form of C: for one in C the body itself.
        self.outline = body if self.python is None else self.python.outline
        if (match := _GROUPED.search(self.outline)) is not None:
            raise ArgumentError(
                f"the body of {name} uses {match.group()}, but a strategy decides which group runs an item: use kk_item()"
            )
        if self.python is None and (call := split_body(body).item_call):
            raise ArgumentError(
                f"a helper function of {name} uses {call}, which only the body itself can: pass its value as an argument"
            )
        if not isinstance(state, Mapping) or not state:
            raise ArgumentError(f"state of {name} must be a mapping of names to arrays, with at least one")
        if not isinstance(scalars, Mapping | None):
            raise ArgumentError(f"scalars of {name} must be a mapping of names to numbers, got {scalars!r}")
        PortableKernel(name, params=[], body="")  # raises where no kernel can have this name
        if not isinstance(group, int) or isinstance(group, bool) or not 1 <= group <= 1024:
            raise ArgumentError(f"group of {name} must be a number of work-items from 1 to 1024, got {group!r}")
        self.name = name
        self.coupling = coupling
        self.body = body
        self.group = group
        self.state = {key: _array(f"state {key!r} of {name}", value) for key, value in state.items()}
        if coupling != "queue" and (old := old_arrays_written(self.parts.read, self.state)):
            raise ArgumentError(
                f"the body of {name} writes to {old[0]}, which is the old state and stays as it is; write to {old[0]}_next"
            )
        self.scalars = {key: _scalar(f"scalar {key!r} of {name}", value) for key, value in (scalars or {}).items()}
        self.tasks = self._parse_tasks(tasks)
        if not isinstance(queue_capacity, int) or queue_capacity < 1:
            raise ArgumentError(f"queue_capacity must be a positive number of tasks, got {queue_capacity!r}")
        self.queue_capacity = max(queue_capacity, 2 * len(next(iter(self.tasks.values()), ())))
        self.items = self._parse_items(items)
        sizes = {key: array.size for key, array in self.state.items()}
        if coupling == "independent" and (read := neighbour_read(self.parts.read, sizes, self.items)):
            raise ArgumentError(
                f'the body of {name} uses {read}, and with coupling="independent" an item has its own index only; '
                'pass coupling="neighbours"'
            )
        self._check_names()

    @cached_property
    def parts(self) -> BodyParts:
        """The body, apart from the helper functions that stand before it."""
        return split_body(self.body) if self.python is None else BodyParts("", self.python.outline, 1)

    @property
    def steers(self) -> bool:
        """Whether an iteration decides something for all items: then no item can run ahead of the others."""
        return bool(_STEERING.search(self.outline))

    @cached_property
    def keeps(self) -> Mapping[str, Keep]:
        """The arrays whose old values must be copied first, because an iteration may leave some of them unwritten.

        A queue's tasks work in place: there the whole state is copied before each dispatch in any case.
        """
        if self.coupling == "queue":
            return {}
        sizes = {key: array.size for key, array in self.state.items()}
        return arrays_to_keep(self.parts.read, sizes, self.items, alone=self.coupling == "independent")

    @property
    def keeps_whole(self) -> tuple[str, ...]:
        """Those of them that are copied as a whole."""
        return tuple(key for key, keep in self.keeps.items() if keep is Keep.WHOLE)

    @property
    def layout_digest(self) -> str:
        """Identifies the layout of the state: a checkpoint with another one does not fit."""
        arrays = [[key, array.dtype.str, list(array.shape)] for key, array in self.state.items()]
        tasks = [[key, array.dtype.str] for key, array in self.tasks.items()]
        return _digest([self.coupling, self.items if self.coupling != "queue" else 0, arrays, tasks])

    @property
    def program_digest(self) -> str:
        """Identifies what an iteration computes: a checkpoint with another one cannot be resumed."""
        scalars = [[key, value.dtype.str, value.tobytes().hex()] for key, value in self.scalars.items()]
        return _digest([self.layout_digest, self.body, scalars])

    def _parse_items(self, items: int | None) -> int:
        if self.coupling == "queue":
            if items is not None:
                raise ArgumentError(f"items of {self.name} must be left out: its items are the tasks in the queue")
            return 0
        if items is None:
            return self._count_items()
        if not isinstance(items, int | np.integer) or isinstance(items, bool) or not 1 <= items <= MOST_ITEMS:
            raise ArgumentError(f"items of {self.name} must be an integer from 1 to {MOST_ITEMS:,}, got {items!r}")
        for key in sorted(always_written(self.parts.read, self.state)):
            most = self.state[key].size
            if most < items:
                raise ArgumentError(
                    f"items of {self.name} must be at most {most:,}, the number of elements of {key}, got {items:,}: "
                    "every item writes its own element"
                )
        return int(items)

    def _count_items(self) -> int:
        """An item for every element of the arrays that the body writes."""
        written = [key for key in self.state if re.search(rf"\b{re.escape(str(key))}_next\b", self.parts.read)]
        sizes = {key: self.state[key].size for key in written or self.state}
        if len(set(sizes.values())) > 1:
            shown = ", ".join(f"{key} {size:,}" for key, size in sizes.items())
            raise ArgumentError(
                f"items of {self.name} must be given, because the arrays that its body writes differ in the number of elements "
                f"({shown}); pass items=…, the number of times that the body runs in an iteration"
            )
        return next(iter(sizes.values()))

    def _parse_tasks(self, tasks: Mapping[str, Any] | None) -> dict[str, np.ndarray[Any, Any]]:
        if self.coupling != "queue":
            if tasks is not None:
                raise ArgumentError(f"tasks of {self.name} must be left out: only coupling='queue' has tasks")
            return {}
        if not isinstance(tasks, Mapping) or not tasks:
            raise ArgumentError(f"tasks of {self.name} must be a mapping of field names to arrays: the first tasks")
        parsed = {key: _array(f"task field {key!r} of {self.name}", value) for key, value in tasks.items()}
        lengths = {array.shape for array in parsed.values()}
        if len(lengths) != 1 or len(next(iter(lengths))) != 1:
            raise ArgumentError(f"the task fields of {self.name} must be arrays of one dimension and one length")
        return parsed

    def _check_names(self) -> None:
        used: set[str] = set()
        for key in (*self.state, *self.tasks, *self.scalars):
            if isinstance(key, str) and key.startswith("kk"):
                raise ArgumentError(f"{self.name} has something named {key}, and names that begin with kk are reserved")
        for key, array in (*self.state.items(), *self.tasks.items()):
            Buffer(key, _short(f"{key} of {self.name}", array.dtype))
            used |= {key} if key not in used else _twice(self.name, key)
        for key, value in self.scalars.items():
            Scalar(key, _short(f"{key} of {self.name}", value.dtype))
            used |= {key} if key not in used else _twice(self.name, key)
        for key in self.python.arguments if self.python is not None else ():
            known = [*used, *(f"{one}_next" for one in self.state if self.coupling != "queue")]
            if key not in known:
                raise ArgumentError(
                    f"the body of {self.name} takes {key}, and there is only {', '.join(sorted(known))}"
                )
        for key in self.state:
            if f"{key}_next" in used:
                raise ArgumentError(f"{self.name} has both {key} and {key}_next, which is what the new {key} is called")
        copies = {f"{key}_{kind}{role}" for key in used for kind in "st" for role in range(3)}
        for key in used:
            if key in copies:
                raise ArgumentError(
                    f"{self.name} cannot have anything named {key}: the lowered kernel uses such names itself"
                )

    def __repr__(self) -> str:
        what = f"{len(next(iter(self.tasks.values())))} tasks" if self.tasks else f"{self.items} items"
        return f"<StateProgram {self.name}, {self.coupling}, {what}: {', '.join(self.state)}>"

    def _repr_html_(self) -> str:
        from .html import program_html

        return program_html(self)


def _array(label: str, value: Any) -> np.ndarray[Any, Any]:
    try:
        array = np.array(value, order="C")
    except Exception as error:
        raise ArgumentError(f"{label} cannot be an array: {error}") from None
    parse_dtype(array.dtype)
    if not array.size or not array.ndim:
        raise ArgumentError(f"{label} is {'empty' if array.ndim else 'a single number'}, and a state holds arrays")
    if array.size > MOST_ITEMS:
        raise ArgumentError(f"{label} has {array.size:,} elements, and at most {MOST_ITEMS:,} can be counted")
    if not isinstance(value, np.ndarray | np.generic) and not hasattr(value, "__dlpack__"):
        array = narrowed(array)
    native: np.ndarray[Any, Any] = array.astype(array.dtype.newbyteorder("="), copy=False)
    return native


def _scalar(label: str, value: Any) -> np.ndarray[Any, Any]:
    """A scalar with its dtype."""
    array = np.asarray(int(value) if isinstance(value, bool) else value)
    if not isinstance(value, np.ndarray | np.generic):
        array = narrowed(array)
    if array.ndim or array.dtype.kind not in "iuf":
        raise ArgumentError(f"{label} must be a single number, got {value!r}")
    return array


def _short(label: str, dtype: np.dtype[Any]) -> str:
    if dtype.kind not in "iuf":
        raise ArgumentError(f"{label} must have integers or floats, got {dtype}")
    return dtype.str[1:]


def _twice(program: str, key: str) -> set[str]:
    raise ArgumentError(f"{program} has two things named {key}")


def _digest(facts: Any) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
