"""What notebooks show of sources and kernels: their parameters, and the code with line numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import KernelKeepError
from ..html.card import card, section
from ..html.code import code
from ..html.markup import Markup, element
from ..html.table import facts, table
from .portable_source import PortableSource
from .python_kernel import PythonKernel

if TYPE_CHECKING:
    from .portable import PortableKernel
    from .signature import KernelSignature
    from .source import Source

_ACCESS = {"r": "read", "w": "written", "rw": "read and written"}


def kernel_html(kernel: PortableKernel) -> str:
    """A portable kernel: parameters, and its body as the user wrote it."""
    group = " × ".join(map(str, kernel.group if isinstance(kernel.group, tuple) else (kernel.group,)))
    language = "Python" if isinstance(kernel, PythonKernel) else "C"
    about = f"portable kernel in {language}, groups of {group}"
    return card(
        kernel.name, about, _parameters(kernel.signature), section("body", code(kernel.body, kernel.first_line))
    )


def source_html(source: Source) -> str:
    """A source: its code, or for a portable kernel the code that was written for a language."""
    try:
        text = source.text
    except KernelKeepError as error:
        return card(source.name, f"{source.language}, not written", element("pre", error))
    about = (
        f"{source.language}, written from a portable kernel" if isinstance(source, PortableSource) else source.language
    )
    rows = [("options", element("code", " ".join(source.options)))] if source.options else []
    rows += [(f"#define {name}", element("code", value or " ")) for name, value in source.macros.items()]
    return card(source.name, about, facts(rows) if rows else None, section("text", code(text)))


def _parameters(signature: KernelSignature) -> Markup:
    rows = [
        (
            element("code", one.name),
            element("code", one.element or one.dtype),
            _ACCESS.get(one.access, one.access) if one.kind == "buffer" else "value",
        )
        for one in signature.params or ()
    ]
    return table(("parameter", "type", ""), rows, name="parameters")
