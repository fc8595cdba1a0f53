"""OpenCL C."""

from __future__ import annotations

from ..kernel_parts import UnwrittenKernel, Written
from .base import NO_DEVICE_CLOCK, Language


class _OpenCL(Language):
    name = "opencl"
    title = "OpenCL C"
    suffixes = (".cl",)
    kernel_mark = r"\b(?:__)?kernel\s+(?:void|__attribute__)\b"

    handwritten_kernel = """\
{before}__kernel void {name}(__global const {kind}* x, __global {kind}* y, {kind} a, int n) {{
int i = get_global_id(0);
{statement}
}}
"""

    def write(self, kernel: UnwrittenKernel) -> Written:
        return kernel.written_in(self.name)

    state_helpers = (
        NO_DEVICE_CLOCK
        + """\
#define KK_READ(x) kk_atomic_load(x)
#define KK_WRITE(x, v) kk_atomic_store(x, v)
#define KK_UNROLL
#define KK_CHECK_LOOPS
#define KK_OVERRAN false
"""
    )


LANGUAGE = _OpenCL()
