"""Estimates how many updates a run will merge, from its experiment alone."""

from math import inf

import numpy as np

from fairlag.core.strategy import Strategy
from fairlag.core.types import Floats
from fairlag.lab.experiment import Experiment


def updates_per_version(strategy: Strategy) -> int:
    """The fewest updates that make a version."""
    return max(strategy.trigger.needs, strategy.select.least)


def expected_updates(experiment: Experiment, strategy: Strategy, durations: Floats) -> float:
    """The approximate number of updates that a run merges, given the mean durations of the clients' tasks."""
    part = min(strategy.select.places or len(durations), len(durations)) / len(durations)
    with np.errstate(divide="ignore"):  # tasks may take no time
        rate = float((1 / durations).sum()) * part
    by_time = inf if experiment.until_time is None else experiment.until_time * rate
    by_count = inf if experiment.aggregations is None else experiment.aggregations * updates_per_version(strategy)
    return min(by_time, by_count)
