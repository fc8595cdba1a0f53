"""Portable kernels that are written as Python functions.

    @kk.kernel(group=256)
    def saxpy(x: kk.In["f4"], y: kk.InOut["f4"], a: kk.f4, n: kk.i4):
        i = kk.global_id(0)
        if i < n:
            y[i] = a * x[i] + y[i]

The function is never executed. Its text is taken from its file when it is decorated. What it uses from outside, constants and
functions with `@kk.function`, is looked up when the kernel is first used. `docs/python-kernels.md` describes the language.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import FunctionType
from typing import Any, ParamSpec, TypeVar, cast, overload

import msgspec

from ..errors import ArgumentError
from .kernel_parts import KernelParts
from .languages import Language
from .portable import Buffer, PortableKernel, Scalar
from .python_text import FunctionText, Helper, described, plain_function, resolved, text_of
from .python_words import ArrayAnnotation, In, InOut, Out, Word

_ANNOTATION = re.compile(r"""\s*([^\W\d][\w.]*)\s*(?:\[\s*(?:(["'])(\w+)\2|([\w.]+))\s*\])?\s*\Z""")
_P = ParamSpec("_P")
_R = TypeVar("_R")
_NUMBERS = {int: "i4", float: "f4"}


@dataclass(frozen=True, eq=False)
class PythonKernel(PortableKernel):
    """A portable kernel whose body is the text of a Python function. Made by `@kk.kernel`.

    `outside` says what the function uses from outside: the function itself, or what was found out about it already.
    """

    file: str = ""
    outside: Any = None

    @cached_property
    def uses(self) -> tuple[str, str]:
        """What the function uses from outside, and where its helper functions stand (`python_text.described`)."""
        if isinstance(self.outside, FunctionType):
            return described(self.outside, FunctionText(self.outside.__name__, self.body, self.file, self.first_line))
        known: tuple[str, str] | None = self.outside
        return known or ("", self.file)

    def may_use_atomics(self) -> bool:
        """Whether the word is anywhere in the text."""
        return "atomic" in self.body or "atomic" in self.uses[0]

    def parts(self, language: Language, lacks: tuple[str, ...], assumes: tuple[str, ...]) -> KernelParts:
        """The kernel as plain data, with what it uses from outside."""
        functions, places = self.uses
        parts = super().parts(language, lacks, assumes)
        return msgspec.structs.replace(parts, reader="python_kernel", functions=functions, file=places)

    def __reduce__(self) -> tuple[Any, ...]:
        """A kernel travels to other processes with what it uses, without its function."""
        fields = (self.name, tuple(self.params), self.body, self.group, dict(self.defines), tuple(self.options))
        return PythonKernel, (*fields, self.nonnegative_remainders, None, self.first_line, self.file, self.uses)

    def __repr__(self) -> str:
        return f"<kk.kernel {self.name}({', '.join(param.name for param in self.params)})>"


@overload
def kernel(function: Callable[..., None], /) -> PythonKernel: ...


@overload
def kernel(
    *,
    group: int | tuple[int, ...] = 256,
    name: str | None = None,
    defines: Mapping[str, Any] | None = None,
    options: Sequence[str] = (),
) -> Callable[[Callable[..., None]], PythonKernel]: ...


def kernel(
    function: Callable[..., None] | None = None,
    /,
    *,
    group: int | tuple[int, ...] = 256,
    name: str | None = None,
    defines: Mapping[str, Any] | None = None,
    options: Sequence[str] = (),
) -> PythonKernel | Callable[[Callable[..., None]], PythonKernel]:
    """Make a portable kernel of an annotated Python function, which is read and never executed.

    `group` is the number of work-items in a group: an int, or up to three. `defines` sets constants that the function uses by
    name, in place of those around it.
    """

    def made(given: Callable[..., None]) -> PythonKernel:
        plain = plain_function(given, "kk.kernel")
        text = text_of(plain)
        for word in (plain.__name__, *plain.__code__.co_varnames[: plain.__code__.co_argcount]):
            if not word.isascii():
                raise ArgumentError(f"kernels and their parameters must have names in ASCII, got {word}")
        return PythonKernel(
            name or plain.__name__,
            _params(plain),
            text.text,
            group,
            dict(defines or {}),
            options,
            first_line=text.first_line,
            file=text.file,
            outside=plain,
        )

    return made if function is None else made(function)


def function(given: Callable[_P, _R], /) -> Callable[_P, _R]:
    """Make a helper function of an annotated Python function: kernels, and other helper functions, can call it.

    Its parameters and its result are annotated: `def mix(a: kk.f4, b: kk.f4) -> kk.f4:`. It is read and never executed.
    """
    return cast("Callable[_P, _R]", Helper(plain_function(given, "kk.function")))


def _params(plain: FunctionType) -> list[Buffer | Scalar]:
    """The parameters of a kernel, from its annotations."""
    code = plain.__code__
    if code.co_flags & 0x0C or code.co_kwonlyargcount or code.co_posonlyargcount or plain.__defaults__:
        raise ArgumentError(
            f"parameters of kernel {plain.__name__} must be plain: no * or **, no / and no default values"
        )
    found: list[Buffer | Scalar] = []
    for name in code.co_varnames[: code.co_argcount]:
        if name not in plain.__annotations__:
            raise ArgumentError(
                f"parameter {name} of kernel {plain.__name__} needs a type: kk.In[kk.f4] for an array, kk.i4 for a number"
            )
        found.append(_param(plain, name, plain.__annotations__[name]))
    return found


def _param(plain: FunctionType, name: str, annotation: Any) -> Buffer | Scalar:
    meant = _evaluated(plain, annotation) if isinstance(annotation, str) else annotation
    if isinstance(meant, ArrayAnnotation):
        return Buffer(name, meant.dtype, meant.access)  # type: ignore[arg-type]
    if isinstance(meant, Word) and meant.dtype:
        return Scalar(name, meant.dtype)
    what = f"the type of parameter {name} of kernel {plain.__name__}"
    if isinstance(meant, type) and meant.__module__ == "numpy" and meant.__name__ == "ndarray":
        arrays = "kk.In[kk.f4], kk.Out[kk.f4] or kk.InOut[kk.f4]"
        raise ArgumentError(f"{what} must say what the array holds, got numpy.ndarray: write {arrays}")
    if isinstance(meant, type) and (meant in _NUMBERS or meant.__module__ == "numpy"):
        return Scalar(name, _NUMBERS.get(meant) or meant)  # type: ignore[arg-type]
    raise ArgumentError(
        f"{what} must be one like kk.In[kk.f4], kk.Out[kk.f4], kk.InOut[kk.f4], kk.f4 or kk.i4, got {annotation!r}"
    )


def _evaluated(plain: FunctionType, annotation: str) -> Any:
    """What a written annotation means; `from __future__ import annotations` leaves them as texts. None where it is unknown."""
    if annotation[:1] in ("'", '"') and annotation[-1:] == annotation[:1]:  # written in quotes, too
        annotation = annotation[1:-1]
    found = _ANNOTATION.match(annotation)
    if found is None:
        return None
    path, _, quoted, named = found.groups()
    meant = _path(plain, path)
    if quoted is None and named is None:
        return meant
    return meant[quoted or _path(plain, named)] if meant in (In, Out, InOut) else None


def _path(plain: FunctionType, path: str) -> Any:
    first, *rest = path.split(".")
    meant = {"int": int, "float": float}.get(first) or resolved(plain, first)
    for name in rest:
        meant = getattr(meant, name, None)
    return meant
