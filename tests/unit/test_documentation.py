"""The documentation's pages are in the navigation, and the reference has every public name."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import kernelkeep as kk
from kernelkeep import settings

ROOT = Path(__file__).parents[2]


def test_every_page_is_in_the_navigation() -> None:
    # `make docs` fails as well; this one says it without the site's packages.
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    named = set(re.findall(r"[\w/-]+\.md", navigation))
    pages = {page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")}
    assert pages <= named, "add these to `nav` in mkdocs.yml"


def test_the_reference_has_every_public_name_once() -> None:
    texts = [page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "api").glob("*.md")]
    shown = re.findall(r"^::: kernelkeep\.(\w+)$", "\n".join(texts), re.MULTILINE)
    assert sorted(shown) == sorted(kk.__all__), "docs/api/ and kernelkeep.__all__ differ"


def test_the_reference_names_members_that_exist() -> None:
    text = "\n".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "api").glob("*.md"))
    listed = re.findall(r"^::: kernelkeep\.(\w+)\n(?:    .*\n)*?      members: \[(.*)\]$", text, re.MULTILINE)
    assert len(listed) > 10
    for name, members in listed:
        for member in members.split(", "):
            assert hasattr(getattr(kk, name), member) or member in getattr(kk, name).__annotations__, f"{name}.{member}"


def test_start_lists_every_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    start = (
        (ROOT / "docs" / "start.md").read_text(encoding="utf-8").partition("| extra | brings |")[2].partition("\n\n")[0]
    )
    assert sorted(re.findall(r"^\| `([\w-]+)` \|", start, re.MULTILINE)) == sorted(project["optional-dependencies"])


def test_pages_do_not_install_from_an_index() -> None:
    """The package is on none: pages install from the clone, or from a folder of packages."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.*")]
    for page in pages:
        if page.suffix in (".md", ".py", ".ipynb"):
            lines = page.read_text(encoding="utf-8").splitlines()
            bad = [
                line for line in lines if re.search(r"pip install.*\bkernelkeep\[", line) and "--find-links" not in line
            ]
            assert not bad, f"{page}: {bad}"


def test_the_page_about_resident_grids_has_the_settings_as_they_are() -> None:
    page = (ROOT / "docs" / "resident.md").read_text(encoding="utf-8")
    shown = dict(re.findall(r"^\| `(RESIDENT_\w+)` \| ([\d ]+) \|", page, re.MULTILINE))
    defaults = {name: value for name, value in vars(settings).items() if name.startswith("RESIDENT_")}
    assert {name: float(text.replace(" ", "")) for name, text in shown.items()} == defaults
