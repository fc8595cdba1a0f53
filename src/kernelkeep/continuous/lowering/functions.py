"""The body of a state program as a function, in each language, and the helpers that it may call.

It is a function so that its `return` ends an item and not the kernel. CUDA C and OpenCL C pass it pointers to the copies it
reads and writes; GLSL has none, so there it is written once for each pair of roles, under macros that name the copies.
"""

from __future__ import annotations

from string import Template

from ...programs.languages import Language, Pointers
from ..body_writes import Keep
from ..mailbox import StopRequest, Word
from .outline import Outline


class Functions(Outline):
    """Writes the functions of one form."""

    def text(self, language: Language) -> str:
        """All of them."""
        if self.kind == "copy":
            return ""
        lines = [
            # Which physical copy of the queue a role is.
            "#define kk_index(role) ((role) == 0 ? kkcurrent : (role) == 1 ? 1 - kkcurrent : 2)",
            Template(language.state_helpers).substitute({word.name: int(word) for word in Word}),
            *(f"#define kk_{name}() kk_{name}_" for name in ("item", "items", "iteration", "phase")),
        ]
        lines.append(f"#define kk_stop() kk_atomic_or(kkcontrol[{Word.STOP_ASKED:d}], {StopRequest.BODY:d}u)")
        lines.append(f"#define kk_set_phase(p) kk_atomic_exchange(kkcontrol[{Word.PHASE_ASKED:d}], kk_uint((p) + 1))")
        if self.queue:
            lines.append(self._push())
        if language.pointers is None:
            lines += self._with_macros(language)
        else:
            lines += self._with_pointers(language, language.pointers)
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

    def _fields(self, language: Language) -> str:
        """The fields of the task, as variables."""
        return " ".join(
            f"{language.types[array.dtype.str[1:]]} {key} = kkin_{key}[kk_item_];"
            for key, array in self.program.tasks.items()
        )

    def _keep(self) -> str:
        """Copy an item's own old values, in case the body does not write them."""
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

    def _check_condition(self, language: Language) -> list[str]:
        """Check the condition after the body of every item, wherever the body returned."""
        stop = f"kk_atomic_or(kkcontrol[{Word.STOP_ASKED:d}], {StopRequest.CONDITION:d}u)"
        return [self._fields(language), f"if ({self.condition}) {stop};", "}"]

    def _with_pointers(self, language: Language, pointers: Pointers) -> list[str]:
        program = self.program
        # Old and new are never the same memory: with that known (`apart`), a compiler loads several items at once.
        head, space, apart = pointers
        parts = ["const int kk_item_", "const int kk_items_", "const int kk_iteration_", "const int kk_phase_"]
        parts.append(f"{space}uint* kkcontrol")
        if self.queue:
            parts += ["const int kkout", "const int kkcapacity"]
        for key, array in program.state.items():
            kind = language.types[array.dtype.str[1:]]
            if self.queue:
                parts.append(f"{space}{kind}* {key}")
            else:
                parts += [f"{space}const {kind}* {apart} {key}", f"{space}{kind}* {apart} {key}_next"]
        for key, array in program.tasks.items():
            kind = language.types[array.dtype.str[1:]]
            parts += [f"{space}const {kind}* kkin_{key}", f"{space}{kind}* kkout_{key}"]
        parts += [f"const {language.types[v.dtype.str[1:]]} {key}" for key, v in program.scalars.items()]
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
            lines += [f"{head} kk_step({', '.join(parts)}) {{ kk_body({same});", *self._check_condition(language)]
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

    def _with_macros(self, language: Language) -> list[str]:
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
                lines += [f"void kk_step_{r}{w}{head} {{ {start}{call}", *self._check_condition(language)]
            if self.queue:
                lines += [f"void kk_move_{r}{w}{head} {{ {start}{self._move()} }}"]
            lines += [f"#undef {name}" for name in macros]
            for what in ("step", "move") if self.queue else ("step",):
                lines.append(
                    f"#define KK_{what.upper()}_{r}{w}(kkI, kkK) kk_{what}_{r}{w}((kkI), kkitems, (kkK), kkphase)"
                )
        return lines
