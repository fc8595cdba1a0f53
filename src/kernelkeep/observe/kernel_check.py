"""`kk.check`: what is wrong with a portable kernel, for every target. No device is opened and no driver is asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, overload

from msgspec.structs import replace

from ..errors import ArgumentError, CompileError, Unsupported
from ..language.lines import line_with_number
from ..language.problems import Problem
from ..language.writers import TARGETS
from ..programs.kernel_parts import UnwrittenKernel
from ..programs.languages import Language, find_language
from ..programs.portable import PortableKernel, Target
from ..programs.portable_source import PortableSource

if TYPE_CHECKING:
    from ..continuous.program import StateProgram
    from ..continuous.python_body import PythonBody

    Checkable = PortableKernel | PortableSource | StateProgram

_ORDER = {"error": 0, "unsupported": 1, "warning": 2}


class CheckReport(Sequence[Problem]):
    """The problems of a kernel: a sequence, empty where there are none. `str()` shows each with its line and a caret.

    A problem has `severity` ("error", "unsupported" or "warning"), `sentence`, `line`, `column` and `shown`, the line itself.
    What one target lacks has the `target`'s name and the `capability`; all others are the same for every target. For a kernel in
    Python, `file` is where it stands. `targets` are those that were checked.
    """

    def __init__(self, name: str, problems: Iterable[Problem], targets: Iterable[str]) -> None:
        self.name = name
        self.problems = tuple(sorted(problems, key=lambda one: (_ORDER[one.severity], one.line, one.column)))
        self.targets = tuple(targets)

    @property
    def errors(self) -> tuple[Problem, ...]:
        """Mistakes, and what a target lacks."""
        return tuple(one for one in self.problems if not one.is_warning)

    @property
    def warnings(self) -> tuple[Problem, ...]:
        """What is allowed, and probably not meant."""
        return tuple(one for one in self.problems if one.is_warning)

    def __len__(self) -> int:
        return len(self.problems)

    @overload
    def __getitem__(self, at: int) -> Problem: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[Problem]: ...

    def __getitem__(self, at: int | slice) -> Problem | Sequence[Problem]:
        return self.problems[at]

    def __str__(self) -> str:
        if not self.problems:
            return f"kernel {self.name}: no mistakes in {titles(self.targets)}"
        return "\n".join(map(self._shown, self.problems))

    def _shown(self, problem: Problem) -> str:
        if not problem.line:  # it is about a parameter, and names the kernel itself
            return str(problem)
        where = f" in {problem.file}" if problem.file else ""
        return f"kernel {self.name}{where}, {problem}"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from .html import check_html

        return check_html(self, titles(self.targets))


def check(kernel: Checkable, *, targets: Iterable[str | Target] | None = None) -> CheckReport:
    """Check a portable kernel for every target language. A body with mistakes raises nothing.

    A kernel is read and checked, and then written in each language. A `kk.StateProgram` is checked in all the forms that a run
    may give it. `targets` names the languages to check for, or backends, which stand for theirs; a device among them is
    checked for what it lacks, too, such as doubles, which its language may have.
    """
    chosen = _chosen(targets)
    names = tuple(map(_name, chosen))
    if isinstance(kernel, PortableSource):
        return CheckReport(kernel.name, _problems(lambda _: kernel, chosen), names)
    if isinstance(kernel, PortableKernel):
        return CheckReport(kernel.name, _problems(kernel.source, chosen), names)
    from ..continuous.program import StateProgram

    if not isinstance(kernel, StateProgram):
        raise ArgumentError(
            f"kernel must be a kk.PortableKernel, a kk.StateProgram or what kernel.source(…) returns, got {kernel!r}"
        )
    if targets is None:  # a language may have no state programs at all
        chosen = tuple(one for one in chosen if _language(one).state_helpers)
    return CheckReport(kernel.name, _problems_of_forms(kernel, chosen), map(_name, chosen))


def titles(targets: Iterable[str]) -> str:
    """The targets as people write them, in a list."""
    return ", ".join(find_language(name).title if name in TARGETS else name for name in targets)


def _language(target: str | Target) -> Language:
    return find_language(target if isinstance(target, str) else target.language)


def _name(target: str | Target) -> str:
    return target if isinstance(target, str) else getattr(target, "spec", target.language)


def _chosen(targets: Iterable[str | Target] | None) -> tuple[str | Target, ...]:
    if targets is None:
        return tuple(TARGETS)
    given = (targets,) if isinstance(targets, str) else tuple(targets)
    chosen: tuple[str | Target, ...] = ()
    for one in (_written_as(one) if isinstance(one, str) else one for one in given):
        chosen = chosen if one in chosen else (*chosen, one)
        if one not in TARGETS and (isinstance(one, str) or not hasattr(one, "capabilities")):
            raise ArgumentError(
                f"targets must be among {', '.join(TARGETS)}, names of backends, or devices, got {one!r}"
            )
    if not chosen:
        raise ArgumentError(f"targets must name at least one of {', '.join(TARGETS)}")
    return chosen


def _written_as(name: str) -> str:
    """A target by its name, or by the name of a backend whose devices compile it."""
    if name in TARGETS:
        return name
    from ..devices.registry import backend_module, backend_names

    found = getattr(backend_module(name), "language", name) if name in backend_names() else name
    return found if found in TARGETS else name


def _problems(
    source_in: Callable[[str | Target], PortableSource], targets: Iterable[str | Target]
) -> Iterator[Problem]:
    """The problems of one kernel. Mistakes and warnings once, what a target lacks for each."""
    kernel, warnings = None, False
    for target in targets:
        try:
            source = source_in(target)
            if kernel is None or kernel.parts != source.kernel:  # generated text may differ between languages
                kernel = UnwrittenKernel(source.kernel, source.macros, source.options)
            if not warnings:
                yield from kernel.reading.warnings
                warnings = True
            _language(target).write(kernel)
        except CompileError as error:
            yield from error.problems or (Problem(str(error), error.line or 0, 0),)
            return
        except Unsupported as error:
            yield _lacking(error, _name(target), kernel)


def _lacking(error: Unsupported, target: str, kernel: UnwrittenKernel | None) -> Problem:
    if kernel is None or not error.line:
        return Problem(str(error), 0, 0, target=target, capability=error.capability)
    parts = kernel.parts
    shown, file = line_with_number(parts.body, error.line, parts.first_line), ""
    if shown:
        file = parts.file.split("\n")[0]
    elif parts.is_c:
        shown = line_with_number(parts.functions, error.line)
    sentence = str(error).removeprefix(f"kernel {kernel.signature.name}, line {error.line}: ")
    sentence = sentence.removeprefix(f"kernel {kernel.signature.name} ")
    return Problem(sentence, error.line, error.column, shown, target=target, capability=error.capability, file=file)


def _problems_of_forms(program: StateProgram, targets: Iterable[str | Target]) -> list[Problem]:
    """The problems of a state program, each once: its body is part of all its forms."""
    from ..continuous.lowering.forms import kernels_of
    from ..continuous.lowering.outline import FIRST_GENERATED_LINE

    always = len(kernels_of(program, cooperative=False))
    found: dict[Problem, None] = {}
    written = []
    for target in targets:
        if _language(target).state_helpers:
            written.append(target)
        else:
            what = f"{_language(target).title} has no state programs, and {program.name} is one"
            found[Problem(what, 0, 0, target=_name(target), capability="state programs")] = None
    for at, form in enumerate(kernels_of(program, cooperative=True)):
        for one in _problems(form.source, written):
            # A language without cooperative launches needs no form for them.
            if (at < always or not one.capability) and not (one.is_warning and one.line >= FIRST_GENERATED_LINE):
                told = one.sentence.replace(f"kernel {form.name} ", f"{program.name} ")
                found[_in_python(replace(one, sentence=told), program.python)] = None
        if any(one.severity == "error" for one in found):
            break
    return list(found)


def _in_python(problem: Problem, body: PythonBody | None) -> Problem:
    """The problem with the line of a body in Python, where the kernel has only what was made of it."""
    if body is None or problem.shown or not problem.line:
        return problem
    shown = line_with_number(body.text, problem.line, body.first_line)
    return replace(problem, shown=shown, file=body.places.split("\n")[0]) if shown else problem
