#!/usr/bin/env python3
"""Write docs/benchmarks.md and its pictures from rows that were measured. No figure on that page is typed by hand.

    python scripts/benchmarks_page.py                    # from benchmarks/results/*.jsonl and the text in benchmarks/page.md
    python scripts/benchmarks_page.py --add h200 FILE…   # first take over the rows of runs: their JSON, or what they printed
    python scripts/benchmarks_page.py --check            # exit status 1 where the page is not what the rows say

A row replaces the one with the same work, device and peer. In `benchmarks/page.md` a line `{rows: WORDS}` stands for
the table of all rows whose work matches WORDS, a regular expression, and which no line above has taken; `{machines}`,
`{summary}`, `{losses}` and `{pictures}` for what their names say. The table in README.md has the rows that `IN_README` names.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

import msgspec

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

from kernelkeep.observe.benchmarks.plot import plot, times_as_fast  # noqa: E402
from kernelkeep.observe.benchmarks.row import Row, number, rows_in  # noqa: E402

RESULTS, TEXT = ROOT / "benchmarks" / "results", ROOT / "benchmarks" / "page.md"
PAGE, README = ROOT / "docs" / "benchmarks.md", ROOT / "README.md"
NAMES = {"h200": "H200", "cpu": "CPU"}
UNMEASURED = "Not measured with this version; [Earlier measurements](earlier-benchmarks.md) may have it."
COLUMNS = ("work", "where", "kernelkeep", "peer", "its", "ratio", "goal")
_MARKER = re.compile(r"^\{(\w+)(?:: (.*))?\}$", re.MULTILINE)
README_MARK = "<!-- written by scripts/benchmarks_page.py -->"
IN_README = (  # the machine, the device, and expressions for the work and the peer
    ("h200", "cuda", "fresh process", "CuPy"),
    ("cpu", "opencl", "fresh process", "PyOpenCL"),
    ("h200", "cuda", "disk hit to a callable", ""),
    ("h200", "cuda", "memory hit, get and release", "cuda.core"),
    ("h200", "cuda", "^prepared launch", "C\\+\\+"),
    ("h200", "cuda", "^prepared launch", "CuPy"),
    ("h200", "cuda", "executor, pinned", "PyTorch"),
    ("h200", "cuda", "executor, ordinary", "loop"),
    ("h200", "cuda", "^gemm 1024", "cuBLAS"),
    ("h200", "cuda", "^gemm float32 4096", "cuBLAS"),
    ("h200", "cuda", "^gemm bfloat16 4096", "cuBLAS"),
    ("h200", "cuda", "iteration over 2\\^18", "graph"),
    ("h200", "opengl", "launch and wait$", "moderngl"),
)
Rows = dict[str, list[Row]]  # by machine


def read() -> Rows:
    return {name: list(rows_in(_text(RESULTS / f"{name}.jsonl"))) for name in NAMES}


def add(machine: str, files: list[Path]) -> int:
    """Take over rows; how many."""
    rows = {_identity(row): row for row in read()[machine]}
    count = 0
    for file in files:
        for row in rows_in(file.read_text(encoding="utf-8", errors="replace")):
            rows.pop(_identity(row), None)  # the newest stands last
            rows[_identity(row)] = row
            count += 1
    RESULTS.mkdir(exist_ok=True)
    lines = [msgspec.json.encode(row).decode() + "\n" for row in rows.values()]
    (RESULTS / f"{machine}.jsonl").write_text("".join(lines), encoding="utf-8")
    return count


def _identity(row: Row) -> tuple[str, str, str]:
    return row.work, row.device, row.peer


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


def where(machine: str, row: Row) -> str:
    backend = row.device.partition(":")[0]
    said = {"cuda": "CUDA", "opencl": "OpenCL", "opengl": "OpenGL", "webgpu": "WebGPU"}.get(backend, backend)
    return f"{NAMES[machine]}, {said}" if said else NAMES[machine]


def table(rows: list[tuple[str, Row]]) -> str:
    made = [f"| {' | '.join(COLUMNS)} |", f"|{'---|' * len(COLUMNS)}"]
    last = ""
    for machine, row in rows:
        ratio = number(row.ratio) if row.ratio is not None else ""
        ours = f"{number(row.ours)} {row.unit}"
        if row.met is False:
            ratio, ours = (f"**{ratio}**", ours) if ratio else (ratio, f"**{ours}**")
        its = "" if row.its is None else f"{number(row.its)} {row.unit}"
        work = "" if row.work == last else row.work
        last = row.work
        note = f" ({row.note})" if row.note else ""
        work, peer = (work, row.peer + note) if row.peer else (work + note, "")
        made.append(f"| {work} | {where(machine, row)} | {ours} | {peer} | {its} | {ratio} | {row.goal} |")
    return "\n".join(made)


def page(rows: Rows) -> tuple[str, dict[Path, str]]:
    """The page, and its pictures."""
    left = [(machine, row) for machine, found in rows.items() for row in found]
    everything = list(left)

    def filled(marker: re.Match[str]) -> str:
        name, words = marker[1], marker[2]
        if name == "rows":
            taken = [one for one in left if re.search(words, one[1].work, re.IGNORECASE)]
            left[:] = [one for one in left if one not in taken]
            order = list(dict.fromkeys(row.work for _, row in taken))
            return table(sorted(taken, key=lambda one: order.index(one[1].work))) if taken else UNMEASURED
        return {"machines": machines, "summary": summary, "losses": losses, "pictures": pictures}[name](everything)

    text = _MARKER.sub(filled, _text(TEXT))
    if left:
        text += f"\n## Other rows\n\n{table(left)}\n"
    drawn = {}
    for name, found in rows.items():
        if any(row.peer for row in found):
            picture = plot(found, f"{NAMES[name]}: kernelkeep beside its peers")
            drawn[ROOT / "docs" / "pictures" / f"benchmarks-{name}.svg"] = f"{picture}\n"
    return text, drawn


def readme(rows: Rows, text: str) -> str:
    """README.md with its table: a few rows, wins and losses."""
    chosen = []
    for machine, device, work, peer in IN_README:
        fits = [
            row
            for row in rows[machine]
            if row.device.startswith(device) and re.search(work, row.work) and re.search(peer, row.peer)
        ]
        chosen += [(machine, msgspec.structs.replace(row, note="")) for row in fits[:1]]  # notes are on the page
    before, mark, rest = text.partition(README_MARK)
    _, end, after = rest.partition("\n## ")
    if not mark or not end:
        raise SystemExit(f"README.md has no line {README_MARK} before a heading")
    return f"{before}{mark}\n\n{table(chosen)}\n{end}{after}"


def machines(rows: list[tuple[str, Row]]) -> str:
    """Each machine with what was on it, and when it was measured."""
    said = []
    for name in NAMES:
        found = [row for machine, row in rows if machine == name]
        if found:
            hosts = list(dict.fromkeys(row.machine.rpartition("; ")[2] for row in found if row.machine))
            devices = list(dict.fromkeys(row.machine.rpartition("; ")[0] for row in found if "; " in row.machine))
            said.append(f"- **{NAMES[name]}**: {'; '.join(hosts)}; {'; '.join(devices)}. {packages(found)}. {measured(found)}")
    return "\n".join(said)


def packages(rows: list[Row]) -> str:
    """Each package once, with the versions that rows were measured with."""
    versions: dict[str, dict[str, None]] = {}
    for row in rows:
        for package in filter(None, row.versions.split(", ")):
            name, _, version = package.rpartition(" ")
            versions.setdefault(name, {})[version] = None
    return ", ".join(f"{name} {' and '.join(versions[name])}" for name in sorted(versions))


def measured(rows: list[Row]) -> str:
    """The first and the last day, the versions of kernelkeep, and how busy the machine was."""
    said = [row.measured.split(", ") for row in rows if row.measured]  # see `measured_now`
    days = sorted(parts[0].partition(" ")[0] for parts in said)
    ours = list(dict.fromkeys(parts[1] for parts in said))
    loads = sorted(float(parts[2].removeprefix("load ")) for parts in said if len(parts) > 2)
    when = f"Measured {days[0]}" + (f" to {days[-1]}" if days[-1] != days[0] else "") if days else ""
    load = f"load {loads[0]} to {loads[-1]}" if loads else ""
    return f"{', '.join(filter(None, [when, *ours, load]))}." if said else ""


def summary(rows: list[tuple[str, Row]]) -> str:
    said = []
    for name, shown in NAMES.items():
        judged = [row.met for machine, row in rows if machine == name and row.met is not None]
        if judged:
            said.append(f"**{shown}: {sum(judged)} of {len(judged)} goals are met.**")
    return " ".join(said)


def losses(rows: list[tuple[str, Row]]) -> str:
    """Where a goal is missed, the worst first."""
    missed = [one for one in rows if one[1].met is False]
    return table(sorted(missed, key=lambda one: times_as_fast(one[1]) or 1.0)) if missed else "No goal is missed."


def pictures(rows: list[tuple[str, Row]]) -> str:
    found = [name for name in NAMES if any(machine == name and row.peer for machine, row in rows)]
    said = "A bar is as long as the peer's time ÷ ours; the mark is the goal."
    return "\n\n".join(f"![{NAMES[name]}: {said}](pictures/benchmarks-{name}.svg)" for name in found)


def main() -> int:
    parser = argparse.ArgumentParser(description="Write docs/benchmarks.md from rows that were measured.")
    parser.add_argument("--add", choices=NAMES, help="the machine whose rows FILE has")
    parser.add_argument("--check", action="store_true", help="write nothing; exit status 1 where the page is another")
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE")
    options = parser.parse_args()
    if bool(options.add) != bool(options.files):
        parser.error("--add and FILE go together")
    if options.add:
        print(f"{add(options.add, options.files)} rows of {NAMES[options.add]}")
    rows = read()
    text, drawn = page(rows)
    made = {PAGE: text, README: readme(rows, _text(README)), **drawn}
    if options.check:
        stale = [path for path, new in made.items() if _text(path) != new]
        for path in stale:
            print(f"{path.relative_to(ROOT)} is not what the rows say: run scripts/benchmarks_page.py", file=sys.stderr)
        return 1 if stale else 0
    for path, new in made.items():
        path.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
