"""The effort of an audit: how many seeds it can afford, and whether it is worth compiling the loop."""

import itertools

from fairlag.analyse.throttling import Need
from fairlag.analyse.timings import COMPILED_SEARCH
from fairlag.lab.experiment import Experiment
from fairlag.lab.worth import expected_updates, updates_per_version
from fairlag.runtime.compiled.spec import LoopSpec, loop_spec, plan_if_available

FAIRNESS_UPDATES = 400_000
"""The most updates that the fairness part simulates by default, unless one seed alone needs more."""

_SEEDS = 5

_WORTH = 200_000
"""From this number of updates on, the compiled loop saves more time than loading it takes. It nearly saves the time to
compile it as well, which happens only once."""

_LONG = 20_000_000
"""From this number of updates on, it also saves more time than loading it in every worker takes."""


def enough_seeds(experiment: Experiment) -> int:
    """The default number of seeds of an audit: five, or fewer if the experiment is long.

    >>> from fairlag.lab.experiment import load
    >>> enough_seeds(load("demo")), enough_seeds(load("paper-cifar10"))
    (5, 1)
    """
    per_version = sum(updates_per_version(experiment.strategy(use)) for use in experiment.strategies)
    return max(1, min(_SEEDS, FAIRNESS_UPDATES // ((experiment.aggregations or 1) * per_version)))


class Compiling:
    """Which strategies of an experiment the compiled loop runs, and in which process."""

    def __init__(
        self, experiment: Experiment, *, seeds: int, incentive_updates: int | None, wanted: bool | None
    ) -> None:
        """For an audit over `seeds` seeds. `wanted` turns the compiled loop on or off; if None, it is on if it pays."""
        strategies, fleet = [experiment.strategy(use) for use in experiment.strategies], experiment.fleet()
        self._specs = [loop_spec(strategy, fleet) for strategy in strategies]
        self._steps = [(strategy.edit, strategy.reduce) for strategy in strategies]
        known = [isinstance(spec, LoopSpec) for spec in self._specs]
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
        """For each strategy: does the compiled loop run it?"""
        self.here = updates < _LONG
        """Is the audit so short that worker processes would only slow it down?"""

    def same_timeline(self, number: int) -> int | None:
        """The first earlier strategy with the same timeline and weights: its trials need not be repeated.

        Strategies that differ only in local training or in the server's rule have these in common, such as FedAvg and
        FedAdam.

        >>> from fairlag.lab.experiment import load
        >>> zoo = load("zoo").only(["fedavg", "fedbuff", "fedadam"])
        >>> list(map(Compiling(zoo, seeds=1, incentive_updates=1, wanted=False).same_timeline, range(3)))
        [None, None, 0]
        """
        spec = self._specs[number]
        if isinstance(spec, str):
            return None
        pairs = zip(self._specs[:number], self._steps[:number], strict=True)
        return next((place for place, pair in enumerate(pairs) if pair == (spec, self._steps[number])), None)
