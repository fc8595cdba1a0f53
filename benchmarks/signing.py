"""What a signature costs: sealing, and opening what a trusted key signed.

    python benchmarks/signing.py [--json]

"verify" is everything but SHA-256 of the contents, which is a column of its own.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable

from common import rounds_of, show
from kernelkeep.remote import ed25519
from kernelkeep.remote.keyring_files import Trusted
from kernelkeep.remote.keys import PrivateKey, PublicKey, SharedKey
from kernelkeep.remote.signing import HEAD_BYTES, Keys
from kernelkeep.remote.trusted_keys import TrustedKeys

CALLS = 20
SIZES = (1_000, 20_000, 1_000_000)


def repeated(call: Callable[[], object]) -> Callable[[], None]:
    def run() -> None:
        for _ in range(CALLS):
            call()

    return run


def readers() -> dict[str, tuple[Keys, Keys]]:
    """Who signs and who opens, for each way to verify."""
    shared, private = SharedKey(os.urandom(32)), PrivateKey.generate()
    found = {"HMAC-SHA256": (Keys(TrustedKeys(shared)), Keys(TrustedKeys(shared)))}
    ways = {"Ed25519, cryptography": None}
    if ed25519.find_libsodium() is not None:
        ways["Ed25519, libsodium"] = ed25519.find_libsodium()
    for name, function in ways.items():
        reader = Keys(TrustedKeys(trusted=[Trusted(PublicKey(private.public.raw))]))
        chosen, ed25519.find_libsodium = ed25519.find_libsodium, lambda function=function: function  # type: ignore
        writer = Keys(TrustedKeys(private))
        reader.open("program", "name", writer.seal("program", "name", b""))  # the key is loaded at its first use
        ed25519.find_libsodium = chosen
        found[name] = (writer, reader)
    return found


def main() -> None:
    """Measure and print."""
    pairs = readers()
    contenders: dict[tuple[str, str, int], Callable[[], None]] = {}
    for size in SIZES:
        data = os.urandom(size)
        digest = hashlib.sha256(data).digest()
        contenders["SHA-256", "hash", size] = repeated(lambda data=data: hashlib.sha256(data).digest())  # type: ignore
        for name, (writer, reader) in pairs.items():
            sealed = writer.seal("program", "name", data)
            head = sealed[:HEAD_BYTES]
            contenders[name, "seal", size] = repeated(lambda w=writer, d=data: w.seal("program", "name", d))  # type: ignore
            contenders[name, "open", size] = repeated(lambda r=reader, s=sealed: r.open("program", "name", s))  # type: ignore
            contenders[name, "verify", size] = repeated(
                lambda r=reader, h=head, d=digest: r.check("program", "name", h, lambda: d)  # type: ignore
            )
    fastest = {key: min(times) for key, times in rounds_of(contenders, rounds=100).items()}
    rows = [
        (
            name,
            size,
            *(fastest[name, what, size] / CALLS * 1e6 for what in ("verify", "open", "seal")),
            fastest["SHA-256", "hash", size] / CALLS * 1e6,
        )
        for name in pairs
        for size in SIZES
    ]
    show(
        "µs for each call, in the fastest of 100 rounds",
        ("signature", "bytes", "verify", "open", "seal", "SHA-256 alone"),
        rows,
    )


if __name__ == "__main__":
    main()
