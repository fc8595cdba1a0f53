"""What in a shared store would be refused here, and why. Needs no device."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from ..cache.entry import decode
from ..remote.address import Remote, open_store
from ..remote.names import signed_as
from ..remote.signing import Keys, Refused, keys_for
from ..storage.files import Damaged

_BATCH = 16
_UNSIGNED = ("leases/", "lease-tokens")  # nobody relies on who wrote them
_TIMEOUT_SECONDS = 30.0  # nobody waits for a program here, so a slow store is no reason to give up


class RefusedObject(msgspec.Struct, frozen=True):
    """An object that is not used. `kind` is that of the refusal, or "damaged" where a trusted key signed something unusable."""

    name: str
    kind: str
    reason: str
    bytes: int


class RemoteCheck(msgspec.Struct):
    """What was found in a store. `others`: objects that are none of ours, or are not signed by design; nobody uses them."""

    location: str
    namespace: str
    objects: int = 0
    bytes: int = 0
    others: int = 0
    refused: list[RefusedObject] = []

    @property
    def ok(self) -> bool:
        """Whether nothing is refused."""
        return not self.refused


def check_remote(remote: Remote) -> RemoteCheck:
    """Read every object of a store's namespace and verify it with the keys that would be used. `RemoteError` where it fails."""
    keys = keys_for(remote)
    outcome = RemoteCheck(remote.location, remote.namespace)
    store = open_store(msgspec.structs.replace(remote, timeout_seconds=max(_TIMEOUT_SECONDS, remote.timeout_seconds)))
    try:
        for names in _batches(store.list("")):
            ours = [name for name in names if signed_as(name) is not None]
            outcome.others += sum(not name.startswith(_UNSIGNED) for name in names) - len(ours)
            for name, data in sorted(store.get_many(ours).items()):
                outcome.objects += 1
                outcome.bytes += len(data)
                refused = _refusal(keys, name, data)
                if refused is not None:
                    outcome.refused.append(refused)
    finally:
        store.close()
    return outcome


def _refusal(keys: Keys, name: str, data: bytes) -> RefusedObject | None:
    kind, signed = signed_as(name) or ("", "")
    try:
        contents = keys.open(kind, signed, data)
        if kind == "program":
            decode(contents, name.rpartition("/")[2])
    except Refused as error:
        return RefusedObject(name, error.kind, str(error), len(data))
    except Damaged as error:
        return RefusedObject(name, "damaged", str(error), len(data))
    return None


def _batches(names: Iterable[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    for name in names:
        batch.append(name)
        if len(batch) == _BATCH:
            yield batch
            batch = []
    yield batch
