"""A reduction that keeps the last models that arrived, whoever sent them (FedFa)."""

from collections import Counter, deque

import numpy as np

from fairlag.core.buffer import Buffer
from fairlag.core.state import State, take
from fairlag.core.types import Floats, Parts
from fairlag.core.vector import Matrix, Vector
from fairlag.core.view import View
from fairlag.rules import check
from fairlag.rules.keep import Keeping
from fairlag.rules.rule import with_provenance


def last_models(k: int) -> Keeping:
    """The next version is the mean of the last k models that arrived, of all of them while there are fewer.

    >>> last_models(5).label
    'last_models(5)'
    """
    check.whole("the number of models that are averaged", k, 1)
    start = with_provenance(lambda view: _LastModels(view, k), last_models, k=k)
    return Keeping(f"last_models({k})", start, mixes_statistics=True, per_client=False)


class _LastModels:
    def __init__(self, view: View, k: int) -> None:
        self._view = view
        self._senders: deque[int] = deque(maxlen=k)
        self._models: deque[Vector] = deque(maxlen=k)

    def parts(self, weights: Floats, buffer: Buffer) -> Parts:
        changes = Counter(dict.fromkeys(self._senders, 0))
        changes.subtract(self._senders)
        self._senders.extend(buffer.clients.tolist())
        changes.update(self._senders)
        changed = {client: count for client, count in changes.items() if count}
        clients = np.fromiter(changed, np.int64, len(changed))
        return Parts(clients, np.fromiter(changed.values(), np.float64, len(changed)), 1 / len(self._senders))

    def reduce(self, weights: Floats, updates: Matrix, buffer: Buffer) -> Vector:
        view = self._view
        self._models.extend(
            view.parameters(task.version) + row for task, row in zip(buffer.tasks, updates, strict=True)
        )
        # In double precision, so that the mean of equal models is that model.
        mean: Vector = np.array(self._models).mean(axis=0, dtype=np.float64).astype(np.float32)
        return mean - view.parameters(view.version)

    def state(self) -> State:
        size = self._view.parameters(self._view.version).size
        return {
            "senders": np.array(self._senders, np.int64),
            "models": np.array(self._models, np.float32).reshape(len(self._models), size),
        }

    def restore(self, state: State) -> None:
        self._senders.clear()
        self._senders.extend(take(state, "senders", np.ndarray).tolist())
        self._models.clear()
        self._models.extend(row.copy() for row in take(state, "models", np.ndarray))
