"""The launches of a run: each form compiled once, and bound once to each of the two copies of the state.

Scalar arguments that change from slice to slice (`kkbudget`, `kkdeadline`, …) are updated only where they differ from the
last launch.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ..cache.program_cache import ProgramCache
from ..devices.array import Array
from ..devices.lanes import Lanes
from ..devices.prepared import Prepared
from ..devices.replay import Replay
from ..errors import Unsupported
from .chains import Chains
from .lowering.forms import GRID_GROUP, Form, can_chain, lower, may_be_wide
from .mailbox import MAILBOX_WORDS
from .program import StateProgram
from .state import State

if TYPE_CHECKING:
    from ..cache.lease import Lease

_MOST_GROUPS = 2048  # enough for the largest device; each takes part in a commit
_QUEUE_GROUPS = 512  # tasks come and go: the grid is what keeps a GPU busy, and groups without tasks end at once
_UNLIMITED = 2**31 - 1
_BLOCK_ITEMS = 8192  # items that one group of a GPU may handle sooner than many groups that wait for each other
_LARGEST_CHAINED_BYTES = 32 << 20


class Launches:
    """Makes the launches of a program on a device, and keeps them."""

    def __init__(
        self, cache: ProgramCache, program: StateProgram, state: State, lanes: Lanes, condition: str | None
    ) -> None:
        self._cache = cache
        self._device = cache.device
        self._program = program
        self._state = state
        self.queue = lanes.compute.queue
        self._condition = condition
        self.steers = program.steers or condition is not None
        self._mailbox: np.ndarray[Any, Any] | None = None
        self._leases: list[Lease] = []
        self._forms: dict[tuple[str, bool], tuple[Form, Any, int]] = {}
        self._prepared: dict[tuple[str, bool, int], Prepared] = {}
        self._scalars: dict[tuple[str, bool, int], dict[str, int]] = {}  # as each launch has them now
        self._replays: dict[tuple[int, int], Replay] = {}
        self.chains = Chains(self, program, state, self._device)

    def require(self, kind: str) -> None:
        """Raise `Unsupported` where a form cannot run on this device, naming why."""
        program = self._program
        if kind == "span" and (program.coupling != "independent" or self.steers):
            raise Unsupported(
                "independent items",
                f"{program.name} cannot run many iterations of one item alone: its items depend on each other",
            )
        if kind == "span" and any(array.size > program.items for array in program.state.values()):
            # An even number of iterations ends in the scratch copy, from where each item copies index i only.
            raise Unsupported("one element an item", f"{program.name} has arrays with more elements than items")
        if kind == "span" and program.keeps_whole:
            raise Unsupported("one element an item", f"{program.name} may write other elements than each item's own")
        if kind in ("grid", "block"):
            self._device.capabilities.require("cooperative")
        if kind == "chain" and not self._can_chain:
            raise Unsupported("chain", f"{program.name} cannot run as one chain of launches on {self._device.spec}")

    def can(self, kind: str) -> bool:
        """Whether a form can run on this device."""
        try:
            self.require(kind)
        except Unsupported:
            return False
        return True

    @property
    def _can_chain(self) -> bool:
        """A chain pays for iterations of microseconds. It needs a third copy of the state, which is then small."""
        nbytes = sum(array.nbytes for array in self._program.state.values())
        small = nbytes <= _LARGEST_CHAINED_BYTES and not self._state.in_place
        return small and self._device.replays_whole and self.can("grid") and can_chain(self._program, self.steers)

    @property
    def many(self) -> str:
        """The form that runs many iterations in one dispatch: the widest this device has for this program."""
        return next(kind for kind in ("span", "grid", "group") if self.can(kind))

    @property
    def loops(self) -> tuple[str, ...]:
        """All forms that run many iterations in one dispatch and may be the fastest one."""
        few = GRID_GROUP < self._program.items <= _BLOCK_ITEMS and not self._program.tasks
        return (self.many, "block") if self.many == "grid" and few else (self.many,)

    @property
    def largest_grid(self) -> int:
        """The most groups of any form so far."""
        return max((groups for _, _, groups in self._forms.values()), default=1)

    def get(self, kind: str, supervised: bool = False, **scalars: int) -> Prepared:
        """The launch of a form from the committed copy to the other one, with these scalar arguments."""
        key = (kind, supervised, self._state.current)
        prepared = self._prepared.get(key)
        if prepared is None:
            form, kernel, groups = self._form(kind, supervised)
            args = tuple(self._argument(name) for name in form.arguments)
            prepared = kernel.prepare(groups, args, queue=self.queue, cooperative=kind in ("grid", "block"))
            self._prepared[key] = prepared
            self._scalars[key] = {}
        if scalars:
            current = self._scalars[key]
            for name, value in scalars.items():
                if current.get(name) != value:
                    prepared.update(name, value)
                    current[name] = value
        return prepared

    def bind(self, kind: str, roles: tuple[int, ...] = (0, 1, 2), **scalars: int) -> Prepared:
        """A launch of a form of its own, with other copies of the state in its roles."""
        form, kernel, groups = self._form(kind, False)
        args = tuple(scalars[name] if name in scalars else self._argument(name, roles) for name in form.arguments)
        prepared: Prepared = kernel.prepare(groups, args, queue=self.queue)
        return prepared

    def replay(self, steps: int, *, copies_before: bool) -> Replay:
        """An even number of single iterations as one launch, from the committed copy and back to it."""
        state = self._state
        key = (steps, state.current)
        if key not in self._replays:
            recorded: list[Prepared] = []
            for _ in range(steps):
                if copies_before:
                    recorded.append(self.get("copy"))
                recorded.append(self.get("step"))
                state.current = 1 - state.current
            self._replays[key] = self._device.new_replay(recorded, self.queue)
        return self._replays[key]

    def empty_mailbox(self) -> np.ndarray[Any, Any]:
        """Host memory that a running kernel reads and writes, cleared for the next slice."""
        if self._mailbox is None:
            self._device.capabilities.require("mapped_ring")
            self._mailbox = self._device.pinned_empty(MAILBOX_WORDS, "u4")
        self._mailbox[:] = 0
        return self._mailbox

    def _form(self, kind: str, supervised: bool) -> tuple[Form, Any, int]:
        key = (kind, supervised)
        if key not in self._forms:
            self.require(kind)
            program, condition = self._program, self._condition
            # A block is a grid of one group, which waits for no other.
            text = "grid" if kind == "block" else kind
            wide = kind == "link" and may_be_wide(program)
            form, kernel = self._load(lower(program, text, supervised=supervised, condition=condition, wide=wide))
            groups = self._groups(kind, kernel, supervised)
            if wide and groups > kernel.resident_groups():
                form, kernel = self._load(lower(program, text))
                groups = self._groups(kind, kernel, supervised)
            self._forms[key] = form, kernel, groups
        return self._forms[key]

    def _load(self, form: Form) -> tuple[Form, Any]:
        lease = self._cache.get(form.source(self._device))
        self._leases.append(lease)
        return form, lease.kernel(form.kernel.name)

    def _groups(self, kind: str, kernel: Any, supervised: bool) -> int:
        if kind in ("group", "block", "commit"):
            return 1
        program, state = self._program, self._state
        items = state.capacity if program.tasks else program.items
        if kind == "copy":
            items = max(array.size for array in state.arrays[0].values())
        wanted = -(-items // math.prod(kernel.group))
        if kind == "grid":
            most = int(kernel.resident_groups()) - supervised
            if most < 1:
                raise Unsupported("cooperative", f"no group of {program.name} fits on {self._device.spec}")
            return int(min(wanted, most)) + supervised
        if kind == "link":
            return int(wanted)
        most = _QUEUE_GROUPS if program.tasks else min(_MOST_GROUPS, self._device.capabilities.max_grid[0])
        return int(min(wanted, most))

    def _argument(self, name: str, roles: tuple[int, ...] = (0, 1, 2)) -> Any:
        state, program = self._state, self._program
        if name == "control":
            return state.control
        if name == "mailbox":
            mailbox = self._mailbox if self._mailbox is not None else self.empty_mailbox()
            return Array(self._device, mailbox.shape, mailbox.dtype, mailbox.ctypes.data, guest=mailbox)
        if ":" in name:
            key, role = name.split(":")
            which = roles[int(role)]
            return state.copy(0 if which == 2 and state.in_place else which)[key]
        if "@" in name:
            key, role = name.split("@")
            return state.queue(int(role))[key]
        if name in program.scalars:
            return program.scalars[name][()]
        if name.startswith("kksize_"):
            return state.arrays[0][name.removeprefix("kksize_")].size
        own = {"kkitems": program.items, "kkcurrent": state.current, "kkbudget": 1, "kktwo": 2, "kkdeadline": 0}
        own |= {"kkcapacity": state.capacity, "kklimit": _UNLIMITED, "kkchunk": 1, "kkfrom": 0, "kkupto": program.items}
        own |= {"kkafter": 0}
        return own[name]

    def drop(self) -> None:
        """Forget the bound launches: the memory that they were bound to was replaced."""
        for replay in self._replays.values():
            replay.close()
        self._replays.clear()
        self.chains.drop()
        self._prepared.clear()

    def close(self) -> None:
        """Drop the launches and release the programs."""
        self.drop()
        for lease in self._leases:
            lease.release()
        self._leases.clear()
