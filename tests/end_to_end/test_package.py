"""The source archive and the wheel, built as a release builds them: each has what it must, and nothing else."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

import kernelkeep as kk

ROOT = Path(__file__).resolve().parents[2]
# What is in a folder besides the package: made by tools, runs and builds.
MADE = shutil.ignore_patterns(
    ".git", ".venv", "build", "dist", "*.egg-info", "__pycache__", "*.so", ".*_cache", ".hypothesis"
)
TESTED_WITH_C = sys.platform == "linux" and shutil.which("cc") is not None

pytestmark = pytest.mark.skipif(not (ROOT / "setup.py").exists(), reason="there is no source tree around the tests")


def build(tree: Path, what: str, into: Path, **environment: str) -> Path:
    """Build with setuptools in another process, which finds nothing but the files of `tree`."""
    into.mkdir(exist_ok=True)
    program = f"import sys; from setuptools import build_meta; print(build_meta.build_{what}(sys.argv[1]))"
    command = [sys.executable, "-W", "default", "-c", program, str(into)]
    variables = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(into), **environment}
    done = subprocess.run(command, cwd=tree, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return into / done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the archive has, where it was unpacked, and the wheels that were built from that."""
    setuptools = pytest.importorskip("setuptools")
    if int(setuptools.__version__.split(".")[0]) < 77:
        pytest.skip(f"setuptools 77 or newer is needed to build, and this is {setuptools.__version__}")
    folder = tmp_path_factory.mktemp("package")
    shutil.copytree(ROOT, folder / "tree", ignore=MADE)
    archive = build(folder / "tree", "sdist", folder / "dist")
    with tarfile.open(archive) as opened:
        archived = {name.partition("/")[2] for name in opened.getnames() if opened.getmember(name).isfile()}
        opened.extractall(folder / "unpacked", filter="data")
    (tree,) = (folder / "unpacked").iterdir()
    wheel = build(tree, "wheel", folder / "dist", **({"KERNELKEEP_REQUIRE_C": "1"} if TESTED_WITH_C else {}))
    pure = build(tree, "wheel", folder / "dist", KERNELKEEP_PURE="1")
    return {"archived": archived, "tree": tree, "wheel": wheel, "pure": pure}


def files_of(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_the_archive_has_the_whole_tree(built: dict[str, Any], tmp_path: Path) -> None:
    shutil.copytree(ROOT, tmp_path / "tree", ignore=MADE)
    expected = {name for name in files_of(tmp_path / "tree") if not re.search(r"\.kkpt|\.pyc$", name)}
    found = built["archived"]
    assert not expected - found, "missing in the source archive; see MANIFEST.in"
    written_by_setuptools = {"PKG-INFO", "setup.cfg"}
    stray = {
        name for name in found - expected - written_by_setuptools if not name.startswith("src/kernelkeep.egg-info/")
    }
    assert not stray


def test_the_wheel_has_the_package_and_nothing_else(built: dict[str, Any]) -> None:
    package = built["tree"] / "src" / "kernelkeep"
    expected = {f"kernelkeep/{name}" for name in files_of(package) if not name.endswith((".c", ".so"))}
    for name in ("wheel", "pure"):
        with zipfile.ZipFile(built[name]) as opened:
            names = set(opened.namelist())
        modules = {found for found in names if found.endswith(".so")}
        about = {found for found in names if PurePosixPath(found).parts[0].endswith(".dist-info")}
        assert names - about - modules == expected, "see package-data in pyproject.toml"
        assert {PurePosixPath(found).name for found in about} >= {
            "METADATA",
            "WHEEL",
            "RECORD",
            "LICENSE",
            "entry_points.txt",
        }
        stems = {PurePosixPath(found).name.split(".")[0] for found in modules}
        in_c = {source.stem for source in package.glob("*.c")}
        assert stems == (in_c if name == "wheel" and TESTED_WITH_C else set())
    assert built["pure"].name == f"kernelkeep-{kk.__version__}-py3-none-any.whl"


def test_the_version_is_the_same_everywhere() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text()
    version, date = re.findall(r"^## \[(.+?)\] - (\d{4}-\d\d-\d\d)$", changelog, re.MULTILINE)[0]
    citation = dict(
        re.findall(r"^(version|date-released): \"?([\d.-]+)\"?$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    )
    assert citation == {"version": version, "date-released": date}
    assert kk.__version__ == version


def test_the_wheel_runs_outside_the_source_tree(built: dict[str, Any], tmp_path: Path) -> None:
    """Unpacked into an empty folder, and found there alone: the command line and a kernel on the reference device."""
    with zipfile.ZipFile(built["wheel"]) as opened:
        opened.extractall(tmp_path / "site")
    program = """
import sys
sys.path.insert(0, sys.argv[1])
import numpy as np
import kernelkeep as kk
assert kk.__file__.startswith(sys.argv[1]), kk.__file__
kernel = kk.PortableKernel("twice", [kk.Buffer("x", "f4")], "x[kk_global_id(0)] *= 2;", group=8)
with kk.open_device("reference") as device, kk.ProgramCache(device, sys.argv[2]) as cache:
    for origin in ("compiled", "memory"):
        with cache.get(kernel) as lease:
            x = device.array(np.arange(8, dtype="f4"))
            lease.kernel().launch(1, (x,))
            assert x.numpy().tolist() == [2 * i for i in range(8)] and lease.origin == origin
"""
    command = [sys.executable, "-c", program, str(tmp_path / "site"), str(tmp_path / "cache")]
    done = subprocess.run(
        command, cwd=tmp_path, env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
