"""Secure aggregation of a simulation: clients, keys and a keeper in this process, all of which follow from its seed.

Nothing is secret here: whoever knows the seed knows all keys. It computes the same sums as a real fleet would.
"""

from functools import cache
from hashlib import blake2b
from math import ceil

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from fairlag.core.secure import SecureSum
from fairlag.core.state import State
from fairlag.core.types import Dispatch, Floats
from fairlag.core.vector import Vector
from fairlag.errors import InputError
from fairlag.privacy.fixed import Words, quantise, whole_weights
from fairlag.privacy.secure.client import mask
from fairlag.privacy.secure.keeper import Keeper, Policy
from fairlag.privacy.secure.seal import Origin
from fairlag.privacy.secure.server import plain_mean
from fairlag.privacy.secure.sums import KeeperSum, row, scaled
from fairlag.privacy.secure.used import UsedInMemory

_ROOT = 4
"""How many words the root of a mask has."""


def least_clients(bound: float) -> int:
    """How many clients a sum has at least if none may hold more than this share of it.

    >>> least_clients(0.6), least_clients(0.2)
    (2, 5)
    """
    return max(2, ceil(round(1 / bound, 9)))


class SimulatedClients:
    """The clients' side of a simulated run, and the sum for its server.

    >>> clients = SimulatedClients(seed=0, size=3, bound=0.6)
    >>> clients.sent(np.ones(3, np.float32), Dispatch(task=0, client=0, version=0, ordinal=0, time=0.0)).shape
    (27,)
    """

    def __init__(self, *, seed: int, size: int, bound: float, masks: bool = True) -> None:
        """Without `masks`, updates are only quantised; sums are the same, bit for bit."""
        self._run, self._seed, self._masks = f"simulation {seed}", seed, masks
        self._signer = cache(lambda client: Ed25519PrivateKey.from_private_bytes(self._bytes("sign", client)))
        secret, used = self._bytes("blur"), UsedInMemory()
        key = X25519PrivateKey.from_private_bytes(self._bytes("keeper"))
        self._public = key.public_key().public_bytes_raw()
        self.sum: SecureSum = QuantisedSum(size, secret)
        """What adds up the updates of these clients."""
        if masks:
            policy = Policy(self._run, size, least_clients(bound), bound, _Everyone())
            self.sum = KeeperSum(self._run, size, Keeper(policy, key, used, secret).answer, used=used)

    def sent(self, update: Vector, task: Dispatch) -> Words:
        """The row that the client sends as the update of a task."""
        root = self._bytes("mask", task.client, task.ordinal)
        if not self._masks:
            return np.concatenate([quantise(update), np.frombuffer(root, np.uint64)])
        origin = Origin(self._run, task.task, task.version)
        return row(mask(update, origin, self._public, self._signer(task.client), root))

    def _bytes(self, *address: str | int) -> bytes:
        return blake2b(repr((self._seed, "secure", *address)).encode(), digest_size=32).digest()


class _Everyone:
    """The list of the clients of a simulation, in which all keys are of its clients."""

    def __contains__(self, key: object) -> bool:
        return True


class QuantisedSum:
    """Adds up quantised updates without masks, to the same bits as with masks: a `fairlag.core.secure.SecureSum`."""

    def __init__(self, size: int, secret: bytes) -> None:
        """`secret` is that of the keeper."""
        self.words = size + _ROOT
        self._secret = secret

    def objection(self, row: Words, task: Dispatch) -> str | None:
        """None: there is no seal."""
        return None

    def summed(self, tasks: object, rows: Words, weights: Floats) -> tuple[Vector, Floats] | str:
        """The step and the weights; or why there is no step."""
        try:
            whole = whole_weights(weights.tolist())
        except InputError as reason:
            return str(reason)
        roots = [each.tobytes() for each in rows[:, -_ROOT:]]
        mean = plain_mean(list(rows[:, :-_ROOT]), whole, roots, self._secret)
        return scaled(mean, weights), weights

    def state(self) -> State:
        """Nothing to remember."""
        return {}

    def restore(self, state: State) -> None:
        """Nothing to remember."""
