"""The files of a keyring. Every fact is a file of its own in a private folder, so that a damaged one leaves the others usable:

    own/<id>.key         a private key or a shared secret (`key_files.py`), mode 0600
    trusted/<id>.json    a key that is trusted: its public line, a label, since when, until when
    revoked/<id>         this key is refused, whatever else the folder says; the file's contents do not matter
    signs                the id of the key in `own` that signs

A folder that cannot be read is an error, never an empty keyring.
"""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import NamedTuple

import msgspec

from ..errors import RemoteError
from ..escaping import escaped
from ..platforms import system
from ..storage.durable import sync_folder
from ..storage.files import Damaged, create_private, publish, read_regular
from ..storage.private import default_trust, make_private_folder
from .key_files import check_mode, is_secret, parse_public, parse_secret, read_key_file
from .keys import ED25519, PrivateKey, PublicKey, SharedKey, Signer, Verifier

KEY_ID = re.compile(r"[0-9a-f]{32}")
_LARGEST_FILE_BYTES = 16384


class KeyInfo(msgspec.Struct, frozen=True):
    """What is known of a key. Holds no secret.

    `added` and `until` are seconds since 1970; it is trusted until then, or for ever. `line` is handed to others so that they
    trust it. `own`: its secret part is here.
    """

    id: str
    algorithm: str  # "ed25519" or "hmac-sha256"; empty where only a revocation is known
    label: str = ""
    added: float | None = None
    until: float | None = None
    own: bool = False
    signs: bool = False
    revoked: bool = False
    line: str | None = None

    @property
    def is_expired(self) -> bool:
        """Whether it was trusted until a time that is over."""
        return self.until is not None and time.time() >= self.until

    @property
    def is_trusted(self) -> bool:
        """Whether what it signed is opened now."""
        return not self.revoked and not self.is_expired


class Trusted(NamedTuple):
    """A key that is trusted here, and until when; seconds since 1970, None for ever."""

    key: Verifier
    until: float | None = None


class Contents(NamedTuple):
    """What a keyring holds at a moment. `problems`: a sentence for each file that is not used."""

    signer: Signer | None = None
    trusted: tuple[Trusted, ...] = ()
    revoked: frozenset[str] = frozenset()
    problems: tuple[str, ...] = ()
    keys: tuple[KeyInfo, ...] = ()


class TrustedFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a file in `trusted` says, as JSON."""

    algorithm: str
    line: str | None  # None for a shared secret, which is in `own`
    label: str
    added: float
    until: float | None


class _StoredKey:
    """A private key in the keyring. It is read when it signs for the first time: loading the library for it takes a while."""

    __slots__ = ("_loaded", "_path", "_public")
    algorithm = ED25519

    def __init__(self, path: Path, public: PublicKey) -> None:
        self._path, self._public = path, public
        self._loaded: PrivateKey | None = None

    @property
    def id(self) -> str:
        return self._public.id

    def sign(self, message: bytes) -> bytes:
        if self._loaded is None:
            try:
                loaded = _read_secret(self._path)
                if not isinstance(loaded, PrivateKey) or loaded.id != self.id:
                    raise Damaged("it is another key than its name says")
            except (OSError, Damaged) as error:
                raise RemoteError(f"the key {self._path} cannot sign: {reason_of(error)}") from None
            self._loaded = loaded
        return self._loaded.sign(message)

    def verify(self, message: bytes, signature: bytes) -> bool:
        return self._public.verify(message, signature)

    def __repr__(self) -> str:
        return f"<key {self.id}>"


def read_keyring(folder: Path) -> Contents:
    """What is in a keyring's folder. One that does not exist is empty; `RemoteError` where it must not or cannot be read."""
    try:
        if not _exists(folder):
            return Contents()
        default_trust().check_folder(folder)
        return _read(folder)
    except OSError as error:
        raise RemoteError(f"the keys in {folder} cannot be used: {reason_of(error)}") from None


def _exists(path: Path) -> bool:
    """False only if it is certain that there is nothing; `OSError` where it cannot be known."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):  # HOME is /dev/null for some users
        return False
    return True


def _read(folder: Path) -> Contents:
    problems: list[str] = []
    revoked = frozenset(_ids(folder / "revoked", "", problems))
    own = frozenset(_ids(folder / "own", ".key", problems))
    signs = _signing_id(folder / "signs", problems)
    signer: Signer | None = None
    trusted: list[Trusted] = []
    keys: list[KeyInfo] = []
    for key_id in _ids(folder / "trusted", ".json", problems):
        try:
            facts, key = _read_trusted(folder, key_id, key_id in own)
        except (OSError, Damaged) as error:
            problems.append(f"{folder / 'trusted' / key_id}.json is not used: {reason_of(error)}")
            continue
        is_revoked = key_id in revoked
        if not is_revoked:
            trusted.append(Trusted(key, facts.until))
            if key_id == signs and isinstance(key, _StoredKey | SharedKey):
                signer = key
        keys.append(
            KeyInfo(
                id=key_id,
                algorithm=facts.algorithm,
                label=facts.label,
                added=facts.added,
                until=facts.until,
                own=key_id in own,
                signs=signer is key,
                revoked=is_revoked,
                line=facts.line,
            )
        )
    if signs is not None and signer is None and signs not in revoked:
        problems.append(f"the key {signs} should sign and does not: its files in {folder} are missing or are not used")
    known = {key.id for key in keys}
    keys += [KeyInfo(id=key_id, algorithm="", revoked=True) for key_id in sorted(revoked - known)]
    keys.sort(key=lambda key: (not key.signs, not key.is_trusted, key.label, key.id))
    return Contents(signer, tuple(trusted), revoked, tuple(problems), tuple(keys))


def _ids(folder: Path, ending: str, problems: list[str]) -> list[str]:
    """The keys that a folder of the keyring has files for. A missing folder has none; one that cannot be read is an `OSError`."""
    if not _exists(folder):
        return []
    default_trust().check_part(folder)
    found = []
    for path in sorted(folder.iterdir()):
        name = path.name.removesuffix(ending)
        if KEY_ID.fullmatch(name) and path.name == name + ending:
            found.append(name)
        elif not path.name.startswith("."):  # a temporary file
            problems.append(f"{folder / escaped(path.name)} is not used: its name is not that of a key")
    return found


def _signing_id(path: Path, problems: list[str]) -> str | None:
    try:
        text = read_regular(path, default_trust(), _LARGEST_FILE_BYTES)[0].decode("ascii", "replace").strip()
        if KEY_ID.fullmatch(text):
            return text
        raise Damaged("it must be the id of a key")
    except FileNotFoundError:
        return None
    except Damaged as error:
        problems.append(f"{path} is not used, so nothing is signed: {error}")
        return None


def _read_trusted(folder: Path, key_id: str, own: bool) -> tuple[TrustedFile, Verifier]:
    path = folder / "trusted" / f"{key_id}.json"
    try:
        facts = msgspec.json.decode(read_regular(path, default_trust(), _LARGEST_FILE_BYTES)[0], type=TrustedFile)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise Damaged(f"it cannot be read: {error}") from None
    key: Verifier
    if facts.line is None:
        key = _read_secret(own_path(folder, key_id))
        if not isinstance(key, SharedKey):
            raise Damaged("it names no public key")
    else:
        public = parse_public(facts.line)[0]
        key = _StoredKey(own_path(folder, key_id), public) if own else public
    if key.id != key_id:
        raise Damaged("it holds another key than its name says")
    return facts, key


def _read_secret(path: Path) -> SharedKey | PrivateKey:
    text, mode = read_key_file(path)
    if not is_secret(text):
        raise Damaged("it is neither a private key nor a shared secret")
    check_mode(mode)
    return parse_secret(text)


def own_path(folder: Path, key_id: str) -> Path:
    """Where the secret part of a key is kept."""
    return folder / "own" / f"{key_id}.key"


def write_private(path: Path, data: bytes) -> None:
    """Replace a file in one step, for this user alone, so that it survives a power cut."""
    temporary = path.parent / f".{os.getpid()}-{os.urandom(8).hex()}.tmp"
    try:
        make_private_folder(path.parent)
        try:
            with os.fdopen(create_private(temporary), "wb") as file:
                file.write(data)
                file.flush()
                system.sync(file.fileno())
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        publish(temporary, path)
        sync_folder(path.parent)
    except OSError as error:
        raise RemoteError(f"{path} cannot be written: {reason_of(error)}") from None


def stamp_of(folder: Path) -> tuple[object, ...]:
    """A value that changes when a key is made, trusted, revoked or rotated, a few milliseconds later at the latest."""
    return tuple(_stamp(path) for path in (folder, folder / "own", folder / "trusted", folder / "revoked"))


def _stamp(path: Path) -> object:
    try:
        found = path.stat()
    except OSError as error:
        return error.errno
    return found.st_mtime_ns, found.st_ino, found.st_mode, found.st_uid


def reason_of(error: Exception) -> object:
    """What an error says, for a sentence."""
    return getattr(error, "strerror", None) or error
