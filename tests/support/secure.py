"""Clients, a keeper, and the ways in which a server or a client cheats it. All keys follow from small numbers."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from fairlag.privacy.fixed import WHOLE, whole_weights
from fairlag.privacy.secure.client import Masked, mask
from fairlag.privacy.secure.keeper import Keeper, Policy
from fairlag.privacy.secure.seal import Origin
from fairlag.privacy.secure.used import Used, UsedInMemory
from fairlag.privacy.secure.wire import request

RUN, SIZE, LEAST, BOUND = "digits", 5, 3, 0.6
SECRET = b"s" * 32
KEEPER = X25519PrivateKey.from_private_bytes(b"k" * 32)
PUBLIC = KEEPER.public_key().public_bytes_raw()
SIGNERS = [Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32) for number in range(6)]
CLIENTS = [signer.public_key().public_bytes_raw() for signer in SIGNERS]
EVEN = whole_weights([1, 1, 1])

Cheat = Callable[[list[Masked]], bytes]
"""Makes a bad request from three good updates of the clients 0, 1 and 2."""


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


def asked(masked: list[Masked], weights: list[int] = EVEN, run: str = RUN, size: int = SIZE) -> bytes:
    return request(run, size, [each.sealed for each in masked], weights)


def forged(**changes: object) -> Cheat:
    """A request whose first seal was changed after it was signed."""

    def changed(masked: list[Masked]) -> bytes:
        first = Masked(masked[0].vector, replace(masked[0].sealed, **changes))  # type: ignore[arg-type]
        return asked([first, *masked[1:]])

    return changed


def stranger(masked: list[Masked]) -> bytes:
    new = mask(np.zeros(SIZE, np.float32), Origin(RUN, 0, 0), PUBLIC, Ed25519PrivateKey.from_private_bytes(b"x" * 32))
    return asked([new, *masked[1:]])


def boxed_for_another_task(masked: list[Masked]) -> bytes:
    """A client signs a seal for task 9 around a box that was made for task 0: only opening it can tell."""
    made = masked[0].sealed
    moved = replace(made, task=9)
    signature = SIGNERS[0].sign(moved.said(RUN, PUBLIC))
    return asked([Masked(masked[0].vector, replace(moved, signature=signature)), *masked[1:]])


def low_order(masked: list[Masked]) -> bytes:
    """A client sends a public key of low order, with which every X25519 secret is 0."""
    made = replace(masked[0].sealed, ephemeral=bytes(32))
    signature = SIGNERS[0].sign(made.said(RUN, PUBLIC))
    return asked([Masked(masked[0].vector, replace(made, signature=signature)), *masked[1:]])


REFUSED: dict[str, tuple[Cheat, str]] = {
    # The server cheats.
    "no client": (lambda masked: asked([], []), "the weights add up to 0, they must add up to 16777216"),
    "few clients": (lambda m: asked(m[:2], whole_weights([1, 1])), "2 clients have a positive weight, .* at least 3"),
    "weight 0": (lambda m: asked(m, whole_weights([1, 1, 0])), "2 clients have a positive weight"),
    "one client twice": (
        lambda m: asked([m[0], *updates(1, 7), m[1]], EVEN),
        "2 clients have a positive weight",
    ),
    "above the bound": (
        lambda m: asked(m, whole_weights([0.61, 0.2, 0.19])),
        "one client holds 0.6100 of the weight, it may hold at most 0.6",
    ),
    "above the bound together": (
        lambda m: asked([*m, *updates(1, 7)], whole_weights([0.31, 0.3, 0.09, 0.3])),
        "one client holds 0.6100 of the weight",
    ),
    "negative": (lambda m: asked(m, [WHOLE, 1, -1]), "a weight is -1, it must be at least 0"),
    "too much": (lambda m: asked(m, [1 + EVEN[0], *EVEN[1:]]), "the weights add up to 16777217"),
    "overflow": (lambda m: asked([*m, *m], [2**63 - 1] * 2 + [2 + WHOLE, 0, 0, 0]), "the weights add up to 18446744"),
    "another run": (lambda m: asked(m, run="cifar"), "this keeper is for the run 'digits', not for 'cifar'"),
    "sealed for another run": (
        lambda m: asked([*updates(1, run="cifar"), *m[1:]]),
        "update 0 is not signed by its client for this run, task and version",
    ),
    "size": (lambda m: asked(m, size=SIZE + 1), "the model has 5 parameters, not 6"),
    "seed twice": (
        lambda m: asked([*m, m[2]], [EVEN[0], EVEN[1], 1, EVEN[2] - 1]),
        "the seed of update 3 was used before",
    ),
    "another version": (forged(version=9), "update 0 is not signed by its client"),
    "another client": (forged(client=CLIENTS[4]), "update 0 is not signed by its client"),
    "stranger": (stranger, "update 0 is from a client that is not on the list"),
    # A client cheats.
    "another box": (
        boxed_for_another_task,
        "the seal of update 0 does not open for this run, task, version and client",
    ),
    "low order": (low_order, "the seal of update 0 does not open"),
    # Not a request.
    "empty": (lambda m: b"", "the request has 0 bytes, it must have at least 21"),
    "cut": (lambda m: asked(m)[:-1], "the request has 626 bytes, 3 updates need 627"),
    "longer": (lambda m: asked(m) + b"!", "the request has 628 bytes"),
    "magic": (lambda m: b"x" + asked(m)[1:], "the request does not begin with 'fairlag1'"),
    "count": (lambda m: asked(m)[:16] + b"\xff" * 4 + asked(m)[20:], "4,294,967,295 updates, .* at most 65,536"),
    "no run": (lambda m: asked([], [], run=""), "the request names no run"),
    "not text": (lambda m: asked(m).replace(b"digits", b"digit\xff", 1), "the name of the run is not UTF-8"),
}
