"""Prometheus, which scrapes one target as fast as it can."""

from __future__ import annotations

import json
import urllib.parse
import urllib.request
from typing import Any

from .server import Server, program

_CONFIGURATION = """
global: {{scrape_interval: 100ms, scrape_timeout: 100ms}}
scrape_configs:
  - {{job_name: kernelkeep, static_configs: [{{targets: ["{target}"]}}]}}
"""


class PrometheusServer(Server):
    """Scrapes `target`, such as "127.0.0.1:9464", ten times a second."""

    def __init__(self, target: str) -> None:
        self._target = target
        super().__init__()

    def command(self) -> list[str]:
        """With everything in its folder."""
        path = program("prometheus", "prometheus")
        file = self.folder / "prometheus.yml"
        file.write_text(_CONFIGURATION.format(target=self._target), encoding="utf-8")
        options = [f"--config.file={file}", f"--storage.tsdb.path={self.folder / 'data'}"]
        return [path, *options, f"--web.listen-address=127.0.0.1:{self.port}", "--log.level=warn"]

    def ask(self, path: str, **parameters: str) -> Any:
        """The data of an answer of its HTTP API, such as that of `ask("query", query="up")`."""
        address = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(address, timeout=10) as answer:
            found = json.load(answer)
        assert found["status"] == "success", found
        return found["data"]

    def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """The labels and values that an expression has now."""
        found = self.ask("query", query=expression)["result"]
        return [(one["metric"], float(one["value"][1])) for one in found]

    def takes_connections(self) -> bool:
        """Whether it answers questions."""
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{self.port}/-/ready", timeout=5).close()
        except OSError:
            return False
        return True
