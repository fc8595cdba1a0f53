"""Sentences for frequent mistakes, with what to write instead. Imported only where a body has a mistake."""

from __future__ import annotations

from .tree import Expression, Index, Name
from .types import Array, Buffer

# Words of CUDA C and OpenCL C.
_NAMES = {
    "threadIdx": "kk_local_id(0) for threadIdx.x",
    "blockIdx": "kk_group_id(0) for blockIdx.x",
    "blockDim": "kk_group_size(0) for blockDim.x",
    "gridDim": "kk_group_count(0) for gridDim.x",
}
_FUNCTIONS = {
    "get_global_id": "kk_global_id(0)",
    "get_local_id": "kk_local_id(0)",
    "get_group_id": "kk_group_id(0)",
    "get_local_size": "kk_group_size(0)",
    "get_num_groups": "kk_group_count(0)",
    "get_global_size": "kk_global_size(0)",
}
# Functions of Numba, Triton and NumPy, without the module before them.
_OF_PYTHON = {
    "grid": "kk_global_id(0) for grid(1)",
    "gridsize": "kk_global_size(0) for gridsize(1)",
    "syncthreads": "kk_barrier()",
    "shared.array": "kk_shared('f4', 16, 17)",
    "local.array": "kk_array('f4', 8)",
    "program_id": "kk_group_id(0), or kk_global_id(0) for the index of an element",
    "num_programs": "kk_group_count(0)",
    "arange": "kk_global_id(0), the index of the one element that a work-item computes",
    "load": "x[i]",
    "store": "y[i] = value",
    "zeros": "kk_array('f4', 8), and a for that sets its elements",
    "empty": "kk_array('f4', 8)",
}


def unknown_name(name: str) -> str | None:
    """The sentence for a name that another language has; None for others."""
    if name in _NAMES:
        return f"{name} is CUDA's: write {_NAMES[name]}"
    return None


def unknown_function(name: str) -> str | None:
    """The sentence for a function that another language or another kind of body has; None for others."""
    if name in _FUNCTIONS:
        return f"{name} is OpenCL's: write {_FUNCTIONS[name]}"
    if name == "printf":
        return 'there is no printf: write kk_print("label", value)'
    if name == "kk_result":
        return 'kk_result is for tasks that have a result: write kk.Task(…, result="f4")'
    return None


def of_python(name: str) -> str | None:
    """The sentence for a function that other libraries have in Python kernels, such as `tl.program_id`; None for others."""
    _, dot, behind = name.partition(".")
    word = behind if dot else name
    if word.startswith("atomic."):
        return f"there is no {name} in a kernel: write kk_atomic_{word.removeprefix('atomic.')}(x, i, value)"
    if word in _OF_PYTHON:
        return f"there is no {name} in a kernel: write {_OF_PYTHON[word]}"
    if word in _FUNCTIONS:
        return f"{word} is OpenCL's: write {_FUNCTIONS[word]}"
    return None


def too_few_indices(array: Expression) -> str:
    """The sentence for `t[i]` as an element of an array with two dimensions; nothing for other arrays."""
    given, base = 0, array
    while isinstance(base, Index):
        given, base = given + 1, base.base
    if not given or not isinstance(base, Name):
        return ""
    dimensions, kind = 0, base.type
    while isinstance(kind, (Array, Buffer)):
        dimensions, kind = dimensions + 1, kind.element
    return f"{base.variable.written} has {dimensions} dimensions, and this gives {given} {_indices(given)}"


def _indices(count: int) -> str:
    return "index" if count == 1 else "indices"
