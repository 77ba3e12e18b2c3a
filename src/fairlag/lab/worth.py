"""Which runs compiled loops are worth: decided by the experiment alone, so that whoever goes on with a run agrees."""

from math import inf

import numpy as np

from fairlag.lab.experiment import Experiment
from fairlag.strategy import Strategy
from fairlag.types import Floats

_WORTH = 20_000
"""From so many updates on, training by compiled loops makes up for the second that it takes to load them."""


def is_long(experiment: Experiment, strategy: Strategy) -> bool:
    """Is a run of this strategy long enough?

    >>> from fairlag.lab.experiment import load
    >>> from fairlag.zoo import fedstaleweight
    >>> [is_long(load("demo").checked(aggregations=count), fedstaleweight(buffer=5)) for count in (3999, 4000)]
    [False, True]
    """
    return expected_updates(experiment, strategy, experiment.fleet().mean_durations) >= _WORTH


def updates_per_version(strategy: Strategy) -> int:
    """How many updates make a version, at the least."""
    return max(strategy.trigger.needs, strategy.select.least)


def expected_updates(experiment: Experiment, strategy: Strategy, durations: Floats) -> float:
    """About how many updates a run merges, where clients' tasks take so long on average."""
    part = min(strategy.select.places or len(durations), len(durations)) / len(durations)
    with np.errstate(divide="ignore"):  # tasks may take no time
        rate = float((1 / durations).sum()) * part
    by_time = inf if experiment.until_time is None else experiment.until_time * rate
    by_count = inf if experiment.aggregations is None else experiment.aggregations * updates_per_version(strategy)
    return min(by_time, by_count)
