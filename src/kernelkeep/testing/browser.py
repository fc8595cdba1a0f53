"""Pages in a real browser: headless Chromium, told what to do over a pipe (the DevTools protocol). No library is needed.

with Browser() as browser:
    page = browser.open("file:///tmp/report.html", width=390)
    assert page.evaluate("document.title") == "…" and not page.problems and not page.requests
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, Self

from .servers.server import NotInstalled

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_SECONDS = 60.0
_OPTIONS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--no-first-run",
    "--remote-debugging-pipe", "--disable-background-networking", "--disable-component-update", "--disable-extensions",
)  # fmt: skip


class Browser:
    """A Chromium of its own, with an empty profile. A context manager that ends it."""

    def __init__(self) -> None:
        program = next(filter(None, map(shutil.which, _NAMES)), None)
        if program is None:
            raise NotInstalled("chromium is not installed; to get it: sudo apt-get install chromium")
        self._profile = tempfile.mkdtemp(prefix="kernelkeep-browser-")
        read_by_browser, self._write = os.pipe()
        self._read, written_by_browser = os.pipe()
        # The protocol is on the descriptors 3 and 4; a shell puts them there.
        command = f'exec "$@" 3<&{read_by_browser} 4>&{written_by_browser}'
        self._process = subprocess.Popen(
            ["bash", "-c", command, "sh", program, *_OPTIONS, f"--user-data-dir={self._profile}", "about:blank"],
            pass_fds=(read_by_browser, written_by_browser),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(read_by_browser)
        os.close(written_by_browser)
        self._pending = b""
        self._number = 0
        self._pages: dict[str, Page] = {}

    def open(self, address: str, *, width: int = 1280, height: int = 900, dark: bool = False) -> Page:
        """A page of that width, once it has loaded."""
        target = self.call("Target.createTarget", {"url": "about:blank"})["targetId"]
        session = self.call("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        page = self._pages[session] = Page(self, session)
        for domain in ("Page", "Runtime", "Network", "Log"):
            page.call(f"{domain}.enable")
        page.resize(width, height)
        page.set_dark(dark)
        page.load(address)
        return page

    def call(self, method: str, parameters: dict[str, Any] | None = None, session: str = "") -> dict[str, Any]:
        """Ask the browser for something, and take what it tells meanwhile."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters or {}}
        os.write(self._write, json.dumps(message | ({"sessionId": session} if session else {})).encode() + b"\0")
        deadline = time.monotonic() + _SECONDS
        while True:
            answer = self.receive(deadline)
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise AssertionError(f"{method}: {answer['error'].get('message')}")
                found: dict[str, Any] = answer["result"]
                return found

    def receive(self, deadline: float) -> dict[str, Any]:
        """The next message; those of pages are noted there."""
        while b"\0" not in self._pending:
            if not select.select([self._read], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise AssertionError(f"the browser says nothing for {_SECONDS:.0f} s")
            data = os.read(self._read, 1 << 20)
            if not data:
                raise AssertionError(f"the browser has ended: {self._process.wait()}")
            self._pending += data
        line, _, self._pending = self._pending.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        page = self._pages.get(message.get("sessionId", ""))
        if page is not None and "method" in message:
            page.note(message["method"], message["params"])
        return message

    def close(self) -> None:
        """End it."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for descriptor in (self._read, self._write):
            os.close(descriptor)
        shutil.rmtree(self._profile, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class Page:
    """A page that was opened. `problems` are errors it reported, `requests` the addresses it asked for beside its own."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser = browser
        self._session = session
        self._address = ""
        self._loaded = False
        self.problems: list[str] = []
        self.requests: list[str] = []

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Ask for something of this page."""
        return self._browser.call(method, parameters, self._session)

    def load(self, address: str) -> None:
        """Go there, and wait until everything has loaded."""
        self._address, self._loaded = address, False
        self.call("Page.navigate", url=address)
        deadline = time.monotonic() + _SECONDS
        while not self._loaded:
            self._browser.receive(deadline)

    def resize(self, width: int, height: int = 900) -> None:
        """Be a window of that size."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )

    def set_dark(self, dark: bool) -> None:
        """Have the user prefer dark colours, or light ones."""
        feature = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[feature])

    def evaluate(self, expression: str) -> Any:
        """The value of an expression in JavaScript, which must be plain data."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise AssertionError(f"{expression}: {found['exceptionDetails']}")
        return found["result"].get("value")

    def press(self, key: str) -> None:
        """Press a key, such as Tab or Enter."""
        code = {"Tab": 9, "Enter": 13, " ": 32}.get(key, 0)
        text = "\r" if key == "Enter" else key if len(key) == 1 else None
        shared: dict[str, Any] = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        self.call("Input.dispatchKeyEvent", type="keyDown", **shared, **({"text": text} if text else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", **shared)

    def type_text(self, text: str) -> None:
        """Type into what has the focus."""
        self.call("Input.insertText", text=text)

    def save_picture(self, path: Path, *, whole: bool = True) -> None:
        """What the page looks like, as PNG."""
        found = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole, **self._clip(whole))
        path.write_bytes(base64.b64decode(found["data"]))

    def _clip(self, whole: bool) -> dict[str, Any]:
        if not whole:
            return {}
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        return {"clip": {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}}

    def note(self, method: str, about: dict[str, Any]) -> None:
        """What the browser tells of this page."""
        if method == "Page.loadEventFired":
            self._loaded = True
        elif method == "Network.requestWillBeSent":
            address = about["request"]["url"]
            if address.partition("#")[0] != self._address.partition("#")[0] and not address.startswith("data:"):
                self.requests.append(address)
        elif method == "Runtime.exceptionThrown":
            self.problems.append(str(about["exceptionDetails"].get("exception", about["exceptionDetails"])))
        elif method == "Runtime.consoleAPICalled" and about["type"] in ("error", "warning", "assert"):
            self.problems.append(" ".join(str(one.get("value", one)) for one in about["args"]))
        elif method == "Log.entryAdded" and about["entry"]["level"] in ("error", "warning"):
            self.problems.append(about["entry"]["text"])
