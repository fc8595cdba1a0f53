"""A template: one kernel text for many variants, and how a problem becomes a launch of it.

The text is jinja2 (`{{ TILE }}`, `{% for … %}`; a name that is not known is an error, never empty), or plain C in which
the variant's values are macros. Either way a variant becomes a `Source` of its own, with a cache entry of its own.

What the kernel is given follows from the *problem*, a dict of named sizes such as `{"m": 256, "n": 256, "k": 256}`:

    arrays     the shape of each buffer: names of the problem's values, numbers, or functions of all values
    scalars    by their names from the problem; others from `scalars=`
    derived    a function that adds values computed from the problem, such as an output's height
    constants  those values that are compiled into the text, such as a filter's size
    grid       how many groups; a function of all values, the variant's among them
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import ArgumentError, Unsupported
from ..installation import install_command
from ..programs.portable import Buffer, PortableKernel, Scalar
from ..programs.signature import Parameter, declared, read_heads
from ..programs.source import Source
from ..words import TemplateEngine
from .values import plain_number

if TYPE_CHECKING:
    from ..devices.base import Device

Values = Mapping[str, Any]
Size = int | str | Callable[[Values], Any]
Shape = Size | Sequence[Size]

# What C has in double braces, {{1, 2}, {3, 4}}, has commas or more braces inside.
_JINJA = re.compile(r"\{%|\{#|\{\{[^{},;]*\}\}")
_DEFAULT_GROUP = 256


class Launch(NamedTuple):
    """A variant for one problem on one device: everything but the arguments."""

    source: Source
    kernel: str | None
    grid: tuple[int, ...]
    group: tuple[int, ...] | None
    shared_bytes: int = 0  # dynamic shared memory, for texts in a language that has it


class Template:
    """A kernel's text with parameters, and how a problem becomes a launch.

    `text` is the body of a portable kernel (with `params`), a `kk.PortableKernel`, a `kk.Source`, or a dict of them by
    language where one text cannot serve all. `engine` is "jinja" or "defines"; by default the text decides.
    `nonnegative_remainders` is as for `kk.PortableKernel`.

    A problem is a dict of named sizes. `arrays` has the shape of each buffer, in names of these, numbers or functions of all
    values; `scalars` what the problem does not name; `derived` adds values; `constants` are compiled into the text; `grid` and
    `group` are numbers or functions of all values, the variant's among them, and so is `shared_bytes`, the dynamic shared
    memory of a text in CUDA C.
    """

    def __init__(
        self,
        text: str | Source | PortableKernel | Mapping[str, str | Source | PortableKernel],
        params: Sequence[Buffer | Scalar] | None = None,
        *,
        arrays: Mapping[str, Shape] | None = None,
        grid: Size | Sequence[Size] | None = None,
        group: Size | Sequence[Size] | None = None,
        derived: Callable[[Values], Mapping[str, Any]] | None = None,
        constants: Iterable[str] = (),
        scalars: Mapping[str, Any] | None = None,
        kernel: str | None = None,
        options: Sequence[str] = (),
        engine: TemplateEngine | None = None,
        nonnegative_remainders: bool = False,
        shared_bytes: Size = 0,
    ) -> None:
        if engine not in (None, "jinja", "defines"):
            raise ArgumentError(f"engine must be 'jinja' or 'defines', got {engine!r}")
        texts = text if isinstance(text, Mapping) else {text.language if isinstance(text, Source) else "": text}
        for one in texts.values():
            if isinstance(one, str) and params is None:
                raise ArgumentError("a text needs params=[kk.Buffer(…), kk.Scalar(…)]")
            if not isinstance(one, str | Source | PortableKernel):
                raise ArgumentError(f"text must be a str, a kk.Source or a kk.PortableKernel, got {one!r}")
        if isinstance(constants, str):
            raise ArgumentError(f"constants must be a list of names, got {constants!r}")
        self._texts = dict(texts)
        self._params = None if params is None else tuple(params)
        self._arrays = dict(arrays or {})
        self._grid = grid
        self._group = group
        self._derived = derived
        self.constants = tuple(constants)
        self._scalars = dict(scalars or {})
        self._kernel = kernel
        self._options = tuple(options)
        self._engine = engine
        self._nonnegative_remainders = nonnegative_remainders
        self._shared_bytes = shared_bytes
        self._read_params: dict[str, tuple[Parameter, ...]] = {}

    # --- a problem's values

    def values(self, problem: Mapping[str, Any]) -> dict[str, Any]:
        """The problem's values and what is derived from them."""
        plain = plain_problem(problem)
        derived = self._call(self._derived, plain, "derived") if self._derived is not None else {}
        if not isinstance(derived, Mapping):
            raise ArgumentError(f"derived must return a dict of values, got {derived!r}")
        return {**plain, **derived}

    def shape(self, name: str, values: Values) -> tuple[int, ...]:
        """The shape of a buffer."""
        if name in self._arrays:
            return self._sizes(self._arrays[name], values, f"the shape of {name}")
        sizes = [key for key, value in values.items() if type(value) is int and key not in self.constants]
        if len(sizes) == 1:
            return (values[sizes[0]],)
        raise ArgumentError(f"the shape of buffer {name} is not known: give it in arrays={{{name!r}: (…)}}")

    def scalar(self, name: str, values: Values, *otherwise: Any) -> Any:
        """The value of a scalar; where it has none, `otherwise`, or an error where that was not given."""
        if name in values:
            return values[name]
        if name not in self._scalars:
            if otherwise:
                return otherwise[0]
            raise ArgumentError(f"scalar {name} has no value: it is neither in the problem nor in scalars=")
        value = self._scalars[name]
        return self._call(value, values, f"scalar {name}") if callable(value) else value

    # --- a variant

    def params(self, language: str) -> tuple[Parameter, ...]:
        """What the kernel takes, in its order."""
        if language not in self._read_params:
            found = self._find_params(language)
            for what, named, kind in (("arrays", self._arrays, "buffer"), ("scalars", self._scalars, "scalar")):
                unknown = named.keys() - {param.name for param in found if param.kind == kind}
                if unknown:
                    raise ArgumentError(f"{what}= names {', '.join(sorted(unknown))}, which is no {kind} of the kernel")
            self._read_params[language] = found
        return self._read_params[language]

    def _find_params(self, language: str) -> tuple[Parameter, ...]:
        text = self._text(language)
        if self._params is not None:
            return PortableKernel("k", self._params, "").signature.params or ()
        if isinstance(text, PortableKernel):
            return text.signature.params or ()
        assert isinstance(text, Source)
        found = declared(text.text) or read_heads(text.text)
        if self._kernel is not None:
            found = {self._kernel: found[self._kernel]} if self._kernel in found else {}
        if len(found) != 1:
            raise ArgumentError("the kernel's parameters cannot be told from the text: give params=, and kernel=")
        params = next(iter(found.values())).params
        if params is None or any(p.kind not in ("buffer", "scalar") or p.dtype is None for p in params):
            raise ArgumentError("the types of the kernel's parameters cannot be told from its text: give params=")
        return params

    def launch(self, name: str, device: Device, values: Values, variant: Mapping[str, Any]) -> Launch:
        """A variant for a problem on a device. `values` is what `values(problem)` gave."""
        everything = {**values, **variant}
        written_in = {**self.compiled_in(values), **variant}
        group = None if self._group is None else self._sizes(self._group, everything, "group")
        source, kernel = self._source(name, device, written_in, group)
        text = self._text(device.language)
        if group is None and not isinstance(text, Source):
            group = _group_of(text) if isinstance(text, PortableKernel) else (_DEFAULT_GROUP,)
        grid = self._grid_of(device.language, values, variant, group)
        return Launch(source, kernel, grid, group, self._size(self._shared_bytes, everything, "shared_bytes"))

    def compiled_in(self, values: Values) -> dict[str, Any]:
        """The values of the constants."""
        missing = [name for name in self.constants if name not in values]
        if missing:
            raise ArgumentError(f"the problem lacks {', '.join(missing)}, which the template compiles in")
        return {name: values[name] for name in self.constants}

    def _source(
        self, name: str, device: Device, compiled_in: Mapping[str, Any], group: tuple[int, ...] | None
    ) -> tuple[Source, str | None]:
        text = self._text(device.language)
        written = text if isinstance(text, str) else text.body if isinstance(text, PortableKernel) else text.text
        # A macro that is False would be left undefined, and GLSL does not take an undefined one for 0.
        macros = {key: int(value) if isinstance(value, bool) else value for key, value in compiled_in.items()}
        if self._engine == "jinja" or (self._engine is None and _JINJA.search(written)):
            # Named at the end: variants may differ in nothing but their groups, and each is a program of its own.
            written, macros = f"{_rendered(written, compiled_in)}\n// {json.dumps(dict(compiled_in))}\n", {}
        if isinstance(text, Source):
            defines = {**text.defines, **macros}
            options = (*text.options, *self._options)
            return Source(written, text.name, text.language, options, defines, text.include_dirs), self._kernel
        if isinstance(text, str):
            named = self._kernel or re.sub(r"\W", "_", name)
            nonnegative = self._nonnegative_remainders
            kernel = PortableKernel(
                named, self._params or (), written, group or _DEFAULT_GROUP, macros, self._options, nonnegative
            )
        else:
            kernel = replace(
                text,
                body=written,
                group=group or text.group,
                defines={**text.defines, **macros},
                options=(*text.options, *self._options),
                nonnegative_remainders=self._nonnegative_remainders or text.nonnegative_remainders,
            )
        return kernel.source(device), kernel.name

    @property
    def a_language(self) -> str:
        """One that the template has a text for, "" for any; parameters have the same names and types in all of them."""
        return next(iter(self._texts))

    def _text(self, language: str) -> str | Source | PortableKernel:
        text = self._texts.get(language, self._texts.get(""))
        if text is None:
            raise Unsupported(language, f"the template has no text for {language}; it has: {', '.join(self._texts)}")
        return text

    def _grid_of(
        self, language: str, values: Values, variant: Values, group: tuple[int, ...] | None
    ) -> tuple[int, ...]:
        if self._grid is not None:
            return self._sizes(self._grid, {**values, **variant}, "grid")
        if group is None:
            raise ArgumentError("the grid cannot be told: give grid=, or group= to cover the first output")
        outputs = [p.name for p in self.params(language) if p.kind == "buffer" and p.access != "r"]
        if not outputs:
            raise ArgumentError("the kernel writes nothing, so its grid cannot be told: give grid=")
        return (max(1, math.ceil(math.prod(self.shape(outputs[0], values)) / math.prod(group))),)

    # --- numbers from names and functions

    def _sizes(self, given: Any, values: Values, what: str) -> tuple[int, ...]:
        if callable(given):
            given = self._call(given, values, what)
        several = given if isinstance(given, Sequence) and not isinstance(given, str) else (given,)
        return tuple(self._size(size, values, what) for size in several)

    def _size(self, size: Any, values: Values, what: str) -> int:
        if callable(size):
            size = self._call(size, values, what)
        elif isinstance(size, str):
            if size not in values:
                raise ArgumentError(f"the problem needs {size}, which {what} names; it has {', '.join(values)}")
            size = values[size]
        try:
            return int(size.__index__())
        except AttributeError:
            raise ArgumentError(f"{what} must be integers, got {size!r}") from None

    def _call(self, function: Any, values: Values, what: str) -> Any:
        try:
            return function(values)
        except KeyError as error:
            raise ArgumentError(f"the problem needs {error}, which {what} uses; it has {', '.join(values)}") from None


def plain_problem(problem: Mapping[str, Any]) -> dict[str, int | float | str]:
    """A problem with Python's own numbers."""
    if not isinstance(problem, Mapping):
        raise ArgumentError(f"problem must be a dict of named sizes, got {problem!r}")
    plain: dict[str, int | float | str] = {}
    for name, value in problem.items():
        item = plain_number(value)
        if not isinstance(name, str) or not isinstance(item, int | float | str):
            raise ArgumentError(f"a problem's values must be numbers or strings, got {name!r}: {value!r}")
        plain[name] = item
    return plain


def _group_of(kernel: Any) -> tuple[int, ...]:
    return (kernel.group,) if isinstance(kernel.group, int) else tuple(kernel.group)


def _rendered(text: str, values: Mapping[str, Any]) -> str:
    try:
        import jinja2
    except ImportError:
        raise Unsupported("jinja2", f"this template needs jinja2; install it with: {install_command('tune')}") from None
    try:
        environment = jinja2.Environment(undefined=jinja2.StrictUndefined, keep_trailing_newline=True)
        return environment.from_string(text).render(values)
    except jinja2.UndefinedError as error:
        known = ", ".join(values) or "nothing"
        raise ArgumentError(f"the template cannot be filled in: {error}; it may use: {known}") from None
    except (ArithmeticError, TypeError, ValueError) as error:
        raise ArgumentError(f"the template cannot be filled in with {dict(values)}: {error}") from None
    except jinja2.TemplateError as error:
        line = getattr(error, "lineno", None)
        raise ArgumentError(f"the template{f', line {line},' if line else ''} is not jinja2: {error}") from None
