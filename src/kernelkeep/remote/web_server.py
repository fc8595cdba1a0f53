"""What obstore does not do for web servers: users and tokens, and an upload that is larger than memory."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from urllib.parse import SplitResult, quote, unquote


def authorization(parts: SplitResult, options: dict[str, str]) -> str | None:
    """The header with which a web server is asked: a token, or the user and password of the address. Takes the token out."""
    token = options.pop("bearer_token", None)
    if token is not None:
        return f"Bearer {token}"
    if parts.username is None:
        return None
    user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return "Basic " + base64.b64encode(user.encode()).decode()


def put_pieces(
    parts: SplitResult, name: str, header: str | None, pieces: Iterable[bytes], size: int, timeout_seconds: float
) -> None:
    """One PUT of bytes that come piece by piece. Any failure is an exception; servers publish a PUT when it is complete."""
    import http.client  # rarely needed, and it takes a while to load
    import ssl

    connection: http.client.HTTPConnection
    host, port = parts.hostname or "", parts.port
    if parts.scheme == "https":
        context = ssl.create_default_context()
        connection = http.client.HTTPSConnection(host, port, timeout=timeout_seconds, context=context)
    else:
        connection = http.client.HTTPConnection(host, port, timeout=timeout_seconds)
    headers = {"Content-Length": str(size), "Content-Type": "application/octet-stream"}
    if header is not None:
        headers["Authorization"] = header
    try:
        connection.request("PUT", f"{parts.path.rstrip('/')}/{quote(name)}", body=pieces, headers=headers)
        answer = connection.getresponse()
        answer.read(1000)
        if not 200 <= answer.status < 300:
            raise OSError(f"the server answers a PUT with {answer.status} {answer.reason}")
    finally:
        connection.close()
