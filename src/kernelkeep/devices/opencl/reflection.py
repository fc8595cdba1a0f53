"""The signatures of a program's kernels: from the source where it declares them plainly, else from the driver."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from ...errors import Unsupported
from ...programs.signature import CTYPES, DTYPES, KernelSignature, Parameter, declared, declared_kernel, read_heads
from ...programs.source import Source
from ...programs.translation_unit import translation_unit
from .library import new_kernel

if TYPE_CHECKING:
    from .device import OpenCLDevice

# Arguments of these types are objects of the driver: drivers crash if they get anything else.
_OPAQUE_TYPES = {"sampler_t", "queue_t", "clk_event_t", "reserve_id_t", "event_t"}
_TYPEDEF = re.compile(rf"\btypedef\s+(?:{'|'.join(sorted(_OPAQUE_TYPES))})\s+(\w+)\s*;")
_POCL_PREFIX = "_cl_"


def kernel_symbols(cl: Any, program: Any) -> list[str]:
    """The names of the kernels as the driver has them."""
    return [name for name in program.get_info(cl.program_info.KERNEL_NAMES).split(";") if name]


def reflect(device: OpenCLDevice, program: Any, symbols: list[str], source: Source) -> tuple[KernelSignature, ...]:
    """The signatures of a built program's kernels."""
    known = declared(source.text)
    return tuple(_signature(device, program, symbol, source, known) for symbol in symbols)


def _signature(
    device: OpenCLDevice, program: Any, symbol: str, source: Source, known: dict[str, KernelSignature]
) -> KernelSignature:
    found = declared_kernel(symbol, known)
    if found is not None:
        return found
    name = _name_of(device, symbol, source)
    if name in known:
        return msgspec.structs.replace(known[name], symbol=symbol)
    cl = device.cl
    kernel = new_kernel(cl, program, symbol)
    x, y, z = kernel.get_work_group_info(cl.kernel_work_group_info.COMPILE_WORK_GROUP_SIZE, device.cl_device)
    group = (int(x), int(y), int(z)) if x else None
    opaque = _OPAQUE_TYPES | set(_TYPEDEF.findall(source.text))
    try:
        params = tuple(_reflect_argument(cl, kernel, i, opaque) for i in range(kernel.num_args))
    except cl.Error:
        params = tuple(Parameter(f"arg{i}", "any") for i in range(kernel.num_args))
    return KernelSignature(name, params, group, symbol if symbol != name else "")


def _name_of(device: OpenCLDevice, symbol: str, source: Source) -> str:
    """The kernel's name in the source. PoCL's built-in functions are macros, which turn a kernel `step` into `_cl_step`."""
    name = symbol.removeprefix(_POCL_PREFIX)
    if not device.is_pocl or name == symbol:
        return symbol
    written = read_heads(translation_unit(source))
    return name if name in written and symbol not in written else symbol


def _reflect_argument(cl: Any, kernel: Any, index: int, opaque: set[str]) -> Parameter:
    info = cl.kernel_arg_info
    name = kernel.get_arg_info(index, info.NAME)
    kind = kernel.get_arg_info(index, info.TYPE_NAME)
    space = kernel.get_arg_info(index, info.ADDRESS_QUALIFIER)
    access = kernel.get_arg_info(index, info.ACCESS_QUALIFIER)  # images and pipes have one, also behind a typedef
    if access != cl.kernel_arg_access_qualifier.NONE or kind in opaque:
        name_of_kernel = kernel.get_info(cl.kernel_info.FUNCTION_NAME)
        raise Unsupported(
            "image parameters",
            f"parameter {name} of kernel {name_of_kernel} has the type {kind}: kernelkeep passes arrays and numbers only, no "
            "images, samplers, pipes, queues or events",
        )
    if space == cl.kernel_arg_address_qualifier.LOCAL:
        return Parameter(name, "local")
    dtype = CTYPES.get(kind.rstrip("*").strip())
    if space == cl.kernel_arg_address_qualifier.PRIVATE:
        nbytes = DTYPES.get(dtype or "", 0)
        return Parameter(name, "scalar", dtype if nbytes else None, "r", nbytes)
    constant = kernel.get_arg_info(index, info.TYPE_QUALIFIER) & cl.kernel_arg_type_qualifier.CONST
    return Parameter(name, "buffer", dtype, "r" if constant else "rw")
