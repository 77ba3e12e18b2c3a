"""The client's side of secure aggregation: an update is quantised and masked, and the seed of its mask is sealed."""

import os
from dataclasses import dataclass
from hashlib import sha256
from hmac import digest

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fairlag.core.vector import Vector
from fairlag.privacy.fixed import Words, quantise
from fairlag.privacy.secure.seal import Origin, Sealed, seal
from fairlag.privacy.secure.stream import add_keystreams


@dataclass(frozen=True, slots=True, eq=False)
class Masked:
    """An update as it leaves a client: its masked coordinates, and the sealed seed of the mask."""

    vector: Words
    sealed: Sealed


def mask(update: Vector, origin: Origin, keeper: bytes, signer: Ed25519PrivateKey, root: bytes | None = None) -> Masked:
    """Quantises an update, masks it with a fresh keystream, and seals the seed to the keeper's public key.

    Everything random follows from `root`: 32 random bytes of the system, unless a simulation gives its own. A root must
    never be used twice.

    >>> import numpy as np
    >>> keys = bytes(31) + b"9", Ed25519PrivateKey.generate()
    >>> masked = mask(np.ones(3, np.float32), Origin("digits", task=7, version=3), *keys)
    >>> masked.vector.nbytes, len(bytes(masked.sealed))
    (24, 192)
    """
    root = os.urandom(32) if root is None else root
    vector, seed = quantise(update), mask_seed(root)
    add_keystreams(vector, [seed], [1])
    return Masked(vector, seal(seed, origin, keeper, signer, _derived(root, b"fairlag ephemeral 1")))


def mask_seed(root: bytes) -> bytes:
    """The seed of the keystream for this root."""
    return _derived(root, b"fairlag mask 1")


def _derived(root: bytes, purpose: bytes) -> bytes:
    return digest(root, purpose, sha256)
