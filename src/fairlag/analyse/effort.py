"""How long an audit is: how many seeds it can afford, and whether compiling the loop for it is worth while."""

import itertools

from fairlag.analyse.throttling import Need
from fairlag.analyse.timings import COMPILED_SEARCH
from fairlag.lab.experiment import Experiment
from fairlag.lab.worth import expected_updates, updates_per_version
from fairlag.runtime.compiled.spec import LoopSpec, loop_spec, plan_if_available

FAIRNESS_UPDATES = 400_000
"""How many updates the fairness part simulates at the most by default, unless one seed alone needs more."""

_SEEDS = 5

_WORTH = 200_000
"""From so many updates on, the compiled loop makes up for the time that it takes to load it, and nearly for compiling
it, which is done once."""

_LONG = 20_000_000
"""From so many updates on, it makes up for loading it in every worker."""


def enough_seeds(experiment: Experiment) -> int:
    """How many seeds an audit averages over unless told: five, or fewer where the experiment is long.

    >>> from fairlag.lab.experiment import load
    >>> enough_seeds(load("demo")), enough_seeds(load("paper-cifar10"))
    (5, 1)
    """
    per_version = sum(updates_per_version(experiment.strategy(use)) for use in experiment.strategies)
    return max(1, min(_SEEDS, FAIRNESS_UPDATES // ((experiment.aggregations or 1) * per_version)))


class Compiling:
    """Which strategies of an experiment the compiled loop takes, and where."""

    def __init__(
        self, experiment: Experiment, *, seeds: int, incentive_updates: int | None, wanted: bool | None
    ) -> None:
        """Averaged over so many seeds; wanted or not, or, if that is None, where it is worth while."""
        strategies, fleet = [experiment.strategy(use) for use in experiment.strategies], experiment.fleet()
        known = [isinstance(loop_spec(strategy, fleet), LoopSpec) for strategy in strategies]
        need = Need.of(fleet)
        cheating = need.usual + COMPILED_SEARCH
        if incentive_updates is not None:
            cheating = min(cheating, 2 * incentive_updates) if need.least <= incentive_updates else 0.0
        updates = 0.0
        for strategy in itertools.compress(strategies, known):
            once = expected_updates(experiment, strategy, fleet.mean_durations)
            updates += seeds * once + cheating
        use = updates >= _WORTH if wanted is None else wanted
        self.strategies = [use and plan_if_available(strategy, fleet) is not None for strategy in strategies]
        """For each strategy: does the loop take it?"""
        self.here = updates < _LONG
        """Is it so short that workers would only take longer?"""
