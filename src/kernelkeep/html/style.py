"""The stylesheet of everything here: colours as variables, for light and dark surroundings."""

from __future__ import annotations

import re

from .markup import Markup, element

_LIGHT = """
  --kk-ink: #1d2127; --kk-soft: #626a75; --kk-faint: #8b929c; --kk-line: #e3e6ea; --kk-surface: #ffffff; --kk-ground: #f7f8fa;
  --kk-track: #eef0f3; --kk-accent: #1f6f8b; --kk-middle: #62a5bb; --kk-light: #b2d5e0; --kk-warn: #d9822b; --kk-bad: #b3403a;
  --kk-quiet: #c3c9d1; --kk-on-accent: #ffffff; --kk-code: #f1f3f5;"""
_DARK = """
  --kk-ink: #e4e7eb; --kk-soft: #a3abb6; --kk-faint: #79828e; --kk-line: #2c323a; --kk-surface: #171b21; --kk-ground: #101317;
  --kk-track: #22282f; --kk-accent: #5cb8d6; --kk-middle: #34809a; --kk-light: #1f4d5e; --kk-warn: #e59a4f; --kk-bad: #e57a72;
  --kk-quiet: #4a525d; --kk-on-accent: #0c1216; --kk-code: #20262d;"""
# Notebooks and documentation pages that say whether they are dark; what they say wins over the system's setting.
_SAYS_DARK = (
    'body[data-jp-theme-light="false"] .kk',
    "body.vscode-dark .kk",
    "body.vscode-high-contrast .kk",
    'html[theme="dark"] .kk',
    'html[data-theme="dark"] .kk',
    'body[data-md-color-scheme="slate"] .kk',
    ".kk.kk-dark",
)
_SAYS_LIGHT = (
    'body[data-jp-theme-light="true"] .kk',
    "body.vscode-light .kk",
    'html[data-theme="light"] .kk',
    'body[data-md-color-scheme="default"] .kk',
    ".kk.kk-light",
)
_HEAT = "\n".join(
    f".kk-heat-{level} {{ background: color-mix(in srgb, var(--kk-accent) {6 + level * 11}%, var(--kk-surface));"
    f"{' color: var(--kk-on-accent);' if level >= 5 else ''} }}"
    for level in range(9)
)
_KINDS = "\n".join(
    f".kk-fill-{kind} {{ fill: var(--kk-{kind}); }} .kk-line-{kind} {{ stroke: var(--kk-{kind}); }} "
    f".kk-dot-{kind} {{ background: var(--kk-{kind}); }}"
    for kind in ("accent", "middle", "light", "warn", "bad", "quiet")
)
_BADGES = "\n".join(
    f".kk-badge-{kind} {{ background: color-mix(in srgb, var(--kk-{kind}) 22%, var(--kk-surface)); }}"
    for kind in ("accent", "warn", "bad")
)
STYLE = f"""
.kk {{ {_LIGHT} }}
@media (prefers-color-scheme: dark) {{ .kk {{ {_DARK} }} }}
{", ".join(_SAYS_DARK)} {{ {_DARK} }}
{", ".join(_SAYS_LIGHT)} {{ {_LIGHT} }}
.kk {{ color: var(--kk-ink); font: 14px/1.5 system-ui, -apple-system, "Segoe UI", "Helvetica Neue", "DejaVu Sans", sans-serif;
  font-variant-numeric: tabular-nums; }}
.kk code, .kk pre {{ font: 0.92em/1.5 ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; }}
.kk pre {{ background: var(--kk-code); padding: 0.7em 0.9em; border-radius: 6px; overflow-x: auto; margin: 0.6em 0; }}
.kk-scroll {{ overflow-x: auto; max-width: 100%; }}
.kk .kk-table, .kk .kk-facts {{ border-collapse: collapse; border: 0; margin: 0; color: inherit; font-size: 13px; }}
.kk .kk-table {{ width: 100%; }}
.kk .kk-table caption {{ text-align: left; font-weight: 600; padding: 0 0 0.4em; color: var(--kk-ink); }}
.kk .kk-table tr, .kk .kk-facts tr {{ background: none; }}
.kk .kk-table th, .kk .kk-table td {{ text-align: left; padding: 0.38em 1.1em 0.38em 0; border: 0;
  border-bottom: 1px solid var(--kk-line); vertical-align: top; white-space: nowrap; max-width: 28em; overflow: hidden;
  text-overflow: ellipsis; }}
.kk .kk-table th {{ color: var(--kk-soft); font-weight: 500; font-size: 12px; }}
.kk .kk-table .kk-n {{ text-align: right; }}
.kk .kk-table th:last-child, .kk .kk-table td:last-child {{ padding-right: 0; }}
.kk .kk-table tbody tr:hover td {{ background: var(--kk-track); }}
.kk .kk-facts th, .kk .kk-facts td {{ text-align: left; padding: 0.16em 1.6em 0.16em 0; border: 0; vertical-align: top;
  background: none; }}
.kk .kk-facts td {{ overflow-wrap: anywhere; }}
.kk .kk-facts th {{ color: var(--kk-soft); font-weight: 400; white-space: nowrap; }}
.kk-soft {{ color: var(--kk-soft); }} .kk-bad {{ color: var(--kk-bad); }} .kk-warn {{ color: var(--kk-warn); }}
.kk-good {{ color: var(--kk-accent); }}
.kk svg {{ display: block; overflow: visible; }}
.kk svg text.kk-tick {{ fill: var(--kk-soft); font-size: 11px; }}
.kk-grid {{ stroke: var(--kk-line); stroke-width: 1; shape-rendering: crispEdges; }}
.kk-track {{ fill: var(--kk-track); }}
.kk-figure {{ margin: 0; }}
.kk-plot {{ display: grid; grid-template-columns: 3.6em minmax(0, 1fr); column-gap: 0.7em; }}
.kk-legend {{ display: flex; flex-wrap: wrap; gap: 0.2em 1.2em; font-size: 12px; color: var(--kk-soft); margin: 0 0 0.4em; }}
.kk-key {{ display: inline-flex; align-items: center; gap: 0.45em; }}
.kk-dot {{ width: 0.72em; height: 0.72em; border-radius: 2px; display: inline-block; }}
.kk-line {{ fill: none; stroke-width: 1.75; vector-effect: non-scaling-stroke; stroke-linejoin: round; }}
.kk-area {{ opacity: 0.16; }}
.kk-bars {{ display: grid; gap: 0.7em; }}
.kk-bar {{ display: grid; grid-template-columns: minmax(0, 1fr) auto; gap: 0.15em 1em; font-size: 13px; }}
.kk-bar svg {{ grid-column: 1 / -1; }}
.kk-bar-label {{ overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }}
.kk-bar-value {{ color: var(--kk-soft); }}
.kk-gantt {{ display: grid; grid-template-columns: minmax(4em, max-content) minmax(0, 1fr); gap: 0.3em 1em; align-items: center;
  font-size: 12px; }}
.kk-lane {{ color: var(--kk-soft); overflow: hidden; text-overflow: ellipsis; white-space: nowrap; max-width: 16em; }}
.kk-span:hover {{ opacity: 0.75; }}
.kk .kk-heat-map {{ border-collapse: separate; border-spacing: 2px; border: 0; margin: 0; font-size: 12px; color: inherit; }}
.kk .kk-heat-map tr {{ background: none; }}
.kk .kk-heat-map th {{ color: var(--kk-soft); font-weight: 500; padding: 0.25em 0.6em; text-align: right; border: 0;
  white-space: nowrap; background: none; }}
.kk .kk-heat-map thead th {{ text-align: center; }}
.kk .kk-heat-map td.kk-heat {{ text-align: center; white-space: nowrap; padding: 0.4em 0.7em; border: 0; border-radius: 4px;
  min-width: 3.2em; }}
.kk .kk-heat-map td.kk-heat-none {{ background: var(--kk-track); color: var(--kk-faint); }}
.kk .kk-heat-map td.kk-heat-best {{ box-shadow: inset 0 0 0 2px var(--kk-warn); font-weight: 600; }}
.kk details {{ margin: 0; }} .kk summary {{ cursor: pointer; }}
.kk :focus-visible {{ outline: 2px solid var(--kk-accent); outline-offset: 2px; }}
.kk-card {{ max-width: 60em; padding: 0.2em 0; }}
.kk .kk-card .kk-table {{ width: auto; min-width: min(30em, 100%); }}
@media (min-width: 561px) {{
  .kk-aligned .kk-plot, .kk-aligned .kk-gantt {{ grid-template-columns: 50px minmax(0, 1fr); column-gap: 10px; }}
}}
.kk .kk-card code {{ background: none; border: 0; padding: 0; color: inherit; }}
.kk-head {{ display: flex; flex-wrap: wrap; gap: 0.1em 0.9em; align-items: baseline; margin: 0 0 0.5em; }}
.kk-title {{ font-weight: 600; font-size: 15px; overflow-wrap: anywhere; }}
.kk-words {{ display: flex; flex-wrap: wrap; gap: 0.35em; }}
.kk-section {{ margin: 0.9em 0 0; }}
.kk .kk-label {{ color: var(--kk-soft); font-size: 12px; font-weight: 500; margin: 0 0 0.4em; }}
.kk-row {{ display: flex; flex-wrap: wrap; gap: 0.9em 2.4em; }} .kk-row > div {{ flex: 1 1 20em; min-width: 0; }}
.kk-badge {{ display: inline-block; padding: 0 0.6em; border-radius: 1em; font-size: 12px; line-height: 1.6; white-space: nowrap;
  background: var(--kk-track); max-width: 24em; overflow: hidden; text-overflow: ellipsis; vertical-align: bottom; }}
{_BADGES}
.kk .kk-source {{ display: grid; grid-template-columns: max-content minmax(0, 1fr); background: var(--kk-code);
  border-radius: 6px; max-height: 28em; overflow: auto; }}
.kk .kk-source pre {{ margin: 0; background: none; border: 0; border-radius: 0; color: var(--kk-ink); white-space: pre; }}
.kk .kk-source pre.kk-numbers {{ color: var(--kk-faint); text-align: right; user-select: none; padding-right: 0;
  position: sticky; left: 0; background: var(--kk-code); overflow: visible; }}
{_KINDS}
{_HEAT}
@media (max-width: 560px) {{
  .kk-gantt {{ grid-template-columns: minmax(0, 1fr); gap: 0.1em; }} .kk-lane.kk-empty {{ display: none; }}
}}
"""

# Notebooks have rules for all tables and all code. Three times the class is more than their selectors weigh.
_IN_NOTEBOOKS = re.sub(r"\.kk(?= [.a-z:])", ".kk.kk.kk", STYLE)


def fragment(*children: object) -> Markup:
    """Children with the stylesheet, for a notebook: light or dark as the notebook is, or as the system where it does not say."""
    return element("div", element("style", Markup(_IN_NOTEBOOKS)), children, class_="kk")
