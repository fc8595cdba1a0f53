"""The keys of this user: the one that signs here, those that are trusted, and those that were revoked.

    keyring = kk.Keyring()
    print(keyring.new("build server").line)     # hand this line to the other machines
    keyring.trust("kernelkeep-ed25519 … laptop")

`kernelkeep keys` does the same from the command line; `keyring_files.py` says what is in the folder.
"""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

import msgspec

from .. import settings
from ..errors import ArgumentError
from ..escaping import escaped
from ..storage.files import Damaged
from .key_files import LONGEST_LABEL, check_mode, is_secret, parse_public, parse_secret, read_key_file, shared_line
from .keyring_files import (
    KEY_ID,
    Contents,
    KeyInfo,
    TrustedFile,
    own_path,
    read_keyring,
    reason_of,
    stamp_of,
    write_private,
)
from .keys import PrivateKey, SharedKey

_SHORTEST_PREFIX = 6
_DAY_SECONDS = 86400.0


class Keyring:
    """The keys in a folder; by default $KERNELKEEP_KEYS_DIR, else `kernelkeep/keys` in the user's configuration.

    Nothing is held in memory: every call reads the folder. `RemoteError` says why it cannot be used.
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None) -> None:
        try:
            chosen = settings.keys_dir() if folder is None else Path(folder).expanduser()
            self.folder = Path.cwd() / chosen
        except (OSError, TypeError, ValueError, RuntimeError) as error:
            raise ArgumentError(f"the folder of the keys must be a path that exists or can be made: {error}") from None

    def __repr__(self) -> str:
        return f"<Keyring {self.folder}>"

    def load(self) -> Contents:
        """Everything in the folder, and the files in it that are not used."""
        return read_keyring(self.folder)

    def stamp(self) -> tuple[object, ...]:
        """A value that changes when the keyring does."""
        return stamp_of(self.folder)

    def keys(self) -> tuple[KeyInfo, ...]:
        """Every key: the one that signs first, then those that are trusted, then the others."""
        return self.load().keys

    def find(self, key_id: str) -> KeyInfo:
        """A key by its id, or by the first six or more digits of it."""
        whole = self._complete(key_id)
        for key in self.keys():
            if key.id == whole:
                return key
        raise ArgumentError(f"there is no key {whole} in {self.folder}; `kernelkeep keys list` shows those there are")

    def new(self, label: str = "", *, shared: bool = False) -> KeyInfo:
        """Make the key that signs here: an Ed25519 pair, or with `shared` a random secret for HMAC.

        `ArgumentError` where a key signs here already.
        """
        signer = self.load().signer
        if signer is not None:
            raise ArgumentError(f"the key {signer.id} signs here already; `kernelkeep keys rotate` replaces it")
        return self._make(label, shared)

    def trust(self, key: str | os.PathLike[str], label: str = "", *, until: float | None = None) -> KeyInfo:
        """Open what this key signs, up to a time in seconds since 1970 if one is given.

        `key` is a public key's line, or a file with one. A file with a shared secret is copied: it is trusted, and signs here
        where no other key does.
        """
        text, mode = _text_of(key)
        if until is not None and not until > time.time():
            raise ArgumentError("until must be a time in the future, in seconds since 1970")
        contents = self.load()
        try:
            if is_secret(text):
                check_mode(mode)
                secret = parse_secret(text)
                if not isinstance(secret, SharedKey):
                    raise Damaged("it is a private key, which stays where it was made; trust its public line instead")
                _check_not_revoked(secret.id, contents)
                return self._keep_secret(secret, text, label, until, signs=contents.signer is None)
            public, named = parse_public(text.decode("utf-8", "replace"))
        except Damaged as error:
            raise ArgumentError(f"this key cannot be trusted: {error}") from None
        _check_not_revoked(public.id, contents)
        label = _clean(label or named)
        return self._keep(public.id, TrustedFile("ed25519", public.line(label), label, time.time(), until))

    def revoke(self, key_id: str) -> KeyInfo:
        """Refuse what this key signed, from now on and for good. Its secret part, if it is here, is removed.

        `key_id` is the whole id of any key, or the first six or more digits of one in the keyring.
        """
        whole = self._complete(key_id)
        write_private(self.folder / "revoked" / whole, f"{time.time():.0f}\n".encode())
        own_path(self.folder, whole).unlink(missing_ok=True)
        return self.find(whole)

    def rotate(self, label: str | None = None, *, keep_days: float = 30.0) -> tuple[KeyInfo, KeyInfo]:
        """Make a new key that signs from now on. The old one signs no more, and is trusted for `keep_days` days.

        Gives both, the new one first. Other machines need the new key's line, and refuse what it signs until they trust it.
        """
        if not keep_days >= 0:
            raise ArgumentError(f"keep_days must be 0 or more, got {keep_days!r}")
        signer = self.load().signer
        if signer is None:
            raise ArgumentError("no key signs here, so there is none to rotate; `kernelkeep keys new` makes one")
        old = self.find(signer.id)
        new = self._make(old.label if label is None else label, old.line is None)
        until = time.time() + keep_days * _DAY_SECONDS
        kept = self._keep(old.id, TrustedFile(old.algorithm, old.line, old.label, old.added or 0.0, until))
        if old.line is not None:  # the secret of HMAC still has to verify
            own_path(self.folder, old.id).unlink(missing_ok=True)
            kept = self.find(old.id)
        return new, kept

    def _make(self, label: str, shared: bool) -> KeyInfo:
        if shared:
            secret = os.urandom(32)
            return self._keep_secret(SharedKey(secret), shared_line(secret).encode(), label, None, signs=True)
        key = PrivateKey.generate()
        return self._keep_secret(key, key.pem(), label, None, signs=True)

    def _keep_secret(
        self, key: SharedKey | PrivateKey, text: bytes, label: str, until: float | None, *, signs: bool
    ) -> KeyInfo:
        label = _clean(label)
        write_private(own_path(self.folder, key.id), text)
        if isinstance(key, PrivateKey):
            facts = TrustedFile("ed25519", key.public.line(label), label, time.time(), until)
        else:
            facts = TrustedFile("hmac-sha256", None, label, time.time(), until)
        kept = self._keep(key.id, facts)
        if not signs or until is not None:
            return kept
        write_private(self.folder / "signs", f"{key.id}\n".encode())
        return self.find(key.id)

    def _keep(self, key_id: str, facts: TrustedFile) -> KeyInfo:
        write_private(self.folder / "trusted" / f"{key_id}.json", msgspec.json.encode(facts))
        return self.find(key_id)

    def _complete(self, key_id: str) -> str:
        wanted = str(key_id).strip().lower()
        if KEY_ID.fullmatch(wanted):
            return wanted
        if not re.fullmatch(rf"[0-9a-f]{{{_SHORTEST_PREFIX},31}}", wanted):
            raise ArgumentError(
                f"a key's id must be {_SHORTEST_PREFIX} to 32 hexadecimal digits, as `kernelkeep keys list` shows"
            )
        found = [key.id for key in self.keys() if key.id.startswith(wanted)]
        if not found:
            raise ArgumentError(
                f"there is no key {wanted} in {self.folder}; `kernelkeep keys list` shows those there are"
            )
        if len(found) > 1:
            raise ArgumentError(f"{len(found)} keys in {self.folder} begin with {wanted}; name more digits")
        return found[0]


def _text_of(key: str | os.PathLike[str]) -> tuple[bytes, int]:
    """The text of what is to be trusted, and the mode of the file it is in; of a line, that of a public file."""
    if isinstance(key, str) and (key.lstrip().startswith("kernelkeep-") or "-----BEGIN" in key):
        return key.strip().encode("utf-8", "replace"), 0o644
    try:
        return read_key_file(Path(key).expanduser())
    except (OSError, Damaged, ValueError, TypeError, RuntimeError) as error:
        raise ArgumentError(
            f"a key to trust must be a line that begins with kernelkeep-ed25519, or a file with one: {reason_of(error)}"
        ) from None


def _check_not_revoked(key_id: str, contents: Contents) -> None:
    if key_id in contents.revoked:
        raise ArgumentError(f"the key {key_id} was revoked and cannot be trusted again; make a new one")


def _clean(label: str) -> str:
    return escaped(" ".join(label.split()))[:LONGEST_LABEL]
