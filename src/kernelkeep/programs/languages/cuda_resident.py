"""A resident grid in CUDA C: the text in cuda_resident.cu around the tasks."""

from __future__ import annotations

import re
from importlib.resources import files

from ..task_program import TaskParts, TaskProgram
from .base import C_TYPES

_GRID = "cuda_resident.cu"
# The loop over tasks has them so often, where their texts are short. Nobody notices the time between long ones, and each copy
# takes as long to compile. A label in a user's assembly must not come twice.
_COPIES = 4
_SHORT_TEXT = 4096
_TYPES = C_TYPES | {"i8": "long long", "u8": "unsigned long long", "f2": "unsigned short"}
# A function in CUDA C is written for blocks that have workers only.
_AS_WORKERS = {
    "__syncthreads": "() kk_workers_meet()",
    "blockIdx": " dim3(kk_block_x, 0, 0)",
    "gridDim": " dim3(kk_blocks_x, 1, 1)",
    "blockDim": " dim3(KK_THREADS, 1, 1)",
}
_AS_KERNEL = "".join(
    f'#pragma push_macro("{name}")\n#undef {name}\n#define {name}{text}\n' for name, text in _AS_WORKERS.items()
)
_AS_GRID = "".join(f'#undef {name}\n#pragma pop_macro("{name}")\n' for name in _AS_WORKERS)


def resident_text(program: TaskProgram) -> str:
    """The whole text but for the comment that declares its kernel."""
    before, _, after = files(__package__).joinpath(_GRID).read_text("utf-8").partition("// (tasks)\n")
    tasks = [_task(number, task) for number, task in enumerate(program.tasks)]
    # In assembly, which may also come with a header, there may be labels, and a label stands in a text once.
    has_labels = any(task.portable is None and ("asm" in task.text or "include" in task.text) for task in program.tasks)
    copies = 1 if has_labels or sum(map(len, tasks)) > _SHORT_TEXT else _COPIES
    constants = "".join(
        f"#define KK_{name} {value}\n" for name, value in {**program.constants, "COPIES": copies}.items()
    )
    kinds = [_TYPES[one.dtype] for one in program.arrays]
    fields = " ".join(f"{kind}* kk_a{i};" for i, kind in enumerate(kinds))
    passed = "".join(f", kk_a{i}" for i in range(len(kinds)))
    declared = "".join(f", {kind}* kk_a{i}" for i, kind in enumerate(kinds))
    known = " ".join(f"__builtin_assume(__isGlobal(kk_a{i}));" for i in range(len(kinds)))
    lists = (
        f"#define KK_ARRAYS_STRUCT {fields}\n#define KK_ARRAYS_PASS {passed}\n#define KK_ARRAYS_DECLARE {declared}\n"
        f"#define KK_ARRAYS_KNOWN {known}\n"
    )
    return "\n".join([constants + lists, before, *tasks, _choice(program), after])


def _task(number: int, task: TaskParts) -> str:
    if task.portable is None:
        text = f"{_AS_KERNEL}{task.text}\n{_AS_GRID}"
    else:
        from ...language.writers.cuda_task import CudaTaskWriter

        unwritten = task.unwritten()
        text = CudaTaskWriter(unwritten.module, unwritten.entry).write().text
    return f"// task {re.sub(r'[^ -~]', '?', task.name)}\nnamespace kk_task_{number} {{\n{text}}}\n"


def _choice(program: TaskProgram) -> str:
    places = {one.name: f"kk_a{i}" for i, one in enumerate(program.arrays)}
    cases = []
    for number, task in enumerate(program.tasks):
        offsets = {name: (dtype, at) for name, dtype, at in task.arguments}
        given = []
        for one in task.signature.params or ():
            if one.name == task.result:
                given.append(f"({_TYPES[one.dtype or 'u8']}*)kk_result")
            elif one.kind == "buffer":
                given.append(places[one.name])
            else:
                dtype, at = offsets[one.name]
                given.append(f"*(const {_TYPES[dtype]}*)(kk_record + {at})")
        function = "kk_run" if task.portable is not None else task.signature.name
        cases.append(f"    case {number}: kk_task_{number}::{function}({', '.join(given)}); break;")
    parameters = "kk_u32 kk_number, const unsigned char* kk_record, kk_u64* kk_result KK_ARRAYS_DECLARE"
    return "\n".join(
        [
            f"#define KK_TASKS {len(cases)}u",
            "// Run the task of this number, which is below KK_TASKS.",
            f"static __device__ __forceinline__ void kk_run_task({parameters}) {{",
            "    switch (kk_number) {",
            *cases,
            "    default: __builtin_unreachable();",
            "    }",
            "}",
            "",
        ]
    )
