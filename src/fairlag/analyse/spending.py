"""What the clients of a run have paid in privacy so far, from the weights that the run recorded."""

from dataclasses import dataclass
from math import inf
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairlag.analyse.effective import EffectiveSizes, effective_sizes
from fairlag.core.types import Floats, Integers
from fairlag.errors import InputError, UnreadableError
from fairlag.lab.folder import reading
from fairlag.lab.privacy import Privacy
from fairlag.lab.run import Run
from fairlag.privacy.accounting import allowance, epsilons, losses

_POINTS = 100
"""The most versions at which ε is computed."""
_ROOM = 2_000_000
"""The most numbers that are kept: one per client and point."""

_CLIENTS = """
SELECT clients.client, grp, AVG(ended - dispatched)
FROM clients LEFT JOIN tasks ON tasks.client = clients.client AND outcome = 'aggregated'
GROUP BY clients.client ORDER BY clients.client
"""
_SQUARES = """
WITH parts AS (
    SELECT aggregation, client, SUM(weight) AS weight FROM tasks WHERE aggregation IS NOT NULL
    GROUP BY aggregation, client
)
SELECT (aggregation - 1) * ?1 / ?2, client, SUM(weight * weight) FROM parts GROUP BY 1, 2
"""


@dataclass(frozen=True, slots=True)
class Spending:
    """The ε of every client over the versions of a run."""

    groups: tuple[str, ...]
    clients: Integers
    group_of: Integers
    """Per client: the place of its group."""
    duration: Floats
    """Per client: the mean duration of its merged tasks; NaN if there are none."""
    delta: float
    budget: float | None
    """The largest ε that a client may have, if there is one."""
    versions: Integers
    """The versions at which ε was computed, the newest last."""
    epsilon: Floats
    """One row per version, one column per client."""
    stopped: NDArray[np.bool_]
    """Per client: is its budget spent, so that it gets no more tasks?"""

    def of(self, group: int) -> Floats:
        """The ε of the clients of a group: one row per version."""
        return np.asarray(self.epsilon[:, self.group_of == group])

    @property
    def last(self) -> Floats:
        """Per client: its ε now."""
        return np.asarray(self.epsilon[-1])


class Private(NamedTuple):
    """How a run with `[privacy]` protects its clients."""

    table: Privacy
    sizes: EffectiveSizes
    paid: Spending | None
    """None without noise, or before the first version."""
    unknown: str = ""
    """Why what was paid cannot be computed, if so."""


def private(run: Run) -> Private | None:
    """How a run protects its clients; None if it adds no noise and its updates are not masked."""
    table = _table(run)
    if table is None or not (table.differential or table.secure):
        return None
    try:
        return Private(table, effective_sizes(run), spending(run))
    except UnreadableError:
        raise
    except InputError as error:  # a library is missing
        return Private(table, effective_sizes(run), None, str(error))


def _table(run: Run) -> Privacy | None:
    try:
        table = run.settings.get("privacy")
    except UnreadableError:  # then it is not known
        return None
    return None if table is None else Privacy.model_validate(table)


def spending(run: Run) -> Spending | None:
    """What the clients of a run with noise have paid; None without noise, or before the first version.

    >>> import fairlag
    >>> table = {"clip": 1.0, "noise": 2.0, "delta": 1e-5}
    >>> experiment = fairlag.load("demo").only(["buffered_fedavg"]).checked(aggregations=3, privacy=table)
    >>> found = spending(fairlag.simulate(experiment, workers=1))
    >>> found.versions.tolist(), [round(each, 3) for each in found.epsilon.max(axis=1).tolist()]
    ([1, 2, 3], [0.341, 0.341, 0.497])
    """
    privacy, largest = _table(run), run.largest_weight
    if privacy is None or privacy.noise is None or privacy.delta is None or largest is None or not run.version:
        return None
    newest = run.version
    with reading(run.folder) as database:
        clients, groups, durations = zip(*database.execute(_CLIENTS), strict=True)
        points = max(1, min(_POINTS, newest, _ROOM // len(clients)))
        rows = np.array(database.execute(_SQUARES, (points, newest)).fetchall(), np.float64).reshape(-1, 3)
    squares = np.zeros((points, len(clients)))
    places = np.searchsorted(np.array(clients), rows[:, 1])
    squares[rows[:, 0].astype(np.int64), places] = rows[:, 2]
    lost = losses(np.cumsum(squares, axis=0), noise=privacy.noise, bound=largest)
    # A client gets a task only if it could afford an update of the largest weight.
    next_one = float(losses(largest**2, noise=privacy.noise, bound=largest))
    allowed = inf if privacy.budget is None else allowance(privacy.budget, privacy.delta)
    return Spending(
        groups=tuple(run.groups),
        clients=np.array(clients, np.int64),
        group_of=np.array([run.groups.index(name) for name in groups], np.int64),
        duration=np.array(durations, np.float64),
        delta=privacy.delta,
        budget=privacy.budget,
        versions=-(-np.arange(1, points + 1) * newest // points),
        epsilon=epsilons(lost, privacy.delta),
        stopped=lost[-1] + next_one > allowed * (1 + 1e-9),
    )
