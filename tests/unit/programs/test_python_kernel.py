"""`@kk.kernel` and `@kk.function`: what they take, what is in the key, and what a kernel made of Python can be used for."""
# mypy: disable-error-code="no-any-return, no-untyped-def, name-defined, misc, untyped-decorator"

from __future__ import annotations

import linecache
import math
import pickle
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kernelkeep as kk
from kernelkeep.kernels.user_files import kernels_in
from kernelkeep.language.builtins import BUILTINS, CONSTRUCTORS, state_builtins
from kernelkeep.language.types import SCALARS
from kernelkeep.programs.python_words import all_words
from kernelkeep.testing import open_or_skip, run_python

FACTOR = 3
settings = types.ModuleType("settings")
settings.TILE = 4  # type: ignore[attr-defined]


@kk.function
def scaled(v: kk.f4) -> kk.f4:
    return v * FACTOR


@kk.kernel(group=64)
def scale(x: kk.In[kk.f4], y: kk.Out[kk.f4], n: kk.i4) -> None:
    i = kk.global_id(0)
    if i < n:
        y[i] = scaled(x[i])


def loaded(text: str, path: Path) -> Any:
    """The module of a file with this text."""
    path.write_text(f"import math\nimport numpy as np\nimport kernelkeep as kk\n{text}", encoding="utf-8")
    linecache.checkcache(str(path))
    module = types.ModuleType(path.stem)
    exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), module.__dict__)
    return module


def key_text(kernel: kk.PortableKernel) -> str:
    return kernel.source("glsl").key_text


def test_a_kernel_has_the_parameters_of_its_annotations(tmp_path: Path) -> None:
    assert isinstance(scale, kk.PortableKernel)
    lines = Path(__file__).read_text(encoding="utf-8").split("\n")
    assert (scale.name, scale.group, lines[scale.first_line - 1][:10]) == ("scale", 64, "def scale(")
    assert scale.params == (kk.Buffer("x", "f4", "r"), kk.Buffer("y", "f4", "w"), kk.Scalar("n", "i4"))
    written = """
from kernelkeep import InOut, u2
@kk.kernel
def plain(a: kk.In["f4"], b: InOut["u1"], c: kk.Out[np.float64], d: u2, e: int, f: float, g: np.int64, h: "kk.i8",
          v: kk.In[kk.float4]):
    pass
"""
    expected = [("a", "f4"), ("b", "u1"), ("c", "f8"), ("d", "u2"), ("e", "i4"), ("f", "f4"), ("g", "i8"), ("h", "i8")]
    expected.append(("v", "float4"))
    for number, head in enumerate(("", "from __future__ import annotations\n")):
        file = tmp_path / f"plain{number}.py"
        file.write_text(f"{head}import numpy as np\nimport kernelkeep as kk\n{written}", encoding="utf-8")
        scope: dict[str, Any] = {}
        exec(compile(file.read_text(encoding="utf-8"), str(file), "exec", dont_inherit=True), scope)
        assert [(one.name, one.dtype) for one in scope["plain"].params] == expected
        assert scope["plain"].group == 256


@pytest.mark.parametrize(
    ("head", "message"),
    [
        ("def f(x):", "parameter x of kernel f needs a type"),
        ('def f(x: "list"):', "the type of parameter x of kernel f must be one like"),
        ("def f(x: kk.In):", "the type of parameter x of kernel f must be one like"),
        ('def f(x: kk.In["f5"]):', "dtype of parameter x must be one of"),
        ("def f(*x: kk.f4):", "parameters of kernel f must be plain"),
        ("def f(x: kk.f4 = 1):", "parameters of kernel f must be plain"),
        ("def f(*, x: kk.f4):", "parameters of kernel f must be plain"),
    ],
)
def test_parameters_that_no_kernel_can_have(head: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(kk.ArgumentError, match=message):
        loaded(f"@kk.kernel\n{head}\n    pass\n", tmp_path / "wrong.py")


def test_a_kernel_needs_its_text() -> None:
    with pytest.raises(
        kk.ArgumentError, match=r"the text of f cannot be found \(<string>\): a kernel must stand in a file"
    ):
        exec("@kk.kernel\ndef f(x: kk.f4): pass", {"kk": kk})
    with pytest.raises(kk.ArgumentError, match="stands before a def"):
        kk.kernel(lambda: None)
    with pytest.raises(kk.ArgumentError, match="stands before a def"):
        kk.function(print)


def test_a_cell_of_a_notebook_has_a_text() -> None:
    cell = "@kk.kernel(\n    group=8,\n)\ndef cell(x: kk.InOut[kk.f4]):\n    x[kk.global_id(0)] = nn\n\nafter = 1\n"
    linecache.cache["<cell 7>"] = (len(cell), None, cell.splitlines(True), "<cell 7>")
    scope: dict[str, Any] = {"kk": kk}
    exec(compile(cell, "<cell 7>", "exec"), scope)
    with pytest.raises(kk.CompileError) as caught:
        _ = scope["cell"].source("cuda").text
    assert caught.value.line == 5
    assert str(caught.value).startswith(
        "kernel cell in <cell 7>, line 5: unknown name nn\n        x[kk.global_id(0)] = nn\n"
    )


def test_a_kernel_in_a_function_sees_its_variables() -> None:
    offset, tile = 2.5, np.int32(8)

    @kk.kernel(group=8)
    def inner(y: kk.Out[kk.f4]) -> None:
        t = kk.shared("f4", tile)
        t[kk.local_id(0)] = offset
        y[kk.global_id(0)] = t[kk.local_id(0)] + math.pi

    text = inner.source("opencl").text
    assert "__local float t[8]" in text
    assert "2.5f" in text


def test_names_beyond_ascii_are_for_variables_only(tmp_path: Path) -> None:
    text = "@kk.kernel(group=1)\ndef f(y: kk.Out['f4']):\n    größe = 2.0\n    gröe = größe * größe\n    y[0] = gröe\n"
    written = loaded(text, tmp_path / "letters.py").f.source("opencl").text
    assert written.isascii()
    assert "float v_gre = 2.0f" in written
    with pytest.raises(kk.ArgumentError, match="names in ASCII, got größe"):
        loaded("@kk.kernel\ndef f(größe: kk.f4):\n    pass\n", tmp_path / "parameter.py")


def test_only_what_matters_is_in_the_key(tmp_path: Path) -> None:
    body = "@kk.kernel\ndef f(y: kk.Out['f4']):\n    y[0] = g(K) + kk.f4(1)\n\n"
    helper = "@kk.function\ndef g(v: kk.f4) -> kk.f4:\n    return h(v)\n"
    helper += "@kk.function\ndef h(v: kk.f4) -> kk.f4:\n    return v + L\n"

    def key(k: str = "1.5", rest: str = helper + "L = 2\n", at: str = "", file: str = "a.py") -> str:
        return key_text(loaded(f"{at}K = {k}\n{rest}{body}OTHER = 7\n", tmp_path / file).f)

    first = key()
    assert key(at="\n\n# moved down\n") == first
    assert key(file="b.py") == first
    assert key(rest=helper + "L = 2\nunused = [1, 2]\n") == first
    assert key(k="1.25") != first
    assert key(k="np.float32(1.5)") != first
    assert key(rest=helper + "L = 3\n") != first
    assert key(rest=helper.replace("v + L", "v - L") + "L = 2\n") != first


def test_modules_give_numbers_and_functions() -> None:
    @kk.kernel(group=1)
    def f(y: kk.Out[kk.f4]) -> None:
        w = kk.array("f4", settings.TILE)
        w[0] = np.sqrt(np.float32(settings.TILE)) + np.pi
        y[0] = w[0]

    with open_or_skip("reference") as device:
        y = device.array(np.zeros(1, "f4"))
        with device.build(f.source(device)) as program:
            program.kernel().launch(1, (y,))
        assert y.numpy()[0] == np.float32(2 + np.float32(math.pi))


def test_defines_are_constants_of_the_kernel() -> None:
    def f(y: kk.Out[kk.i4]) -> None:
        y[0] = FACTOR + SIZE  # noqa: F821

    made = kk.kernel(group=1, defines={"FACTOR": 5, "SIZE": "16u"})(f)
    assert "5 + 16" in made.source("cuda").text or "21" in made.source("cuda").text
    with pytest.raises(kk.CompileError, match="SIZE is 'float x;' in defines=, which is no number"):
        _ = kk.kernel(group=1, defines={"SIZE": "float x;"})(f).source("cuda").text


def test_templates_choose_constants_and_groups() -> None:
    @kk.kernel
    def f(x: kk.In[kk.f4], y: kk.Out[kk.f4], n: kk.i4) -> None:
        for k in range(EACH):  # noqa: F821
            i = kk.global_id(0) * EACH + k  # noqa: F821
            if i < n:
                y[i] = x[i] * 2

    template = kk.Template(
        f, arrays={"x": "n", "y": "n"}, group="GROUP", grid=lambda v: math.ceil(v["n"] / v["GROUP"] / v["EACH"])
    )
    with open_or_skip("reference") as device:
        launch = template.launch("f", device, template.values({"n": 50}), {"EACH": 3, "GROUP": 8})
        x, y = device.array(np.arange(50, dtype="f4")), device.array(np.zeros(50, "f4"))
        with device.build(launch.source) as program:
            program.kernel(launch.kernel).launch(launch.grid, (x, y, 50))
        assert y.numpy().tolist() == (2 * x.numpy()).tolist()


def test_a_kernel_travels_to_other_processes() -> None:
    copy = pickle.loads(pickle.dumps(scale))
    assert key_text(copy) == key_text(scale)
    assert copy.source("glsl").text == scale.source("glsl").text
    source = pickle.loads(pickle.dumps(scale.source("glsl")))
    assert source.text == scale.source("glsl").text


def test_neither_kernels_nor_words_can_be_called() -> None:
    with pytest.raises(
        kk.ArgumentError, match=r"scale is a kernel and cannot be called: launch it, as in cache.get\(scale\)"
    ):
        scale(1, 2, 3)
    with pytest.raises(kk.ArgumentError, match="scale is a kernel and cannot be called: launch it"):
        scale[4](1, 2, 3)  # as in Triton and Numba
    with pytest.raises(TypeError, match="not iterable"):
        tuple(scale)  # type: ignore[arg-type]
    with pytest.raises(kk.ArgumentError, match=r"scaled is a @kk\.function, which only kernels call"):
        scaled(1.0)
    with pytest.raises(kk.ArgumentError, match=r"kk\.global_id is only for kernels"):
        kk.global_id(0)
    assert repr(kk.f4) == "kk.f4"
    assert pickle.loads(pickle.dumps(kk.f4)) is kk.f4
    assert repr(scale) == "<kk.kernel scale(x, y, n)>"


def test_a_portable_kernel_in_c_cannot_be_called() -> None:
    twice = kk.PortableKernel("twice", [kk.Buffer("x", "f4")], "x[kk_global_id(0)] *= 2.0f;")
    with pytest.raises(kk.ArgumentError, match=r"cache\.get\(twice\)\.kernel\(\)\.launch\(grid, \(x,\)\)"):
        twice(1)


def test_numpy_ndarray_is_no_type_of_a_parameter() -> None:
    def g(x: np.ndarray[Any, Any], n: kk.i4) -> None:
        pass

    g.__annotations__["x"] = np.ndarray
    with pytest.raises(
        kk.ArgumentError, match=r"x of kernel g must say what .* got numpy\.ndarray: write kk\.In\[kk\.f4\]"
    ):
        kk.kernel(g)


def test_every_word_of_the_language_is_there() -> None:
    """A function that C bodies have has a name in Python, too; other spellings of the same need none."""
    known = {
        spelling.builtin.name.removeprefix("kk_") for spelling in (*BUILTINS.values(), *state_builtins([]).values())
    }
    words = set(all_words())
    declared = {"shared", "array", "unroll"}
    vectors = {kind.title for kind in CONSTRUCTORS.values()}
    assert words == known | declared | vectors | (set(SCALARS) - {"b1"})
    for name in sorted(words):
        assert getattr(kk, name).__doc__, name
        assert name in dir(kk)


def test_decorating_loads_no_reader_and_no_numpy(tmp_path: Path) -> None:
    file = tmp_path / "kernels.py"
    file.write_text(
        "import kernelkeep as kk\nK = 2\n@kk.kernel\ndef f(x: kk.InOut['f4']):\n    x[0] = K\n"
        "import sys\nkey = f.source('glsl').key_text\n"
        "print([name for name in sys.modules if 'kernelkeep.language.' in name or name == 'numpy'])\n",
        encoding="utf-8",
    )
    assert run_python(f"import runpy; runpy.run_path({str(file)!r})").stdout.strip() == "[]"


def test_files_with_kernels_are_found_and_checked(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "import kernelkeep as kk\n@kk.kernel\ndef fine(x: kk.InOut['f4']):\n    x[kk.global_id(0)] *= 2\n"
        "@kk.kernel\ndef wrong(x: kk.InOut['f4']):\n    x[0] = nn\n",
        encoding="utf-8",
    )
    fine, wrong = kernels_in(str(file))
    assert [fine.name, wrong.name] == ["fine", "wrong"]
    assert kernels_in(f"{file}:wrong")[0].name == "wrong"
    assert isinstance(fine, kk.PortableKernel) and isinstance(wrong, kk.PortableKernel)
    assert not kk.check(fine)
    assert [(one.line, one.file) for one in kk.check(wrong)] == [(7, str(file))]


def test_a_cache_and_an_executor_take_it(tmp_path: Path) -> None:
    with open_or_skip("reference") as device, kk.ProgramCache(device, tmp_path) as cache:
        job = kk.Job(cache, scale, grid=2, outputs={"y": ((100,), "f4")})
        with kk.Executor(device) as executor:
            x = np.arange(100, dtype="f4")
            assert (executor.submit(job, x=x, n=100).result()["y"] == 3 * x).all()
        with cache.get(scale) as lease:
            assert lease.origin == "memory"


def test_atomics_in_a_helper_function_use_what_the_device_has(tmp_path: Path) -> None:
    text = """
@kk.function
def add(p: kk.InOut["f4"], v: kk.f4):
    kk.atomic_add(p[0], v)

@kk.kernel
def total(x: kk.InOut["f4"]):
    add(x, 1.0)
"""
    total = loaded(text, tmp_path / "total.py").total
    able = types.SimpleNamespace(
        language="glsl", writer_assumes=("native_float_atomics",),
        capabilities=kk.Capabilities(float_atomics=True, float64=True, int64=True, int8=True),
    )  # fmt: skip
    assert "atomicCompSwap" in total.source("glsl").text
    assert "atomicCompSwap" not in total.source(able).text
