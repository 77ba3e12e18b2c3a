"""The mask keeper: opens sealed seeds, and answers with the weighted sum of their keystreams, or refuses and says why.

Each seed is used once, so each update is in at most one answered sum. Sums of disjoint sets of independent masks
cannot be subtracted from each other: what the server learns of an update is one blurred weighted mean that contains it.
"""

from collections import Counter
from collections.abc import Container, Sequence
from dataclasses import dataclass
from threading import Lock

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from fairlag.errors import InputError, RefusedError
from fairlag.privacy.fixed import WHOLE
from fairlag.privacy.secure.seal import Origin, Sealed, opened
from fairlag.privacy.secure.stream import add_blur, add_keystreams
from fairlag.privacy.secure.used import Used, mark
from fairlag.privacy.secure.wire import Request, Terms, answer, refusal


@dataclass(frozen=True, slots=True)
class Policy(Terms):
    """What the keeper accepts: the run, the number of parameters, and who must be in a sum with which weight.

    `least` distinct clients of `clients` (Ed25519 public keys) must have a positive weight in a sum, and none may hold
    more than the share `bound` of all weight. Rounding to whole weights may add less than 2^−24 per update to a share.

    >>> Policy("digits", size=650, least=1, bound=0.6, clients=frozenset())
    Traceback (most recent call last):
    ...
    fairlag.errors.InputError: the least number of clients is 1, it must be at least 2
    """

    clients: Container[bytes]

    def __post_init__(self) -> None:
        Origin(self.run, task=0, version=0)  # checks the name
        if self.size < 1:
            raise InputError(f"the number of parameters is {self.size}, it must be at least 1")
        if self.least < 2:
            raise InputError(f"the least number of clients is {self.least}, it must be at least 2")
        if not 1 / self.least <= self.bound < 1:
            raise InputError(
                f"the bound on a client's share is {self.bound}, with at least {self.least} clients it must be at "
                f"least {1 / self.least:.3g} and below 1"
            )


class Keeper:
    """Answers requests under a policy. Refusing uses up no seed; answering uses up all seeds of the request first.

    `secret` is 32 random bytes that only the keeper knows, from which the blur of its answers follows.
    """

    def __init__(self, policy: Policy, key: X25519PrivateKey, used: Used, secret: bytes) -> None:
        self.policy = policy
        self.used = used
        self._key, self._secret = key, secret
        self._public = key.public_key().public_bytes_raw()
        self._lock = Lock()

    def answer(self, request: bytes) -> bytes:
        """The reply to a request: the blurred sum of the masks, or a refusal (see `wire.read_reply`)."""
        try:
            asked = self._read(request)
            seeds = [self._opened(asked, place) for place in range(len(asked.sealed))]
            with self._lock:
                self._use(seeds)
        except RefusedError as reason:
            return refusal(str(reason), reason.update)
        total = np.zeros(asked.size, "<u8")
        add_keystreams(total, seeds, asked.weights)
        add_blur(total, self._secret, seeds, asked.weights)
        return answer(total.data.cast("B"))

    def _read(self, data: bytes) -> Request:
        """The request, if everything that can be checked without opening a seal is right."""
        try:
            asked = Request.read(data)
        except ValueError as reason:
            raise RefusedError(str(reason)) from None
        policy = self.policy
        if asked.run != policy.run:
            raise RefusedError(f"this keeper is for the run {policy.run!r}, not for {asked.run!r}")
        if asked.size != policy.size:
            raise RefusedError(f"the model has {policy.size:,} parameters, not {asked.size:,}")
        self._check_weights(asked.sealed, asked.weights)
        for place, sealed in enumerate(asked.sealed):
            if sealed.client not in policy.clients:
                raise RefusedError(f"update {place} is from a client that is not on the list", place)
            if not sealed.is_signed(policy.run, self._public):
                raise RefusedError(f"update {place} is not signed by its client for this run, task and version", place)
        return asked

    def _check_weights(self, sealed: Sequence[Sealed], weights: Sequence[int]) -> None:
        if negative := [weight for weight in weights if weight < 0]:
            raise RefusedError(f"a weight is {negative[0]}, it must be at least 0")
        if sum(weights) != WHOLE:
            raise RefusedError(f"the weights add up to {sum(weights)}, they must add up to {WHOLE}")
        held, updates = Counter[bytes](), Counter[bytes]()
        for each, weight in zip(sealed, weights, strict=True):
            if weight:
                held[each.client] += weight
                updates[each.client] += 1
        if len(held) < self.policy.least:
            raise RefusedError(
                f"{len(held)} clients have a positive weight, there must be at least {self.policy.least}"
            )
        for client, weight in held.items():
            if weight >= self.policy.bound * WHOLE + updates[client]:
                raise RefusedError(
                    f"one client holds {weight / WHOLE:.4f} of the weight, it may hold at most {self.policy.bound}"
                )

    def _opened(self, asked: Request, place: int) -> bytes:
        seed = opened(asked.sealed[place], asked.run, self._key)
        if seed is None:
            raise RefusedError(
                f"the seal of update {place} does not open for this run, task, version and client", place
            )
        return seed

    def _use(self, seeds: Sequence[bytes]) -> None:
        marks = [mark(seed) for seed in seeds]
        seen = self.used.known(marks)
        for place, each in enumerate(marks):
            if each in seen:
                raise RefusedError(f"the seed of update {place} was used before", place)
            seen.add(each)
        self.used.add(marks)
