"""The headers a source really includes: found, read, and pasted so that line numbers stay the user's own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import kernelkeep as kk
from kernelkeep.programs.includes import expand_includes, find_headers, without_comments
from kernelkeep.programs.translation_unit import translation_unit


def write(folder: Path, **files: str) -> None:
    """Headers by name: `a="…"` is a.h, `sub__b` is sub/b.h."""
    for name, text in files.items():
        path = folder / (name.replace("__", "/") + ".h")
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)


def source(text: str, *folders: Path, language: str = "opencl") -> kk.Source:
    return kk.Source(text, name="main.cl", language=language, include_dirs=folders)


def names(made: kk.Source) -> list[str]:
    return [header.path.name for header in find_headers(made)]


def pasted(made: kk.Source) -> list[str]:
    """What a compiler would see, without directives and empty lines."""
    return [line for line in expand_includes(made).split("\n") if line.strip() and not line.lstrip().startswith("#")]


def test_a_source_without_includes_has_no_headers(tmp_path: Path) -> None:
    assert find_headers(source("int x;", tmp_path)) == ()
    assert expand_includes(source("int x;", tmp_path)) == "int x;"


def test_nested_headers_are_found_in_the_order_a_compiler_meets_them(tmp_path: Path) -> None:
    write(tmp_path, a='#include "sub/b.h"\nint a;', sub__b='#include "c.h"\nint b;', sub__c="int c;", d="int d;")
    made = source('#include "a.h"\n#include <d.h>\nint main;', tmp_path)
    assert names(made) == ["a.h", "b.h", "c.h", "d.h"]
    assert [header.spelled for header in find_headers(made)] == ["a.h", "sub/b.h", "c.h", "d.h"]
    assert find_headers(made)[2].content == b"int c;"
    assert pasted(made) == ["int c;", "int b;", "int a;", "int d;", "int main;"]


def test_include_dirs_are_searched_in_order(tmp_path: Path) -> None:
    write(tmp_path, one__a="int first;", two__a="int second;")
    assert pasted(source('#include "a.h"', tmp_path / "one", tmp_path / "two")) == ["int first;"]
    assert pasted(source('#include "a.h"', tmp_path / "two", tmp_path / "one")) == ["int second;"]


def test_quoted_looks_beside_the_including_file_first_and_angled_does_not(tmp_path: Path) -> None:
    write(tmp_path, a="int far;", sub__a="int near;", sub__quoted='#include "a.h"', sub__angled="#include <a.h>")
    assert pasted(source('#include "sub/quoted.h"', tmp_path)) == ["int near;"]
    assert pasted(source('#include "sub/angled.h"', tmp_path)) == ["int far;"]


def test_each_file_is_read_once_and_pasted_as_often_as_it_is_included(tmp_path: Path) -> None:
    write(tmp_path, a="X(1)\n")
    made = source('#include "a.h"\n#include "a.h"', tmp_path)
    assert names(made) == ["a.h"]
    assert pasted(made) == ["X(1)", "X(1)"]


def test_a_header_with_pragma_once_is_pasted_once(tmp_path: Path) -> None:
    write(tmp_path, a="#pragma once\nint a;", b='#include "a.h"\nint b;')
    made = source('#include "a.h"\n#include "b.h"\n#include "a.h"', tmp_path)
    assert pasted(made) == ["int a;", "int b;"]
    assert "pragma once" not in expand_includes(made)


def test_headers_with_guards_may_include_each_other(tmp_path: Path) -> None:
    write(
        tmp_path,
        a='// a comment first\n#ifndef A_H\n#define A_H\n#include "b.h"\nint a;\n#endif\n',
        b='#ifndef B_H\n#define B_H\n#include "a.h"\nint b;\n#endif\n',
    )
    made = source('#include "a.h"', tmp_path)
    assert names(made) == ["a.h", "b.h"]
    assert pasted(made)[-2:] == ["int b;", "int a;"]


def test_headers_without_guards_that_include_each_other_are_an_error(tmp_path: Path) -> None:
    write(tmp_path, a='#include "b.h"', b='int b;\n#include "a.h"')
    with pytest.raises(kk.CompileError, match=r"a\.h includes itself") as caught:
        expand_includes(source('#include "a.h"', tmp_path))
    assert caught.value.line == 2


def test_a_missing_header_is_an_error_that_names_it_and_the_folders(tmp_path: Path) -> None:
    with pytest.raises(kk.CompileError, match=r"main\.cl, line 3: the header gone\.h was not found") as caught:
        find_headers(source('\n\n  #  include "gone.h"', tmp_path))
    assert (caught.value.line, caught.value.name) == (3, "main.cl")
    assert str(tmp_path) in str(caught.value)
    with pytest.raises(kk.CompileError, match="no include_dirs were given"):
        find_headers(source('#include "gone.h"'))


def test_a_header_missing_inside_another_names_the_including_header(tmp_path: Path) -> None:
    write(tmp_path, a='int a;\n#include "gone.h"')
    with pytest.raises(kk.CompileError, match=r"a\.h, line 2: the header gone\.h"):
        find_headers(source('#include "a.h"', tmp_path))


def test_a_header_missing_inside_a_guarded_header_is_an_error(tmp_path: Path) -> None:
    write(tmp_path, a='#ifndef A\n#define A\n#include "gone.h"\n#endif')
    with pytest.raises(kk.CompileError, match=r"gone\.h"):
        find_headers(source('#include "a.h"', tmp_path))


def test_headers_of_the_toolkit_are_left_to_the_cuda_compiler(tmp_path: Path) -> None:
    text = "#include <cuda_fp16.h>\nint x;"
    made = source(text, tmp_path, language="cuda")
    assert find_headers(made) == ()
    assert expand_includes(made) == text
    with pytest.raises(kk.CompileError, match="cuda_fp16"):
        find_headers(source(text, tmp_path))


def test_includes_inside_conditions_count_and_may_be_missing(tmp_path: Path) -> None:
    write(tmp_path, a="int a;")
    text = '#ifdef X\n#include "a.h"\n#include "gone.h"\n#elif Y\n#include "gone.h"\n#else\n#include "gone.h"\n#endif\n'
    made = source(text, tmp_path)
    assert names(made) == ["a.h"]
    assert '#include "gone.h"' in expand_includes(made)
    with pytest.raises(kk.CompileError):
        find_headers(source(text + '#include "gone.h"', tmp_path))


def test_comments_and_strings_include_nothing(tmp_path: Path) -> None:
    write(tmp_path, a="int a;")
    text = '// #include "x.h"\n/* \n#include "y.h"\n*/ #include "a.h" // and "z.h"\nchar* s = "/*";\n#include "a.h" /* */\n'
    assert names(source(text, tmp_path)) == ["a.h"]


def test_comments_are_blanked_and_lines_kept() -> None:
    text = 'a /* 1\n2 */ b // c\n"// no" + "\\"/*" d\n'
    blank = without_comments(text)
    assert blank.count("\n") == text.count("\n")
    assert blank.split("\n")[2] == '"// no" + "\\"/*" d'
    assert not re.search(r"[12c]", blank)


def test_an_include_of_a_macro_is_an_error() -> None:
    with pytest.raises(kk.CompileError, match="#include must name a file, got 'HEADER'"):
        find_headers(source("#include HEADER"))


def test_an_unreadable_header_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "folder.h").mkdir()
    with pytest.raises(kk.CompileError, match=r"folder\.h"):
        find_headers(source('#include "folder.h"', tmp_path))


@pytest.mark.parametrize(
    ("language", "marker"), [("opencl", '#line 3 "main.cl"'), ("cuda", '#line 3 "main.cl"'), ("glsl", "#line 3")]
)
def test_line_markers_restore_the_line_numbers_behind_a_header(tmp_path: Path, language: str, marker: str) -> None:
    write(tmp_path, a="int a;\nint b;")
    lines = expand_includes(source('int x;\n#include "a.h"\nint y;', tmp_path, language=language)).split("\n")
    assert lines[lines.index("int y;") - 1] == marker


def test_headers_are_read_once(tmp_path: Path) -> None:
    write(tmp_path, a="int a;")
    made = source('#include "a.h"', tmp_path)
    assert made.headers[0].content == b"int a;"
    write(tmp_path, a="int changed;")
    assert pasted(made) == ["int a;"], "what is compiled is what was read"


def test_defines_stand_before_the_text_and_keep_its_line_numbers() -> None:
    unit = translation_unit(kk.Source("int x;\nint y;", defines={"A": 1, "B": None, "C": False}))
    assert unit == "#define A 1\n#define B \n#line 1\nint x;\nint y;"


def test_defines_stand_behind_the_version_line_in_glsl() -> None:
    text = "// a comment\n#version 430\nvoid main() {}"
    unit = translation_unit(kk.Source(text, language="glsl", defines={"A": 1}))
    assert unit == "// a comment\n#version 430\n#define A 1\n#line 3\nvoid main() {}"
