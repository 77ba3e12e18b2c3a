"""Seals: the seed of a mask, encrypted so that only the keeper can read it, and signed by the client."""

from dataclasses import dataclass
from struct import Struct

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fairlag.errors import InputError

_FORM = Struct("<QQ32s32s48s64s")
_NONCE = bytes(12)
"""Constant, because every seal has a key of its own."""


@dataclass(frozen=True, slots=True)
class Origin:
    """What an update was computed for: the run, the task, and the version of the model that it started from.

    >>> Origin("digits", task=7, version=3)
    Origin(run='digits', task=7, version=3)
    """

    run: str
    task: int
    version: int

    def __post_init__(self) -> None:
        if not 0 < len(self.run.encode()) <= 255:
            raise InputError(f"the run is {self.run!r}, its name must have 1 to 255 bytes")
        for name, value in (("task", self.task), ("version", self.version)):
            if not 0 <= value < 2**64:
                raise InputError(f"the {name} is {value}, it must be at least 0 and below 2^64")

    def signed_by(self, client: bytes) -> bytes:
        """The bytes that tie a seal to this origin and to a client's public key."""
        run = self.run.encode()
        return b"fairlag seal 1" + Struct("<BQQ").pack(len(run), self.task, self.version) + client + run


@dataclass(frozen=True, slots=True)
class Sealed:
    """A sealed seed: who sealed it for which task and version, the encrypted seed, and the client's signature."""

    task: int
    version: int
    client: bytes
    ephemeral: bytes
    box: bytes
    signature: bytes

    SIZE = _FORM.size

    def __bytes__(self) -> bytes:
        return _FORM.pack(self.task, self.version, self.client, self.ephemeral, self.box, self.signature)

    @classmethod
    def read(cls, data: bytes) -> "Sealed":
        """The sealed seed with these bytes, of which nothing but the number is checked."""
        if len(data) != cls.SIZE:
            raise InputError(f"a sealed seed has {len(data)} bytes, it must have {cls.SIZE}")
        return cls(*_FORM.unpack(data))

    def is_signed(self, run: str, keeper: bytes) -> bool:
        """Did the client with this public key sign this seal, for this run and keeper?"""
        try:
            said = self.said(run, keeper)
            Ed25519PublicKey.from_public_bytes(self.client).verify(self.signature, said)
        except (InvalidSignature, ValueError):
            return False
        return True

    def said(self, run: str, keeper: bytes) -> bytes:
        """What the client signs: everything in the seal, its run, and the keeper's public key."""
        return Origin(run, self.task, self.version).signed_by(self.client) + keeper + self.ephemeral + self.box


def seal(seed: bytes, origin: Origin, keeper: bytes, signer: Ed25519PrivateKey, ephemeral: bytes) -> Sealed:
    """Encrypts a seed for the keeper with this public key, and signs it; `ephemeral` is 32 fresh random bytes.

    The key is HKDF-SHA256 of the X25519 secret, with both public keys as salt and the origin and the client as
    information; these are also the associated data of ChaCha20-Poly1305.
    """
    secret = X25519PrivateKey.from_private_bytes(ephemeral)
    public, client = secret.public_key().public_bytes_raw(), signer.public_key().public_bytes_raw()
    info = origin.signed_by(client)
    shared = secret.exchange(X25519PublicKey.from_public_bytes(keeper))
    box = ChaCha20Poly1305(_key(shared, public + keeper, info)).encrypt(_NONCE, seed, info)
    unsigned = Sealed(origin.task, origin.version, client, public, box, b"")
    signature = signer.sign(unsigned.said(origin.run, keeper))
    return Sealed(origin.task, origin.version, client, public, box, signature)


def opened(sealed: Sealed, run: str, key: X25519PrivateKey) -> bytes | None:
    """The seed, or None if this seal was not made for this keeper, run, task, version and client."""
    info = Origin(run, sealed.task, sealed.version).signed_by(sealed.client)
    try:
        shared = key.exchange(X25519PublicKey.from_public_bytes(sealed.ephemeral))
        salt = sealed.ephemeral + key.public_key().public_bytes_raw()
        return ChaCha20Poly1305(_key(shared, salt, info)).decrypt(_NONCE, sealed.box, info)
    except (InvalidTag, ValueError):  # a ValueError: a public key of low order
        return None


def _key(shared: bytes, salt: bytes, info: bytes) -> bytes:
    return HKDF(SHA256(), 32, salt, info).derive(shared)
