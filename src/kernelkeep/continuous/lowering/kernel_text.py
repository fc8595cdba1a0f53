"""The kernel of each form: which items and iterations it runs, how its groups wait for each other, and how a slice is committed.

It is a portable body: the same text for every language, with macros that `functions.py` defines.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..mailbox import NEVER, HostWord, Stopped, StopRequest, Word
from .outline import Outline


class KernelText(Outline):
    """Writes the kernel text of one form."""

    def text(self) -> str:
        """The body of the kernel."""
        # A kernel does nothing in a run that has stopped: its loops are empty, because PoCL 3.0 crashes on a barrier in an `if`.
        opening = [
            f"bool kkruns = kkcontrol[{Word.STOPPED:d}] == 0u;",
            f"int kkbase = kk_int(kkcontrol[{Word.ITERATION:d}]);",
            f"int kkphase = kk_int(kkcontrol[{Word.PHASE:d}]);",
            "int kkstride = kk_global_size(0);",
            "int kkfirst = kk_global_id(0);",
            "int kkdone = 1;",
        ]
        if self.kind == "copy":
            keys = self.program.state if self.queue else self.program.keeps_whole
            copies = _copies(keys, 0, 1, only_if="kkruns")
            # The device copies, because only it knows whether the slice before this one was committed.
            return "\n".join([opening[0], *opening[3:5], *copies])
        if self.kind == "link":
            # A work-item for each item: a loop takes time of its own. What the body does not use of the opening is not read.
            step = "if (kkfirst < kkitems) { KK_STEP_01(kkfirst, kkbase + kkafter); }"
            return "\n".join([*opening[1:3], opening[4], step])
        forms = {"step": self._step, "span": self._span, "group": self._many, "grid": self._many}
        return "\n".join([*opening, *forms[self.kind](), *self._commit()])

    def _step(self) -> list[str]:
        if self.queue:
            return self._wave()
        return [
            "int kkend = kkruns ? (kkupto < kkitems ? kkupto : kkitems) : 0;",
            "KK_UNROLL",
            "for (int kki = kkfrom + kkfirst; kki < kkend; kki += kkstride) { KK_STEP_01(kki, kkbase); }",
        ]

    def _wave(self) -> list[str]:
        """A round of the queue: the first `limit` tasks run, the rest moves to the next round.

        Where the device has a clock, tasks that have not begun at the deadline move as well.
        """
        return [
            f"int kkcount = kkruns ? kk_int(kkcontrol[{Word.COUNT:d} + kk_index(0)]) : 0;",
            "int kktake = kkcount < kklimit ? kkcount : kklimit;",
            "uint kklate = 0u;",
            "KK_BEGIN_CLOCK",
            "for (int kki = kkfirst; kki < kkcount; kki += kkstride) {",
            "if (kki < kktake && !KK_IS_LATE) { KK_STEP_01(kki, kkbase); }",
            "else { if (kki < kktake) kklate++; KK_MOVE_01(kki, kkbase); } }",
            "KK_COUNT_LATE(kklate)",
        ]

    def _span(self) -> list[str]:
        # An array may be smaller than there are items: one that is only read.
        home = " ".join(f"if (kki < kksize_{key}) {key}_s1[kki] = {key}_s2[kki];" for key in self.program.state)
        return [
            "int kkend = kkruns ? kkitems : 0;",
            "for (int kki = kkfirst; kki < kkend; kki += kkstride) {",
            "for (int kkk = 0; kkk < kkbudget; kkk++) {",
            _step_alternating("kkbase + kkk"),
            "}",
            # An even number of iterations ends in the scratch copy.
            f"if ((kkbudget & 1) == 0) {{ {home} }}",
            "}",
            "kkdone = kkbudget;",
        ]

    def _many(self) -> list[str]:
        """Many iterations, with a barrier of all work-items between them."""
        grid = self.kind == "grid"
        barrier = f"kkmeet(kkcontrol, ++kkmeeting, kk_uint({self._workers()}));" if grid else "kk_barrier();"
        leader = "kkfirst == 0"
        lines = ["kkdone = 0;"]
        if grid:
            lines += ["uint kkmeeting = 0u;", "unsigned long kkstart = kk_clock();"]
            workers = self._workers()
            lines += [f"kkstride = {workers} * kk_group_size(0);"]
            lines += [f"if (kk_group_id(0) < {workers}) {{"] if self.supervised else []
        lines += ["int kkgoal = kkruns ? kkbudget : 0;"]
        if self.program.keeps_whole:
            # PoCL allows no barrier in an `if`; a grid must not wait where the commit does not reset the counter.
            lines += [
                *_copies(self.program.keeps_whole, 0, 1, only_if="kkgoal != 0"),
                f"if (kkgoal != 0) {{ {barrier} }}" if grid else barrier,
            ]
        lines += ["while (kkdone < kkgoal) {"]
        if self.queue:
            lines += ["int kkin = kkdone == 0 ? 0 : (kkdone & 1) != 0 ? 1 : 2; int kkto = (kkdone & 1) != 0 ? 2 : 1;"]
            lines += [
                f"int kkcount = kk_int(KK_READ(kkcontrol[{Word.COUNT:d} + kk_index(kkin)]));",
                "int kktake = kkcount < kklimit ? kkcount : kklimit;",
                "for (int kki = kkfirst; kki < kkcount; kki += kkstride) {",
                "if (kki < kktake) {",
                _from_current_copy("KK_STEP", "kki", "kkbase + kkdone"),
                "} else {",
                _from_current_copy("KK_MOVE", "kki", "kkbase + kkdone"),
                "} }",
                "kkdone++;",
            ]
        elif self.program.coupling == "independent" and grid and not self.program.keeps_whole:
            lines += [
                "int kkend = kkdone + kkchunk < kkgoal ? kkdone + kkchunk : kkgoal;",
                "for (int kki = kkfirst; kki < kkitems; kki += kkstride) {",
                "for (int kkk = kkdone; kkk < kkend; kkk++) {",
                _step_alternating("kkbase + kkk"),
                "} }",
                "kkdone = kkend;",
            ]
        else:
            each = "KK_UNROLL\nfor (int kki = kkfirst; kki < kkitems; kki += kkstride) {"
            lines += [
                f"if (kkdone == 0) {{\n{each} KK_STEP_01(kki, kkbase); }}\n}}",
                f"else if ((kkdone & 1) != 0) {{\n{each} KK_STEP_12(kki, kkbase + kkdone); }}\n}}",
                f"else {{\n{each} KK_STEP_21(kki, kkbase + kkdone); }}\n}}",
                "kkdone++;",
            ]
        if grid:
            stop = f"kkcontrol[{Word.STOP_AT:d}] = kk_uint(kkdone);"
            lines += [f"if ({leader}) {{"]
            if self.supervised:
                lines += [
                    f"KK_WRITE(kkcontrol[{Word.HEARTBEAT:d}], kk_uint(kkdone));",
                    f"if (KK_READ(kkcontrol[{Word.ORDER:d}]) != 0u) {stop}",
                ]
            else:
                lines += [f"if (kkdeadline > 0 && kk_clock() - kkstart > kkdeadline * 1000ull) {stop}"]
            lines += ["}"]
        lines += [barrier]
        # Here, without a barrier of its own before the iteration: PoCL 3.0 loses iterations of a loop with three barriers.
        if keep := self.program.keeps_whole:
            there, back = (" ".join(_copies(keep, *roles)) for roles in ((1, 2), (2, 1)))
            lines += [f"if ((kkdone & 1) != 0) {{ {there} }} else {{ {back} }}"]
        if self.queue or self.steers:
            # One work-item handles what the iteration asked for, while the others wait.
            if self.queue:
                lines += [f"int kkleft = kk_int(KK_READ(kkcontrol[{Word.COUNT:d} + kk_index(kkto)]));"]
            lines += [f"if ({leader}) {{"]
            if self.queue:
                lines += [
                    f"kkcontrol[{Word.TAKEN_NOW:d}] += kk_uint(kktake);",
                    f"if (kkin != 0) kkcontrol[{Word.COUNT:d} + kk_index(kkin)] = 0u;",
                ]
            lines += [
                f"uint kkasked = kk_atomic_exchange(kkcontrol[{Word.PHASE_ASKED:d}], 0u);",
                f"if (kkasked != 0u) kkcontrol[{Word.PHASE_NOW:d}] = kkasked;",
                # One word ends the slice for all: the others may read it when the next round has begun already.
                f"if ((kk_atomic_or(kkcontrol[{Word.STOP_ASKED:d}], 0u) | kk_atomic_or(kkcontrol[{Word.OVERFLOW:d}], 0u)) "
                f"!= 0u) kkcontrol[{Word.STOP_AT:d}] = kk_uint(kkdone);",
                "KK_FENCE }",
                barrier,
                f"uint kknow = KK_READ(kkcontrol[{Word.PHASE_NOW:d}]); if (kknow != 0u) kkphase = kk_int(kknow) - 1;",
            ]
            if self.queue:
                lines += ["if (kkleft == 0) break;"]
        elif self.program.keeps_whole:
            lines += [barrier]
        if grid or self.queue or self.steers:
            # Each look costs as much as a small iteration. Without a deadline, only these can end a slice early.
            always = self.queue or self.steers or self.supervised
            looks = "" if always else "kkdeadline > 0 && "
            lines += [f"if ({looks}kk_uint(kkdone) >= KK_READ(kkcontrol[{Word.STOP_AT:d}])) break;"]
        lines += ["}"]
        # No iteration done means that the run has stopped: then role 1 may be the committed copy.
        lines += ["if (kkdone != 0 && (kkdone & 1) == 0) {", *self._copy_from_scratch(), "}"]
        if self.supervised:
            lines += [*self._supervise()]
        return lines

    def _workers(self) -> str:
        return "(kk_group_count(0) - 1)" if self.supervised else "kk_group_count(0)"

    def _copy_from_scratch(self) -> list[str]:
        """An even number of iterations ends in the scratch copy, which must go to role 1."""
        if self.queue:
            count = f"kk_int(KK_READ(kkcontrol[{Word.COUNT:d} + kk_index(2)]))"
            return [
                f"int kkrest = {count}; if (kkrest > kkcapacity) kkrest = kkcapacity;",  # the queue overflowed
                "for (int kki = kkfirst; kki < kkrest; kki += kkstride) KK_MOVE_21(kki, 0);",
            ]
        return _copies(self.program.state, 2, 1)

    def _supervise(self) -> list[str]:
        """The last group watches the others, the clock and the host, and orders the others to end the slice."""
        return [
            # The workers' part ends here.
            f"kk_fence(); kk_barrier(); if (kk_local_id(0) == 0) kk_atomic_add(kkcontrol[{Word.FINISHED:d}], 1u);",
            "} else if (kk_local_id(0) == 0) {",
            "uint kkbeats = 0u; uint kkordered = 0u;",
            f"while (KK_READ(kkcontrol[{Word.FINISHED:d}]) < kk_uint(kk_group_count(0) - 1)) {{",
            "kkbeats++;",
            f"KK_WRITE(kkmailbox[{HostWord.BEATS:d}], kkbeats);",
            f"KK_WRITE(kkmailbox[{HostWord.PROGRESS:d}], kk_uint(kkbase) + KK_READ(kkcontrol[{Word.HEARTBEAT:d}]));",
            "kk_fence_system();",
            f"if (kkordered == 0u && (KK_READ(kkmailbox[{HostWord.STOP:d}]) != 0u || "
            "(kkdeadline > 0 && kk_clock() - kkstart > kkdeadline * 1000ull))) {",
            f"kkordered = 1u; KK_WRITE(kkcontrol[{Word.ORDER:d}], 1u); kk_fence(); }}",
            "kk_pause();",
            "} }",
            # The supervising group did not count iterations.
            f"kkdone = kk_int(KK_READ(kkcontrol[{Word.HEARTBEAT:d}]));",
        ]

    def _commit(self) -> list[str]:
        """What the group that finishes last does. Each word that it reads costs as much as a small iteration: it reads only
        those that this program and this form can have written."""
        step, steers = self.kind == "step", self.steers
        # Only the part with the last item commits the iteration.
        whole = " && kkupto >= kkitems" if step and not self.queue else ""
        done = ["KK_CHECK_LOOPS", "KK_FENCE kk_barrier();", f"if (kkruns{whole} && kk_local_id(0) == 0) {{"]
        done += [
            f"if (kk_atomic_add(kkcontrol[{Word.DONE:d}], 1u) == kk_uint(kk_group_count(0) - 1)) {{",
            "KK_FENCE",
        ]
        done += [f"kkcontrol[{Word.DONE:d}] = 0u;"]
        if self.kind == "grid":
            reset = [Word.ARRIVED, Word.HEARTBEAT, Word.FINISHED, Word.ORDER]
            done += ["".join(f"kkcontrol[{word:d}] = 0u; " for word in reset)]
        if self.kind in ("group", "grid"):
            done += [f"kkcontrol[{Word.STOP_AT:d}] = 0x{NEVER:X}u;"]
        if steers:
            done += [f"uint kkp = kk_atomic_exchange(kkcontrol[{Word.PHASE_ASKED:d}], 0u);"]
            if not step:
                done += [f"if (kkp == 0u) kkp = kkcontrol[{Word.PHASE_NOW:d}];", f"kkcontrol[{Word.PHASE_NOW:d}] = 0u;"]
            done += [f"uint kkstop = kk_atomic_exchange(kkcontrol[{Word.STOP_ASKED:d}], 0u);"]
        done += [
            f"if (KK_OVERRAN) {{ kkcontrol[{Word.STOPPED:d}] = {Stopped.OVERRUN:d}u;",
            *self._forget_tasks("1 - kkcurrent"),
            "}",
        ]
        if self.queue:
            done += [f"else if (kk_atomic_exchange(kkcontrol[{Word.OVERFLOW:d}], 0u) != 0u) {{"]
            done += [f"kkcontrol[{Word.STOPPED:d}] = {Stopped.OVERFLOW:d}u;", *self._forget_tasks("1 - kkcurrent"), "}"]
        done += ["else {", f"kkcontrol[{Word.ITERATION:d}] = kk_uint(kkbase + kkdone);"]
        done += [f"kkcontrol[{Word.CURRENT:d}] = kk_uint(1 - kkcurrent);"]
        if steers:
            done += [f"if (kkp != 0u) kkcontrol[{Word.PHASE:d}] = kkp - 1u;"]
            why = f"(kkstop & {StopRequest.BODY:d}u) != 0u ? {Stopped.BY_BODY:d}u : {Stopped.BY_CONDITION:d}u"
            done += [f"if (kkstop != 0u) kkcontrol[{Word.STOPPED:d}] = {why};"]
        if self.queue:
            taken = f"kkcontrol[{Word.TAKEN_NOW:d}]"
            if step:
                taken = "kk_uint(kktake) - KK_LATE_TASKS"
            empty = f"kk_atomic_or(kkcontrol[{Word.COUNT:d} + 1 - kkcurrent], 0u) == 0u"
            done += [f"uint kkbefore = kkcontrol[{Word.TAKEN_LOW:d}];", f"uint kkafter = kkbefore + {taken};"]
            done += [
                f"kkcontrol[{Word.TAKEN_LOW:d}] = kkafter; if (kkafter < kkbefore) kkcontrol[{Word.TAKEN_HIGH:d}] += 1u;"
            ]
            done += [
                f"if ({empty}{' && kkstop == 0u' if steers else ''}) kkcontrol[{Word.STOPPED:d}] = {Stopped.EMPTY:d}u;"
            ]
            done += [*self._forget_tasks("kkcurrent")]
        done += ["KK_FENCE", f"kkcontrol[{Word.GENERATION:d}] += 1u;", "} } }"]
        return done

    def _forget_tasks(self, which: str) -> list[str]:
        """Empty a copy of the queue and the scratch copy."""
        if not self.queue:
            return []
        return [
            f"kkcontrol[{Word.COUNT:d} + {which}] = 0u; kkcontrol[{Word.COUNT + 2:d}] = 0u; "
            f"kkcontrol[{Word.TAKEN_NOW:d}] = 0u; KK_FORGET_CLOCK"
        ]


def _copies(keys: Iterable[str], old: int, new: int, only_if: str = "") -> list[str]:
    """Copy whole arrays from one role to another; where the condition is false, the loops are empty."""
    lines = []
    for key in keys:
        end = f"kkend_{key}" if only_if else f"kksize_{key}"
        limit = f"int {end} = {only_if} ? kksize_{key} : 0; " if only_if else ""
        loop = f"for (int kki = kkfirst; kki < {end}; kki += kkstride)"
        lines.append(f"{limit}{loop} {key}_s{new}[kki] = {key}_s{old}[kki];")
    return lines


def _step_alternating(iteration: str) -> str:
    return (
        f"if (kkk == 0) KK_STEP_01(kki, {iteration}); else if ((kkk & 1) != 0) KK_STEP_12(kki, {iteration}); "
        f"else KK_STEP_21(kki, {iteration});"
    )


def _from_current_copy(what: str, item: str, iteration: str) -> str:
    return (
        f"if (kkin == 0) {what}_01({item}, {iteration}); else if (kkin == 1) {what}_12({item}, {iteration}); "
        f"else {what}_21({item}, {iteration});"
    )
