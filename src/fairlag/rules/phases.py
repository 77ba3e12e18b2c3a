"""Rounds in two phases: everyone contributes, then each client makes one version (Ringleader)."""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from fairlag.core.buffer import Buffer
from fairlag.core.rows import Rows
from fairlag.core.state import State, copy_into, take
from fairlag.core.types import Dispatch, Floats, Parts
from fairlag.core.vector import Matrix, Vector
from fairlag.core.view import View
from fairlag.rules.keep import Keeping
from fairlag.rules.select import AllIdle, Select


def phases() -> Select:
    """All clients train all the time. A round waits until every present client has contributed, then serves each once.

    The whole buffer makes the first version of a round. After that, the next update of each client that has not been
    served makes a version; the client that completed the buffer is served by it. Updates of clients that were
    served stay in the buffer for the next round, as do those of clients that joined since.

    >>> phases().label
    'phases()'
    """
    return Select("phases()", lambda view, stream: _Phases(view), holds=True, awaits=True)


def client_means() -> Keeping:
    """The mean of the clients' means: (1/m) Σ_i (1/B_i) Σ Δ over all updates of a round, from m clients.

    A version adds its updates to those of its round; a new round begins with none.

    >>> client_means().label
    'client_means()'
    """
    return Keeping("client_means()", _ClientMeans, mixes_statistics=True, of_step=True)


class _Phases(AllIdle):
    def __init__(self, view: View) -> None:
        super().__init__(fresh=False)
        self._view = view
        self._unserved: set[int] = set()
        """The clients whose next update makes a version of this round; empty in the first phase."""
        self._last = -1
        """The sender of the newest update since the last version."""

    def free(self, client: int, current: bool, pending: bool) -> None:
        super().free(client, current, pending)
        if pending:
            self._last = client
        self._aim()

    def gone(self, client: int) -> None:
        super().gone(client)
        self.lost(client)

    def lost(self, client: int) -> None:
        self._unserved.discard(client)
        self._aim()

    def draft(self, tasks: Sequence[Dispatch]) -> Sequence[bool]:
        senders = [task.client for task in tasks]
        counts = [client in self._unserved for client in senders]
        if any(counts):
            self._unserved.difference_update(senders)
            return counts
        self.number += 1
        self._unserved = {client for client in senders if client != senders[-1] and self._view.is_present(client)}
        return [True] * len(senders)

    def renew(self) -> Mapping[int, str]:
        self._last = -1
        self._aim()
        return super().renew()

    def _aim(self) -> None:
        view = self._view
        missing = self._last not in self._unserved if self._unserved else view.awaited
        self.target = view.buffered + missing

    def state(self) -> State:
        return {
            **super().state(),
            "unserved": np.array(sorted(self._unserved), np.int64),
            "last": self._last,
            "number": self.number,
            "target": self.target,
        }

    def restore(self, state: State) -> None:
        super().restore(state)
        self._unserved = set(take(state, "unserved", np.ndarray).tolist())
        self._last, self.number = take(state, "last", int), take(state, "number", int)
        self.target = take(state, "target", int)


class _ClientMeans:
    def __init__(self, view: View) -> None:
        self._view = view
        self._round = 0
        self._counts: Counter[int] = Counter()
        """Per client of the round: how many updates it sent."""
        self._total = np.zeros(view.parameters(view.version).size)
        """The sum of the clients' means, in double precision, because each version only adds to it."""
        self._sums = self._none()
        """Per client of the round: the sum of its updates."""

    def _none(self) -> Rows:
        return Rows(self._total.size, clients=len(self._view.update_counts), what="the sum of the updates")

    def parts(self, weights: Floats, buffer: Buffer) -> Parts:
        before = set(self._counts)
        if self._view.round != self._round:
            self._round = self._view.round
            self._counts.clear()
            self._sums = self._none()
            self._total[:] = 0
        self._counts.update(buffer.clients.tolist())
        after = set(self._counts)
        changes = dict.fromkeys(sorted(before - after), -1.0) | dict.fromkeys(sorted(after - before), 1.0)
        clients = np.fromiter(changes, np.int64, len(changes))
        return Parts(clients, np.fromiter(changes.values(), np.float64, len(changes)), 1 / len(after))

    def reduce(self, weights: Floats, updates: Matrix, buffer: Buffer) -> Vector:
        new = Counter(buffer.clients.tolist())
        for client, count in new.items():
            if (sent := self._sums.of(client)) is not None:
                self._total -= sent / (self._counts[client] - count)
        for client, update in zip(buffer.clients.tolist(), updates, strict=True):
            sent = self._sums.of(client)
            self._sums.keep(client, update if sent is None else sent + update)
        for client in new:
            if (sent := self._sums.of(client)) is not None:  # all have one now
                self._total += sent / self._counts[client]
        step: Vector = (self._total / len(self._counts)).astype(np.float32)
        return step

    def state(self) -> State:
        return {
            "round": self._round,
            "clients": np.fromiter(self._counts, np.int64, len(self._counts)),
            "counts": np.fromiter(self._counts.values(), np.int64, len(self._counts)),
            "sums": self._sums.state(),
            "total": self._total.copy(),
        }

    def restore(self, state: State) -> None:
        self._round = take(state, "round", int)
        clients = take(state, "clients", np.ndarray).tolist()
        self._counts = Counter(dict(zip(clients, take(state, "counts", np.ndarray).tolist(), strict=True)))
        self._sums.restore(take(state, "sums", dict))
        copy_into(self._total, state, "total")
