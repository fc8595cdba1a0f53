"""Failures of a store as one exception, with a sentence for people and without secrets."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

from ..errors import KernelKeepError, RemoteError
from .address import Remote, secrets_in

_LONGEST = 300
_HEADERS = re.compile(r"(authorization|[\w-]*(?:token|signature|api-?key)|cookie)\s*[:=].*", re.IGNORECASE | re.DOTALL)


class Failures:
    """Turns the exceptions of a store's library into `RemoteError`."""

    def __init__(self, remote: Remote) -> None:
        self._location = remote.location
        self._secrets = secrets_in(remote.url)

    @contextlib.contextmanager
    def translated(self) -> Iterator[None]:
        """Whatever is raised inside comes out as `RemoteError`. The cause is dropped: it may name the address in full."""
        try:
            yield
        except KernelKeepError:
            raise
        except Exception as error:
            raise RemoteError(f"{self._location}: {self.describe(error)}") from None

    def describe(self, error: BaseException) -> str:
        """The first line of what an exception says, shortened, without secrets."""
        said = str(error).partition("\n\nDebug source")[0]
        for secret in self._secrets:
            # A short one, such as the user "a" or the option "1", would make holes in every word.
            pattern = re.escape(secret) if len(secret) > 3 else rf"(?<![\w.]){re.escape(secret)}(?![\w.])"
            said = re.sub(pattern, "…", said)
        said = re.sub(r"<[^>]*>", " ", said)  # a page that a web server answers with
        # Signatures and tokens that come from the environment: options of addresses, and headers that a server sends back.
        said = re.sub(r"\?[^\s)]*=[^\s)]*", "", said)
        said = _HEADERS.sub(r"\1: …", said)
        said = " ".join(said.split())
        return said[:_LONGEST] + ("…" if len(said) > _LONGEST else "") or type(error).__name__
