"""moto's S3 server: the API of S3 with conditional puts and multipart uploads, in memory. It is not S3."""

from __future__ import annotations

import importlib.util
import sys
import urllib.request
from urllib.parse import urlencode

from .server import NotInstalled, Server

# moto is not made for requests at the same time: one after the other, or a PUT and a DELETE of one name fail with 500.
_SERVE = """
import sys, threading
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import run_simple
moto, one_at_a_time = DomainDispatcherApplication(create_backend_app), threading.Lock()
def serve(environ, start_response):
    with one_at_a_time:
        return [b"".join(moto(environ, start_response))]
run_simple("127.0.0.1", int(sys.argv[1]), serve, threaded=True, request_handler=MotoRequestHandler)
"""


class S3Server(Server):
    """It has one bucket, `bucket`, and takes any key."""

    bucket = "kernelkeep"

    def command(self) -> list[str]:
        """A Python process."""
        if importlib.util.find_spec("moto") is None or importlib.util.find_spec("flask") is None:
            raise NotInstalled("moto's server is not installed; to get it: pip install 'moto[server]'")
        return [sys.executable, "-c", _SERVE, str(self.port)]

    def start(self) -> None:
        """Start it, and make the bucket."""
        super().start()
        self.empty()

    @property
    def endpoint(self) -> str:
        """The address of the API."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        """The bucket, with all that a client needs to know."""
        return self.url_on(self.port)

    def url_on(self, port: int) -> str:
        """The same on another port, where a proxy listens."""
        options = {
            "endpoint": f"http://127.0.0.1:{port}",
            "region": "us-east-1",
            "access_key_id": "someone",
            "secret_access_key": "something",
            "allow_http": "true",
            "virtual_hosted_style_request": "false",
        }
        return f"s3://{self.bucket}/prefix?{urlencode(options)}"

    def empty(self) -> None:
        """Forget everything, and make the bucket again."""
        for method, path in (("POST", "/moto-api/reset"), ("PUT", f"/{self.bucket}")):
            urllib.request.urlopen(urllib.request.Request(self.endpoint + path, method=method), timeout=30).close()
