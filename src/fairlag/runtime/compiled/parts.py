"""Clients' parts of versions if a reduction keeps updates, compiled; the reductions and ledger.py are the reference."""

from typing import Any

import numpy as np

from fairlag.core.types import Floats, Integers
from fairlag.jit import compiled, make_ready
from fairlag.rules.keep import replacing
from fairlag.rules.recent import last_models
from fairlag.rules.rule import Provenance

CLIENT = np.dtype([(name, np.float64) for name in ("units", "part", "weight", "heard")] + [("changed", np.int64)])
"""The part of a client that a reduction asks for, in units; its part and its weight as in the ledger; whether one of
its updates was merged; and the version with which its part last changed."""
TOTALS = np.dtype([("acted", np.float64), ("version", np.int64), ("sent", np.int64)])
"""What a unit is worth in all versions together, the number of versions, and of updates."""


class StandingParts:
    """The sums of clients' parts of all versions, as a reduction made in this way reports them.

    >>> from fairlag.rules.replay import replaying
    >>> parts = StandingParts(Provenance(replaying, {"beta": 1.0}), clients=2)
    >>> parts.merge(np.array([[0], [0], [1]]), np.ones((3, 1)))
    >>> parts.weights.tolist()  # 1 + 1/2 + 1/2, and 1
    [2.0, 1.0]
    """

    def __init__(self, made: Provenance, clients: int) -> None:
        """`made` is how the reduction was made: by `replacing`, `replaying` or `last_models`."""
        self._made = made
        self._totals, self._clients = np.zeros(1, TOTALS), np.zeros(clients, CLIENT)
        self._before = np.empty(0, np.int64)
        """The senders of the last version."""
        self._window = np.empty(made.arguments.get("k", 0), np.int64)
        """The senders of the last models."""
        nobody = np.empty((0, 1), np.int64), np.empty((0, 1))
        make_ready(*self._call(*nobody))

    def merge(self, senders: Integers, weights: Floats) -> None:
        """Takes consecutive versions, one row each, with the senders and the weights of their updates."""
        function, *arguments = self._call(senders, weights)
        function(*arguments)
        self._before = senders[-1].copy()

    def _call(self, senders: Integers, weights: Floats) -> tuple[Any, ...]:
        """The compiled function for this reduction, and its arguments."""
        common = self._totals, self._clients, senders
        if self._made.make is replacing:
            return _replacing, *common, weights
        if self._made.make is last_models:
            return _last_models, *common, self._window, np.empty(senders.shape[1], np.int64)
        return _replaying, *common, weights, self._before, np.float64(self._made.arguments["beta"])

    @property
    def weights(self) -> Floats:
        """Per client: the sum of its parts of all versions, like `View.weight_sums`."""
        weights: Floats = self._clients["weight"] + self._clients["part"] * self._totals["acted"]
        return weights


@compiled
def _stand(totals: Any, clients: Any, senders: Integers) -> None:
    """Changes the parts of these clients as `Ledger.stand` does, once per version."""
    for sender in senders:
        client = clients[sender]
        if client.changed <= totals.version:
            client.changed = totals.version + 1
            change = client.units - client.part
            client.weight -= change * totals.acted
            client.part += change


@compiled
def _renew(totals: Any, unit: float) -> None:
    totals.acted += unit
    totals.version += 1


@compiled
def _replacing(totals: Any, clients: Any, senders: Integers, weights: Floats) -> None:
    for version in range(len(senders)):
        for place in range(senders.shape[1] - 1, -1, -1):  # from the last: if a client sent several, the first counts
            client = clients[senders[version, place]]
            if not client.part:
                client.units = weights[version, place]
        _stand(totals[0], clients, senders[version])
        _renew(totals[0], 1.0)


@compiled
def _replaying(totals: Any, clients: Any, senders: Integers, weights: Floats, before: Integers, beta: float) -> None:
    n = len(clients)
    for version in range(len(senders)):
        last = senders[version - 1] if version else before
        for sender in last:
            clients[sender].units = beta
        for place in range(senders.shape[1]):
            client = clients[senders[version, place]]
            client.units += weights[version, place] * n * (1 - beta * client.heard)
        _stand(totals[0], clients, last)
        _stand(totals[0], clients, senders[version])
        for sender in senders[version]:
            clients[sender].heard = 1.0
        _renew(totals[0], 1 / n)


@compiled
def _last_models(totals: Any, clients: Any, senders: Integers, window: Integers, left: Integers) -> None:
    """`left` is memory for the clients whose models leave the mean."""
    k = len(window)
    for version in range(len(senders)):
        leaving = 0
        for sender in senders[version]:
            place = totals[0].sent % k
            if totals[0].sent >= k:
                left[leaving] = window[place]
                clients[window[place]].units -= 1
                leaving += 1
            window[place] = sender
            clients[sender].units += 1
            totals[0].sent += 1
        _stand(totals[0], clients, left[:leaving])
        _stand(totals[0], clients, senders[version])
        _renew(totals[0], 1 / min(totals[0].sent, k))
