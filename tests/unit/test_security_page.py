"""`docs/security.md` names tests that exist, and says nothing that the code does not keep."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import kernelkeep
from kernelkeep.remote.keys import SHORTEST_SECRET_BYTES
from kernelkeep.remote.signing import CLOCK_TOLERANCE_SECONDS, HEAD_BYTES, KINDS_OF_REFUSAL

ROOT = Path(__file__).parents[2]
PACKAGE = Path(kernelkeep.__file__).parent
PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
THREATS = re.findall(
    r"^\| (\d+) \| (.*) \| (.*) \|$", PAGE.split("## Threats")[1].split("## Not covered")[0], re.MULTILINE
)
PROOFS = dict(re.findall(r"^\| (\d+) \| (.*) \|$", PAGE.split("## Tests of these threats")[1], re.MULTILINE))
LOADERS = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "yaml"}
# What one process sends to another that it started itself; code made of the kinds of a kernel's parameters; and the user's own
# Python file, which goes to the workers of the user's own cluster; and what the reference device writes from a typed tree.
ALLOWED = (
    "continuous/supervision/", "devices/arguments.py", "devices/reference/kernel_code.py", "fleet/jobs.py", "fleet/shipping.py",
    "testing/",
)  # fmt: skip


def functions_in(path: Path) -> set[str]:
    return {
        node.name for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.FunctionDef)
    }


def test_every_named_test_exists() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)
    assert len(named) > 50, "the pattern finds no tests"
    missing = [f"{file}::{test}" for file, test in named if test not in functions_in(ROOT / file)]
    assert not missing


def test_every_threat_has_an_answer_and_a_test_or_says_that_it_has_none() -> None:
    assert len(THREATS) > 30
    assert [int(number) for number, _, _ in THREATS] == list(range(1, len(THREATS) + 1))
    assert PROOFS.keys() <= {number for number, _, _ in THREATS}
    for number, threat, answer in THREATS:
        assert answer, threat
        assert "::" in PROOFS.get(number, "") or "**" in answer, (
            f"{threat}: no test, and no word that it is not prevented"
        )


def test_the_page_says_what_the_code_does() -> None:
    for kind in KINDS_OF_REFUSAL:
        assert f"| `{kind}` |" in PAGE
    assert f"{HEAD_BYTES} bytes in front" in PAGE
    assert f"fewer than {SHORTEST_SECRET_BYTES} bytes" in PAGE
    assert CLOCK_TOLERANCE_SECONDS == 3600 and "more than an hour ahead" in PAGE


def uses_loaders(text: str) -> Iterator[str]:
    """Each import of a module that makes objects of bytes by running code, and each `eval` and `exec`."""
    if not any(word in text for word in (*LOADERS, "eval", "exec", "allow_pickle")):
        return  # parsing takes longer
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] in LOADERS)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in LOADERS and not node.level:
            yield node.module or ""
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("eval", "exec"):
            yield node.func.id
        elif isinstance(node, ast.keyword) and node.arg == "allow_pickle" and getattr(node.value, "value", True):
            yield "allow_pickle"


def test_nothing_from_outside_is_unpickled_or_evaluated() -> None:
    others = [path for path in PACKAGE.rglob("*.py") if not str(path.relative_to(PACKAGE)).startswith(ALLOWED)]
    assert len(others) > 500
    assert [f"{path}: {name}" for path in others for name in uses_loaders(path.read_text(encoding="utf-8"))] == []


def test_the_search_sees_loaders() -> None:
    text = "import pickle\nfrom marshal import loads\neval('1')\nnp.load(x, allow_pickle=True)\nnp.load(x, allow_pickle=False)\n"
    assert list(uses_loaders(text)) == ["pickle", "marshal", "eval", "allow_pickle"]
