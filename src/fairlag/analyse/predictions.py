"""What the closed forms of theory.py predict for a strategy on a fleet, if one of them applies."""

from typing import NamedTuple

import numpy as np

from fairlag.analyse import theory
from fairlag.core.strategy import Strategy
from fairlag.core.types import Floats
from fairlag.fleet.clients import Fleet
from fairlag.rules import select, trigger
from fairlag.rules.rule import provenance

_GRID = (np.arange(2048) + 0.5) / 2048
"""The quantiles of a duration over which a number of ticks is averaged."""
_SECOND = (_GRID + 0.6180339887498949 * np.arange(2048)) % 1
"""Those of a second one beside it: multiples of the golden ratio, so that the pairs fill the square evenly."""

_MOST_WORK = 100_000_000
"""Clients × distinct durations: beyond this, a prediction for limited concurrency would take minutes."""


class Prediction(NamedTuple):
    """Per client: its mean staleness and its share of all updates; NaN if no closed form applies."""

    staleness: Floats
    share: Floats


def predicted(strategy: Strategy, fleet: Fleet, buffer: float) -> Prediction:
    """The closed forms for clients that are always present; `buffer` is the mean number of updates per version.

    Nothing is predicted for clients that join and leave, or for rules of selection, admission or local steps that the
    forms do not cover.

    >>> from fairlag.lab.experiment import load
    >>> from fairlag.zoo import fedfix
    >>> fleet = load("demo").fleet()
    >>> predicted(fedfix(interval=5.0), fleet, 15).staleness[[0, 14]].tolist()
    [0.0, 1.5]
    """
    durations = fleet.mean_durations
    unknown = np.full_like(durations, np.nan)
    changes_steps = fleet.per_step and strategy.local.steps is not None
    other = strategy.admit is not None or strategy.select.delay is not None or strategy.trigger.awaits
    if not fleet.steady or other or changes_steps:
        return Prediction(unknown, unknown)
    match provenance(strategy.select.start):
        case (select.all_idle, _):
            return Prediction(theory.expected_staleness(1 / durations, buffer), theory.expected_share(1 / durations))
        case (select.concurrency, {"m": places}) if len(durations) * len(np.unique(durations)) <= _MOST_WORK:
            rates = theory.concurrent_rates(durations, places)
            return Prediction(theory.concurrent_staleness(durations, places, buffer), rates / rates.sum())
        case (select.cohort, {"over": over, "deadline": deadline}):
            alike = not over and deadline is None
            return Prediction(
                np.zeros_like(durations), np.full_like(durations, 1 / fleet.clients) if alike else unknown
            )
        case (select.once_merged, _):
            match provenance(strategy.trigger.ready):
                case (trigger.every, {"interval": interval}):
                    ticks = mean_ticks(fleet, interval)
                    return Prediction(theory.ticking_staleness(ticks), theory.expected_share(1 / ticks))
    return Prediction(unknown, unknown)


def mean_ticks(fleet: Fleet, interval: float) -> Floats:
    """Per client: the mean number of clock ticks until a task that began at a tick is done, E⌈D/Δt⌉.

    >>> from fairlag.lab.experiment import load
    >>> mean_ticks(load("demo").fleet(), 5.0)[[0, 14]].tolist()
    [1.0, 2.5]
    """
    ticks, transfers, factors = np.empty(fleet.clients), fleet.transfers, fleet.factors
    for number, group in enumerate(fleet.groups):
        mine = np.array(fleet.members(number))
        work = np.asarray(group.delay.quantile(_GRID)) * (fleet.steps[mine[0]] if group.per == "step" else 1)
        added = 0.0 if group.overhead is None else np.asarray(group.overhead.quantile(_SECOND))
        kinds, kind = np.unique(
            np.stack([fleet.paces[mine], transfers[mine], factors[mine]]), axis=1, return_inverse=True
        )
        means = [
            np.maximum(np.ceil((work * pace + added + more) * factor / interval), 1).mean()
            for pace, more, factor in kinds.T
        ]
        ticks[mine] = np.array(means)[kind.ravel()]
    return ticks
