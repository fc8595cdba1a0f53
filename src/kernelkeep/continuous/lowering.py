"""From a state program to kernels: the forms an iteration, or many, can take inside one dispatch.

    step   one iteration; every coupling, every device
    span   many iterations, each item alone; "independent" only
    group  many iterations in one group, with barriers between them; every device, for small work
    grid   many iterations with all groups waiting for each other between them; needs a cooperative launch
    copy   none: it carries the arrays over to the copy that the tasks of a queue then work on

Every form reads one copy of the state (role 0) and leaves the result in another (role 1); forms with many iterations go back
and forth between role 1 and a scratch copy (role 2). What a form computes is the same; only how many iterations are in a
dispatch differs. The group that finishes last writes the control words, the commit word at the very end (`control.py`).

The body becomes a function, so that its `return` ends an item and not the kernel. CUDA C and OpenCL C pass it pointers; GLSL
has none, so there it is written once for each pair of roles, under macros that name the copies.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..programs.portable import Buffer, PortableKernel, Scalar
from ..programs.signature import DTYPES
from .control import SIZE, Stopped, Word
from .program import StateProgram

__all__ = ["FORMS", "Form", "lower"]

FORMS = ("step", "span", "group", "grid")
_GRID_GROUP = 1024
_PAIRS = ((0, 1), (1, 2), (2, 1))  # the first iteration, and then by turns


@dataclass(frozen=True)
class Form:
    """A kernel and the names of its arguments, in order."""

    kind: str
    kernel: PortableKernel
    supervised: bool = False

    @property
    def arguments(self) -> tuple[str, ...]:
        """What each argument is: "u:0" is array u in role 0, "lo@1" the task field lo in role 1, else a name."""
        return tuple(self.kernel._roles)  # type: ignore[attr-defined]


@dataclass(frozen=True, eq=False)
class _StateKernel(PortableKernel):
    """A portable kernel with functions of its own. The lines that count are those of the user's body, in a function."""

    @property
    def _first_line(self) -> int:
        return 100_001

    def _functions(self, language: str) -> str:
        made: str = self.__dict__["_make_functions"](language)
        return made

    def _require(self, language: str, capabilities: Any) -> None:
        super()._require(language, capabilities)
        self.__dict__["_as_written"]._require(language, capabilities)


def lower(program: StateProgram, kind: str, *, supervised: bool = False, condition: str | None = None) -> Form:
    """The kernel of one form. `condition` ends the run after the iteration in which it holds for any item."""
    roles = (0, 1) if kind in ("step", "copy") else (0, 1, 2)
    parameters: list[tuple[str, Buffer | Scalar]] = [("control", Buffer("kkcontrol", "u4", "rw"))]
    if supervised:
        parameters.append(("mailbox", Buffer("kkmailbox", "u4", "rw")))
    array_roles = (1,) if program.coupling == "queue" and kind != "copy" else roles
    for key, array in program.state.items():
        for role in array_roles:
            access = "r" if role == 0 else "rw"
            parameters.append((f"{key}:{role}", Buffer(f"{key}_s{role}", array.dtype.str[1:], access)))
    for key, array in program.tasks.items() if kind != "copy" else ():
        for role in roles:
            access = "r" if role == 0 else "rw"
            parameters.append((f"{key}@{role}", Buffer(f"{key}_t{role}", array.dtype.str[1:], access)))
    for key, value in program.scalars.items() if kind != "copy" else ():
        parameters.append((key, Scalar(key, value.dtype.str[1:])))
    own = ["items", "current", "budget", "two"]
    if kind == "copy":
        own = [f"size_{key}" for key in program.state]
    elif program.tasks:
        own += ["capacity", "limit"]
    elif kind != "step":
        own += [f"size_{key}" for key in program.state]
    if kind == "grid":
        own += ["chunk", "deadline"]
    parameters += [(f"kk{name}", Scalar(f"kk{name}", "i4")) for name in own]
    writer = _Writer(program, kind, supervised, condition)
    kernel = _StateKernel(
        f"{program.name}_{kind}{'_supervised' if supervised else ''}",
        params=[parameter for _, parameter in parameters],
        body=writer.main(),
        # Groups that wait for each other should be few.
        group=max(program.group, _GRID_GROUP) if kind == "grid" else program.group,
    )
    object.__setattr__(kernel, "_make_functions", writer.functions)
    # What the body does with the arrays must be possible too.
    named: list[Buffer | Scalar] = [
        Buffer(key, array.dtype.str[1:]) for key, array in (program.state | program.tasks).items()
    ]
    as_written = PortableKernel(program.name, params=named, body=program.body, group=program.group)
    object.__setattr__(kernel, "_as_written", as_written)
    object.__setattr__(kernel, "_roles", [role for role, _ in parameters])
    return Form(kind, kernel, supervised)


class _Writer:
    """Writes the text of one form."""

    def __init__(self, program: StateProgram, kind: str, supervised: bool, condition: str | None) -> None:
        self.program = program
        self.steers = program.steers or condition is not None
        self.condition = condition
        self.kind = kind
        self.supervised = supervised
        self.pairs = _PAIRS[:1] if kind == "step" else _PAIRS
        self.queue = program.coupling == "queue"

    # --- the functions

    def functions(self, language: str) -> str:
        if self.kind == "copy":
            return ""
        lines = [
            _OWN[language],
            *(f"#define kk_{name}() kk_{name}_" for name in ("item", "items", "iteration", "phase")),
        ]
        control = "kkcontrol"
        lines.append(f"#define kk_stop() kk_atomic_or({control}[{Word.STOP_ASKED:d}], 1u)")
        lines.append(f"#define kk_set_phase(p) kk_atomic_exchange({control}[{Word.PHASE_ASKED:d}], kk_uint((p) + 1))")
        if self.queue:
            lines.append(self._push())
        write = self._with_macros if language == "glsl" else self._with_pointers
        lines += write(language)
        return "\n".join(lines) + "\n"

    def _push(self) -> str:
        keys = list(self.program.tasks)
        stores = " ".join(f"kkout_{key}[kk_at] = a{i};" for i, key in enumerate(keys))
        return (
            f"#define kk_push({', '.join(f'a{i}' for i in range(len(keys)))}) "
            f"do {{ uint kk_at = kk_atomic_add(kkcontrol[{Word.COUNT:d} + kkout], 1u); "
            f"if (kk_at < kk_uint(kkcapacity)) {{ {stores} }} "
            f"else kk_atomic_or(kkcontrol[{Word.OVERFLOW:d}], 1u); }} while (false)"
        )

    def _fields(self, language: str) -> str:
        """The fields of the task, as variables."""
        index = {"cuda": 1, "opencl": 1, "glsl": 2}[language]
        return " ".join(
            f"{_kind(language, array.dtype.str[1:], index)} {key} = kkin_{key}[kk_item_];"
            for key, array in self.program.tasks.items()
        )

    def _move(self) -> str:
        loads = ", ".join(f"kkin_{key}[kk_item_]" for key in self.program.tasks)
        return f"kk_push({loads});"

    def _look(self, language: str) -> list[str]:
        """The condition, after the body of every item, whichever way that ended."""
        return [self._fields(language), f"if ({self.condition}) kk_atomic_or(kkcontrol[{Word.STOP_ASKED:d}], 2u);", "}"]

    def _with_pointers(self, language: str) -> list[str]:
        program = self.program
        head, space = ("__device__ inline void", "") if language == "cuda" else ("inline void", "__global ")
        # Old and new are never the same memory: with that known, a compiler loads several items at once.
        apart = "__restrict__" if language == "cuda" else "restrict"
        parts = ["const int kk_item_", "const int kk_items_", "const int kk_iteration_", "const int kk_phase_"]
        parts.append(f"{space}uint* kkcontrol")
        if self.queue:
            parts += ["const int kkout", "const int kkcapacity"]
        for key, array in program.state.items():
            kind = _kind(language, array.dtype.str[1:], 1)
            if self.queue:
                parts.append(f"{space}{kind}* {key}")
            else:
                parts += [f"{space}const {kind}* {apart} {key}", f"{space}{kind}* {apart} {key}_next"]
        for key, array in program.tasks.items():
            kind = _kind(language, array.dtype.str[1:], 1)
            parts += [f"{space}const {kind}* kkin_{key}", f"{space}{kind}* kkout_{key}"]
        parts += [f"const {_kind(language, v.dtype.str[1:], 1)} {key}" for key, v in program.scalars.items()]
        what = "kk_step" if self.condition is None else "kk_body"
        lines = [f"{head} {what}({', '.join(parts)}) {{", self._fields(language), "#line 1", program.body, "}"]
        if self.condition is not None:
            same = ", ".join(part.split()[-1].lstrip("*") for part in parts)
            lines += [f"{head} kk_step({', '.join(parts)}) {{ kk_body({same});", *self._look(language)]
        if self.queue:
            lines += [f"{head} kk_move({', '.join(parts)}) {{ {self._move()} }}"]
        names = ["kkcontrol"]
        if self.queue:
            names += ["kk_index({w})", "kkcapacity"]
        for key in program.state:
            names += [f"{key}_s1"] if self.queue else [f"{key}_s{{r}}", f"{key}_s{{w}}"]
        for key in program.tasks:
            names += [f"{key}_t{{r}}", f"{key}_t{{w}}"]
        names += list(program.scalars)
        for r, w in self.pairs:
            given = ", ".join(names).format(r=r, w=w)
            for what in ("step", "move") if self.queue else ("step",):
                lines.append(
                    f"#define KK_{what.upper()}_{r}{w}(kkI, kkK) kk_{what}((kkI), kkitems, (kkK), kkphase, {given})"
                )
        return lines

    def _with_macros(self, language: str) -> list[str]:
        program = self.program
        lines = []
        for r, w in self.pairs:
            macros: dict[str, str] = {}
            for key in program.state:
                macros |= {key: f"{key}_s1"} if self.queue else {key: f"{key}_s{r}", f"{key}_next": f"{key}_s{w}"}
            for key in program.tasks:
                macros |= {f"kkin_{key}": f"{key}_t{r}", f"kkout_{key}": f"{key}_t{w}"}
            lines += [f"#define {name} {meaning}" for name, meaning in macros.items()]
            head = "(int kk_item_, int kk_items_, int kk_iteration_, int kk_phase_)"
            start = f"int kkout = kk_index({w}); " if self.queue else ""
            what = "kk_step" if self.condition is None else "kk_body"
            lines += [f"void {what}_{r}{w}{head} {{", f"{start}{self._fields(language)}", "#line 1", program.body, "}"]
            if self.condition is not None:
                call = f"kk_body_{r}{w}(kk_item_, kk_items_, kk_iteration_, kk_phase_);"
                lines += [f"void kk_step_{r}{w}{head} {{ {start}{call}", *self._look(language)]
            if self.queue:
                lines += [f"void kk_move_{r}{w}{head} {{ {start}{self._move()} }}"]
            lines += [f"#undef {name}" for name in macros]
            for what in ("step", "move") if self.queue else ("step",):
                lines.append(
                    f"#define KK_{what.upper()}_{r}{w}(kkI, kkK) kk_{what}_{r}{w}((kkI), kkitems, (kkK), kkphase)"
                )
        return lines

    # --- the kernel

    def main(self) -> str:
        # A run that has stopped does nothing more. That is said by empty loops: PoCL 3.0 crashes on a barrier in an `if`.
        opening = [
            f"bool kkruns = kkcontrol[{Word.STOPPED:d}] == 0u;",
            f"int kkbase = kk_int(kkcontrol[{Word.ITERATION:d}]);",
            f"int kkphase = kk_int(kkcontrol[{Word.PHASE:d}]);",
            "int kkstride = kk_global_size(0);",
            "int kkfirst = kk_global_id(0);",
            "int kkdone = 1;",
        ]
        if self.kind == "copy":
            # On the device, because only it knows whether the slice before this one was committed.
            return "\n".join([opening[0], *opening[3:5], *self._carry_over()])
        forms = {"step": self._step, "span": self._span, "group": self._many, "grid": self._many}
        return "\n".join([*opening, *forms[self.kind](), *self._commit()])

    def _carry_over(self) -> list[str]:
        return [
            f"int kkend_{key} = kkruns ? kksize_{key} : 0; "
            f"for (int kki = kkfirst; kki < kkend_{key}; kki += kkstride) {key}_s1[kki] = {key}_s0[kki];"
            for key in self.program.state
        ]

    def _step(self) -> list[str]:
        if self.queue:
            return self._wave()
        return [
            "int kkend = kkruns ? kkitems : 0;",
            "KK_UNROLL",
            "for (int kki = kkfirst; kki < kkend; kki += kkstride) { KK_STEP_01(kki, kkbase); }",
        ]

    def _wave(self) -> list[str]:
        """A round of the queue: the first `limit` tasks are handled, the rest is moved over."""
        return [
            f"int kkcount = kkruns ? kk_int(kkcontrol[{Word.COUNT:d} + kk_index(0)]) : 0;",
            "int kktake = kkcount < kklimit ? kkcount : kklimit;",
            "for (int kki = kkfirst; kki < kkcount; kki += kkstride) {",
            "if (kki < kktake) { KK_STEP_01(kki, kkbase); } else { KK_MOVE_01(kki, kkbase); } }",
        ]

    def _span(self) -> list[str]:
        # An array may be smaller than there are items: one that is only read.
        home = " ".join(f"if (kki < kksize_{key}) {key}_s1[kki] = {key}_s2[kki];" for key in self.program.state)
        return [
            "int kkend = kkruns ? kkitems : 0;",
            "for (int kki = kkfirst; kki < kkend; kki += kkstride) {",
            "for (int kkk = 0; kkk < kkbudget; kkk++) {",
            _by_turns("kkbase + kkk"),
            "}",
            # An even number of iterations ends in the scratch copy.
            f"if ((kkbudget & 1) == 0) {{ {home} }}",
            "}",
            "kkdone = kkbudget;",
        ]

    def _many(self) -> list[str]:
        """Many iterations with everybody waiting between them."""
        grid = self.kind == "grid"
        barrier = (
            f"kk_grid_barrier_of(kkcontrol, ++kkmeeting, kk_uint({self._workers()}));" if grid else "kk_barrier();"
        )
        leader = "kkfirst == 0"
        lines = ["kkdone = 0;"]
        if grid:
            lines += ["uint kkmeeting = 0u;", "ulong_t kkstart = KK_CLOCK();"]
            workers = self._workers()
            lines += [f"kkstride = {workers} * kk_group_size(0);"]
            lines += [f"if (kk_group_id(0) < {workers}) {{"] if self.supervised else []
        lines += ["int kkgoal = kkruns ? kkbudget : 0;", "while (kkdone < kkgoal) {"]
        if self.queue:
            lines += ["int kkin = kkdone == 0 ? 0 : (kkdone & 1) != 0 ? 1 : 2; int kkto = (kkdone & 1) != 0 ? 2 : 1;"]
            lines += [
                f"int kkcount = kk_int(KK_READ(kkcontrol[{Word.COUNT:d} + kk_index(kkin)]));",
                "int kktake = kkcount < kklimit ? kkcount : kklimit;",
                "for (int kki = kkfirst; kki < kkcount; kki += kkstride) {",
                "if (kki < kktake) {",
                _turns("KK_STEP", "kki", "kkbase + kkdone"),
                "} else {",
                _turns("KK_MOVE", "kki", "kkbase + kkdone"),
                "} }",
                "kkdone++;",
            ]
        elif self.program.coupling == "independent" and grid:
            lines += [
                "int kkend = kkdone + kkchunk < kkgoal ? kkdone + kkchunk : kkgoal;",
                "for (int kki = kkfirst; kki < kkitems; kki += kkstride) {",
                "for (int kkk = kkdone; kkk < kkend; kkk++) {",
                _by_turns("kkbase + kkk"),
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
                lines += [f"if (kkdeadline > 0 && KK_CLOCK() - kkstart > kkdeadline * 1000ull) {stop}"]
            lines += ["}"]
        lines += [barrier]
        if self.queue or self.steers:
            # One of all settles what the iteration asked for, while the others wait.
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
                # One word ends the slice for all: the others look at it when the next round may have begun already.
                f"if ((kk_atomic_or(kkcontrol[{Word.STOP_ASKED:d}], 0u) | kk_atomic_or(kkcontrol[{Word.OVERFLOW:d}], 0u)) "
                f"!= 0u) kkcontrol[{Word.STOP_AT:d}] = kk_uint(kkdone);",
                "kk_fence(); }",
                barrier,
                f"uint kknow = KK_READ(kkcontrol[{Word.PHASE_NOW:d}]); if (kknow != 0u) kkphase = kk_int(kknow) - 1;",
            ]
            if self.queue:
                lines += ["if (kkleft == 0) break;"]
        if grid or self.queue or self.steers:
            lines += [f"if (kk_uint(kkdone) >= KK_READ(kkcontrol[{Word.STOP_AT:d}])) break;"]
        lines += ["}"]
        # Nothing done is a run that has stopped: then role 1 may be the committed copy.
        lines += ["if (kkdone != 0 && (kkdone & 1) == 0) {", *self._bring_home(), "}"]
        if self.supervised:
            lines += [*self._supervise()]
        return lines

    def _workers(self) -> str:
        return "(kk_group_count(0) - 1)" if self.supervised else "kk_group_count(0)"

    def _bring_home(self) -> list[str]:
        """An even number of iterations ends in the scratch copy."""
        if self.queue:
            count = f"kk_int(KK_READ(kkcontrol[{Word.COUNT:d} + kk_index(2)]))"
            return [
                f"int kkrest = {count}; if (kkrest > kkcapacity) kkrest = kkcapacity;",  # the queue overflowed
                "for (int kki = kkfirst; kki < kkrest; kki += kkstride) KK_MOVE_21(kki, 0);",
            ]
        return [
            f"for (int kki = kkfirst; kki < kksize_{key}; kki += kkstride) {key}_s1[kki] = {key}_s2[kki];"
            for key in self.program.state
        ]

    def _supervise(self) -> list[str]:
        """The last group does no work: it watches the others, the clock and the host, and orders them to end the slice."""
        return [
            # The workers' part ends here.
            f"kk_fence(); kk_barrier(); if (kk_local_id(0) == 0) kk_atomic_add(kkcontrol[{Word.FINISHED:d}], 1u);",
            "} else if (kk_local_id(0) == 0) {",
            "uint kkbeats = 0u; uint kkordered = 0u;",
            f"while (KK_READ(kkcontrol[{Word.FINISHED:d}]) < kk_uint(kk_group_count(0) - 1)) {{",
            "kkbeats++;",
            "KK_WRITE(kkmailbox[0], kkbeats);",
            f"KK_WRITE(kkmailbox[32], kk_uint(kkbase) + KK_READ(kkcontrol[{Word.HEARTBEAT:d}]));",
            "KK_FENCE_SYSTEM();",
            "if (kkordered == 0u && (KK_READ(kkmailbox[64]) != 0u || "
            "(kkdeadline > 0 && KK_CLOCK() - kkstart > kkdeadline * 1000ull))) {",
            f"kkordered = 1u; KK_WRITE(kkcontrol[{Word.ORDER:d}], 1u); kk_fence(); }}",
            "KK_PAUSE();",
            "} }",
            # The supervisor's group did not count along.
            f"kkdone = kk_int(KK_READ(kkcontrol[{Word.HEARTBEAT:d}]));",
        ]

    def _commit(self) -> list[str]:
        """What the last group does. Each word that has to be asked for costs as much as a small iteration: only what this
        program and this form can have said is looked at."""
        step, steers = self.kind == "step", self.steers
        done = ["KK_CHECK_LOOPS", "kk_fence(); kk_barrier();", "if (kkruns && kk_local_id(0) == 0) {"]
        done += [
            f"if (kk_atomic_add(kkcontrol[{Word.DONE:d}], 1u) == kk_uint(kk_group_count(0) - 1)) {{",
            "kk_fence();",
        ]
        done += [f"kkcontrol[{Word.DONE:d}] = 0u;"]
        if self.kind == "grid":
            reset = [Word.ARRIVED, Word.HEARTBEAT, Word.FINISHED, Word.ORDER]
            done += ["".join(f"kkcontrol[{word:d}] = 0u; " for word in reset)]
        if self.kind in ("group", "grid"):
            done += [f"kkcontrol[{Word.STOP_AT:d}] = 0xFFFFFFFFu;"]
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
            why = f"(kkstop & 1u) != 0u ? {Stopped.BY_BODY:d}u : {Stopped.BY_CONDITION:d}u"
            done += [f"if (kkstop != 0u) kkcontrol[{Word.STOPPED:d}] = {why};"]
        if self.queue:
            taken = "kk_uint(kktake)" if step else f"kkcontrol[{Word.TAKEN_NOW:d}]"
            empty = f"kk_atomic_or(kkcontrol[{Word.COUNT:d} + 1 - kkcurrent], 0u) == 0u"
            done += [f"uint kkbefore = kkcontrol[{Word.TAKEN_LOW:d}];", f"uint kkafter = kkbefore + {taken};"]
            done += [
                f"kkcontrol[{Word.TAKEN_LOW:d}] = kkafter; if (kkafter < kkbefore) kkcontrol[{Word.TAKEN_HIGH:d}] += 1u;"
            ]
            done += [
                f"if ({empty}{' && kkstop == 0u' if steers else ''}) kkcontrol[{Word.STOPPED:d}] = {Stopped.EMPTY:d}u;"
            ]
            done += [*self._forget_tasks("kkcurrent")]
        done += ["kk_fence();", f"kkcontrol[{Word.GENERATION:d}] += 1u;", "} } }"]
        return done

    def _forget_tasks(self, which: str) -> list[str]:
        """Empty the copies of the queue that are not the committed one."""
        if not self.queue:
            return []
        return [
            f"kkcontrol[{Word.COUNT:d} + {which}] = 0u; kkcontrol[{Word.COUNT + 2:d}] = 0u; "
            f"kkcontrol[{Word.TAKEN_NOW:d}] = 0u;"
        ]


def _by_turns(iteration: str) -> str:
    return (
        f"if (kkk == 0) KK_STEP_01(kki, {iteration}); else if ((kkk & 1) != 0) KK_STEP_12(kki, {iteration}); "
        f"else KK_STEP_21(kki, {iteration});"
    )


def _turns(what: str, item: str, iteration: str) -> str:
    return (
        f"if (kkin == 0) {what}_01({item}, {iteration}); else if (kkin == 1) {what}_12({item}, {iteration}); "
        f"else {what}_21({item}, {iteration});"
    )


def _kind(language: str, dtype: str, index: int) -> Any:
    if language == "opencl" and dtype in ("i8", "u8", "i1"):
        return {"i8": "long", "u8": "ulong", "i1": "char"}[dtype]
    return DTYPES[dtype][index]


# Which physical copy of the queue a role is.
_INDEX = "#define kk_index(role) ((role) == 0 ? kkcurrent : (role) == 1 ? 1 - kkcurrent : 2)\n"
_OWN = {
    "cuda": _INDEX
    + f"""\
typedef unsigned long long ulong_t;
#define KK_READ(x) (*(volatile uint*)&(x))
#define KK_WRITE(x, v) (*(volatile uint*)&(x) = (v))
#define KK_FENCE_SYSTEM() __threadfence_system()
#define KK_PAUSE() __nanosleep(2000)
#define KK_UNROLL _Pragma("unroll 4")
#define KK_CHECK_LOOPS
#define KK_OVERRAN false
__device__ inline ulong_t KK_CLOCK() {{ ulong_t t; asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t)); return t; }}
__device__ inline void kk_grid_barrier_of(uint* control, uint meeting, uint groups) {{
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {{
    atomicAdd(&control[{Word.ARRIVED:d}], 1u);
    while (*(volatile uint*)&control[{Word.ARRIVED:d}] < meeting * groups) {{ }}
    __threadfence();
  }}
  __syncthreads();
}}
""",
    "opencl": _INDEX
    + """\
#define KK_READ(x) (*(volatile __global uint*)&(x))
#define KK_WRITE(x, v) (*(volatile __global uint*)&(x) = (v))
#define KK_UNROLL
#define KK_CHECK_LOOPS
#define KK_OVERRAN false
""",
    # Software OpenGL ends all loops of a work-item, silently, after 65,535 rounds together. A loop that then does not
    # run tells: its length comes with the launch, so that no compiler can see through it.
    "glsl": _INDEX
    + f"""\
#define KK_READ(x) (x)
#define KK_WRITE(x, v) ((x) = (v))
#define KK_UNROLL
#define KK_OVERRAN (kk_atomic_exchange(kkcontrol[{Word.OVERRUN:d}], 0u) != 0u)
#define KK_CHECK_LOOPS {{ int kkrounds = 0; for (int kkj = 0; kkj < kktwo; kkj++) kkrounds++; \
if (kkrounds != kktwo) kk_atomic_or(kkcontrol[{Word.OVERRUN:d}], 1u); }}
""",
}
assert SIZE <= 1024
