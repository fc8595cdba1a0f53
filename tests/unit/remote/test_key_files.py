"""Key files: what is read, and what is refused without a word of the secret."""

from __future__ import annotations

import os
import pickle
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import kernelkeep as kk
from kernelkeep.remote.key_files import key_given, parse_public, shared_line
from kernelkeep.remote.keys import PrivateKey, PublicKey, SharedKey
from kernelkeep.storage.files import Damaged

SECRET = b"a secret that all machines share"
two_users = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of two users")
MALLORY = 12345


def write(path: Path, text: bytes, mode: int = 0o600) -> Path:
    path.write_bytes(text)
    path.chmod(mode)
    return path


def test_bytes_are_a_shared_secret() -> None:
    assert isinstance(key_given(SECRET), SharedKey)
    assert key_given(SECRET).id == key_given(bytearray(SECRET)).id == SharedKey(SECRET).id
    assert key_given(SECRET).id != key_given(SECRET + b"!").id


def test_a_private_key_file_comes_back_as_it_was(tmp_path: Path) -> None:
    key = PrivateKey.generate()
    file = write(tmp_path / "mine.pem", key.pem())
    for given in (file, str(file)):
        found = key_given(given)
        assert isinstance(found, PrivateKey)
        assert found.id == key.id
        assert key.public.verify(b"message", found.sign(b"message"))


def test_a_public_key_file_is_a_line_or_pem(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

    key = PrivateKey.generate()
    loaded = load_pem_private_key(key.pem(), None).public_key()
    pem = loaded.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    for text in (key.public.line("me").encode(), pem):
        found = key_given(write(tmp_path / "key", text, 0o644))
        assert isinstance(found, PublicKey)
        assert found.id == key.id


def test_a_shared_secret_may_be_in_a_file(tmp_path: Path) -> None:
    assert key_given(write(tmp_path / "secret", shared_line(SECRET).encode())).id == SharedKey(SECRET).id


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl")
def test_a_key_that_openssl_made(tmp_path: Path) -> None:
    file = tmp_path / "key.pem"
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", file], check=True, capture_output=True)
    file.chmod(0o600)
    assert isinstance(key_given(file), PrivateKey)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o610])
@pytest.mark.parametrize("kind", ["private", "shared"])
def test_a_secret_that_others_can_read_is_refused(tmp_path: Path, mode: int, kind: str) -> None:
    text = PrivateKey.generate().pem() if kind == "private" else shared_line(SECRET).encode()
    file = write(tmp_path / "mine", text, mode)
    with pytest.raises(
        kk.ArgumentError, match=rf"others may read this secret key \(its mode is {mode:04o}\); run chmod 600"
    ):
        key_given(file)


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_key_that_others_can_write_is_refused(tmp_path: Path, mode: int) -> None:
    """Also a public one: whoever can write it decides whom this program trusts."""
    file = write(tmp_path / "them.pub", PrivateKey.generate().public.line().encode(), mode)
    with pytest.raises(kk.ArgumentError, match="may be written to by others"):
        key_given(file)


def test_a_key_in_a_folder_that_others_can_write_to_is_refused(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    file = write(tmp_path / "open" / "key", PrivateKey.generate().pem())
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "link").symlink_to(file)
    for path in (file, tmp_path / "link"):
        with pytest.raises(kk.ArgumentError, match="may be written to by others"):
            key_given(path)


@two_users
def test_a_key_of_another_user_is_refused(tmp_path: Path) -> None:
    file = write(tmp_path / "key", PrivateKey.generate().pem())
    os.chown(file, MALLORY, MALLORY)
    with pytest.raises(kk.ArgumentError, match="belongs to"):
        key_given(file)


@two_users
def test_a_link_that_another_user_made_is_not_followed(tmp_path: Path) -> None:
    """It would choose among this user's files: a public key that was once saved and never trusted, for example."""
    (tmp_path / "sticky").mkdir()
    (tmp_path / "sticky").chmod(0o1777)
    file = write(tmp_path / "them.pub", PrivateKey.generate().public.line().encode())
    link = tmp_path / "sticky" / "key"
    link.symlink_to(file)
    with pytest.raises(kk.ArgumentError, match="may be written to by others"):
        key_given(link)
    (tmp_path / "sticky").chmod(0o755)
    assert key_given(link).id
    os.chown(link, MALLORY, MALLORY, follow_symlinks=False)
    with pytest.raises(kk.ArgumentError, match="belongs to"):
        key_given(link)


def test_links_are_followed_and_a_loop_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = PrivateKey.generate()
    (tmp_path / "deep").mkdir()
    write(tmp_path / "deep" / "key", key.pem())
    (tmp_path / "one").symlink_to("deep/../two")
    (tmp_path / "two").symlink_to(tmp_path / "deep" / "key")
    monkeypatch.chdir(tmp_path)
    assert key_given("one").id == key_given("./deep/../one").id == key.id
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(kk.ArgumentError, match="Too many levels of symbolic links"):
        key_given(tmp_path / "loop")


def test_a_text_that_is_no_path_is_not_repeated(tmp_path: Path) -> None:
    """Somebody may pass the secret itself as a str."""
    for text in ("hunter2 hunter2 hunter2", "x" * 5000, "a\0b", "~nobody-like-this/key"):
        with pytest.raises(
            kk.ArgumentError, match="signing_key must be bytes, which are a shared secret, or the path"
        ) as caught:
            key_given(text)
        assert text not in str(caught.value)
    with pytest.raises(kk.ArgumentError, match="got a int"):
        key_given(12345678901234567890)


def test_files_that_hold_no_key(tmp_path: Path) -> None:
    pem = PrivateKey.generate().pem()
    other = b"-----BEGIN PRIVATE KEY-----\n" + b"A" * 64 + b"\n-----END PRIVATE KEY-----\n"
    two_lines = b"kernelkeep-ed25519 " + b"A" * 44 + b"\nkernelkeep-ed25519 x"
    no_keys = [b"", b"hello", pem[:60], pem.replace(b"M", b"?"), other, b"\xff" * 100, b"x" * 20000, two_lines]
    no_keys += [b"kernelkeep-ed25519 QkNE", b"kernelkeep-shared QkNE", b"kernelkeep-shared"]
    for text in no_keys:
        with pytest.raises(kk.ArgumentError, match="cannot be used") as caught:
            key_given(write(tmp_path / "key", text))
        for secret in (b"QkNE", b"A" * 44, *pem.split(b"\n")[1:2]):
            assert secret.decode() not in str(caught.value)
    with pytest.raises(kk.ArgumentError, match="cannot be used"):
        key_given(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(kk.ArgumentError, match="named pipe"):
        key_given(tmp_path / "pipe")


def test_keys_of_other_kinds_are_refused(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import (
        BestAvailableEncryption,
        Encoding,
        NoEncryption,
        PrivateFormat,
    )

    key = ec.generate_private_key(ec.SECP256R1())
    file = write(tmp_path / "key", key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    with pytest.raises(kk.ArgumentError, match="only Ed25519"):
        key_given(file)
    write(file, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"word")))
    with pytest.raises(kk.ArgumentError, match="without a password"):
        key_given(file)


def test_a_private_key_is_not_taken_for_a_public_one() -> None:
    with pytest.raises(Damaged, match="it is a secret key, which is not handed to others"):
        parse_public(PrivateKey.generate().pem().decode())
    with pytest.raises(Damaged, match="it is a secret key"):
        parse_public(shared_line(SECRET))


def test_labels_cannot_move_the_cursor() -> None:
    line = PrivateKey.generate().public.line("me\x1b[2J" + "x" * 500)
    label = parse_public(line)[1]
    assert "\x1b" not in label and len(label) <= 100


def test_keys_show_their_id_and_nothing_else(tmp_path: Path) -> None:
    private, shared = PrivateKey.generate(), SharedKey(SECRET)
    assert repr(private) == f"<PrivateKey {private.id}>" and repr(shared) == f"<SharedKey {shared.id}>"
    for key in (private, shared):
        assert not hasattr(key, "__dict__")
        with pytest.raises(TypeError, match="keys are not pickled"):
            pickle.dumps(key)


def test_hmac_needs_no_library_and_ed25519_names_the_extra(tmp_path: Path) -> None:
    file = write(tmp_path / "key", PrivateKey.generate().public.line().encode())
    code = f"""
import sys
sys.modules["cryptography"] = None
from kernelkeep import Unsupported
from kernelkeep.remote import ed25519
ed25519.find_libsodium = lambda: None
from kernelkeep.remote.signing import make_keys
keys = make_keys({SECRET!r})
assert keys.open("program", "n", keys.seal("program", "n", b"data")) == b"data"
public = make_keys({str(file)!r})
key = bytes.fromhex(repr(public) and {PublicKey(parse_public(file.read_text())[0].raw).id!r})
try:
    public.open("program", "n", b"KKSG" + bytes([1, 2, 0, 0]) + key + bytes(80))
except Unsupported as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert re.fullmatch(
        r"Ed25519 keys need the library cryptography: pip install .*\[remote\]'", done.stdout.strip()
    ), done.stderr
