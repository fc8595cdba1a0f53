"""Every way to write a template gives programs that run, one for each variant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ...cache.program_cache import ProgramCache
from ...devices.array import Array
from ...devices.base import Device
from ...errors import ArgumentError, Unsupported
from ...programs.languages import find_language, known_languages
from ...programs.portable import Buffer, PortableKernel, Scalar
from ...programs.source import Source
from ...variants.definition import source_digest
from ...variants.space import VariantSpace
from ...variants.template import Template
from ...variants.tuned import Tuned
from ..device_parts.common import handwritten
from .common import PARAMS, VariantPart

__all__ = ["FormTests"]

_SPACE = VariantSpace(TIMES=[2, 3])
_PORTABLE = "int i = kk_global_id(0);\nif (i < n) y[i] = x[i] * TIMES;"
_SCALED = (Buffer("x", "f4", "r"), Buffer("y", "f4", "rw"), Scalar("a", "f4"), Scalar("n", "i4"))
_STATEMENT = "if (i < n) y[i] = a * x[i] + TIMES;"


def _jinja(text: str) -> str:
    return text.replace("TIMES", "{{ TIMES }}")


class FormTests(VariantPart):
    """jinja2 and defines, portable and in the device's own language."""

    @pytest.mark.parametrize("write", [str, _jinja], ids=["defines", "jinja"])
    @pytest.mark.parametrize("form", ["text", "kernel"])
    def test_portable_templates_run(self, programs: ProgramCache, write: Any, form: str) -> None:
        body = write(_PORTABLE)
        template = (
            Template(body, PARAMS)
            if form == "text"
            else Template(PortableKernel(f"times_{write.__name__}", PARAMS, body, group=32))
        )
        tuned = Tuned("times", template, _SPACE, reference=lambda x: x)
        x = np.arange(100, dtype="f4")
        for variant in _SPACE:
            tuned.pin(programs, {"n": 100}, variant)
            found = tuned.run(programs, {"n": 100}, x=x)
            assert isinstance(found, Array)
            np.testing.assert_array_equal(found.numpy(), x * int(variant["TIMES"]))

    @pytest.mark.parametrize("write", [str, _jinja], ids=["defines", "jinja"])
    def test_sources_in_the_language_of_the_device_run(
        self, device: Device, programs: ProgramCache, write: Any
    ) -> None:
        text = handwritten(device.language, write(_STATEMENT), name="plus", kind="float")
        source = Source(text, name=f"plus_{write.__name__}", language=device.language)
        # Where the groups are in the text, what the kernel takes can be told by the compiler only.
        params, group = (_SCALED, None) if find_language(device.language).fixes_group else (None, 64)
        template = Template(source, params, grid=lambda v: -(-v["n"] // 64), group=group, scalars={"a": 5.0})
        tuned = Tuned("plus", template, _SPACE, reference=lambda x, a: a * x)
        x = np.arange(100, dtype="f4")
        for variant in _SPACE:
            tuned.pin(programs, {"n": 100}, variant)
            found = tuned.run(programs, {"n": 100}, x=x)
            assert isinstance(found, Array)
            np.testing.assert_array_equal(found.numpy(), 5 * x + int(variant["TIMES"]))

    def test_each_variant_has_its_own_cache_entry(self, device: Device, tmp_path: Path) -> None:
        space = VariantSpace(TIMES=[2, 3, 4])
        tuned = Tuned("times", Template(_PORTABLE, PARAMS), space)
        with ProgramCache(device, tmp_path) as cache:
            sources = [tuned.definition.source(device, variant, {"n": 100}) for variant in space]
            for source in sources:
                cache.get(source).release()
            assert cache.stats().programs == cache.stats().compiles == len(space)
            for source in sources:
                with cache.get(source) as lease:
                    assert lease.origin == "memory"
        with ProgramCache(device, tmp_path) as cache:
            if device.capabilities.program_binaries:
                assert cache.stats().on_disk == len(space)
                tuned.pin(cache, {"n": 100}, {"TIMES": 4})
                assert tuned.preload(cache, [{"n": 100}]).disk == 1

    def test_all_sizes_share_one_source(self, device: Device) -> None:
        """What is not compiled in does not make another program."""
        tuned = Tuned("times", Template(_PORTABLE, PARAMS), _SPACE)
        digests = {source_digest(tuned.definition.source(device, {"TIMES": 2}, {"n": size})) for size in (1, 100, 4096)}
        assert len(digests) == 1

    def test_several_outputs_are_returned_by_name(self, programs: ProgramCache) -> None:
        params = (Buffer("x", "i4", "r"), Buffer("y", "i4", "w"), Buffer("z", "i4", "rw"), Scalar("n", "i4"))
        body = "int i = kk_global_id(0);\nif (i < n) { y[i] = x[i] + A; z[i] = z[i] + x[i]; }"
        tuned = Tuned("two", Template(body, params, group=32), VariantSpace(A=[1, 2]))
        x = np.arange(50, dtype="i4")
        found = tuned.run(programs, {"n": 50}, x=x, z=10 * x)
        assert isinstance(found, dict) and found.keys() == {"y", "z"}
        np.testing.assert_array_equal(found["y"].numpy(), x + 1)
        np.testing.assert_array_equal(found["z"].numpy(), 11 * x)

    def test_a_template_without_a_text_for_the_language_is_unsupported(
        self, device: Device, programs: ProgramCache
    ) -> None:
        other = next(
            name for name in known_languages() if name != device.language and not find_language(name).fixes_group
        )
        source = Source(handwritten(other, "y[i] = x[i];", kind="float"), language=other)
        tuned = Tuned(
            "foreign", Template(source, grid=1, scalars={"a": 1.0}), VariantSpace(A=[1, 2]), reference=lambda x: x
        )
        for use in (
            lambda: tuned.run(programs, {"n": 8}, x=np.zeros(8, "f4")),
            lambda: tuned.tune(programs, {"n": 8}, isolate=False),
        ):
            with pytest.raises(Unsupported, match=f"no text for {device.language}; it has: {other}"):
                use()

    def test_a_name_unknown_to_jinja_is_an_argument_error(self, programs: ProgramCache) -> None:
        tuned = Tuned("typo", Template("y[0] = {{ TIEMS }};", PARAMS), _SPACE, reference=lambda x: x)
        for use in (
            lambda: tuned.run(programs, {"n": 8}, x=np.zeros(8, "f4")),
            lambda: tuned.tune(programs, {"n": 8}, isolate=False),
        ):
            with pytest.raises(ArgumentError, match="'TIEMS' is undefined; it may use: TIMES"):
                use()
