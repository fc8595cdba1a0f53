"""What the whole run shares: where PoCL is; and at its end every skip is printed once, with its reason and its tests."""

from __future__ import annotations

import gc
import importlib.util
import os
import shutil
import signal
import tempfile
import uuid
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

import kernelkeep as kk
from kernelkeep import settings
from kernelkeep.testing import note_skipped, skip_backend, skipped_backends
from kernelkeep.testing.browser import Browser
from kernelkeep.testing.servers import NginxServer, NotInstalled, RedisServer, S3Server, Server

S = TypeVar("S", bound=Server)
os.environ.pop("KERNELKEEP_REMOTE", None)  # tests share nothing with other machines
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell script has what it starts in the background ignore Ctrl-C, and that is inherited; the tests send it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    # So does `nohup`, with the end of the terminal. This process goes on ignoring it; what it starts inherits no function.
    signal.signal(signal.SIGHUP, lambda *_: None)


@pytest.fixture(scope="session", autouse=True)
def _own_keys_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the user's own keys out of it, also in the processes that tests start. The folder does not exist."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERNELKEEP_KEYS_DIR", str(tmp_path_factory.mktemp("configuration") / "keys"))
        yield


@pytest.fixture(scope="session", autouse=True)
def _own_live_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the processes of the tests out of the user's `kernelkeep top`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERNELKEEP_LIVE", str(tmp_path_factory.mktemp("live")))
        yield


@pytest.fixture(scope="session")
def pocl() -> str:
    """The spec of PoCL, whatever other OpenCL devices there are."""
    from kernelkeep.devices import opencl

    reason = "no PoCL among the OpenCL devices"
    try:
        found = [info for info in opencl.list_devices() if "portable" in info.driver.lower()]
    except kk.DeviceError as error:
        found, reason = [], str(error)
    if not found:
        if "opencl" in settings.required_backends() and not kk.list_devices():
            pytest.fail(reason)
        note_skipped("pocl", reason)
        pytest.skip(reason)
    return found[0].spec


@pytest.fixture
def reachable_path() -> Iterator[Path]:
    """A folder like `tmp_path` that other users can walk down to; pytest closes its own whenever one starts."""
    path = Path(tempfile.mkdtemp(prefix="kernelkeep-test-"))
    path.chmod(0o711)
    yield path
    shutil.rmtree(path, ignore_errors=True)


def start_or_skip(name: str, start: Callable[[], S]) -> S:
    """A server of this test run. Where it is not installed the test is skipped, or fails if KERNELKEEP_REQUIRE names it."""
    library = "redis" if name == "redis" else "obstore"
    if importlib.util.find_spec(library) is None:
        skip_backend(name, f"{library} is not installed: pip install 'kernelkeep[remote]'")
    try:
        return start()
    except NotInstalled as missing:
        skip_backend(name, str(missing))


def pytest_collection_finish() -> None:
    """Python's collector does not look again and again at what stays to the end: thousands of tests and their modules."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call() -> Generator[None, object, object]:
    """Skip a test that starts a server of its own where that is not installed."""
    try:
        return (yield)
    except NotInstalled as missing:
        skip_backend(next((name for name in ("redis", "nginx") if name in str(missing)), "s3"), str(missing))


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    """A redis-server that all tests share: use a namespace of your own, and start another one to break it."""
    with start_or_skip("redis", RedisServer) as server:
        yield server


@pytest.fixture(scope="session")
def nginx_server() -> Iterator[NginxServer]:
    """An nginx with WebDAV that all tests share."""
    with start_or_skip("nginx", NginxServer) as server:
        yield server


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """moto's S3 server, which all tests share."""
    with start_or_skip("s3", S3Server) as server:
        yield server


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A headless Chromium that all tests share. Each opens pages of its own."""
    try:
        opened = Browser()
    except NotInstalled as missing:
        skip_backend("chromium", str(missing))
    with opened:
        yield opened


@pytest.fixture
def namespace() -> str:
    """A namespace that no other test uses."""
    return f"test-{uuid.uuid4().hex}"


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Generator[None]:
    """Say what this run went without, below everything else: whole backends, then the other skips by reason."""
    yield
    reasons = Counter(_reason(report) for report in terminalreporter.stats.get("skipped", ()))
    lines = []
    for backend, said in sorted(skipped_backends().items()):
        why = " ".join(said.split())
        missing = [reason for reason in reasons if why in reason]
        tests = sum(reasons.pop(reason) for reason in missing)
        lines.append(f"SKIPPED BACKEND {backend}: {why} ({_tests(tests)})")
    others = [f"SKIPPED {_tests(tests)}: {reason}" for reason, tests in sorted(reasons.items())]
    for line in (*others, *lines):
        terminalreporter.write_line(line, yellow=True, bold=True)


def _reason(report: pytest.TestReport) -> str:
    """Why a test was skipped; pytest has it as a file, a line and a text."""
    said = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return " ".join(said.removeprefix("Skipped: ").split())


def _tests(count: int) -> str:
    return f"{count} test{'' if count == 1 else 's'}"
