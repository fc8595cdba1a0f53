"""The body of a state program as a function, and the helpers that it may call: text in the kernel language.

It is a function so that its `return` ends an item and not the kernel. It takes the copies that it reads and writes as arrays.
"""

from __future__ import annotations

from string import Template

from ...programs.languages import Language
from ...programs.languages.base import C_TYPES
from ..body_writes import Keep
from ..mailbox import StopRequest, Word
from .outline import FIRST_GENERATED_LINE, Outline

_GENERATED = f"#line {FIRST_GENERATED_LINE}"
# Waits for all groups. `meeting` counts the calls. One fence after a barrier is for all that the group has written, and one
# before a barrier for all that it reads then. A single group needs none.
_MEETING = """\
void kkmeet(uint* control, uint meeting, uint groups) {
  kk_barrier();
  if (groups > 1u) {
    if (kk_local_id(0) == 0) {
      kk_fence();
      kk_atomic_add(control[$ARRIVED], 1u);
      while (kk_atomic_load(control[$ARRIVED]) < meeting * groups) { }
      kk_fence();
    }
    kk_barrier();
  }
}"""


class Functions(Outline):
    """Writes the functions of one form."""

    def text(self, language: Language) -> str:
        """All of them. `language` is what the kernel will be written in: some have a clock."""
        if self.kind == "copy":
            return ""
        lines = [
            _GENERATED,
            # Which physical copy of the queue a role is.
            "#define kk_index(role) ((role) == 0 ? kkcurrent : (role) == 1 ? 1 - kkcurrent : 2)",
            Template(language.state_helpers).substitute({word.name: int(word) for word in Word}),
            # Where there are no fences, all that one group reads of another within a launch is read by atomics, after a barrier.
            f"#define KK_FENCE {'kk_fence();' if language.has_fences else ''}",
            *(f"#define kk_{name}() kk{name}" for name in ("item", "items", "iteration", "phase")),
        ]
        lines.append(f"#define kk_stop() kk_atomic_or(kkcontrol[{Word.STOP_ASKED:d}], {StopRequest.BODY:d}u)")
        lines.append(f"#define kk_set_phase(p) kk_atomic_exchange(kkcontrol[{Word.PHASE_ASKED:d}], kk_uint((p) + 1))")
        if self.queue:
            lines.append(self._push())
        lines += self._before()
        if self.kind == "grid":
            lines.append(Template(_MEETING).substitute(ARRIVED=int(Word.ARRIVED)))
        return "\n".join([*lines, *self._functions(), *self._calls()]) + "\n"

    def _push(self) -> str:
        keys = list(self.program.tasks)
        stores = " ".join(f"kkout_{key}[kkat] = a{i};" for i, key in enumerate(keys))
        return (
            f"#define kk_push({', '.join(f'a{i}' for i in range(len(keys)))}) "
            f"do {{ uint kkat = kk_atomic_add(kkcontrol[{Word.COUNT:d} + kkout], 1u); "
            f"if (kkat < kk_uint(kkcapacity)) {{ {stores} }} "
            f"else kk_atomic_or(kkcontrol[{Word.OVERFLOW:d}], 1u); }} while (false)"
        )

    def _fields(self) -> str:
        """The fields of the task, as variables."""
        return " ".join(
            f"{C_TYPES[array.dtype.str[1:]]} {key} = kkin_{key}[kkitem];" for key, array in self.program.tasks.items()
        )

    def _keep(self) -> str:
        """Copy an item's own old values, in case the body does not write them."""
        program = self.program
        lines = []
        for key, keep in program.keeps.items():
            if keep is Keep.OWN:
                size = program.state[key].size
                guard = f"if (kkitem < {size}) " if size < program.items else ""
                lines.append(f"{guard}{key}_next[kkitem] = {key}[kkitem];")
        return " ".join(lines)

    def _parameters(self) -> list[str]:
        program = self.program
        found = [f"const int kk{name}" for name in ("item", "items", "iteration", "phase")] + ["uint* kkcontrol"]
        if self.queue:
            found += ["const int kkout", "const int kkcapacity"]
        for key, array in program.state.items():
            kind = C_TYPES[array.dtype.str[1:]]
            if self.queue:
                found.append(f"{kind}* {key}")
            else:
                # Old and new are never the same memory: with that known, a compiler loads several items at once.
                found += [f"const {kind}* restrict {key}", f"{kind}* restrict {key}_next"]
        for key, array in program.tasks.items():
            kind = C_TYPES[array.dtype.str[1:]]
            found += [f"const {kind}* kkin_{key}", f"{kind}* kkout_{key}"]
        return found + [f"const {C_TYPES[v.dtype.str[1:]]} {key}" for key, v in program.scalars.items()]

    def _functions(self) -> list[str]:
        parameters = self._parameters()
        head = ", ".join(parameters)
        what = "kkstep" if self.condition is None else "kkbody"
        lines = [f"void {what}({head}) {{", self._fields() + self._keep(), *self._body(), _GENERATED, "}"]
        if self.condition is not None:
            # Checked after the body of every item, wherever the body returned.
            same = ", ".join(part.split()[-1] for part in parameters)
            stop = f"kk_atomic_or(kkcontrol[{Word.STOP_ASKED:d}], {StopRequest.CONDITION:d}u)"
            lines += [f"void kkstep({head}) {{ kkbody({same});", self._fields()]
            # Numbers below all that is generated: a mistake in the condition comes first, and the line that is shown names it.
            lines += [f"#line {FIRST_GENERATED_LINE - 2}", f"if ({self.condition}  // until="]
            lines += [
                f"#line {FIRST_GENERATED_LINE - 1}",
                f") {stop};  // until={' '.join(self.condition.split())}",
                "}",
            ]
        if self.queue:
            loads = ", ".join(f"kkin_{key}[kkitem]" for key in self.program.tasks)
            lines += [f"void kkmove({head}) {{ kk_push({loads}); }}"]
        return lines

    def _before(self) -> list[str]:
        """The helper functions of the body. Those in Python become C when the text is read."""
        program = self.program
        if program.python is None:
            return ["#line 1", program.parts.before, _GENERATED] if program.parts.before else []
        parameters: list[list[str | None]] = []
        for key, array in program.state.items():
            dtype = array.dtype.str[1:]
            parameters += [[key, dtype, "rw"]] if self.queue else [[key, dtype, "r"], [f"{key}_next", dtype, "rw"]]
        fields = [array.dtype.str[1:] for array in program.tasks.values()]
        parameters += [[key, array.dtype.str[1:], None] for key, array in (program.tasks | program.scalars).items()]
        return [program.python.pragma(program.name, parameters, fields if self.queue else None), _GENERATED]

    def _body(self) -> list[str]:
        parts = self.program.parts
        return [f"#line {parts.first_line}", parts.body] if self.program.python is None else ["#pragma kk body"]

    def _calls(self) -> list[str]:
        """A macro for each pair of roles, which names the copies."""
        program = self.program
        names = ["kkcontrol"]
        if self.queue:
            names += ["kk_index({w})", "kkcapacity"]
        for key in program.state:
            names += [f"{key}_s1"] if self.queue else [f"{key}_s{{r}}", f"{key}_s{{w}}"]
        for key in program.tasks:
            names += [f"{key}_t{{r}}", f"{key}_t{{w}}"]
        given = ", ".join([*names, *program.scalars])
        return [
            f"#define KK_{what.upper()}_{r}{w}(kkI, kkK) kk{what}((kkI), kkitems, (kkK), kkphase, {given.format(r=r, w=w)})"
            for r, w in self.pairs
            for what in (("step", "move") if self.queue else ("step",))
        ]
