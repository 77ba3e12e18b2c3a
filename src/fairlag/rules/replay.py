"""A reduction with a memory of clients' last updates, which act again in every version until they are replaced."""

import numpy as np

from fairlag.core.buffer import Buffer
from fairlag.core.rows import Rows
from fairlag.core.state import State, copy_into, take
from fairlag.core.types import Floats, Parts
from fairlag.core.vector import Matrix, Vector
from fairlag.core.view import View
from fairlag.rules import check
from fairlag.rules.keep import Keeping
from fairlag.rules.reduce import weighted_sum
from fairlag.rules.rule import with_provenance


def replaying(beta: float = 1.0) -> Keeping:
    """Each client's last update h_i acts until its next one: Σ_j α_j (Δ_j − β h_i) + β/n Σ_i h_i; then h_i ← Δ_j.

    h_i is 0 before a client's first update. The step takes the values of h before this buffer; if a client has several
    updates in it, the last one is kept. With β = 0 it is the weighted sum.

    >>> replaying(0.5).label
    'replaying(0.5)'
    """
    check.share("beta", beta)
    start = with_provenance(lambda view: _Replaying(view, beta), replaying, beta=beta)
    return Keeping(f"replaying({beta})", start, mixes_statistics=True, of_step=True)


class _Replaying:
    def __init__(self, view: View, beta: float) -> None:
        self._view, self._beta = view, beta
        size = view.parameters(view.version).size
        self._last = Rows(size, clients=len(view.update_counts), what="the last update")
        self._sum: Floats = np.zeros(size)
        """Σ_i h_i in double precision: adding up the updates of all clients in every version would take too long."""
        self._heard: set[int] = set()
        """The clients that have an h_i, also for a model without parameters."""
        self._senders: list[int] = []
        """The clients of the last version: what their updates were of it beyond h_i ends with it."""

    def parts(self, weights: Floats, buffer: Buffer) -> Parts:
        # A unit is 1/n, the part of a remembered update if β = 1: when a client joins, no part of others changes.
        n, beta, heard = self._view.n, self._beta, self._heard
        units = {client: beta * (client in heard) for client in self._senders}
        for client, weight in zip(buffer.clients.tolist(), weights.tolist(), strict=True):
            rest = beta * (client in heard)
            units[client] = units.get(client, rest) + weight * n * (1 - rest)
        self._senders = list(dict.fromkeys(buffer.clients.tolist()))
        heard.update(self._senders)
        clients = np.fromiter(units, np.int64, len(units))
        changes = np.fromiter(units.values(), np.float64, len(units)) - self._view.parts[clients]
        changed = changes != 0
        return Parts(clients[changed], changes[changed], 1 / n)

    def reduce(self, weights: Floats, updates: Matrix, buffer: Buffer) -> Vector:
        step = weighted_sum(weights, updates)
        if not self._beta:
            return step
        senders = buffer.clients.tolist()
        replayed = self._replayed(weights, senders)
        for client, update in zip(senders, updates, strict=True):
            before = self._last.of(client)
            if before is not None:
                self._sum -= before
            self._sum += update
            self._last.keep(client, update)
        return step if replayed is None else (step + replayed).astype(np.float32)

    def _replayed(self, weights: Floats, senders: list[int]) -> Floats | None:
        """β Σ_i (1/n − Σ_j α_j) h_i, the inner sum over i's updates in the buffer; None if every factor is 0.

        So that nothing is rounded if everyone is in the buffer once, those who are not in it are added up separately.
        """
        factors = {client: 1 / self._view.n for client in senders if self._last.of(client) is not None}
        for client, weight in zip(senders, weights.tolist(), strict=True):
            if client in factors:
                factors[client] -= weight
        others = self._sum.copy() if len(self._last) > len(factors) else None
        found = None if others is None else np.zeros_like(others)
        for client, factor in factors.items():
            mine = self._last.of(client)
            assert mine is not None
            if others is not None:
                others -= mine
            if factor:
                part = np.multiply(mine, factor, dtype=np.float64)
                found = part if found is None else found + part
        if found is None:
            return None
        return self._beta * (found if others is None else found + others / self._view.n)

    def state(self) -> State:
        return {
            **self._last.state(),
            "sum": self._sum.copy(),
            "heard": np.array(sorted(self._heard), np.int64),
            "senders": np.array(self._senders, np.int64),
        }

    def restore(self, state: State) -> None:
        self._last.restore(state)
        copy_into(self._sum, state, "sum")
        self._heard = set(take(state, "heard", np.ndarray).tolist())
        self._senders = take(state, "senders", np.ndarray).tolist()
