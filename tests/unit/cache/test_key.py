"""The identity of a program: what is part of it, what is not, and that no two can be mistaken for each other."""

from __future__ import annotations

import os
import random
import string
from pathlib import Path
from typing import Any

import pytest

import kernelkeep as kk
from kernelkeep.cache import key as keys
from kernelkeep.cache.key import digest_of, key_of, normalised_options
from kernelkeep.testing import run_python

TEXT = "__kernel void f(__global int* x) { x[0] = 1; }"


def digest(text: str = TEXT, *, fingerprint: str = "fp", **fields: Any) -> str:
    return key_of(kk.Source(text, **fields), fingerprint).digest


def test_every_field_counts() -> None:
    base: dict[str, Any] = dict(name="f", options=("-O1",), defines={"A": 1})
    variants = [
        digest(**base),
        digest(TEXT + " ", **base),
        digest(**{**base, "options": ()}),
        digest(**{**base, "options": ("-O2",)}),
        digest(**{**base, "options": ("-O1", "-O1")}),
        digest(**{**base, "defines": {}}),
        digest(**{**base, "defines": {"A": 2}}),
        digest(**{**base, "defines": {"B": 1}}),
        digest(**{**base, "defines": {"A": 1, "B": 1}}),
        digest(language="cuda", **base),
        digest(fingerprint="fq", **base),
    ]
    assert len(set(variants)) == len(variants)


def test_characters_moved_between_fields_make_another_key() -> None:
    text = "abcdef"
    found = [digest(text[:cut], options=(text[cut:],)) for cut in range(len(text))]
    found += [digest("x", options=(text[:cut], text[cut:])) for cut in range(1, len(text))]
    found += [digest("x", defines={text[:cut]: text[cut:]}) for cut in range(1, len(text))]
    found += [digest("x", fingerprint=text[:cut], options=(text[cut:],)) for cut in range(len(text))]
    assert len(set(found)) == len(found)


def test_fields_that_read_alike_make_different_keys() -> None:
    found = [
        digest("x", defines={"A": "1"}),
        digest("x", options=("define A1:1",)),
        digest("x8:define A1:1"),
        digest("x", defines={"A": "11:B1:1"}),
        digest("x", defines={"A": "1", "B": "1"}),
        digest("x", options=("1", "2")),
        digest("x", options=("1 2",)),
    ]
    assert len(set(found)) == len(found)


def test_no_two_random_field_sets_collide() -> None:
    rng = random.Random(7)
    letters = "ab1:-= é"

    def word(most: int = 3) -> str:
        return "".join(rng.choice(letters) for _ in range(rng.randint(0, most)))

    seen: dict[str, object] = {}
    for _ in range(3000):
        options = tuple(word() for _ in range(rng.randint(0, 2)))
        defines = {rng.choice("AB") * rng.randint(1, 2): word() for _ in range(rng.randint(0, 2))}
        source = kk.Source(word(), options=options, defines=defines)
        fields = (source.text, normalised_options(options), tuple(sorted(defines.items())))
        assert seen.setdefault(key_of(source, "fp").digest, fields) == fields
    assert len(seen) > 1000


def test_header_content_counts_and_a_touch_does_not(tmp_path: Path) -> None:
    header = tmp_path / "scale.h"
    text = '#include "scale.h"\n' + TEXT

    def now() -> str:
        return digest(text, include_dirs=(tmp_path,))

    header.write_text("#define SCALE 2\n")
    first = now()
    os.utime(header, (1, 1))
    assert now() == first
    header.write_text("#define SCALE 3\n")
    second = now()
    assert second != first
    header.write_text("#define SCALE 2\n")
    assert now() == first


def test_the_folder_of_a_header_is_not_part_of_the_key(tmp_path: Path) -> None:
    text = '#include "scale.h"\n' + TEXT
    found = set()
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "scale.h").write_text("#define SCALE 2\n")
        (tmp_path / name / "unrelated.h").write_text(f"// {name}\n")
        found.add(digest(text, include_dirs=(tmp_path / name,)))
    assert len(found) == 1


def test_nested_headers_spelled_alike_are_all_in_the_fields(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "top.h").write_text('#include "common.h"\n')
        (tmp_path / folder / "common.h").write_text(f"#define FROM_{folder}\n")
    text = '#include "a/top.h"\n#include "b/top.h"\n' + TEXT

    def now() -> keys.Key:
        return key_of(kk.Source(text, include_dirs=(tmp_path,)), "fp")

    before = now()
    for folder in ("a", "b"):
        (tmp_path / folder / "common.h").write_text(f"#define FROM_{folder} 1\n")
        after = now()
        assert after.digest != before.digest
        assert after.fields != before.fields, "what differs can be explained"
        before = after


def test_option_order_matters_and_white_space_does_not() -> None:
    assert digest(options=("-O1", "-O2")) != digest(options=("-O2", "-O1"))
    assert digest(options=("-O1",)) == digest(options=("  -O1 \t", "", "  "))
    assert digest(options=("-D  A=1",)) == digest(options=("-D A=1",))


def test_white_space_in_quotes_is_part_of_an_option() -> None:
    assert digest(options=('-DS="a  b"',)) != digest(options=('-DS="a b"',))
    assert digest(options=("-DS='a  b'",)) != digest(options=("-DS='a b'",))


def test_an_option_of_two_words_is_not_two_options() -> None:
    # A compiler that takes a list reads ("-DA=1", "x") and ("-DA=1 x",) differently.
    assert digest(options=("-DA=1", "x")) != digest(options=("-DA=1 x",))


def test_the_order_of_defines_does_not_matter() -> None:
    assert digest(defines={"A": 1, "B": 2}) == digest(defines={"B": 2, "A": 1})


def test_define_values_count_as_the_compiler_sees_them() -> None:
    assert digest(defines={"A": True}) == digest(defines={"A": 1}) == digest(defines={"A": "1"})
    assert digest(defines={"A": False}) == digest(defines={})
    assert digest(defines={"A": None}) != digest(defines={"A": False})
    assert digest(defines={"A": None}) == digest(defines={"A": ""})
    assert digest(defines={"A": 0}) != digest(defines={"A": False})
    assert digest(defines={"A": 1.0}) != digest(defines={"A": 1})


def test_the_name_is_a_label_except_in_glsl() -> None:
    assert digest(name="one") == digest(name="two")
    assert digest(name="one", language="cuda") == digest(name="two", language="cuda")
    assert digest(name="one", language="glsl") != digest(name="two", language="glsl")


def test_the_fields_can_be_read() -> None:
    source = kk.Source(TEXT, options=(" -O1 ",), defines={"TILE": 16, "FLAG": None})
    key = key_of(source, "0123", "opencl_some-gpu")
    assert key.fields["language"] == "opencl"
    assert key.fields["fingerprint"] == "opencl_some-gpu"
    assert key.fields["option 1"] == "-O1"
    assert key.fields["define TILE"] == "16"
    assert key.fields["define FLAG"] == ""
    assert f"{len(TEXT)} bytes" in key.fields["source"]
    assert len(key.digest) == 64 and set(key.digest) <= set(string.hexdigits.lower())


def test_text_that_is_not_valid_unicode_has_a_key() -> None:
    assert digest("// \udc80\n" + TEXT) != digest("// \udc81\n" + TEXT)


def test_a_missing_header_is_a_compile_error() -> None:
    with pytest.raises(kk.CompileError, match="nowhere"):
        digest('#include "nowhere.h"\n' + TEXT)


_CHILD = """
import kernelkeep as kk
from kernelkeep.cache.key import key_of
defines = {name: name.lower() for name in {"A", "B", "C", "D", "E", "F"}}
print(key_of(kk.Source("text", options=("-x", "-y"), defines=defines), "fp").digest)
"""


def test_the_digest_alone_is_that_of_the_key(tmp_path: Path) -> None:
    (tmp_path / "scale.h").write_text("#define SCALE 2\n")
    for language in ("opencl", "cuda", "glsl"):
        source = kk.Source(
            '#include "scale.h"\n' + TEXT,
            name="f",
            language=language,
            options=(" -O1", "-x  y"),
            defines={"B": None, "A": 1},
            include_dirs=(tmp_path,),
        )
        assert digest_of(source, "fp") == key_of(source, "fp", "a name for people").digest


def test_every_process_finds_the_same_key() -> None:
    seeds = ("0", "1", "4242", "random")
    found = {run_python(_CHILD, environment={"PYTHONHASHSEED": seed}).stdout for seed in seeds}
    assert len(found) == 1


def test_a_key_from_an_earlier_release_stays() -> None:
    """Changing how keys are made empties every cache in the world: raise `SCHEMA` and this when it must be."""
    source = kk.Source("text", options=("-O1",), defines={"A": 1, "B": None})
    assert keys.SCHEMA == 1
    assert key_of(source, "fp").digest == "80f7172668adbee81c7ef13aea3f52b64531f1c93f0597559fc829a7d1476a80"
