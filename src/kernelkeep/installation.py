"""How this copy of the package was installed, for sentences that say what to install besides."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def install_command(extra: str) -> str:
    """The command for pip that adds an extra: from the folder that the package was installed from, where there is one.

    It reads files of the installation, so it is called only where a message is made; importing this module costs nothing.
    """
    import shlex

    source = _source_of_installation()
    if source is None:
        return f"pip install 'kernelkeep[{extra}]'"
    place, editable = source
    return f"pip install {'-e ' if editable else ''}{shlex.quote(f'{place}[{extra}]')}"


def installed_from() -> Path | None:
    """The folder that pip installed the package from, such as a clone; None where it came from an index or as a wheel."""
    from pathlib import Path

    source = _source_of_installation()
    return Path(source[0]) if source is not None and Path(source[0]).is_dir() else None


def _source_of_installation() -> tuple[str, bool] | None:
    """The local folder or wheel that pip installed, and whether the package is used from there."""
    import json
    from importlib import metadata
    from pathlib import Path
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    try:
        for found in metadata.distributions(name="kernelkeep"):
            text = found.read_text("direct_url.json")
            if not text:
                continue  # installed from an index; or a folder that only describes the package, such as an egg-info
            facts = json.loads(text)
            address = urlsplit(facts["url"])
            place = url2pathname(address.path)
            if address.scheme == "file" and place.isprintable() and Path(place).exists():
                return place, bool(facts.get("dir_info", {}).get("editable"))
    except Exception:  # a damaged installation must not replace the message that is being made
        pass
    return None
