"""Complaints on standard error: one line each, whatever the message looks like."""

from __future__ import annotations

import pytest

import kernelkeep as kk
from kernelkeep.cli.complaint import complain


def test_a_compile_error_is_one_line_without_its_caret(capsys: pytest.CaptureFixture[str]) -> None:
    broken = kk.PortableKernel("broken", params=[kk.Buffer("x", "f4")], body="x[0] = nonsense;\nx[1] = z;")
    with pytest.raises(kk.CompileError) as caught:
        broken.source("opencl").text  # noqa: B018
    complain(str(caught.value))
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith("kernelkeep: kernel broken, line 1: unknown name nonsense: x[0] = nonsense; (1 more error")


@pytest.mark.parametrize(
    ("sentence", "said"), [("", ""), ("a\n\n  b\n", "a: b"), ("(a)", "(a)"), ("a\x1b[31m", "a\\x1b[31m")]
)
def test_a_complaint_is_one_escaped_line(sentence: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    complain(sentence)
    assert capsys.readouterr().err == f"kernelkeep: {said}\n"
