"""What batches move on: as on any device, but each has memory of its own."""

from __future__ import annotations

from ..lanes import Lanes


class ReferenceLanes(Lanes):
    """One lane under three names. What a batch did not write is not what another one wrote, so reading it is found."""

    reuses_memory = False
