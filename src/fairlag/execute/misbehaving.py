"""An executor around another one: what it computes is sent by honest clients, attackers send something else."""

from collections import deque
from collections.abc import Mapping
from threading import Lock

import numpy as np

from fairlag.core import seeds
from fairlag.core.state import State, take
from fairlag.core.types import Dispatch, Update
from fairlag.core.vector import Vector
from fairlag.execute import Learning
from fairlag.learn.behave import Behaviour, Known
from fairlag.learn.evaluation import Asked, Found
from fairlag.learn.learner import Learner, Placement
from fairlag.rules.local import Local


class Misbehaving:
    """Trains by another executor, and replaces the updates of attackers when they are read.

    Updates are read in the order of their arrival, so in virtual time an attacker always knows the same. Reports, and
    a model's statistics, stay as they were trained.
    """

    def __init__(self, inner: Learning, attackers: Mapping[int, Behaviour], seed: int, parameters: int) -> None:
        """`attackers` are the clients that misbehave; of each update, the first `parameters` numbers are replaced."""
        self.inner = inner
        """The executor that trains."""
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

    @property
    def learner(self) -> Learner | None:
        """None: compiled loops would not replace anything."""
        return None

    def begin(self, seed: int, placement: Placement, local: Local) -> None:
        """Starts a new run in the executor inside."""
        self.inner.begin(seed, placement, local)

    def warm_up(self) -> None:
        """Starts the workers."""
        self.inner.warm_up()

    def submit(self, task: Dispatch, parameters: Vector, due: float) -> None:
        """Keeps the parameters if an attacker gets them."""
        if task.client in self._attackers:
            self._received[task.task] = parameters[: self._parameters]
        self.inner.submit(task, parameters, due)

    def result(self, task: Dispatch) -> Update:
        """The update that the client sends."""
        update = self.inner.result(task)
        with self._lock:
            behaviour = self._attackers.get(task.client)
            if behaviour is not None:
                return Update(self._sent(behaviour, task, update.delta), update.report)  # the server checks it again
            if self._honest.maxlen:
                self._honest.append(update.delta[: self._parameters].copy())
        return update

    def _sent(self, behaviour: Behaviour, task: Dispatch, delta: Vector) -> Vector:
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
        self.inner.discard(number)

    def evaluate(self, version: int, parameters: Vector, due: float, asked: Asked) -> None:
        """Requests an evaluation."""
        self.inner.evaluate(version, parameters, due, asked)

    def evaluated(self, patience: float = 0.0) -> list[tuple[int, Found]]:
        """The finished evaluations."""
        return self.inner.evaluated(patience)

    def state(self) -> State:
        """What attackers know, and the clients' memories."""
        clients = np.fromiter(self._before, np.int64, len(self._before))
        return {
            "inner": self.inner.state(),
            "honest": np.array(self._honest, np.float32).reshape(-1, self._parameters),
            "clients": clients,
            "before": np.array(list(self._before.values()), np.float32).reshape(-1, self._parameters),
        }

    def restore(self, state: State) -> None:
        """Replaces what attackers know, and the clients' memories."""
        self.inner.restore(take(state, "inner", dict))
        self._honest.clear()
        self._honest.extend(row.copy() for row in take(state, "honest", np.ndarray))
        clients, before = take(state, "clients", np.ndarray).tolist(), take(state, "before", np.ndarray)
        self._before = {client: row.copy() for client, row in zip(clients, before, strict=True)}

    def close(self) -> None:
        """Ends the workers."""
        self.inner.close()
