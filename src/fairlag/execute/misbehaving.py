"""What another executor computes is sent by honest clients; attackers send something else."""

from collections import deque
from collections.abc import Mapping
from threading import Lock

import numpy as np

from fairlag.core import seeds
from fairlag.core.state import State, take
from fairlag.core.types import Dispatch, Update
from fairlag.core.vector import Vector
from fairlag.execute import Learning
from fairlag.execute.sending import Sending
from fairlag.learn.behave import Behaviour, Known


class Misbehaving(Sending):
    """Trains by another executor, and replaces the updates of attackers when they are read.

    Updates are read in the order of their arrival, so in virtual time an attacker always knows the same. Reports, and
    a model's statistics, stay as they were trained.
    """

    def __init__(self, inner: Learning, attackers: Mapping[int, Behaviour], seed: int, parameters: int) -> None:
        """`attackers` are the clients that misbehave; of each update, the first `parameters` numbers are replaced."""
        super().__init__(inner, self._behaved)
        self._attackers = attackers
        self._key = seeds.key(seed, "behaviour")
        self._parameters = parameters
        self._honest: deque[Vector] = deque(maxlen=max((each.window for each in attackers.values()), default=0))
        """The last honest updates, the latest last."""
        self._received: dict[int, Vector] = {}
        """The parameters that attackers' tasks started from, by number of the task."""
        self._before: dict[int, Vector] = {}
        """The same by attacker, for its last task whose result was read."""
        self._lock = Lock()

    def submit(self, task: Dispatch, parameters: Vector, due: float) -> None:
        """Keeps the parameters if an attacker gets them."""
        if task.client in self._attackers:
            self._received[task.task] = parameters[: self._parameters]
        super().submit(task, parameters, due)

    def _behaved(self, update: Update, task: Dispatch) -> Update:
        with self._lock:
            behaviour = self._attackers.get(task.client)
            if behaviour is not None:
                return Update(self._attack(behaviour, task, update.delta), update.report)  # the server checks it again
            if self._honest.maxlen:
                self._honest.append(update.delta[: self._parameters].copy())
        return update

    def _attack(self, behaviour: Behaviour, task: Dispatch, delta: Vector) -> Vector:
        received, before = self._received.pop(task.task), self._before.get(task.client)
        key = seeds.subkey(seeds.subkey(self._key, task.client), task.ordinal)
        honest = list(self._honest)[-behaviour.window :] if behaviour.window else []
        sent = delta.copy()
        with np.errstate(over="ignore", invalid="ignore"):  # the server refuses what is not finite
            sent[: self._parameters] = behaviour.sent(Known(delta[: self._parameters], received, before, honest, key))
        if behaviour.remembers:
            self._before[task.client] = received
        sent.flags.writeable = False
        return sent

    def discard(self, number: int) -> None:
        """Forgets the task."""
        self._received.pop(number, None)
        super().discard(number)

    def state(self) -> State:
        """What attackers know, and the clients' memories."""
        clients = np.fromiter(self._before, np.int64, len(self._before))
        return {
            "inner": super().state(),
            "honest": np.array(self._honest, np.float32).reshape(-1, self._parameters),
            "clients": clients,
            "before": np.array(list(self._before.values()), np.float32).reshape(-1, self._parameters),
        }

    def restore(self, state: State) -> None:
        """Replaces what attackers know, and the clients' memories."""
        super().restore(take(state, "inner", dict))
        self._honest.clear()
        self._honest.extend(row.copy() for row in take(state, "honest", np.ndarray))
        clients, before = take(state, "clients", np.ndarray).tolist(), take(state, "before", np.ndarray)
        self._before = {client: row.copy() for client, row in zip(clients, before, strict=True)}
