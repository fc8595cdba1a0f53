"""Python kernels with mistakes: the sentence, the line and the column in the user's file."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

import kernelkeep as kk
from kernelkeep.language.readers.c import Reading
from kernelkeep.language.readers.python_kernel import read_kernel
from kernelkeep.language.tree import Variable

HEAD = "def k(x, y, z, d, b, n, a, u):\n"
NAMES = {
    "kk": "module kernelkeep", "math": "module math", "np": "module numpy", "settings": "module settings", "N": "int 16",
    "table": "other a list", "settings.TILE": "int 8", "half": "function 1", "plain": "other a function without @kk.function",
}  # fmt: skip
HALF = "def half(v: kk.f4, w: kk.In['f4']) -> kk.f4:\n    return v / 2 + w[0]\n"
Read = Callable[[str], Reading]


@pytest.fixture
def read(parameters: tuple[Variable, ...]) -> Read:
    def read(body: str, helper: str = HALF) -> Reading:
        lines = "\n".join(f"    {line}" for line in body.split("\n"))
        functions = json.dumps([["k", "", NAMES], ["half", helper, {"kk": "module kernelkeep", "half": "function 1"}]])
        return read_kernel(
            "k", parameters, HEAD + lines, functions=functions, group=(64,), first_line=100, file="mine.py\n40 other.py"
        )

    return read


# The place is counted from the line behind `def`, and from the column behind the indentation.
@pytest.mark.parametrize(
    ("body", "place", "message"),
    [
        # names
        ("z[0] = nn", (1, 8), "unknown name nn; did you mean n?"),
        ("z[0] = kk.globl_id(0)", (1, 8), "there is no kk.globl_id in a kernel; did you mean global_id?"),
        ("y[0] = math.sqroot(a)", (1, 8), "there is no math.sqroot in a kernel; did you mean sqrt?"),
        ("y[0] = sqroot(a)", (1, 8), "unknown function sqroot; did you mean kk.sqrt?"),
        ("y[0] = math.gamma(a)", (1, 8), "there is no math.gamma in a kernel"),
        ("y[0] = table[0]", (1, 8), "table is a list: a kernel can use numbers, @kk.function and modules from outside"),
        ("y[0] = plain(1)", (1, 8), "plain is a function without @kk.function, and cannot be called in a kernel"),
        ("y[0] = settings.OTHER", (1, 8), "settings.OTHER is nothing that settings has, or no number"),
        ("y[0] = kk", (1, 8), "kk is a module: write kk.something"),
        ("y[0] = half", (1, 8), "half is a function: call it as half(…)"),
        ("z[0] = kk_global_id(0)", (1, 8), "kk is followed by a dot in Python: write kk.global_id(0)"),
        ("z[0] = global_id(n)", (1, 8), "unknown function global_id: write kk.global_id(n)"),
        ("y[0] = sqrt(a)", (1, 8), "unknown function sqrt: write kk.sqrt(a) or math.sqrt(a)"),
        ("y[0] = rsqrt(a)", (1, 8), "unknown function rsqrt: write kk.rsqrt(a)"),
        ("y[0] = numpy.sqrt(a)", (1, 8), "numpy is not imported: write import numpy outside of the kernel"),
        ("y[0] = numpy.pi", (1, 8), "numpy is not imported: write import numpy outside of the kernel"),
        ("z[0] = x.shape[0]", (1, 8), "the length of this array is not known in a kernel: pass it, as in n: kk.i4"),
        ("z[0] = x.size", (1, 8), "the length of this array is not known in a kernel: pass it, as in n: kk.i4"),
        ("z[blockIdx.x] = 1", (1, 3), "blockIdx is CUDA's: write kk.group_id(0) for blockIdx.x"),
        # names of other libraries
        ("z[0] = cuda.grid(1)", (1, 8), "there is no cuda.grid in a kernel: write kk.global_id(0) for grid(1)"),
        ("z[0] = tl.program_id(0)", (1, 8), "there is no tl.program_id in a kernel: write kk.group_id(0)"),
        ("z[0] = kk.program_id(0)", (1, 8), "there is no kk.program_id in a kernel: write kk.group_id(0)"),
        ("z[0] = settings.program_id(0)", (1, 8), "there is no settings.program_id in a kernel: write kk.group_id(0)"),
        ("z[0] = get_local_size(0)", (1, 8), "get_local_size is OpenCL's: write kk.group_size(0)"),
        ("kk.syncthreads()", (1, 1), "there is no kk.syncthreads in a kernel: write kk.barrier()"),
        ("cuda.atomic.add(y, 0, a)", (1, 1), "there is no cuda.atomic.add in a kernel: write kk.atomic_add(x, i, value)"),
        ("w = np.zeros(4)", (1, 5), "there is no np.zeros in a kernel: write kk.array('f4', 8)"),
        ("y[0] = np.random.rand()", (1, 8), "there is no np.random.rand in a kernel"),
        ("y[0] = x.sum()", (1, 8), "there is no x.sum(…) in a kernel: nothing has methods here"),
        ("y[0] = n(1)", (1, 8), "n is a variable and cannot be called"),
        ("y[0] = sorted(n)", (1, 8), "unknown function sorted"),
        ("if n > 0:\n    y[0] = s\ns = 1.0", (2, 12), "s is used before it is assigned"),
        ("y[0] = kk.item()", (1, 8), "there is no kk.item in a kernel"),
        # types of variables
        ("s = 0\ns = s + x[0]", (2, 7), "s, since line 101, is int, and this is float: give it a float there, or write kk.i4(…)"),
        ("s = 0\ns += x[0]", (2, 3), "s, since line 101, is int, and this is float"),
        ("s = 0\ns += 0.5", (2, 3), "s, since line 101, is int, and this is float"),
        ("s = 0\ns /= 2", (2, 3), "s, since line 101, is int, and this is float"),
        ("s = 0.0\ns = d[0]", (2, 5), "s, since line 101, is float, and this is double: write s: kk.f8 there, or write kk.f4(…)"),
        ("s = n > 1\ns = n", (2, 5), "s, since line 101, is bool, and this is int: give it an int there, or write bool(…)"),
        ("s = 0\ns: kk.f4 = 1.0", (2, 1), "s is int already, see line 101"),
        ("s: kk.i4 = 0.5", (1, 12), "s is int, and this is float: write kk.i4(…)"),
        ("s: list = 1", (1, 4), "this is no type: write kk.f4"),
        ("n = 0.5", (1, 5), "n, as a parameter, is int, and this is float"),
        ("s = kk.float4(1)\ns = 2.0 * s.xy", (2, 9), "s, since line 101, must be float4, got float2"),
        ("z[0] = a", (1, 8), "this element is int, and this is float: write kk.i4(…)"),
        ("z[0] += a", (1, 6), "this element is int, and this is float"),
        ("b[0] = a * 255", (1, 10), "this element is uchar, and this is float: write kk.u1(…)"),
        ("y[0] = half(d[0], x)", (1, 13), "v of half is float, and this is double"),
        ("y[0] = half(a, n)", (1, 16), "w of half must be the name of an array of float, got int"),
        ("y[0] = half(a)", (1, 8), "half takes 2 arguments, got 1"),
        ("y[0] = half(v=a, w=x)", (1, 15), "half takes its arguments by position here"),
        ("for k in range(3):\n    k = 0.5", (2, 9), "k, since line 101, is int, and this is float"),
        # operators
        ("y[0] = a & 2", (1, 10), "& takes integers, got float and int"),
        ("y[0] = a @ a", (1, 8), "there is no @ in a kernel"),
        ("z[0] = n ** n", (1, 10), "** of integers is an integer or a float, as the exponent is"),
        ("z[0] = n // u", (1, 10), "// of int and uint may be wrong below 0: convert one"),
        ("z[0] = kk.i4(min(n, u))", (1, 14), "min of int and uint may be wrong below 0: convert one"),
        ("z[0] = ~(n > 1)", (1, 8), "~ of a bool is an integer that is always true: write not"),
        ("z[0] = n and 1", (1, 8), "and and or take bools here, got int"),
        ("if n is 1:\n    pass", (1, 4), "there is no is in a kernel: write =="),
        ("if n in (1, 2):\n    pass", (1, 4), "there is no in in a kernel: compare with == and join with or"),
        ("if 0 < kk.atomic_add(z[0], 1) < 5:\n    pass", (1, 8), "this is evaluated once in Python"),
        # arrays
        ("z[0] = z[-1]", (1, 10), "an index below 0 does not count from the end in a kernel"),
        ("z[-1 - N] = 1", (1, 3), "an index below 0 does not count from the end in a kernel"),
        ("z[0.5] = 1", (1, 3), "an index must be an integer, got float"),
        ("y[0] = x[0, 1]", (1, 8), "this array has fewer dimensions: compute one index"),
        ("w = kk.array('f4', 4)\nw[4] = 1", (2, 3), "index 4 is outside of float[4]: it must be 0 to 3"),
        ("w = kk.array('f4', n)", (1, 20), "the size of an array must be a constant"),
        ("w = kk.array('f5', 4)", (1, 14), "the type of the elements must be one like 'f4'"),
        ("w = kk.array('f4')", (1, 5), "write kk.array('f4', 16)"),
        ("w = kk.array('f4', [])", (1, 20), "the list of values is empty"),
        ("y[0] = kk.array('f4', 4)", (1, 1), "kk.array(…) is assigned to a name"),
        ("w = kk.array('f4', 4)\nw = 1", (2, 1), "w is an array and stays one"),
        ("y[0] = len(x)", (1, 12), "the length of this array is not known in a kernel"),
        ("if n > 1:\n    t = kk.shared('f4', 4)", (2, 9), "kk.shared(…) stands at the top level of the kernel"),
        ("x[0] = 1", (1, 6), 'x must not be written: its access is "r"'),
        ("kk.atomic_add(x[0], 1)", (1, 15), 'x must not be written: its access is "r"'),
        ("kk.atomic_add(n, 1)", (1, 15), "kk.atomic_add takes an element of a buffer or of a shared array"),
        ("x = y", (1, 1), "x is an array and stays one"),
        ("y[0] = x", (1, 8), "this is an array (float[]), and a value is needed: give an index"),
        ("y[0:4] = 1", (1, 1), "there are no slices in a kernel"),
        ("y[0] = n.x", (1, 10), "int has no fields"),
        # loops
        ("for v in x:\n    pass", (1, 10), "a for runs over range(…) or kk.unroll(range(…)) in a kernel"),
        ("for k in range(0, 4, 0):\n    pass", (1, 22), "the step of range must not be 0"),
        ("for k in range(a):\n    pass", (1, 16), "range takes integers: each must be an integer, got float"),
        ("for k in range(u, 0, -1):\n    pass", (1, 22), "a step below 0 needs signed integers"),
        ("for k in range():\n    pass", (1, 10), "range takes 1 to 3 integers, got 0"),
        ("for k in range(3):\n    pass\nelse:\n    pass", (4, 5), "there is no else behind a loop in a kernel"),
        ("for i, j in range(3):\n    pass", (1, 5), "a for has one variable in a kernel"),
        ("k = range(3)", (1, 5), "range stands in for only"),
        # what kernels do not have
        ("z[0] = [1, 2][0]", (1, 8), "there are no lists in a kernel: use an array"),
        ("w = [i for i in range(3)]", (1, 5), "there are no comprehensions in a kernel: write a for"),
        ("w = {}", (1, 5), "there are no dicts in a kernel"),
        ("w = 'text'", (1, 5), "there are no strings in a kernel"),
        ("w = f'{n}'", (1, 5), "there are no strings in a kernel"),
        ("w = 1j", (1, 5), "there are no complex numbers in a kernel: use kk.float2"),
        ("w = None", (1, 5), "there is no None in a kernel: use a number"),
        ("w = lambda v: v", (1, 5), "there is no lambda in a kernel"),
        ("def f():\n    pass", (1, 1), "a function cannot be defined in a kernel: write it outside, with @kk.function"),
        ("class C:\n    pass", (1, 1), "there are no classes in a kernel"),
        ("try:\n    pass\nexcept E:\n    pass", (1, 1), "a kernel cannot raise, so there is no try"),
        ("with n:\n    pass", (1, 1), "there is no with in a kernel"),
        ("raise E", (1, 1), "a kernel cannot raise: write what went wrong into an array"),
        ("assert n > 0", (1, 1), "a kernel cannot raise, so there is no assert"),
        ("global n2", (1, 1), "a kernel cannot change variables outside: write to an array"),
        ("import os", (1, 1), "import outside of the kernel"),
        ("del n", (1, 1), "there is no del in a kernel"),
        ("yield n", (1, 1), "a kernel is no generator"),
        ("if (m := n) > 1:\n    pass", (1, 5), "there is no := in a kernel"),
        ("match n:\n    case 1:\n        pass", (1, 1), "there is no match in a kernel: write if and elif"),
        ("half(*x)", (1, 1), "there is no * before an argument in a kernel"),
        ("n, a = 1", (1, 8), "write 2 values here"),
        ("w = 1, 2", (1, 5), "there are no tuples in a kernel"),
        ("n + 1", (1, 1), "this does nothing: assign it, or leave it out"),
        ("return n", (1, 8), "a kernel returns nothing: write into an array"),
        # groups
        ("if kk.global_id(0) > n:\n    return\nkk.barrier()", (2, 5), "return before the barrier in line 103"),
    ],
)  # fmt: skip
def test_mistakes_have_a_sentence_and_a_place(read: Read, body: str, place: tuple[int, int], message: str) -> None:
    with pytest.raises(kk.CompileError) as caught:
        read(body)
    line, column = place[0] + 100, place[1] + 4
    assert f"kernel k in mine.py, line {line}: {message}" in str(caught.value)
    assert caught.value.line == line
    sentence, shown, caret = str(caught.value).split("\n")[:3]
    assert shown == f"        {body.split(chr(10))[place[0] - 1]}"
    assert caret.index("^") == column - 1 + 4, sentence


@pytest.mark.parametrize(
    ("helper", "message"),
    [
        ("def half(v: kk.f4, w):\n    return v\n", "line 40: w needs a type, as in w: kk.f4 (in other.py)"),
        ("def half(v: kk.f4, w: kk.In['f4']) -> kk.f4:\n    pass\n", "line 40: half must return float on every path"),
        ("def half(v: kk.f4, w: kk.In['f4']):\n    return v\n", "line 41: half returns nothing: write its type behind -> (in o"),
        ("def half(v: kk.f4, w: kk.In['f4']) -> kk.f4:\n    return half(v, w)\n", "line 41: half calls itself, and recursion"),
        ("def half(v: kk.f4, w: kk.In['f4']) -> kk.f4:\n    w[0] = 1\n    return v\n", "line 41: w must not be written"),
        ("def half(v: kk.f4, w: kk.In['f4']) -> kk.In['f4']:\n    return w\n", "line 40: half cannot return an array"),
        ("def half(v: kk.f4, *w) -> kk.f4:\n    return v\n", "line 40: parameters are plain here"),
        ("def half(v: kk.f4, w: kk.In['f4']) -> kk.f4:\n    return n\n", "line 41: unknown name n"),
        ("def half(v: kk.f4, w: kk.In['f4']) -> kk.f4:\n    s = kk.shared('f4', 4)\n    return v\n", "line 41: kk.shared(…)"),
    ],
)  # fmt: skip
def test_mistakes_in_helper_functions_name_their_file(read: Callable[..., Reading], helper: str, message: str) -> None:
    with pytest.raises(kk.CompileError) as caught:
        read("y[0] = half(a, x)", helper)
    assert message in str(caught.value)


def test_all_mistakes_are_reported_at_once(read: Read) -> None:
    with pytest.raises(kk.CompileError) as caught:
        read("y[0] = one\ny[1] = two\nw = [1]\ny[2] = w")
    assert caught.value.log.count("line ") == 3  # what follows from a mistake is not another one
    assert "(2 more errors: kk.check and .log of this exception have all)" in str(caught.value)


def test_columns_count_characters(read: Read) -> None:
    with pytest.raises(kk.CompileError) as caught:
        read("äöü = 1; y[äöü] = ä2")
    assert str(caught.value).split("\n")[2].index("^") == 4 + 4 + 18


def test_nesting_beyond_all_measure_is_an_error_of_its_own(read: Read) -> None:
    with pytest.raises(kk.CompileError, match=r"nested too deeply|not Python"):
        read("y[0] = " + "-" * 5000 + "1")
