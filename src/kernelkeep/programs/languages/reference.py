"""What the reference device runs: portable bodies as they were written, each below a line that declares its kernel.

    //kk: kernel saxpy group(256,1,1) x:buffer:f4:r y:buffer:f4:rw a:scalar:f4 n:scalar:i4
    int i = kk_global_id(0);
    if (i < n) y[i] = a * x[i] + y[i];

A kernel ends where the next one is declared. What stands above the first declaration belongs to every kernel.

A kernel that is not written in C has a line more, `//kk: reader` with the module that reads it and all that this needs, as JSON.
"""

from __future__ import annotations

import json

from ..kernel_parts import UnwrittenKernel, Written
from .base import NO_DEVICE_CLOCK, Language


class _Reference(Language):
    name = "reference"
    title = "portable C"
    suffixes = (".kk",)
    has_options = False
    keeps_places = True  # errors name the line of the body
    handwritten_kernel = """\
{before}
//kk: kernel {name} x:buffer:{kind}:r y:buffer:{kind}:rw a:scalar:{kind} n:scalar:int
int i = kk_global_id(0);
{statement}
"""

    def write(self, kernel: UnwrittenKernel) -> Written:
        parts = kernel.parts
        if not parts.is_c:
            facts = [parts.body, parts.functions, dict(kernel.macros), parts.first_line, parts.file]
            head = f"{kernel.declaration}\n//kk: reader {parts.reader} {json.dumps(facts)}"
            return Written(f"{head}\n#line {parts.first_line}\n{parts.body}\n", ())
        text = f"{kernel.declaration}\n{parts.functions}#line {parts.first_line}\n{parts.body}\n"
        return Written(self.with_macros(text, kernel.macros) if kernel.macros else text, ())

    # The control words are written by one group and read by others without atomics, in an order that fences make.
    state_helpers = (
        NO_DEVICE_CLOCK
        + """\
#pragma kk trusted kkcontrol
#define KK_READ(x) (x)
#define KK_WRITE(x, v) (x) = (v)
#define KK_UNROLL
#define KK_CHECK_LOOPS
#define KK_OVERRAN false
"""
    )


LANGUAGE = _Reference()
