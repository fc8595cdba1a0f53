"""What Triton says of a kernel in its metadata, and what it was compiled from, for `kernelkeep explain`."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Mapping

_SHOWN = ("target", "num_warps", "num_ctas", "num_stages", "triton_version", "arch", "shared", "debug")


def facts_of(files: Mapping[str, bytes]) -> dict[str, str]:
    """The facts of a kernel, from the files that Triton makes of it."""
    facts = {}
    for name, content in files.items():
        if name.endswith(".json"):
            with contextlib.suppress(ValueError, TypeError):
                said = json.loads(content)
                facts.update({label: str(said[label]) for label in _SHOWN if label in said})
        elif name.endswith((".source", ".ttir")):
            facts[f"source ({name.rpartition('.')[2]})"] = hashlib.sha256(content).hexdigest()[:16]
    return facts
