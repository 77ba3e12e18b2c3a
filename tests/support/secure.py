"""Clients, a keeper and requests for tests of secure aggregation. All keys follow from small numbers."""

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from fairlag.privacy.secure.client import Masked, mask
from fairlag.privacy.secure.keeper import Keeper, Policy
from fairlag.privacy.secure.seal import Origin
from fairlag.privacy.secure.used import Used, UsedInMemory

RUN, SIZE, LEAST, BOUND = "digits", 5, 3, 0.6
SECRET = b"s" * 32
KEEPER = X25519PrivateKey.from_private_bytes(b"k" * 32)
PUBLIC = KEEPER.public_key().public_bytes_raw()
SIGNERS = [Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32) for number in range(6)]
CLIENTS = [signer.public_key().public_bytes_raw() for signer in SIGNERS]


def keeper(used: Used | None = None) -> Keeper:
    return Keeper(
        Policy(RUN, SIZE, LEAST, BOUND, frozenset(CLIENTS)), KEEPER, UsedInMemory() if used is None else used, SECRET
    )


def updates(count: int, first: int = 0, run: str = RUN) -> list[Masked]:
    """Updates 0.5, 1.5, … of the clients 0, 1, …, for tasks that begin with `first`."""
    return [
        mask(
            np.full(SIZE, place + 0.5, np.float32), Origin(run, first + place, 0), PUBLIC, SIGNERS[place % len(SIGNERS)]
        )
        for place in range(count)
    ]
