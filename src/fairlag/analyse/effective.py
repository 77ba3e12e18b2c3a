"""The effective size of each aggregation: how many clients with equal weights would hide each other as well."""

from dataclasses import dataclass

import numpy as np

from fairlag.core.types import Floats, Integers
from fairlag.lab.folder import reading
from fairlag.lab.run import Run

_SIZES = """
WITH shares AS (
    SELECT aggregation, client, SUM(weight) AS weight FROM tasks WHERE aggregation IS NOT NULL
    GROUP BY aggregation, client
)
SELECT aggregation, COUNT(*), SUM(weight) * SUM(weight) / SUM(weight * weight)
FROM shares GROUP BY aggregation ORDER BY aggregation
"""


@dataclass(frozen=True, slots=True)
class EffectiveSizes:
    """Per aggregation, in order: its version, how many clients are in it, and its effective size."""

    version: Integers
    clients: Integers
    size: Floats
    """1/Σα², where α is a client's share of the weights: from 1, if one client has all of them, to the number of
    clients, if all have the same. NaN if the aggregation was refused or all weights are 0."""


def effective_sizes(run: Run) -> EffectiveSizes:
    """The effective size 1/Σ_i α_i² of each aggregation of a run.

    α_i is client i's share of the aggregation's weights, all its updates together.

    >>> import fairlag
    >>> run = fairlag.simulate(fairlag.load("demo").checked(aggregations=3), strategy="buffered_fedavg", workers=1)
    >>> sizes = effective_sizes(run)
    >>> sizes.version.tolist(), bool((sizes.size <= sizes.clients).all())
    ([1, 2, 3], True)
    """
    with reading(run.folder) as database:
        rows = database.execute(_SIZES).fetchall()
    version, clients, size = zip(*rows, strict=True) if rows else ((), (), ())
    return EffectiveSizes(np.array(version, np.int64), np.array(clients, np.int64), np.array(size, np.float64))
