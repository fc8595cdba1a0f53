"""A whole page in one file: no network, light and dark, and no script but the one for tables."""

from __future__ import annotations

from .markup import Markup, element, join
from .script import SCRIPT
from .style import STYLE

PAGE_STYLE = """
body.kk { margin: 0; background: var(--kk-ground); font-size: 14px; -webkit-text-size-adjust: 100%; }
.kk-wide { max-width: 74rem; margin: 0 auto; padding: 0 1.5rem; }
.kk-top { padding: 2.6rem 0 1.4rem; }
.kk-top h1 { font-size: 1.75rem; line-height: 1.2; font-weight: 650; letter-spacing: -0.015em; margin: 0 0 0.35rem; }
.kk-top p { margin: 0; color: var(--kk-soft); overflow-wrap: anywhere; }
.kk-nav { position: sticky; top: 0; z-index: 2; background: color-mix(in srgb, var(--kk-ground) 92%, transparent);
  backdrop-filter: blur(6px); border-bottom: 1px solid var(--kk-line); }
.kk-nav div { display: flex; gap: 1.4rem; overflow-x: auto; scrollbar-width: none; --kk-back: var(--kk-ground); }
.kk-panel .kk-scroll { --kk-back: var(--kk-surface); scrollbar-width: thin; }
/* A shadow at each end at which there is more: what covers it scrolls with the content. */
.kk-nav div, .kk-panel .kk-scroll { --kk-shade: color-mix(in srgb, var(--kk-ink) 26%, transparent); background:
  linear-gradient(to right, var(--kk-back) 40%, transparent) 0 0 / 3rem 100% no-repeat local,
  linear-gradient(to left, var(--kk-back) 40%, transparent) 100% 0 / 3rem 100% no-repeat local,
  linear-gradient(to right, var(--kk-shade), transparent) 0 0 / 0.9rem 100% no-repeat scroll,
  linear-gradient(to left, var(--kk-shade), transparent) 100% 0 / 0.9rem 100% no-repeat scroll; }
.kk-nav a { color: var(--kk-soft); text-decoration: none; white-space: nowrap; padding: 0.75rem 0; font-size: 13px;
  border-bottom: 2px solid transparent; }
.kk-nav a:hover { color: var(--kk-ink); border-color: var(--kk-accent); }
main.kk-wide { padding-top: 1.5rem; padding-bottom: 4rem; }
.kk-panel { background: var(--kk-surface); border: 1px solid var(--kk-line); border-radius: 10px; padding: 1.4rem 1.5rem 1.5rem;
  margin: 0 0 1.25rem; scroll-margin-top: 3.6rem; }
.kk-panel h2 { font-size: 1.06rem; font-weight: 620; margin: 0; letter-spacing: -0.005em; }
.kk-panel h2 + p { margin: 0.2rem 0 1.1rem; color: var(--kk-soft); max-width: 60rem; }
.kk-panel h3 { font-size: 13px; font-weight: 600; margin: 1.5rem 0 0.7rem; }
.kk-panel h3:first-child { margin-top: 0; }
.kk-tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(10.5rem, 1fr)); gap: 1rem; margin: 0 0 1.25rem; }
.kk-tile { background: var(--kk-surface); border: 1px solid var(--kk-line); border-radius: 10px; padding: 1rem 1.2rem 1.05rem; }
.kk-tile b { display: block; font-size: 1.55rem; line-height: 1.25; font-weight: 620; letter-spacing: -0.015em; }
.kk-tile.kk-first b { color: var(--kk-accent); }
.kk-tile span { color: var(--kk-soft); font-size: 12.5px; display: block; }
.kk-tile small { color: var(--kk-faint); font-size: 12px; display: block; margin-top: 0.2rem; }
.kk-columns { display: grid; grid-template-columns: repeat(3, minmax(0, 1fr)); gap: 1.6rem 2.2rem; }
.kk-columns > div { min-width: 0; } .kk-columns h3 { margin-top: 0; }
.kk-thirds { display: grid; grid-template-columns: minmax(0, 1fr) minmax(0, 2fr); gap: 1.6rem 3rem; }
.kk-thirds h3 { margin-top: 0; } .kk-inside .kk-bars { max-width: 40rem; }
.kk .kk-more { margin: 1.4rem 0 0; } .kk-more > summary { color: var(--kk-soft); font-size: 13px; }
.kk-more > summary:hover { color: var(--kk-ink); } .kk-more[open] > summary { margin-bottom: 0.8rem; }
.kk-panel .kk-scroll { max-height: 28.3rem; overflow: auto; }
.kk-panel .kk-scroll thead th { position: sticky; top: 0; background: var(--kk-surface); z-index: 1; }
.kk .kk-panel .kk-table td, .kk .kk-panel .kk-table th { padding-right: 1.8em; }
.kk-empty-section { color: var(--kk-soft); margin: 0.3rem 0 0; max-width: 46rem; }
.kk-filter { display: flex; gap: 0.8rem; align-items: center; margin: 0 0 0.7rem; color: var(--kk-soft); font-size: 12.5px; }
.kk-filter input { font: inherit; color: var(--kk-ink); background: var(--kk-ground); border: 1px solid var(--kk-line);
  border-radius: 6px; padding: 0.32rem 0.6rem; width: min(16rem, 70%); }
.kk .kk-sort { all: unset; cursor: pointer; color: inherit; }
.kk .kk-sort:focus-visible { outline: 2px solid var(--kk-accent); outline-offset: 2px; border-radius: 2px; }
.kk .kk-sort:hover { color: var(--kk-ink); }
.kk th[aria-sort] .kk-sort { color: var(--kk-ink); }
.kk th[aria-sort=ascending] .kk-sort::after { content: ' ↑'; } .kk th[aria-sort=descending] .kk-sort::after { content: ' ↓'; }
.kk-story { border-top: 1px solid var(--kk-line); padding: 0.7rem 0; }
.kk-story:last-of-type { border-bottom: 1px solid var(--kk-line); }
.kk-story > summary { display: flex; gap: 0.3rem 1rem; align-items: baseline; list-style: none; flex-wrap: wrap; }
.kk-story > summary::-webkit-details-marker { display: none; }
.kk-story > summary::before { content: '›'; color: var(--kk-faint); width: 0.6rem; transition: transform 0.12s; }
.kk-story[open] > summary::before { transform: rotate(90deg); }
.kk-story > summary b { font-weight: 600; overflow-wrap: anywhere; }
.kk-story > summary .kk-what { color: var(--kk-soft); flex: 1 1 16rem; min-width: 0; overflow-wrap: anywhere; }
.kk-story > summary time, .kk-story > summary .kk-end { color: var(--kk-faint); font-size: 12.5px; white-space: nowrap; }
.kk-inside { padding: 0.9rem 0 0.5rem 1.6rem; min-width: 0; }
.kk-inside > * + * { margin-top: 1rem; }
.kk-old { color: var(--kk-faint); text-decoration: line-through; } .kk-table td.kk-wrap { white-space: normal; max-width: 40em; }
.kk-table td .kk-diff { overflow-wrap: anywhere; white-space: normal; }
footer.kk-wide { color: var(--kk-faint); font-size: 12.5px; padding-bottom: 3rem; }
@media (max-width: 560px) {
  .kk-wide { padding: 0 1rem; } .kk-panel { padding: 1.1rem 1rem 1.2rem; border-radius: 8px; } .kk-top { padding: 1.6rem 0 1rem; }
  .kk-tiles { grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 0.7rem; } .kk-tile { padding: 0.8rem 0.9rem; }
  .kk-tile b { font-size: 1.3rem; } .kk-inside { padding-left: 0; }
  .kk .kk-panel .kk-table td, .kk .kk-panel .kk-table th { padding-right: 1.2em; } .kk-badge { max-width: 14em; }
}
@media (max-width: 900px) { .kk-thirds, .kk-columns { grid-template-columns: minmax(0, 1fr); } }
@media print { .kk-nav, .kk-filter { display: none; } .kk-panel .kk-scroll { max-height: none; } }
"""


def page(title: str, about: object, navigation: list[tuple[str, str]], *parts: object, footer: object = None) -> str:
    """A document. `navigation` has (name of an element, label); parts are markup."""
    import base64  # a page is made once
    import hashlib

    digest = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    # Whatever a file in the cache says, a browser loads nothing and runs no other script.
    rules = (
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:; form-action 'none'; base-uri 'none'; "
        f"script-src 'sha256-{digest}'"
    )
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=rules),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="referrer", content="no-referrer"),
        element("link", rel="icon", href="data:,"),
        element("title", title),
        element("style", Markup(f"html {{ color-scheme: light dark; }}{STYLE}{PAGE_STYLE}")),
    )
    links = [element("a", label, href=f"#{name}") for name, label in navigation]
    body = element(
        "body",
        element("header", element("div", element("h1", title), element("p", about), class_="kk-wide"), class_="kk-top"),
        element("nav", element("div", links, class_="kk-wide"), class_="kk-nav", aria_label="Sections"),
        element("main", parts, class_="kk-wide"),
        element("footer", footer, class_="kk-wide") if footer else None,
        element("script", Markup(SCRIPT)),
        class_="kk",
    )
    return f"<!doctype html>\n{element('html', join((head, body)), lang='en')}\n"


def panel(name: str, title: str, about: str, *parts: object) -> Markup:
    """A section of a page, with what it shows in one sentence."""
    return element("section", element("h2", title), element("p", about), parts, class_="kk-panel", id=name)


def tile(label: str, number: str, about: str = "", *, first: bool = False) -> Markup:
    """One number in large."""
    return element(
        "div", element("b", number), element("span", label), element("small", about) if about else None,
        class_="kk-tile kk-first" if first else "kk-tile",
    )  # fmt: skip


def more(label: str, *inside: object) -> Markup:
    """What most readers need not see, behind a click."""
    return element("details", element("summary", label), inside, class_="kk-more")


def story(name: object, what: object, end: object, *inside: object, is_open: bool = False) -> Markup:
    """A line that opens at a click: a name, what happened, and when."""
    return element(
        "details",
        element(
            "summary",
            element("b", name),
            element("span", what, class_="kk-what"),
            element("span", end, class_="kk-end"),
        ),
        element("div", inside, class_="kk-inside"),
        class_="kk-story",
        open=is_open,
    )
