"""A model of the ring's protocol, small enough to go through every order in which things can happen.

One lane, a few slots, a few tasks, tags of two or three bits. The steps are those of `resident/protocol.py`; `Rules` has a switch
for each thing that the protocol demands, to see that the model notices when it is left out.

Memory is weaker than any machine's. Stores of the host become visible to the device in any order, but for stores to one address
and for what a release says. Without an acquire the reader may see any content that a slot had since its last acquire. Stores of
the device wait in a buffer and arrive at the host in any order, but for stores to one address and for what a fence says; a
crash loses those that have not arrived. What happens under the interpreter's lock is one step, because nobody sees its parts
but through memory; a crash may come between its stores.

No step is ever undone, so every path is finite, and a state in which nothing can happen must be one in which all work is done.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

RUN, ASKED, LEAVING = range(3)  # the host wants the grid to end; the block has noticed
NOTHING = -1  # in a slot that was never written


class Rules(NamedTuple):
    """What the protocol demands, switch by switch."""

    record_before_head: bool = True  # in the order of the host's stores
    head_is_released: bool = True
    room_is_waited_for: bool = True  # a slot is written only when the task in it is acknowledged
    results_are_collected: bool = True  # before a slot is used again
    old_tags_are_spoilt: bool = True
    producers_take_turns: bool = True  # the lock
    head_is_acquired: bool = True
    fence_before_done: bool = True
    tags_are_checked: bool = True
    both_words_are_checked: bool = True
    exit_acknowledges: bool = True  # a block ends only when all it has run is acknowledged
    end_is_waited_for: bool = True  # the next grid starts when the writes of the last one have arrived
    takeover_at_done: bool = True  # not where the last grid's reader was
    recovery_at_done: bool = True  # after a crash; not at head


class Case(NamedTuple):
    """What happens: how many tasks, which have results, and what goes wrong."""

    results: tuple[bool, ...]  # for each task
    producers: int = 1
    all_write_words: bool = False  # the device writes words for tasks without results, too
    exits: int = 0
    crashes: int = 0
    capacity: int = 2
    tags: int = 4  # how many there are before they return


class Violation(AssertionError):
    """The model found a way to break a promise."""


Word = tuple[int, int]  # tag, and the task whose result it is


class State(NamedTuple):
    # the host
    submitted: int
    claims: tuple[tuple[int, int], ...]  # of producers that do not take turns: what to submit, and as which number
    claimed: int
    stores: tuple[tuple[Any, ...], ...]  # not visible to the device yet, in the order of the program
    taken: int  # bit by task: its result was collected, or nobody wants it
    # the ring as it is in memory
    head: int
    done: int
    slots: tuple[int, ...]
    words: tuple[Word, ...]
    effects: int  # bit by task: what it wrote has arrived
    command: int
    # the device
    seen: int  # head, as the reader saw it
    views: tuple[tuple[int, ...], ...]  # what a reader that does not acquire may see in each slot
    held: tuple[int, ...]  # records fetched and not run
    ran: int
    told: int
    sent: tuple[tuple[Any, ...], ...]  # stores that have not arrived, ordered by address
    runs: tuple[int, ...]  # how often each task ran
    exits: int
    crashes: int


def begin(case: Case) -> State:
    tasks = len(case.results)
    taken = sum(1 << task for task in range(tasks) if not case.results[task])
    empty = (NOTHING,) * case.capacity
    return State(
        0, (), 0, (), taken, 0, 0, empty, ((0, NOTHING),) * (2 * case.capacity), 0, RUN,
        0, (), (), 0, 0, (), (0,) * tasks, case.exits, case.crashes,
    )  # fmt: skip


class Model:
    """Every state that can be reached, once each."""

    def __init__(self, case: Case, rules: Rules) -> None:
        self.case, self.rules = case, rules
        self.tasks, self.capacity = len(case.results), case.capacity
        self.states = self.steps = 0

    def explore(self) -> None:
        """Go through all of them; `Violation` with the way there at the first that breaks a promise."""
        first = begin(self.case)
        seen = {first}
        path: list[str] = []
        stack = [self.after(first)]
        try:
            while stack:
                for name, state in stack[-1]:
                    self.steps += 1
                    if state not in seen:
                        seen.add(state)
                        path.append(name)
                        stack.append(self.after(state))
                        break
                else:
                    stack.pop()
                    if path:
                        path.pop()
        except Violation as error:
            raise Violation(f"{error}; after: {', '.join(path)}") from None
        self.states = len(seen)

    def after(self, state: State) -> Iterator[tuple[str, State]]:
        """Every step that is possible now."""
        moved = False
        for steps in (self.submit, self.store, self.collect, self.arrive, self.read, self.run, self.tell, self.exit):
            for step in steps(state):
                moved = True
                yield step
        if not moved:
            if not (self.tasks == state.done == state.head == state.submitted and state.taken == (1 << self.tasks) - 1):
                raise Violation(f"nothing goes on, with {state.done} tasks done and results {state.taken:b} collected")
            if not state.crashes < self.case.crashes and state.runs != (1,) * self.tasks:
                raise Violation(f"the tasks ran {state.runs} times")
        if state.crashes:
            yield from self.crash(state)

    # --- the host

    def submit(self, state: State) -> Iterator[tuple[str, State]]:
        """A producer writes one record, or two with one store of head."""
        if self.rules.producers_take_turns:
            for count in (1, 2):
                if state.submitted + count <= self.tasks and self.has_room(state, state.submitted, count):
                    yield f"submit {count}", self.pushed(state, state.submitted, count)
            return
        if len(state.claims) < self.case.producers and state.claimed < self.tasks:
            claims = (*state.claims, (state.claimed, state.submitted))
            yield "claim", state._replace(claims=claims, claimed=state.claimed + 1)
        for number, (record, task) in enumerate(state.claims):
            if self.has_room(state, task, 1):
                others = state.claims[:number] + state.claims[number + 1 :]
                stores = (*state.stores, ("slot", task % self.capacity, record), ("head", 0, task + 1))
                yield f"submit {record} as {task}", state._replace(claims=others, submitted=task + 1, stores=stores)

    def has_room(self, state: State, task: int, count: int) -> bool:
        for old in range(task - self.capacity, task - self.capacity + count):
            if old >= 0:
                if self.rules.room_is_waited_for and state.done <= old:
                    return False
                if self.rules.results_are_collected and not state.taken >> old & 1:
                    return False
        return True

    def pushed(self, state: State, task: int, count: int) -> State:
        stores: list[tuple[Any, ...]] = [("slot", one % self.capacity, one) for one in range(task, task + count)]
        if self.rules.old_tags_are_spoilt and task + count >= self.case.tags:
            for one in range(task, task + count):
                tag = (one + 1) % self.case.tags
                for at in (2 * (one % self.capacity), 2 * (one % self.capacity) + 1):
                    if self.case.results[one] and state.words[at][0] == tag:
                        stores.append(("word", at, ((tag + 1) % self.case.tags, NOTHING)))
        head = ("head", 0, task + count)
        stores = [*stores, head] if self.rules.record_before_head else [head, *stores]
        return state._replace(submitted=task + count, stores=(*state.stores, *stores))

    def store(self, state: State) -> Iterator[tuple[str, State]]:
        """A store of the host becomes visible."""
        for number, (kind, at, value) in enumerate(state.stores):
            if number and kind == "head" and self.rules.head_is_released:
                continue
            if any(one[:2] == (kind, at) for one in state.stores[:number]):
                continue
            rest = state._replace(stores=state.stores[:number] + state.stores[number + 1 :])
            yield f"{kind} {at} = {value} visible", self.visible(rest, kind, at, value)

    def visible(self, state: State, kind: str, at: int, value: Any) -> State:
        if kind == "head":
            return state._replace(head=value)
        if kind == "word":
            return state._replace(words=replaced(state.words, at, value))
        if not self.rules.head_is_acquired:
            views = state.views or tuple((old,) for old in state.slots)
            state = state._replace(views=replaced(views, at, (*views[at], value)))
        return state._replace(slots=replaced(state.slots, at, value))

    def collect(self, state: State) -> Iterator[tuple[str, State]]:
        """The host takes a result out of the ring."""
        for task in range(min(state.done, self.tasks)):
            if state.taken >> task & 1:
                continue
            at = 2 * (task % self.capacity)
            words = state.words[at : at + 2]
            tag = (task + 1) % self.case.tags
            if self.rules.tags_are_checked:
                checked = words if self.rules.both_words_are_checked else words[:1]
                if any(word[0] != tag for word in checked):
                    continue
            if any(word[1] != task for word in words):
                raise Violation(f"collect {task} finds the words {words}")
            yield f"collect {task}", state._replace(taken=state.taken | 1 << task)

    # --- the device

    def read(self, state: State) -> Iterator[tuple[str, State]]:
        """The reader looks at head, then fetches records."""
        ready = state.ran + len(state.held)
        if state.command == LEAVING:
            return
        if state.seen < state.head:
            yield "look", state._replace(seen=state.head)
        if ready < state.seen and ready - state.told < self.capacity:
            slot = ready % self.capacity
            for record in set(state.views[slot]) if state.views else (state.slots[slot],):
                yield f"fetch {ready}", state._replace(held=(*state.held, record))

    def run(self, state: State) -> Iterator[tuple[str, State]]:
        """A task runs. What it writes is sent, and arrives some time."""
        if not state.held or state.command == LEAVING:
            return
        task = state.ran
        if state.held[0] != task:
            raise Violation(f"run {task} with the record of {state.held[0]}")
        if task < state.done:
            raise Violation(f"run {task}, which is acknowledged")
        if state.runs[task] and state.crashes == self.case.crashes:
            raise Violation(f"run {task} again")
        sent = tuple(sorted((*state.sent, ("effect", task, task))))
        runs = replaced(state.runs, task, min(2, state.runs[task] + 1))
        yield f"run {task}", state._replace(held=state.held[1:], ran=task + 1, sent=sent, runs=runs)

    def tell(self, state: State) -> Iterator[tuple[str, State]]:
        """The writer: a fence for some tasks that were run, then their words and done."""
        for upto in range(state.told + 1, state.ran + 1):
            if self.rules.fence_before_done and any(one[0] != "effect" or one[1] < upto for one in state.sent):
                return
            posts: list[tuple[Any, ...]] = [("done", 0, upto)]
            for task in range(state.told, upto):
                if self.case.results[task] or self.case.all_write_words:
                    word = ((task + 1) % self.case.tags, task)
                    posts += [("word", 2 * (task % self.capacity) + half, word) for half in (0, 1)]
            # Stable: stores to one address stay in their order.
            sent = tuple(sorted((*state.sent, *posts), key=lambda one: one[:2]))
            yield f"tell {upto}", state._replace(told=upto, sent=sent)

    def arrive(self, state: State) -> Iterator[tuple[str, State]]:
        """A store of the device arrives at the host."""
        before: tuple[Any, ...] = ()
        for number, (kind, at, value) in enumerate(state.sent):
            if before == (kind, at):
                continue
            before = (kind, at)
            rest = state._replace(sent=state.sent[:number] + state.sent[number + 1 :])
            if kind == "word":
                yield f"word {at} arrives", rest._replace(words=replaced(rest.words, at, value))
            elif kind == "effect":
                yield f"effect {at} arrives", rest._replace(effects=rest.effects | 1 << at)
            else:
                if ~rest.effects & (1 << value) - 1:
                    raise Violation(f"done = {value} arrives before what the tasks wrote")
                yield f"done {value} arrives", rest._replace(done=value)

    def exit(self, state: State) -> Iterator[tuple[str, State]]:
        """The host wants the grid to end; it ends at a task boundary, and another takes over."""
        if state.exits and state.command == RUN:
            yield "ask to exit", state._replace(command=ASKED, exits=state.exits - 1)
        if state.command == ASKED:
            yield "notice", state._replace(command=LEAVING)
        if state.command == LEAVING:
            if self.rules.exit_acknowledges and state.told < state.ran:
                return
            if self.rules.end_is_waited_for and state.sent:
                return
            at = state.done if self.rules.takeover_at_done else state.ran + len(state.held)
            yield "take over", state._replace(command=RUN, seen=at, held=(), ran=at, told=at)

    def crash(self, state: State) -> Iterator[tuple[str, State]]:
        """The process dies, and the device's stores with it; another one goes on with the ring in its file."""
        for executed in range(len(state.stores) + 1):
            kept = state
            for kind, at, value in state.stores[:executed]:
                kept = self.visible(kept, kind, at, value)
            if not self.rules.recovery_at_done:
                kept = kept._replace(done=kept.head)
            at = kept.done
            nobody_waits = kept.taken | (1 << kept.head) - 1
            yield (
                "crash",
                kept._replace(
                    stores=(), claims=(), submitted=kept.head, taken=nobody_waits, command=RUN,
                    views=(), seen=at, held=(), ran=at, told=at, sent=(), crashes=state.crashes - 1,
                ),
            )  # fmt: skip


def replaced(values: tuple[Any, ...], at: int, value: Any) -> tuple[Any, ...]:
    return (*values[:at], value, *values[at + 1 :])
