"""Mean ranks of strategies over experiments and seeds, and which of them differ: Friedman's and Nemenyi's tests."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from math import inf, isfinite, sqrt

import numpy as np

from fairlag.analyse.compare import repeated
from fairlag.analyse.significance import FEWEST, LEVEL
from fairlag.core.types import Floats
from fairlag.errors import InputError
from fairlag.lab.run import Run

_FEWEST_STRATEGIES = 3


@dataclass(frozen=True, slots=True)
class Ranks:
    """The mean ranks of strategies, best first, and how far apart they must be to differ."""

    labels: tuple[str, ...]
    means: tuple[float, ...]
    blocks: int
    """The number of pairs of experiment and seed; each ranks every strategy once."""
    p: float
    """Friedman's test: the probability of such ranks if no strategy were better than another."""
    critical: float
    """Nemenyi's critical difference: mean ranks that are closer than this do not differ clearly."""
    failed: tuple[str, ...] = ()
    """The runs that failed or diverged; they have the last rank."""
    left_out: tuple[str, ...] = ()
    """The pairs of experiment and seed in which a strategy has no finished run."""

    @property
    def alike(self) -> list[tuple[int, int]]:
        """The first and the last place of each set of strategies that are not distinguishable; none within another.

        >>> Ranks(("A", "B", "C"), (1.2, 1.9, 2.9), 10, 0.001, 1.05).alike
        [(0, 1), (1, 2)]
        """
        last = len(self.means) - 1
        if self.p >= LEVEL:
            return [(0, last)]
        ends = [max(end for end in range(last + 1) if self.means[end] - one < self.critical) for one in self.means]
        return [(place, end) for place, end in enumerate(ends) if end > place and (not place or end > ends[place - 1])]


def ranks(runs: Iterable[Run]) -> Ranks:
    """Ranks the strategies by their leading metric in every experiment and with every seed.

    A failed run has the last rank. A pair of experiment and seed is left out if a strategy has no run of it, or an
    unfinished one.
    """
    found = repeated(runs)
    labels = list(dict.fromkeys(each.label for each in found))
    if len(labels) < _FEWEST_STRATEGIES:
        raise InputError(
            f"ranks need at least {_FEWEST_STRATEGIES} strategies, but there are {len(labels)}: "
            "`fairlag compare` tests two"
        )
    blocks: dict[tuple[str, int], dict[str, float]] = {}
    failed = []
    for each in found:
        for run in each.runs:
            block = blocks.setdefault((each.experiment, run.seed), {})
            if run.status in ("finished", "failed"):
                block[each.label] = _loss(run)
                failed += [f"{each.label} on {_named(each.experiment, run.seed)}"] if block[each.label] == inf else []
    whole = {block: values for block, values in blocks.items() if len(values) == len(labels)}
    left_out = tuple(_named(*block) for block in blocks if block not in whole)
    if len(whole) < FEWEST:
        raise InputError(
            f"ranks need at least {FEWEST} pairs of experiment and seed in which every strategy has a finished run, "
            f"but there are {len(whole)}"
        )
    losses = np.array([[values[label] for label in labels] for values in whole.values()])
    return replace(ranks_of(labels, losses), failed=tuple(failed), left_out=left_out)


def ranks_if_any(runs: Iterable[Run]) -> Ranks | None:
    """The same; None if there are too few strategies, experiments and seeds."""
    try:
        return ranks(runs)
    except InputError:
        return None


def ranks_of(labels: Sequence[str], losses: Floats) -> Ranks:
    """Ranks the columns of losses in each row, ties by their mean, and tests whether they differ.

    The critical difference is q·√(k(k+1)/6N) for k strategies and N rows, where q is the studentised range ÷ √2
    (Demšar 2006).

    >>> found = ranks_of(["A", "B", "C"], np.array([[1.0, 2, 3], [1, 2, 3], [2, 1, 3], [1, 2, 2]]))
    >>> found.labels, found.means, round(found.critical, 3)
    (('A', 'B', 'C'), (1.25, 1.875, 2.875), 1.657)
    """
    stats = import_module("scipy.stats")
    places = stats.rankdata(losses, axis=1)
    rows, strategies = losses.shape
    means = places.mean(axis=0)
    order = np.argsort(means, kind="stable")
    # Without any difference, the statistic is 0/0.
    p = 1.0 if (places == places[:, :1]).all() else float(stats.friedmanchisquare(*losses.T).pvalue)
    range_of = float(stats.studentized_range.ppf(1 - LEVEL, strategies, inf)) / sqrt(2)
    return Ranks(
        labels=tuple(labels[place] for place in order),
        means=tuple(means[order].tolist()),
        blocks=rows,
        p=p,
        critical=range_of * sqrt(strategies * (strategies + 1) / (6 * rows)),
    )


def _loss(run: Run) -> float:
    """The final value of the leading metric, turned so that lower is better; infinite if the run failed."""
    score = run.score() if run.status == "finished" else inf
    return (-score if run.lead.higher else score) if isfinite(score) else inf


def _named(experiment: str, seed: int) -> str:
    return f"{experiment}, seed {seed}"
