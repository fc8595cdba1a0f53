"""The body as a function, in each language, and what it may call.

A function, so that the body's `return` ends an item and not the kernel. CUDA C and OpenCL C pass it pointers to the copies it
reads and writes; GLSL has none, so there it is written once for each pair of roles, under macros that name the copies.
"""

from __future__ import annotations

from typing import Any

from ...programs.signature import DTYPES
from ..body_writes import Keep
from ..mailbox import Word
from .outline import Outline

__all__ = ["Functions"]


class Functions(Outline):
    """Writes the functions of one form."""

    def text(self, language: str) -> str:
        """All of them."""
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

    def _keep(self) -> str:
        """An item's own old values, carried over in case that the body does not write them."""
        program = self.program
        lines = []
        for key, keep in program.keeps.items():
            if keep is Keep.OWN:
                size = program.state[key].size
                guard = f"if (kk_item_ < {size}) " if size < program.items else ""
                lines.append(f"{guard}{key}_next[kk_item_] = {key}[kk_item_];")
        return " ".join(lines)

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
        lines = [
            f"{head} {what}({', '.join(parts)}) {{",
            self._fields(language) + self._keep(),
            "#line 1",
            program.body,
            "}",
        ]
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
            lines += [
                f"void {what}_{r}{w}{head} {{",
                f"{start}{self._fields(language)}{self._keep()}",
                "#line 1",
                program.body,
                "}",
            ]
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


def _kind(language: str, dtype: str, index: int) -> Any:
    if language == "opencl" and dtype in ("i8", "u8", "i1"):
        return {"i8": "long", "u8": "ulong", "i1": "char"}[dtype]
    return DTYPES[dtype][index]


_NO_CLOCK = """\
#define KK_BEGIN_CLOCK
#define KK_IS_LATE false
#define KK_COUNT_LATE(n)
#define KK_LATE_TASKS 0u
#define KK_FORGET_CLOCK
"""
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
// Microseconds since the first work-item of the slice looked. All begin with the same moment, whenever their group does.
#define KK_MICROSECONDS() ((uint)(KK_CLOCK() / 1000ull))
#define KK_BEGIN_CLOCK if (kkdeadline > 0 && KK_READ(kkcontrol[{Word.BEGUN:d}]) == 0u) \
atomicCAS(&kkcontrol[{Word.BEGUN:d}], 0u, max(KK_MICROSECONDS(), 1u));
#define KK_IS_LATE (kkdeadline > 0 && (int)(KK_MICROSECONDS() - KK_READ(kkcontrol[{Word.BEGUN:d}])) > kkdeadline)
#define KK_COUNT_LATE(n) if ((n) != 0u) atomicAdd(&kkcontrol[{Word.LATE:d}], (n));
#define KK_LATE_TASKS atomicOr(&kkcontrol[{Word.LATE:d}], 0u)
#define KK_FORGET_CLOCK kkcontrol[{Word.LATE:d}] = 0u; kkcontrol[{Word.BEGUN:d}] = 0u;
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
    + _NO_CLOCK
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
    + _NO_CLOCK
    + f"""\
#define KK_READ(x) (x)
#define KK_WRITE(x, v) ((x) = (v))
#define KK_UNROLL
#define KK_OVERRAN (kk_atomic_exchange(kkcontrol[{Word.OVERRUN:d}], 0u) != 0u)
#define KK_CHECK_LOOPS {{ int kkrounds = 0; for (int kkj = 0; kkj < kktwo; kkj++) kkrounds++; \
if (kkrounds != kktwo) kk_atomic_or(kkcontrol[{Word.OVERRUN:d}], 1u); }}
""",
}
