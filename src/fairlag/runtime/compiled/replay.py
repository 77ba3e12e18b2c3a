"""Clients' parts of versions if every client's last update acts again in each, as `replaying(1.0)` reports them."""

import numpy as np

from fairlag.core.ledger import Ledger
from fairlag.core.types import Floats, Integers, Parts


class Replay:
    """Only a client's first update changes its part, so only versions with such updates are looked at one by one.

    >>> replay = Replay(2)
    >>> replay.merge(np.array([[0], [0], [1]]), np.ones((3, 1)))
    >>> replay.weights.tolist()  # 1 + 1/2 + 1/2, and 1
    [2.0, 1.0]
    """

    def __init__(self, clients: int) -> None:
        self._ledger = Ledger(clients=clients)
        self._heard = np.zeros(clients, np.bool_)
        self._before: list[int] = []
        """The clients whose first update was in the last version: from now on, their part is one unit, 1/n."""

    def merge(self, senders: Integers, weights: Floats) -> None:
        """Takes consecutive versions, one row each, with the senders and the weights of their updates."""
        if not self._before and self._heard.all():
            worth = np.full(len(senders) + 1, 1 / len(self._heard))
            worth[0] = self._ledger.acted
            self._ledger.acted = float(np.add.accumulate(worth)[-1])  # one after the other, as the ledger adds them
            return
        for clients, given, new in zip(senders, weights, ~self._heard[senders], strict=True):
            self._next(clients[new], given[new])

    def _next(self, clients: Integers, weights: Floats) -> None:
        ledger, n = self._ledger, len(self._heard)
        units = dict.fromkeys(self._before, 1.0)
        for client, weight in zip(clients.tolist(), weights.tolist(), strict=True):
            if not self._heard[client]:
                units[client] = units.get(client, 0.0) + weight * n
        self._before = [client for client in units if not self._heard[client]]
        self._heard[self._before] = True
        changed = np.fromiter(units, np.int64, len(units))
        changes = np.fromiter(units.values(), np.float64, len(units)) - ledger.reals["part"][changed]
        ledger.stand(Parts(changed, changes, 1 / n))

    @property
    def weights(self) -> Floats:
        """Per client: the sum of its parts of all versions, like `View.weight_sums`."""
        return self._ledger.weights()[: len(self._heard)]
