"""A server driven by hand, one method per event, and the contents of its commands."""

from collections.abc import Sequence

import numpy as np

from fairlag.core.mechanism import Mechanism
from fairlag.core.server import Server
from fairlag.core.strategy import Strategy
from fairlag.core.types import (
    Aggregation,
    Arrived,
    Cancel,
    Command,
    Dispatch,
    Ended,
    Event,
    Failed,
    Joined,
    Left,
    Report,
    Row,
    Update,
    Wake,
    Woke,
)
from fairlag.core.vector import EMPTY, Layout, Vector


def vec(*values: float) -> Vector:
    """A float32 vector."""
    return np.array(values, np.float32)


def handed(commands: Sequence[Command]) -> list[tuple[int, int]]:
    """The (client, version) of every Dispatch."""
    return [(command.client, command.version) for command in commands if isinstance(command, Dispatch)]


def wakes(commands: Sequence[Command]) -> list[float]:
    """The time of every Wake."""
    return [command.time for command in commands if isinstance(command, Wake)]


def cancelled(commands: Sequence[Command]) -> list[int]:
    """The task of every Cancel."""
    return [command.task for command in commands if isinstance(command, Cancel)]


class Scene:
    """A server driven by hand, one method per event; `at` is its time, by default one second after the last event."""

    def __init__(
        self,
        strategy: Strategy,
        clients: int,
        *,
        parameters: Vector = EMPTY,
        layout: Layout | None = None,
        join: bool = True,
        aggregations: int | None = None,
        until_time: float | None = None,
        seed: int = 0,
        examples: Sequence[int] | None = None,
        privacy: Mechanism | None = None,
    ) -> None:
        self.records: list[Row] = []
        self.server = Server(
            strategy,
            clients=clients,
            parameters=parameters,
            layout=layout,
            aggregations=aggregations,
            until_time=until_time,
            seed=seed,
            examples=None if examples is None else np.array(examples),
            privacy=privacy,
            record=self.records.append,
        )
        self.time = -1.0
        self.tasks: dict[int, Dispatch] = {}
        """The last task of each client."""
        self.first = self.join(*range(clients), at=0.0) if join else []

    def send(self, event: Event) -> list[Command]:
        self.time = event.time
        commands = self.server.handle(event)
        self.tasks |= {command.client: command for command in commands if isinstance(command, Dispatch)}
        return commands

    def _at(self, at: float | None) -> float:
        return self.time + 1 if at is None else at

    def join(self, *clients: int, at: float | None = None) -> list[Command]:
        return self.send(Joined(self._at(at), clients))

    def leave(self, client: int, at: float | None = None) -> list[Command]:
        return self.send(Left(self._at(at), client))

    def arrive(
        self,
        client: int,
        *delta: float,
        examples: int = 1,
        steps: int = 1,
        effort: float = 1.0,
        loss: float = 0.0,
        at: float | None = None,
    ) -> list[Command]:
        """The update of the client's last task arrives; by default, it is the client's own unit vector."""
        size = self.server.versions.newest.size
        values = vec(*delta) if delta else np.eye(size, dtype=np.float32)[client] if size else EMPTY
        if self.server.strategy.local.shares and len(values) < size:  # what the client shares has not changed
            values = np.concatenate([values, np.zeros(size - len(values), np.float32)])
        update = Update(values, Report(examples, steps, effort, loss))
        return self.send(Arrived(self._at(at), self.tasks[client].task, update))

    def fail(self, client: int, reason: str = "out of memory", at: float | None = None) -> list[Command]:
        return self.send(Failed(self._at(at), self.tasks[client].task, reason))

    def wake(self, at: float) -> list[Command]:
        return self.send(Woke(at))

    @property
    def merged(self) -> list[Aggregation]:
        return [record for record in self.records if isinstance(record, Aggregation)]

    @property
    def ended(self) -> list[Ended]:
        return [record for record in self.records if isinstance(record, Ended)]

    @property
    def weights(self) -> list[list[float]]:
        """The weights of every aggregation so far."""
        return [record.weights.tolist() for record in self.merged]

    @property
    def parameters(self) -> list[float]:
        values: list[float] = self.server.versions.newest.tolist()
        return values[: len(values) // 2] if self.server.strategy.local.shares else values


def one_late(strategy: Strategy) -> Scene:
    """Three clients, a buffer of two, an event every second; client 2 is late.

    version  time  merged (client, trained from, staleness)
    1        2     (0, 0, 0), (1, 0, 0)
    2        4     (0, 1, 0), (1, 1, 0)
    3        6     (2, 0, 2), (0, 2, 0)
    4        8     (2, 2, 1), (1, 2, 1)
    5        10    (2, 3, 1), (0, 3, 1)

    Client i always sends the unit vector i, so the parameters are the total weight of each client.
    """
    scene = Scene(strategy, 3, parameters=vec(0, 0, 0))
    for client in (0, 1, 0, 1, 2, 0, 2, 1, 2, 0):
        scene.arrive(client)
    return scene
