"""A model of the ring's protocol, small enough to go through every order in which things can happen.

One lane, a few slots, a few tasks, tags of two or three bits. The steps are those of `resident/protocol.py`; `Rules` has a switch
for each thing that the protocol demands, to see that the model notices when it is left out.

Memory is weaker than any machine's. Stores of the host become visible to the device in any order, but for stores to one address
and for what a release says. Without an acquire the reader may see any content that a slot had since its last acquire. Stores of
the device wait in a buffer and arrive at the host in any order, but for stores to one address and for what a fence says; a
crash loses those that have not arrived. The copy of the newest record has two words. The reader looks at each of them whenever it
likes, and keeps what it saw until it has its next record: a look that takes longer than any real one.

What happens under the interpreter's lock is one step, because nobody sees its parts but through memory; a crash may come
between its stores. After a crash the next process submits other records than the last one would have, so a record that came as a
copy without a head, and should be forgotten, is told from what takes its number.

No step is ever undone, so every path is finite, and a state in which nothing can happen must be one in which all work is done.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

RUN, ASKED, LEAVING = range(3)  # the host wants the grid to end; the block has noticed
NOTHING = -1  # in a slot that was never written
MIXED = -2  # a record made of words of two


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
    # the copy of the newest record
    copy_words_have_tags: bool = True  # each of them, not the first only
    copy_is_spoilt: bool = True  # by submissions without one
    copy_is_spoilt_whole: bool = True  # not its first word only
    copy_is_released: bool = True  # after the record, words of results that were spoilt, and the head before
    old_tags_are_spoilt_before_copy: bool = True
    head_is_compared: bool = True  # one behind what the block has means no tasks, not 2^64 of them
    copy_needs_room: bool = True  # in the block
    run_copy_is_accepted: bool = True  # after a crash done may be head + 1
    recovery_spoils_copy: bool = True
    recovery_spoils_result: bool = True  # of a task that was run from a copy and never submitted


class Case(NamedTuple):
    """What happens: how many tasks, which have results, and what goes wrong."""

    results: tuple[bool, ...]  # for each task
    producers: int = 1
    all_write_words: bool = False  # the device writes words for tasks without results, too
    exits: int = 0
    crashes: int = 0
    capacity: int = 2
    tags: int = 4  # how many there are before they return
    copies: tuple[
        bool, ...
    ] = ()  # for each task: whether it has a copy when it is submitted alone; without any, no copy is looked at
    room: int = 0  # how many records a block holds; 0: as many as there are slots
    copy_after_head: bool = False


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
    copy: tuple[Word, ...]
    effects: int  # bit by task: what it wrote has arrived
    command: int
    # the device
    seen: int  # head, as the reader saw it
    views: tuple[tuple[int, ...], ...]  # what a reader that does not acquire may see in each slot
    looked: tuple[int | None, ...]  # words of the copy that the reader saw with the tag of its next task
    held: tuple[int, ...]  # records fetched and not run
    ran: int
    told: int
    sent: tuple[tuple[Any, ...], ...]  # stores that have not arrived, ordered by address
    runs: tuple[int, ...]  # how often each task ran
    exits: int
    crashes: int
    heads: tuple[int, ...]  # at each crash


NOT_LOOKED = (None, None)


def begin(case: Case) -> State:
    tasks = len(case.results)
    taken = sum(1 << task for task in range(tasks) if not case.results[task])
    empty = (NOTHING,) * case.capacity
    return State(
        0, (), 0, (), taken, 0, 0, empty, ((0, NOTHING),) * (2 * case.capacity), ((0, NOTHING),) * 2, 0, RUN,
        0, (), NOT_LOOKED, (), 0, 0, (), (0,) * tasks, case.exits, case.crashes, (),
    )  # fmt: skip


class Model:
    """Every state that can be reached, once each."""

    def __init__(self, case: Case, rules: Rules) -> None:
        self.case, self.rules = case, rules
        self.tasks, self.capacity = len(case.results), case.capacity
        self.room = case.room or case.capacity
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
        stores: list[tuple[Any, ...]] = [
            ("slot", one % self.capacity, record_of(state, one)) for one in range(task, task + count)
        ]
        late: list[tuple[Any, ...]] = []
        if self.rules.old_tags_are_spoilt and task + count >= self.case.tags:
            for one in range(task, task + count):
                tag = (one + 1) % self.case.tags
                for at in (2 * (one % self.capacity), 2 * (one % self.capacity) + 1):
                    if self.case.copies and self.case.results[one] and not self.rules.old_tags_are_spoilt_before_copy:
                        late.append(("look", at, tag))
                    elif self.case.results[one] and state.words[at][0] == tag:
                        stores.append(("word", at, ((tag + 1) % self.case.tags, NOTHING)))
        head = ("head", 0, task + count)
        copy = self.copied(state, task, count)
        if self.case.copy_after_head:
            stores = [*stores, head, *copy]
        elif self.rules.record_before_head:
            stores = [*stores, *copy, *late, head]
        else:
            stores = [head, *stores, *copy]
        return state._replace(submitted=task + count, stores=(*state.stores, *stores))

    def copied(self, state: State, task: int, count: int) -> list[tuple[Any, ...]]:
        """The stores of a copy, or those that spoil the one before."""
        if not self.case.copies:
            return []
        if count == 1 and self.case.copies[task]:
            word = ((task + 1) % self.case.tags, record_of(state, task))
            return [("copy", 0, word), ("copy", 1, word)]
        if not self.rules.copy_is_spoilt:
            return []
        oldest = max(0, task + count - self.capacity)  # `done` as the host may know it
        spoilt = (oldest % self.case.tags, NOTHING)
        return [("copy", at, spoilt) for at in ((0, 1) if self.rules.copy_is_spoilt_whole else (0,))]

    def store(self, state: State) -> Iterator[tuple[str, State]]:
        """A store of the host becomes visible."""
        for number, (kind, at, value) in enumerate(state.stores):
            if number and kind == "head" and self.rules.head_is_released:
                continue
            if (
                kind == "copy"
                and self.rules.copy_is_released
                and any(one[0] != "copy" for one in state.stores[:number])
            ):
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
        if kind == "copy":
            return state._replace(copy=replaced(state.copy, at, value))
        if kind == "look":  # whether an old tag is there, after the copy went out
            if state.words[at][0] != value:
                return state
            return state._replace(words=replaced(state.words, at, ((value + 1) % self.case.tags, NOTHING)))
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
            if any(word[1] != record_of(state, task) for word in words):
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
        has_room = ready - state.told < self.room
        if self.case.copies:
            yield from self.read_copy(state, ready, has_room)
        behind = state.head < ready and not self.rules.head_is_compared
        if (ready < state.seen or behind) and has_room:
            slot = ready % self.capacity
            for record in set(state.views[slot]) if state.views else (state.slots[slot],):
                yield f"fetch {ready}", state._replace(held=(*state.held, record), looked=NOT_LOOKED)

    def read_copy(self, state: State, ready: int, has_room: bool) -> Iterator[tuple[str, State]]:
        """The reader looks at one word of the copy, or has seen all of them and takes them as its next record."""
        for at, (tag, record) in enumerate(state.copy):
            matches = tag == (ready + 1) % self.case.tags or (at and not self.rules.copy_words_have_tags)
            if matches and state.looked[at] is None:
                yield f"look at word {at} of the copy", state._replace(looked=replaced(state.looked, at, record))
        first, second = state.looked
        if first is not None and second is not None and (has_room or not self.rules.copy_needs_room):
            record = first if first == second else MIXED
            held = (*state.held, record)
            if not has_room and ready - self.room >= state.ran:
                held = replaced(held, ready - self.room - state.ran, record)  # it lies where an older one lay
            yield f"take the copy as {ready}", state._replace(held=held, looked=NOT_LOOKED)

    def run(self, state: State) -> Iterator[tuple[str, State]]:
        """A task runs. What it writes is sent, and arrives some time."""
        if not state.held or state.command == LEAVING:
            return
        task = state.ran
        if state.held[0] != record_of(state, task):
            raise Violation(f"run {task} with the record of {state.held[0]}")
        if task >= state.submitted:
            raise Violation(f"run {task}, which was not submitted")
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
                    word = ((task + 1) % self.case.tags, record_of(state, task))
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
            yield "take over", state._replace(command=RUN, seen=at, looked=NOT_LOOKED, held=(), ran=at, told=at)

    def crash(self, state: State) -> Iterator[tuple[str, State]]:
        """The process dies, and the device's stores with it; another one goes on with the ring in its file."""
        for executed in range(len(state.stores) + 1):
            kept = state
            for kind, at, value in state.stores[:executed]:
                kept = self.visible(kept, kind, at, value)
            if not self.rules.recovery_at_done:
                kept = kept._replace(done=kept.head)
            if kept.done > kept.head:
                if kept.done > kept.head + 1 or not self.rules.run_copy_is_accepted:
                    raise Violation(f"a crash leaves a ring with head {kept.head} and done {kept.done}")
                kept = kept._replace(head=kept.done)
            kept = self.recovered(kept)
            at = kept.done
            nobody_waits = kept.taken | (1 << kept.head) - 1
            yield (
                "crash",
                kept._replace(
                    stores=(), claims=(), submitted=kept.head, taken=nobody_waits, command=RUN,
                    views=(), seen=at, looked=NOT_LOOKED, held=(), ran=at, told=at, sent=(), crashes=state.crashes - 1,
                    heads=(*state.heads, kept.head) if self.case.copies else (),
                ),
            )  # fmt: skip

    def recovered(self, state: State) -> State:
        """Forget a task that came as a copy and has no head, and what it left if it was run."""
        if not self.case.copies:
            return state
        state = state._replace(effects=state.effects & (1 << state.head) - 1)
        if self.rules.recovery_spoils_copy:
            state = state._replace(copy=((state.done % self.case.tags, NOTHING),) * 2)
        tag = (state.head + 1) % self.case.tags
        for at in (2 * (state.head % self.capacity), 2 * (state.head % self.capacity) + 1):
            if self.rules.recovery_spoils_result and state.words[at][0] == tag:
                state = state._replace(words=replaced(state.words, at, ((tag + 1) % self.case.tags, NOTHING)))
        return state


def record_of(state: State, task: int) -> int:
    """What is submitted as this task: another record after each crash that the number survived."""
    return task + 100 * sum(head <= task for head in state.heads)


def replaced(values: tuple[Any, ...], at: int, value: Any) -> tuple[Any, ...]:
    return (*values[:at], value, *values[at + 1 :])
