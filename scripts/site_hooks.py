"""Pages of the site that come from outside of docs/: the changelog, how to contribute, how to report a weakness, the examples.

Links in docs/ point to files of the repository, so that they work where the pages are read as files. On the site they lead to the
pages that stand for these files.
"""

from __future__ import annotations

import ast
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

_ROOT = Path(__file__).parents[1]
_PAGES = {  # a file of the repository, and its page
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "report-a-weakness.md",
    "examples": "examples.md",
}
_INSTEAD = {"README.md": "index.md", "LICENSE": "index.md"}
_FILES = {page: file for file, page in _PAGES.items()}
_LINK = re.compile(r"(\[[^\[\]]*\])\(([^)\s#]+)(#[^)\s]*)?\)(?!`)")
_SHORT_CODE = re.compile(r"<code>(?=[^<]{1,28}</code>)")
_FILE_NAME = re.compile(r"\[`?(?:docs/)?[\w/-]+\.md`?\]")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages from outside."""
    for name, page in _PAGES.items():
        place = _ROOT / name
        content = _show_examples(place) if place.is_dir() else place.read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Turn links that leave docs/ to the pages that stand for the files."""
    uri = page.file.src_uri
    # Links are relative to where the text stands in the repository.
    folder = posixpath.dirname(_FILES.get(uri, f"docs/{uri}"))

    def turned(match: re.Match[str]) -> str:
        text, target, anchor = match[1], match[2], match[3] or ""
        if "://" in target or target.startswith("mailto:"):
            return match[0]
        place = posixpath.normpath(posixpath.join(folder, target))
        if place.startswith("docs/"):
            instead = place.removeprefix("docs/")
        elif place.startswith("examples/tutorials/"):
            instead = f"tutorials/{Path(place).stem}.md"
        elif place.startswith("examples/"):
            instead, anchor = _PAGES["examples"], f"#{_anchor(place.removeprefix('examples/'))}"
        else:
            instead = _PAGES.get(place) or _INSTEAD.get(place) or target
        if _FILE_NAME.fullmatch(text):  # a reader of files looks for the file, a reader of the site for the page
            text = f"[{_title_of(_ROOT / place)}]"
        return f"{text}({posixpath.relpath(instead, posixpath.dirname(uri))}{anchor})"

    return _LINK.sub(turned, markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Mark short code, which the stylesheet keeps in one piece in tables: a browser would break `--json` behind its dashes."""
    return _SHORT_CODE.sub('<code class="short">', html)


def _title_of(page: Path) -> str:
    """A page's heading, as far as its colon."""
    heading = re.search(r"^# (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return heading[1].partition(":")[0] if heading else page.stem


def _show_examples(folder: Path) -> str:
    page = (
        "# Examples\n\nComplete programs, all run by the tests. They are in the folder `examples` of the repository.\n"
    )
    # Those in tutorials/ have pages of their own.
    for file in [*sorted(folder.glob("*.py")), *sorted((folder / "plain_pyopencl").glob("*.py"))]:
        text = file.read_text(encoding="utf-8")
        words = (ast.get_docstring(ast.parse(text)) or "").strip()
        name = file.relative_to(folder).as_posix()
        page += f"\n## {name} {{ #{_anchor(name)} }}\n\n{words}\n\n```python\n{text.strip()}\n```\n"
    return page


def _anchor(name: str) -> str:
    return name.removesuffix(".py").replace("/", "-")
