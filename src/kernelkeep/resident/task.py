"""Tasks: what a resident grid can be asked to do.

A task is given as one of these:

    "(float a, int n) { … }"       its arguments, then a body in C, as in portable kernels; the grid's arrays go by their names
    Task(body, args={"a": "f4"})   the same with the arguments beside it, a result, or the whole grid
    a PortableKernel, @kk.kernel   its buffers are the grid's arrays of the same names, its scalars the arguments
    a Source                       a function `__device__ void name(…)` in the device's own language, with such parameters

One block runs a task: `kk_local_id(0)` counts its work-items, and `kk_global_id(0)` is the same, as if the task were a launch of
one group. With `whole_grid=True` all blocks run it together, as if it were a launch of as many groups. A task with a result calls
`kk_result(value)` in one work-item; a `PortableKernel` has a buffer named `result` for it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ..errors import ArgumentError
from ..programs.languages import Language
from ..programs.portable import Buffer, PortableKernel, Scalar
from ..programs.signature import CTYPES, DTYPES, KernelSignature, read_heads
from ..programs.source import Source
from ..programs.task_program import TaskArray, TaskParts
from .protocol import argument_offsets, pack_plan, row_dtype

WIDE = 0x80000000  # in a task's number: for all blocks
GRAPH = 0xFFFFFFFF  # the number that asks for a graph
GRAPH_PLAN = pack_plan(GRAPH, "", "Q")  # its argument is the address
_RESULT = "kkresult"
CODES = dict(i1="b", u1="B", i2="h", u2="H", i4="i", u4="I", i8="q", u8="Q", f2="e", f4="f", f8="d")
_IDENTIFIERS = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*\Z", re.ASCII)
_ARGUMENT = re.compile(r"\s*(?:const\s+)?(?P<type>[A-Za-z_][\w\s]*?)\s+(?P<name>[A-Za-z_]\w*)\s*\Z", re.ASCII)
_SHARES = re.compile(r"\b(?:kk_)?(?:shared|barrier)\s*\(")
_FUNCTION = re.compile(
    r"(?:static\s+|inline\s+|__forceinline__\s+)*__device__\s+(?:inline\s+|__forceinline__\s+)*void\s+"
)


class Task(msgspec.Struct, frozen=True):
    """A body with its arguments: names and dtypes. `result` is the dtype of what it gives back."""

    body: Any
    args: Mapping[str, Any] | None = None
    result: Any = None
    whole_grid: bool = False


class PreparedTask(msgspec.Struct, frozen=True):
    """A task as the grid knows it."""

    number: int
    parts: TaskParts
    kernel: PortableKernel | None  # None: written in the device's own language
    names: tuple[str, ...]  # of the arguments
    dtypes: tuple[str, ...]
    result: str  # a dtype; "" for none
    whole_grid: bool

    @property
    def codes(self) -> tuple[str, ...]:
        """The types of the arguments, as `struct` spells them."""
        return tuple(CODES[dtype] for dtype in self.dtypes)

    @property
    def result_code(self) -> str:
        """The type of the result; "" for none."""
        return CODES[self.result] if self.result else ""

    @property
    def form(self) -> tuple[Any, ...]:
        """What must be equal for one task to take the place of another: how its records and results look."""
        return self.names, self.dtypes, self.result, self.whole_grid

    def with_number(self, number: int) -> PreparedTask:
        """The same task by another number."""
        return msgspec.structs.replace(self, number=number)

    def plan(self, whole_grid: bool | None = None) -> bytes:
        """What a lane needs to submit it."""
        wide = self.whole_grid if whole_grid is None else whole_grid
        return pack_plan(self.number | (WIDE if wide else 0), self.result_code, self.codes)

    @property
    def row_dtype(self) -> Any:
        """A NumPy record of its arguments, as they lie in the ring."""
        return row_dtype(self.names, self.codes)


def prepare(
    name: str, given: Any, number: int, arrays: Sequence[TaskArray], threads: int, language: Language
) -> PreparedTask:
    """A task from what the user gave. Nothing is compiled, and no body is read."""
    if not isinstance(name, str) or not _IDENTIFIER.match(name):
        raise ArgumentError(f"a task's name must be a letter followed by letters, digits and _, got {name!r}")
    task = given if isinstance(given, Task) else Task(given)
    if not isinstance(task.whole_grid, bool):
        raise ArgumentError(f"whole_grid of task {name} must be True or False, got {task.whole_grid!r}")
    if task.args is not None and not isinstance(task.args, Mapping):
        raise ArgumentError(f"args of task {name} must be a mapping of names to dtypes, got {task.args!r}")
    if isinstance(task.body, PortableKernel):
        return _from_kernel(name, task, task.body, number, arrays, threads, language)
    if isinstance(task.body, Source):
        return _from_source(name, task, task.body, number, arrays, threads, language)
    if not isinstance(task.body, str):
        raise ArgumentError(
            f"task {name} must be a body, a kk.Task, a kk.PortableKernel or a kk.Source, got a {type(task.body).__name__}"
        )
    head, body, first_line = _split(name, task.body)
    if head is not None and task.args is not None:
        raise ArgumentError(f"task {name} names its arguments twice: in its body, and in args=")
    args = _args_in(name, head) if head is not None else task.args or {}
    scalars = [Scalar(one, dtype) for one, dtype in args.items()]
    used = set(_IDENTIFIERS.findall(body))
    buffers = [Buffer(one.name, one.dtype, "rw") for one in arrays if one.name in used]
    if (
        not buffers and not scalars
    ):  # NVIDIA's OpenCL compiler refuses a kernel without parameters and with next to nothing in it
        buffers = [Buffer(one.name, one.dtype, "rw") for one in arrays[:1]]
    for one in scalars:
        if any(one.name == array.name for array in arrays):
            raise ArgumentError(f"task {name} has an argument {one.name}, and so is an array of the grid called")
    result = "" if task.result is None else Scalar("result", task.result).dtype
    if result:
        buffers.append(Buffer(_RESULT, result, "w"))
    kernel = PortableKernel(
        name,
        (*buffers, *scalars),
        body,
        group=threads,
        functions=_with_result if result else None,
        first_line=first_line,
    )
    return _made(name, task, kernel, number, threads, language, result, _RESULT if result else "")


def _with_result(language: Language) -> str:
    return f"#define kk_result(value) ({_RESULT}[0] = (value))\n"


def _from_kernel(
    name: str,
    task: Task,
    kernel: PortableKernel,
    number: int,
    arrays: Sequence[TaskArray],
    threads: int,
    language: Language,
) -> PreparedTask:
    _check_group(name, kernel, threads)
    if task.args is not None or task.result is not None:
        raise ArgumentError(f"task {name} is a kernel: its parameters say what its arguments and its result are")
    known = {one.name: one.dtype for one in arrays}
    result = result_name = ""
    for one in kernel.params:
        if not isinstance(one, Buffer):
            continue
        if one.name == "result" and one.name not in known:
            result, result_name = one.dtype, one.name
        elif one.name not in known:
            names = ", ".join(known) or "none"
            raise ArgumentError(f"task {name} uses an array {one.name}, and the grid's arrays are: {names}")
        elif (dtype := kernel.signature.params[kernel.params.index(one)].dtype) != known[one.name]:  # type: ignore[index]
            raise ArgumentError(f"task {name} takes {one.name} as {dtype}, and the grid's array has {known[one.name]}")
    if result and result not in DTYPES:
        raise ArgumentError(f"the result of task {name} must be a number, got {result}")
    return _made(name, task, kernel, number, threads, language, result, result_name)


def _check_group(name: str, kernel: PortableKernel, threads: int) -> None:
    """A kernel that shares memory is written for its own group; others take groups of any size, of one dimension."""
    group = kernel.signature.group or (threads, 1, 1)
    shown = group[0] if group[1:] == (1, 1) else group
    if group[1:] != (1, 1):
        raise ArgumentError(
            f"task {name} must have groups of one dimension, got group={shown}: write it with group={threads}"
        )
    if group[0] != threads and _SHARES.search(kernel.body):
        raise ArgumentError(
            f"task {name} shares memory in groups of {shown}, and the grid's blocks have {threads} threads: make the grid with "
            f"threads={shown}, or the kernel with group={threads}"
        )


def _made(
    name: str,
    task: Task,
    kernel: PortableKernel,
    number: int,
    threads: int,
    language: Language,
    result: str,
    result_name: str,
) -> PreparedTask:
    scalars = [one for one in kernel.params if isinstance(one, Scalar)]
    codes = [CODES[one.dtype] for one in scalars]
    offsets, _ = argument_offsets(codes)
    arguments = tuple((one.name, one.dtype, at) for one, at in zip(scalars, offsets, strict=True))
    parts = kernel.parts(language, (), ())
    signature = KernelSignature(kernel.signature.name, kernel.signature.params, (threads, 1, 1))
    parts = msgspec.structs.replace(parts, signature=signature)
    macros = Source("", name, defines=kernel.defines).macros if kernel.defines else {}
    made = TaskParts(name, signature, arguments, parts, macros, result=result_name)
    names, dtypes = tuple(one.name for one in scalars), tuple(one.dtype for one in scalars)
    return PreparedTask(number, made, kernel, names, dtypes, result, task.whole_grid)


def _from_source(
    name: str, task: Task, source: Source, number: int, arrays: Sequence[TaskArray], threads: int, language: Language
) -> PreparedTask:
    if source.language != language.name:
        raise ArgumentError(f"task {name} must be in {language.title} or portable, got {source.language}")
    if task.args is not None:
        raise ArgumentError(f"task {name} is a function: its parameters say what its arguments are")
    # Heads are read of kernels; the function's is made to look like one.
    heads = read_heads(_FUNCTION.sub("__global__ void ", source.text))
    found = heads.get(name) or (next(iter(heads.values())) if len(heads) == 1 else None)
    if found is None or found.params is None:
        raise ArgumentError(
            f"task {name} must have a function `__device__ void {name}(…)` whose parameters can be read"
        )
    known = {one.name: one.dtype for one in arrays}
    scalars = []
    result = result_name = ""
    for one in found.params:
        if one.kind == "buffer":
            if one.name == "result" and one.name not in known and one.dtype:
                result, result_name = one.dtype, one.name
            elif one.name not in known:
                names = ", ".join(known) or "none"
                raise ArgumentError(f"task {name} uses an array {one.name}, and the grid's arrays are: {names}")
        elif one.dtype is None:
            raise ArgumentError(f"task {name} has an argument {one.name} of a type that is not known")
        else:
            scalars.append(one)
    dtypes = tuple(one.dtype or "" for one in scalars)
    offsets, _ = argument_offsets([CODES[dtype] for dtype in dtypes])
    arguments = tuple((one.name, dtype, at) for one, dtype, at in zip(scalars, dtypes, offsets, strict=True))
    defines = "".join(f"#define {key} {value}\n" for key, value in source.macros.items())
    undefines = "".join(f"#undef {key}\n" for key in source.macros)
    text = f"{defines}{source.text}\n{undefines}"
    made = TaskParts(name, found, arguments, None, {}, text=text, result=result_name)
    return PreparedTask(number, made, None, tuple(one.name for one in scalars), dtypes, result, task.whole_grid)


def as_kernel_text(task: PreparedTask) -> str | None:
    """A task in the device's own language as a text with a kernel of its name; None where it has no such function."""
    name = task.parts.signature.name
    text = task.parts.text
    head = re.compile(rf"{_FUNCTION.pattern}(?={re.escape(name)}\s*\()")
    if head.search(text):
        return head.sub('extern "C" __global__ void ', text)
    return text if name in read_heads(text) else None


def _split(name: str, text: str) -> tuple[str | None, str, int]:
    """The list of arguments that a body begins with, if it does; the rest; the number of the rest's first line."""
    start = len(text) - len(text.lstrip())
    if not text[start:].startswith("("):
        return None, text, 1
    end = text.find(")", start)
    rest = text[end + 1 :]
    if end < 0 or not rest.lstrip().startswith("{"):
        raise ArgumentError(f"task {name} must look like '(float a, int n) {{ … }}', got {text.strip()[:60]!r}")
    return text[start + 1 : end], rest, text.count("\n", 0, end) + 1


def _args_in(name: str, head: str) -> dict[str, str]:
    args: dict[str, str] = {}
    if head.strip() in ("", "void"):
        return args
    for one in head.split(","):
        found = _ARGUMENT.match(one)
        dtype = CTYPES.get(" ".join(found["type"].split())) if found else None
        if found is None or dtype is None:
            raise ArgumentError(f"task {name}: an argument must look like `float a`, got {one.strip()!r}")
        if found["name"] in args:
            raise ArgumentError(f"task {name} has two arguments named {found['name']}")
        args[found["name"]] = dtype
    return args
