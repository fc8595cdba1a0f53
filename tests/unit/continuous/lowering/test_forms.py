"""The forms of a state program as text, and compiled for CUDA."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import kernelkeep as kk
from kernelkeep.continuous.lowering.forms import FORMS, Form, can_chain, kernels_of, lower
from kernelkeep.continuous.mailbox import Word
from kernelkeep.programs.signature import declared
from kernelkeep.samples.states import COLLATZ, SCRAMBLE, STATE_SAMPLES, TILES
from kernelkeep.testing import skip_backend

LANGUAGES = ["cuda", "opencl", "glsl"]
ALL = kk.Capabilities(float_atomics=True, float64=True, int64=True, int8=True)
SAMPLES = {sample.name: sample.program(sample.size) for sample in STATE_SAMPLES}
STEERING = kk.StateProgram(
    "steering",
    coupling="independent",
    state={"x": np.zeros(9, "i4")},
    body="int i = kk_item();\nx_next[i] = x[i] + kk_phase();\nif (i == 3) kk_set_phase(2);\nif (x[i] > 9) kk_stop();",
)
PROGRAMS = {**SAMPLES, "steering": STEERING}
QUEUE = {"coupling": "queue", "tasks": {"t": np.zeros(3, "i4")}}


@dataclass(frozen=True)
class Target:
    """A device as far as a portable kernel looks at it."""

    language: str
    capabilities: kk.Capabilities = field(default=ALL)


def program(body: str = "x_next[kk_item()] = x[kk_item()];", **fields: Any) -> kk.StateProgram:
    fields = {"coupling": "independent", "state": {"x": np.zeros(4, "f4")}} | fields
    return kk.StateProgram(fields.pop("name", "p"), body=body, **fields)


def forms_of(made: kk.StateProgram) -> list[str]:
    """Those that make sense for a program."""
    if made.coupling == "queue":
        return ["step", "group", "grid", "copy"]
    kinds = [kind for kind in FORMS if kind != "span" or (made.coupling == "independent" and not made.steers)]
    return [*kinds, "link"] if can_chain(made, made.steers) else kinds


def cases() -> list[tuple[str, str]]:
    return [(name, kind) for name, made in PROGRAMS.items() for kind in forms_of(made)]


def cases_in_languages(*without: str) -> list[tuple[str, str, str]]:
    """Groups wait for each other in CUDA only."""
    return [
        (name, kind, language)
        for name, kind in cases()
        for language in (LANGUAGES if kind != "grid" else ["cuda"])
        if kind not in without
    ]


def text_of(form: Form, language: str) -> str:
    return form.source(Target(language)).text


@pytest.mark.parametrize(("name", "kind", "language"), cases_in_languages())
def test_a_form_declares_its_arguments(name: str, kind: str, language: str) -> None:
    made = PROGRAMS[name]
    form = lower(made, kind)
    text = text_of(form, language)
    assert form.kernel.name == f"{name}_{kind}"
    assert declared(text) == {form.kernel.name: form.kernel.signature}
    params = form.kernel.signature.params
    assert params is not None
    assert len(form.arguments) == len(params)
    for role, parameter in zip(form.arguments, params, strict=True):
        if ":" in role or "@" in role:
            key, number = re.split("[:@]", role)
            array = made.state[key] if ":" in role else made.tasks[key]
            assert parameter.name == f"{key}_{'s' if ':' in role else 't'}{number}"
            assert (parameter.kind, parameter.dtype) == ("buffer", array.dtype.str[1:])
            assert parameter.access == ("r" if number == "0" else "rw"), "the committed copy is never written"
        elif role in made.scalars:
            assert (parameter.kind, parameter.dtype) == ("scalar", made.scalars[role].dtype.str[1:])
    assert any(role.endswith(("2",)) for role in form.arguments) == (kind not in ("step", "copy", "link"))


@pytest.mark.parametrize(("name", "kind", "language"), cases_in_languages("copy"))
def test_every_line_of_the_body_is_found_in_the_text(name: str, kind: str, language: str) -> None:
    made = PROGRAMS[name]
    source = lower(made, kind).source(Target(language))
    places = {source.place(number) for number in range(1, len(source.text.split("\n")))}
    lines = made.body.split("\n")
    found = {
        number
        for number, shown in places
        if number is not None and number <= len(lines) and shown == lines[number - 1].rstrip()
    }
    without = {number for number, line in enumerate(lines, 1) if re.match(r"\s*([{}/]|else|$)", line)}
    assert found | without == set(range(1, len(lines) + 1))


@pytest.mark.parametrize(("name", "kind", "language"), cases_in_languages("copy", "link"))
def test_the_commit_word_is_written_last(name: str, kind: str, language: str) -> None:
    for supervised in (False, True) if kind == "grid" else (False,):
        text = text_of(lower(PROGRAMS[name], kind, supervised=supervised), language)
        writes = re.findall(r"kkcontrol\[(\d+)\] (?:=|\+=)", text)
        assert int(writes[-1]) == Word.GENERATION
        assert writes.count(str(int(Word.GENERATION))) == 1
        last = text.rindex(f"kkcontrol[{Word.GENERATION:d}]")
        fence = {
            "cuda": "__threadfence();",
            "opencl": "mem_fence(CLK_GLOBAL_MEM_FENCE);",
            "glsl": "memoryBarrierBuffer();",
        }
        assert text[:last].rstrip().endswith(fence[language]), "and after everything else is seen"


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_link_writes_no_control_word_and_the_commit_of_a_chain_writes_all(language: str) -> None:
    link = text_of(lower(PROGRAMS["heat"], "link"), language)
    assert not re.search(r"kkcontrol\[\d+\] (?:=|\+=)", link)
    commit = text_of(lower(PROGRAMS["heat"], "commit"), language)
    writes = [int(word) for word in re.findall(r"kkcontrol\[(\d+)\] (?:=|\+=)", commit)]
    assert writes == [Word.ITERATION, Word.CURRENT, Word.GENERATION]


def test_a_program_that_may_end_by_itself_has_no_chain() -> None:
    """Iterations of a chain do not look whether an earlier one asked for the end."""
    for name, made in PROGRAMS.items():
        names = [kernel.name for kernel in kernels_of(made, cooperative=True)]
        assert (f"{name}_link" in names) == ("chain_commit" in names) == can_chain(made, made.steers)
    assert can_chain(PROGRAMS["heat"], False) and not can_chain(PROGRAMS["heat"], True)
    assert not can_chain(STEERING, STEERING.steers) and not can_chain(PROGRAMS["tiles"], False)


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_condition_is_checked_behind_the_body(language: str) -> None:
    """It stands in a function of its own, so that no `return` passes it by."""
    made = SCRAMBLE.program(9)
    for kind in ("step", "group", "grid") if language == "cuda" else ("step", "group"):
        without = text_of(lower(made, kind), language)
        text = text_of(lower(made, kind, condition="kk_item() == 5"), language)
        # GLSL passes no arrays: there a function is written for each pair of copies that it reads and writes.
        times = 1 if language != "glsl" or kind == "step" else 3
        assert len(re.findall(r"void kkbody\w*\(", text)) == text.count("== 5") == times
        assert text.index("kkbody") < text.index("== 5")
        assert "== 5" not in without and "kkbody" not in without


def test_the_same_program_gives_the_same_text() -> None:
    for name, kind, language in cases_in_languages():
        first = text_of(lower(PROGRAMS[name], kind), language)
        assert text_of(lower(PROGRAMS[name], kind), language) == first
    for language in LANGUAGES:
        assert text_of(lower(COLLATZ.program(5), "span"), language) == text_of(
            lower(COLLATZ.program(500), "span"), language
        ), "sizes come with the launch"


def test_only_a_supervised_form_has_a_mailbox() -> None:
    for made in PROGRAMS.values():
        assert "mailbox" not in lower(made, "grid").arguments
        form = lower(made, "grid", supervised=True)
        assert "mailbox" in form.arguments and form.kernel.name.endswith("_grid_supervised")


@pytest.mark.parametrize("language", LANGUAGES)
def test_what_the_device_lacks_is_named(language: str) -> None:
    target = Target(language, kk.Capabilities())
    for dtype, capability in (("f8", "float64"), ("i8", "int64"), ("u1", "int8")):
        for made in (program(state={"x": np.zeros(4, dtype)}), program(scalars={"k": np.zeros((), dtype)})):
            with pytest.raises(kk.Unsupported) as caught:
                lower(made, "step").source(target)
            assert caught.value.capability == capability
    floats = program("kk_atomic_add(x[0], 1.0f);", **QUEUE)
    with pytest.raises(kk.Unsupported, match="atomics on floats") as caught:
        assert lower(floats, "step").source(Target(language, kk.Capabilities(int64=True))).text
    assert caught.value.capability == "float_atomics"
    assert lower(floats, "step").source(Target(language)).text


def test_opengl_has_room_for_the_samples() -> None:
    """Sixteen storage blocks are what every driver has."""
    for name, kind in cases():
        if kind != "grid":
            assert text_of(lower(PROGRAMS[name], kind), "glsl").count("std430") <= 16


@pytest.fixture(scope="module")
def compile_for() -> Any:
    """NVRTC, which needs no GPU."""
    from kernelkeep.devices.cuda import compiler, toolkit

    try:
        toolkit.compiler_version()
    except kk.DeviceError as error:
        skip_backend("cuda", str(error))
    return compiler.compile_for


@pytest.mark.cuda
@pytest.mark.parametrize(("name", "kind"), cases())
def test_every_form_compiles_for_cuda(name: str, kind: str, compile_for: Any) -> None:
    made = PROGRAMS[name]
    for supervised in (False, True) if kind == "grid" else (False,):
        form = lower(made, kind, supervised=supervised)
        assert compile_for(form.source(Target("cuda")), "sm_90")


@pytest.mark.cuda
def test_a_condition_compiles_for_cuda(compile_for: Any) -> None:
    for made, condition in ((SCRAMBLE.program(9), "count_next[kk_item()] > 3u"), (TILES.program(75), "side < 9")):
        for kind in ("step", "group", "grid"):
            assert compile_for(lower(made, kind, condition=condition).kernel.source(Target("cuda")), "sm_90")


@pytest.mark.cuda
@pytest.mark.parametrize("kind", ["step", "span", "group", "grid"])
def test_a_mistake_in_the_body_names_its_line(kind: str, compile_for: Any) -> None:
    made = program("int i = kk_item();\nx_next[i] = x[i];\nx_next[i] = nonsense;\n")
    with pytest.raises(kk.CompileError, match="nonsense") as caught:
        compile_for(lower(made, kind).kernel.source(Target("cuda")), "sm_90")
    assert caught.value.line == 3


def cached_parameters(assembly: str) -> set[int]:
    """Which parameters are loaded through the cache for what no one writes during a launch."""
    sources: dict[str, list[tuple[str, str]]] = {}
    for operation, register, operands in re.findall(r"^\s*(?:@!?%p\d+ )?([\w.:]+)\s+(%\w+), (.*);", assembly, re.M):
        sources.setdefault(register, []).append((operation, operands))
    found: set[int] = set()
    registers = re.findall(r"ld\.global\.nc[\w.:]*\s+[^\[]*\[(%\w+)", assembly)
    for register in registers:  # grows while it is walked through
        for operation, operands in sources.pop(register, ()):
            if operation.startswith("ld.param"):
                found.add(int(re.findall(r"_param_(\d+)", operands)[0]))
            elif not operation.startswith(("ld.", "atom.")):
                registers += re.findall(r"%rd\d+", operands)
    return found


@pytest.mark.cuda
@pytest.mark.parametrize("name", ["heat", "scramble", "tiles"])
def test_groups_see_what_others_write(name: str, compile_for: Any) -> None:
    """A GPU that loads such words once, or through the cache for constants, waits for ever or computes with old values."""
    form = lower(SAMPLES[name], "grid", supervised=True)
    ptx = compile_for(form.source(Target("cuda")), "sm_999").decode(
        "utf-8", "replace"
    )  # newer than NVRTC: no machine code
    access = [one.access for one in form.kernel.signature.params or ()]
    cached = cached_parameters(ptx)
    assert {access[at] for at in cached} <= {"r"}
    assert cached or name != "scramble", "what is only read is cached"
    fence = r"\s+(membar\.gl|fence\.\w+\.gpu);"
    waiting = r"(\$\w+):\s+ld\.volatile\.global[^;]*;[^$]*setp\.[^;]*;\s+@%p\d+ bra\s+\1;" + fence
    assert re.search(waiting, ptx), "a loop that loads the word anew each time, and a fence behind it"
    assert re.search(r"(membar|fence\.\w+)\.sys", ptx), "what the host reads"
