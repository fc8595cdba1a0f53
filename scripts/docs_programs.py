"""The Python programs in README.md and docs/: the blocks of a page, joined, are one program.

    python scripts/docs_programs.py FOLDER      # writes each as a file, for a type checker

A block with a title such as `title="needs CUDA and PyTorch"` is left out where one of these is missing.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import sys
import textwrap
from collections.abc import Collection
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# Also inside of lists, notes and tabs, where it is indented.
_BLOCK = re.compile(r"^([ \t]*)```python(?: title=\"needs ([^\"]+)\")?\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"\s*# (\w+\.py)\n")
_ANY_BLOCK = re.compile(r"^[ \t]*(`{3,}|~{3,}) *\{? *\.?py", re.MULTILINE | re.IGNORECASE)
_MODULES = {
    "CuPy": "cupy",
    "PyTorch": "torch",
    "Numba": "numba",
    "PyCUDA": "pycuda",
    "PyOpenCL": "pyopencl",
    "moderngl": "moderngl",
    "NVRTC": "cuda",
    "prometheus_client": "prometheus_client",
    "opentelemetry-sdk": "opentelemetry.sdk",
}


def pages() -> list[Path]:
    """Every page that has Python."""
    found = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [page for page in found if _ANY_BLOCK.search(page.read_text(encoding="utf-8"))]


def name_of(page: Path) -> str:
    """A page as tests and people name it: README.md, cache.md, how/streams.md."""
    return page.relative_to(ROOT if page.parent == ROOT else ROOT / "docs").as_posix()


def program_of(page: Path, backends: Collection[str] | None = None) -> str:
    """The program of a page, each line where the page has it. With `backends`, without the blocks that need other ones."""
    text = page.read_text(encoding="utf-8")
    program = ""
    for block in _blocks(page, text):
        is_here = backends is None or all(_is_here(need, backends) for need in _needs(block[2]))
        if is_here and not _FILE.match(block[3]):
            lines = text[: block.start(3)].count("\n") - program.count("\n")
            program += "\n" * lines + textwrap.dedent(block[3])
    return program


def files_of(page: Path) -> dict[str, str]:
    """The files that a page tells its reader to make: blocks whose first line is a comment with the name, `# worker.py`."""
    blocks = _blocks(page, page.read_text(encoding="utf-8"))
    return {name[1]: textwrap.dedent(block[3]) for block in blocks if (name := _FILE.match(block[3]))}


def _blocks(page: Path, text: str) -> list[re.Match[str]]:
    blocks = list(_BLOCK.finditer(text))
    if len(blocks) != len(_ANY_BLOCK.findall(text)):
        raise ValueError(f'{page}: a block of Python begins with ```python, alone or with title="needs …"')
    return blocks


def _needs(words: str | None) -> list[str]:
    return [] if words is None else re.split(r", | and ", words)


def _is_here(need: str, backends: Collection[str]) -> bool:
    if need in _MODULES:
        try:
            return importlib.util.find_spec(_MODULES[need]) is not None
        except ModuleNotFoundError:  # a package that it would be in is missing
            return False
    return need.lower() in backends


def write(folder: Path) -> None:
    """Each program as a file in `folder`, named after its page, and the files of a page in a folder of its own."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for page in pages():
        name = re.sub(r"[^a-z0-9]+", "_", name_of(page).removesuffix(".md").lower())
        if program := program_of(page):
            (folder / f"{name}_page.py").write_text(program, encoding="utf-8")
        for file, text in files_of(page).items():
            (folder / name).mkdir(exist_ok=True)
            (folder / name / file).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
