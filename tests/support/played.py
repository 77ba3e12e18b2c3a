"""A server, a small fleet and updates that are drawn instead of trained: what strategies make of them, to the byte."""

from collections.abc import Callable

import numpy as np

from fairlag.core.server import Server
from fairlag.core.state import State
from fairlag.core.strategy import Strategy
from fairlag.core.types import Dispatch, Report, Update
from fairlag.core.vector import Vector
from fairlag.core.view import Reference
from fairlag.fleet.clients import Fleet, Group
from fairlag.fleet.delay import parse
from fairlag.runtime.virtual import Simulation

SIZE = 6
CLIENTS = 7


class Drawn:
    """An executor whose updates are normal numbers, around 1, and depend on the client and the ordinal alone."""

    def __init__(self, factor: Callable[[int], float] = lambda client: 1.0) -> None:
        self._factor = factor
        self._more = 0

    def submit(self, task: Dispatch, parameters: Vector, due: float) -> None:
        self._more = parameters.size - SIZE  # a vector from the server, of which clients say nothing new here

    def result(self, task: Dispatch) -> Update:
        draws = np.random.default_rng((task.client, task.ordinal)).normal(1.0, 0.5, SIZE)
        sent = np.append(self._factor(task.client) * draws, np.zeros(self._more))
        return Update(sent.astype(np.float32), Report())

    def discard(self, number: int) -> None: ...

    def state(self) -> State:
        return {}

    def restore(self, state: State) -> None: ...


def played(
    strategy: Strategy,
    *,
    factor: Callable[[int], float] = lambda client: 1.0,
    versions: int = 40,
    halved: bool = False,
    reference: Reference | None = None,
) -> Server:
    """The server after this many versions, with five fast and two slow clients; `halved`: saved and restored midway."""

    def fresh() -> tuple[Server, Simulation]:
        groups = [Group("fast", 5, parse("uniform(1, 2)")), Group("slow", 2, parse("uniform(4, 6)"))]
        start = np.zeros(SIZE, np.float32)
        server = Server(strategy, clients=CLIENTS, parameters=start, aggregations=versions, reference=reference)
        return server, Simulation(server, Fleet(groups, seed=1), Drawn(factor))

    server, simulation = fresh()
    if halved:
        simulation.proceed(60)
        saved = simulation.state()
        server, simulation = fresh()
        simulation.restore(saved)
    simulation.to_the_end()
    return server


def outcome(server: Server) -> tuple[bytes, list[float], dict[str, int]]:
    """The last version, every client's sum of parts, and what was refused."""
    return server.versions.newest.tobytes(), server.view.weight_sums.tolist(), dict(server.refusals)
