"""Saving loaded programs in the tiers: after a compile, and again after use.

Some drivers finish compiling at the first launch. The binary of such a program "ripens": saved again after its first use it
holds more native code. That is done in the background, by one thread.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from .chain import TierChain
from .entry import Entry, Facts
from .loaded_programs import LoadedProgram, LoadedPrograms
from .log import log
from .stats import Counters
from .tiers.tier import Place

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor


class SaveState:
    """What is known of a loaded program's entry in the tiers."""

    __slots__ = ("being_saved", "facts", "place", "saved", "saved_ripeness")

    def __init__(self, facts: Facts, saved: bool, place: Place | None = None) -> None:
        self.facts = facts
        self.place = place  # where it was found, if it was compiled ahead
        self.saved = saved
        self.being_saved = False
        self.saved_ripeness = 0  # the program's ripeness when it was last saved


class Saver:
    """Saves the programs of one cache. A failed save must not fail the user's call: it is logged."""

    def __init__(
        self, device: Any, chain: TierChain, programs: LoadedPrograms, counters: Counters, *, automatic: bool
    ) -> None:
        self.automatic = automatic
        self._device = device
        self._chain = chain
        self._programs = programs
        self._counters = counters
        self._ripens = device.capabilities.ripening_binaries
        self._closed = False
        self._lock = threading.Lock()
        self._pending: set[Future[None]] = set()
        self._executor: ThreadPoolExecutor | None = None

    @property
    def executor(self) -> ThreadPoolExecutor:
        """The background thread; started when it is first needed."""
        if self._executor is None:
            from concurrent.futures import ThreadPoolExecutor  # takes a while to import, and start-up counts

            self._executor = ThreadPoolExecutor(1, thread_name_prefix="kernelkeep-save")
        return self._executor

    @property
    def saves_compiled(self) -> bool:
        """Whether programs are saved as soon as they are compiled."""
        return self.automatic and bool(self._device.capabilities.program_binaries)

    def save(self, program: Any, state: SaveState) -> bool:
        """Write a program to the tiers; whether that succeeded."""
        name = state.facts.name
        if not self._device.capabilities.program_binaries:
            log(name, "not saved: this driver gives no program binaries")
            return False
        try:
            payload = program.binary()
            state.facts = msgspec.structs.replace(state.facts, payload_bytes=len(payload))
            state.saved = self._chain.put(Entry(state.facts, payload))
        except Exception as error:
            log(name, "not saved: %r", error)
            return False
        state.saved_ripeness = program.ripeness
        return state.saved

    def watch(self, loaded: LoadedProgram) -> None:
        """Save the program again when a lease on it is released after the driver compiled more of it."""
        if self._ripens and self.automatic:
            loaded.program.on_ripening = _at_next_release(loaded, self._save_again_later)

    def _save_again_later(self, loaded: LoadedProgram) -> None:
        loaded.on_release = None
        state: SaveState = loaded.save_state
        with self._lock:
            if loaded.program.ripeness <= state.saved_ripeness or state.being_saved or self._closed:
                return
            state.being_saved = True
            loaded.begin()  # whoever releases a lease on it has not ended its use yet
            try:
                future = self.executor.submit(self._save_held, loaded)
            except RuntimeError:  # the interpreter is ending; `close` saves it then
                state.being_saved = False
                loaded.end()
                return
            self._pending.add(future)
        future.add_done_callback(self._pending.discard)

    def _save_held(self, loaded: LoadedProgram) -> None:
        try:
            self._save_again(loaded)
        finally:
            loaded.end()
        if self._programs.over:
            self._programs.shrink()

    def _save_again(self, loaded: LoadedProgram) -> None:
        state: SaveState = loaded.save_state
        try:
            if loaded.program.closed or loaded.program.ripeness <= state.saved_ripeness:
                return
            self._device.synchronize()  # the driver compiles when the launch begins, not when it is requested
            state.facts = msgspec.structs.replace(state.facts, ripened=state.facts.ripened + 1)
            if self.save(loaded.program, state):
                self._counters.add(ripened=1)
                self._programs.update_size(loaded)
                log(state.facts.name, "saved again after use")
        except Exception as error:
            log(state.facts.name, "not saved again: %r", error)
        finally:
            state.being_saved = False

    def save_all(self) -> int:
        """Save every loaded program that is not saved, or riper than what is saved; how many were written."""
        self.finish()
        written = 0
        for loaded in self._programs:
            state: SaveState = loaded.save_state
            if not state.saved or loaded.program.ripeness > state.saved_ripeness:
                self._device.synchronize()
                written += self.save(loaded.program, state)
        return written

    def finish(self) -> None:
        """Wait for what is being saved in the background."""
        for future in list(self._pending):
            future.exception()

    def close(self) -> None:
        """Save what ripened since, and end the background thread."""
        self._closed = True
        self.finish()
        if self._executor is not None:
            self._executor.shutdown(wait=True)
        if self.automatic and self._ripens and not self._device.closed:
            for loaded in self._programs:
                self._save_again(loaded)


def _at_next_release(loaded: LoadedProgram, save: Callable[[LoadedProgram], None]) -> Callable[[], None]:
    """Have `save` called at the next release of a lease. Holds the program weakly: in a cycle it would be freed late."""
    held = weakref.ref(loaded)

    def note() -> None:
        found = held()
        if found is not None:
            found.on_release = save

    return note
