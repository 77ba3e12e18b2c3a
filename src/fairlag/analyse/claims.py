"""What a strategy believes: which of the numbers that a client says of itself change how much it is heard."""

import numpy as np

from fairlag.core.server import Server
from fairlag.core.strategy import Strategy
from fairlag.core.types import Dispatch, Report, Update
from fairlag.core.vector import EMPTY
from fairlag.execute.nothing import Nothing
from fairlag.fleet.clients import Fleet, Group
from fairlag.fleet.delay import parse
from fairlag.runtime.virtual import run

CLAIMS = Report._fields
"""What a client says of itself."""

_HONEST = Report(examples=100, steps=10, effort=10.0, loss=1.0)
_LIES = {
    "examples": _HONEST._replace(examples=10**12),
    "steps": _HONEST._replace(steps=10**9),
    "effort": _HONEST._replace(effort=1e-9),
    "loss": _HONEST._replace(loss=1e9),
}
_VERSIONS = 120


class _Claiming(Nothing):
    """Computes nothing; the first client says something else of itself."""

    def __init__(self, said: Report) -> None:
        super().__init__()
        self._said = said

    def result(self, task: Dispatch) -> Update:
        return Update(EMPTY, _HONEST if task.client else self._said)


def believed(strategy: Strategy) -> tuple[str, ...]:
    """The claims that change who is heard how much, if nothing bounds them; found by trying each lie in a simulation.

    >>> from fairlag.zoo import fedavg, fednova, fedstaleweight
    >>> believed(fedstaleweight(buffer=3)), believed(fedavg(cohort=3)), believed(fednova(cohort=3))
    ((), ('examples',), ('examples', 'effort'))
    """
    truth = _heard(strategy, _HONEST)
    return tuple(name for name in CLAIMS if not np.allclose(_heard(strategy, _LIES[name]), truth, rtol=1e-6))


def _heard(strategy: Strategy, said: Report) -> list[float]:
    """The sum of all parts of each client, and of its updates, after a short run."""
    fleet = Fleet([Group("fast", 5, parse("uniform(1, 2)")), Group("slow", 3, parse("uniform(4, 6)"))], seed=0)
    server = Server(strategy, clients=fleet.clients, aggregations=_VERSIONS)
    run(server, fleet, _Claiming(said))
    return [*server.view.weight_sums.tolist(), *server.view.update_counts.tolist()]
