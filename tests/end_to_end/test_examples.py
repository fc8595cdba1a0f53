"""Every example runs and ends well, on several devices."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageSequence

import kernelkeep as kk

DOCS = Path(__file__).parents[2] / "docs"
# Those that draw get a picture's name and a small size.
DRAW = {
    "gray_scott": ("gray_scott.gif", "48"),
    "image_pipeline": ("image_pipeline.png", "48"),
    "life": ("life.gif", "48"),
    "mandelbrot_zoom": ("mandelbrot_zoom.gif", "48"),
    "nbody": ("nbody.gif", "256"),
    "ripples": ("ripples.gif", "64"),
    "survivor": ("survivor.png", "64"),
}
EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))


def test_there_are_examples() -> None:
    assert EXAMPLES


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_example(example: Path, devices_for: Callable[[int], list[str]], tmp_path: Path) -> None:
    number, arguments = EXAMPLES.index(example), DRAW.get(example.stem, ())
    for spec in devices_for(number):
        environment = {
            **os.environ,
            "KERNELKEEP_DEVICE": spec,
            "KERNELKEEP_CACHE_DIR": str(tmp_path / "cache"),
            "PYTHONPATH": str(Path(kk.__file__).parents[1]),
        }
        command = [sys.executable, str(example), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert spec in done.stdout
        if arguments:
            check_picture(tmp_path / arguments[0])


def check_picture(path: Path) -> None:
    """It can be opened, has many colours, and if it moves, its frames differ."""
    with Image.open(path) as picture:
        frames = [np.asarray(frame.convert("RGB")) for frame in ImageSequence.Iterator(picture)]
    assert len(np.unique(frames[-1].reshape(-1, 3), axis=0)) > 3
    if path.suffix == ".gif":
        assert len(frames) > 10
        assert all((one != other).any() for one, other in itertools.pairwise(frames[::4]))


@pytest.mark.parametrize("name", DRAW)
def test_the_gallery_shows_the_example(name: str) -> None:
    page = (DOCS / "gallery.md").read_text(encoding="utf-8")
    picture = f"pictures/{DRAW[name][0]}"
    assert picture in page
    assert f"python examples/{name}.py" in page
    assert (DOCS / picture).stat().st_size <= 400_000
    check_picture(DOCS / picture)
