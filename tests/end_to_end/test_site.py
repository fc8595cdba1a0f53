"""The documentation's site is built strictly, asks no other server for anything, and shows what it should in a browser."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if importlib.util.find_spec("material") is None:
        pytest.skip("mkdocs-material is not installed: pip install 'kernelkeep[docs]'")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "--quiet", "build", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


class Loaded(HTMLParser):
    """What a browser loads for a page: scripts, styles, pictures, frames. Links are only followed by people."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = dict(attributes)
        if tag in ("script", "img", "iframe", "source"):
            self.addresses.append(found.get("src") or "")
        elif tag == "link" and found.get("rel") != "canonical":
            self.addresses.append(found.get("href") or "")


def test_pages_load_nothing_from_other_servers(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 50
    for page in pages:
        loaded = Loaded()
        loaded.feed(page.read_text(encoding="utf-8"))
        assert loaded.addresses
        assert not [address for address in loaded.addresses if re.match(r"(\w+:)?//", address)], page


def test_every_page_is_there_with_the_reference_and_the_examples(site: Path) -> None:
    pages = {page.relative_to(ROOT / "docs").with_suffix(".html") for page in (ROOT / "docs").rglob("*.md")}
    assert not [page for page in pages if not (site / page).is_file()]
    cache = (site / "api" / "cache.html").read_text(encoding="utf-8")
    assert 'id="kernelkeep.ProgramCache.preload"' in cache and "Load programs ahead of their use" in cache
    examples = (site / "examples.html").read_text(encoding="utf-8")
    assert all(f'id="{example.stem}"' in examples for example in (ROOT / "examples").glob("*.py"))
