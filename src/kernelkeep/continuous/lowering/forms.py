"""The forms of a state program: kernels that run an iteration, a part of one, or many in one dispatch.

    step   one iteration, or a part of its items; every coupling, every device
    span   many iterations, each item alone; "independent" only
    group  many iterations in one group, with barriers between them; every device, for small work
    grid   many iterations with all groups waiting for each other between them; needs a cooperative launch
    copy   no iteration: it copies arrays to where the next iteration writes, because the tasks of a queue work in place, or
           because an iteration may leave a part of them unwritten
    link   one iteration that commits nothing: a part of a chain (`chains.py`), which is bound to any two copies
    commit no iteration: it commits those of a chain

Every form reads one copy of the state (role 0) and leaves the result in another (role 1); forms with many iterations go back
and forth between role 1 and a scratch copy (role 2). What a form computes is the same; only how many iterations are in a
dispatch differs. The group that finishes last writes the control words, the commit word at the very end (`mailbox.py`).

A form is a portable kernel (`kernel_text.py`) that calls the body as a function (`functions.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

from ...programs.portable import Buffer, PortableKernel, Scalar, Target
from ...programs.source import Source
from ...words import Access
from ..mailbox import Word
from ..program import StateProgram
from .functions import Functions
from .kernel_text import KernelText
from .outline import FIRST_GENERATED_LINE

FORMS = ("step", "span", "group", "grid")
GRID_GROUP = 1024  # work-items, at least
_WIDE_ITEMS = (
    1 << 17,
    1 << 19,
)  # no device holds more at once, and waves of large groups are slower than waves of small ones


@dataclass(frozen=True)
class Form:
    """A kernel and the names of its arguments, in order."""

    kind: str
    kernel: PortableKernel
    arguments: tuple[str, ...]  # "u:0" is array u in role 0, "lo@1" the task field lo in role 1, else a name
    supervised: bool = False

    def source(self, device: Target) -> Source:
        """The kernel for a device. Raises `Unsupported` where the device lacks a type of the state."""
        return self.kernel.source(device)


_COMMIT_TEXT = f"""\
kkcontrol[{Word.ITERATION:d}] += kk_uint(kkbudget);
kkcontrol[{Word.CURRENT:d}] = kk_uint(1 - kkcurrent);
kk_fence();
kkcontrol[{Word.GENERATION:d}] += 1u;
"""
# The commit of a chain: its iterations are done, and nothing else runs. One kernel serves all programs.
_COMMIT = Form(
    "commit",
    PortableKernel(
        "chain_commit",
        params=[Buffer("kkcontrol", "u4", "rw"), Scalar("kkcurrent", "i4"), Scalar("kkbudget", "i4")],
        body=_COMMIT_TEXT,
        group=1,
        first_line=FIRST_GENERATED_LINE,
    ),
    ("control", "kkcurrent", "kkbudget"),
)


def lower(
    program: StateProgram, kind: str, *, supervised: bool = False, condition: str | None = None, wide: bool = False
) -> Form:
    """The kernel of one form. `condition` ends the run after the iteration in which it holds for any item; `wide`: with large
    groups."""
    if kind == "commit":
        return _COMMIT
    roles = (0, 1) if kind in ("step", "copy", "link") else (0, 1, 2)
    parameters: list[tuple[str, Buffer | Scalar]] = [("control", Buffer("kkcontrol", "u4", "rw"))]
    if supervised:
        parameters.append(("mailbox", Buffer("kkmailbox", "u4", "rw")))
    array_roles = (1,) if program.coupling == "queue" and kind != "copy" else roles
    arrays = program.state
    if kind == "copy" and not program.tasks:
        arrays = {key: program.state[key] for key in program.keeps_whole}
    for key, array in arrays.items():
        for role in array_roles:
            access: Access = "r" if role == 0 else "rw"
            parameters.append((f"{key}:{role}", Buffer(f"{key}_s{role}", array.dtype.str[1:], access)))
    for key, array in program.tasks.items() if kind != "copy" else ():
        for role in roles:
            access = "r" if role == 0 else "rw"
            parameters.append((f"{key}@{role}", Buffer(f"{key}_t{role}", array.dtype.str[1:], access)))
    for key, value in program.scalars.items() if kind != "copy" else ():
        parameters.append((key, Scalar(key, value.dtype.str[1:])))
    own = ["items", "current", "budget", "two"]
    if kind == "copy":
        own = [f"size_{key}" for key in arrays]
    elif kind == "link":
        own = ["items", "after"]
    elif program.tasks:
        own += ["capacity", "limit"] + (["deadline"] if kind == "step" else [])
    elif kind == "step":
        own += ["from", "upto"]
    else:
        own += [f"size_{key}" for key in program.state]
    if kind == "grid":
        own += ["chunk", "deadline"]
    parameters += [(f"kk{name}", Scalar(f"kk{name}", "i4")) for name in own]
    outline = (program, kind, supervised, condition)
    kernel = PortableKernel(
        f"{program.name}_{kind}{'_supervised' if supervised else '_wide' if wide else ''}",
        params=[parameter for _, parameter in parameters],
        body=KernelText(*outline).text(),
        # Groups that wait for each other should be few.
        group=max(program.group, GRID_GROUP) if kind == "grid" or wide else program.group,
        functions=Functions(*outline).text,
        first_line=FIRST_GENERATED_LINE,
    )
    return Form(kind, kernel, tuple(role for role, _ in parameters), supervised)


def can_chain(program: StateProgram, steers: bool) -> bool:
    """Whether iterations may follow each other without a look at the control words, and without copies between them."""
    return not (program.tasks or program.keeps_whole or steers)


def may_be_wide(program: StateProgram) -> bool:
    """Whether a link may gain by large groups: to begin a thousand small ones takes longer than a small iteration."""
    return _WIDE_ITEMS[0] <= program.items <= _WIDE_ITEMS[1] and program.group < GRID_GROUP


def kernels_of(program: StateProgram, *, cooperative: bool) -> list[PortableKernel]:
    """Every kernel that a run may use, whatever its strategy, to compile them before. A run with a condition has others.

    `cooperative`: for devices with cooperative launches.
    """
    kinds = ["step", "group"]
    if program.coupling == "independent" and not program.keeps_whole:
        kinds.append("span")
    if program.tasks or program.keeps_whole:
        kinds.append("copy")
    forms = [lower(program, kind) for kind in kinds]
    if cooperative:
        forms += [lower(program, "grid", supervised=supervised) for supervised in (False, True)]
        if can_chain(program, program.steers):
            forms += [lower(program, "link"), lower(program, "commit")]
            if may_be_wide(program):
                forms.append(lower(program, "link", wide=True))
    return [form.kernel for form in forms]
