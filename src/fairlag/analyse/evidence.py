"""What figures and pages show of finished tasks. The database counts them, so that a million rows never leave it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import nan
from typing import TYPE_CHECKING

import numpy as np

from fairlag.analyse import fairness
from fairlag.analyse.audit import StrategyAudit
from fairlag.analyse.compare import Repeated
from fairlag.analyse.fairness import jain_if_any
from fairlag.analyse.fit.fleet import fit_fleet
from fairlag.analyse.predictions import predicted
from fairlag.analyse.spread import Spread
from fairlag.core.types import Floats, Integers
from fairlag.errors import InputError
from fairlag.lab.experiment import Experiment
from fairlag.lab.folder import check_experiment, reading
from fairlag.lab.plan import Plan
from fairlag.lab.run import Run

if TYPE_CHECKING:
    import pandas as pd

_HISTOGRAM = """
SELECT grp, staleness, SUM(updates) FROM clients JOIN (
    SELECT client, staleness, COUNT(*) AS updates FROM tasks WHERE outcome = 'aggregated' GROUP BY client, staleness
) USING (client) GROUP BY grp, staleness ORDER BY grp, staleness
"""


@dataclass(frozen=True, slots=True)
class Influence:
    """Every client's share of all weight under one strategy, sorted by group and then by client."""

    groups: tuple[str, ...]
    clients: Integers
    group_of: Integers
    """Per client: the place of its group."""
    shares: Floats
    """One row per seed, one column per client."""
    jain: Spread
    entitlements: Floats | None = None
    """As above: the share of all versions that each client is entitled to; None if that is the same for all."""
    per_presence: tuple[Spread, ...] = ()
    """Per group: its influence per time present, if its clients are not all present all the time."""

    @classmethod
    def of_audit(cls, audit: StrategyAudit) -> "Influence":
        """The influence that an audit found, one row per seed as for runs."""
        sizes = [group.clients for group in audit.groups]
        return cls(
            groups=tuple(group.name for group in audit.groups),
            clients=np.arange(sum(sizes)),
            group_of=np.repeat(np.arange(len(sizes)), sizes),
            shares=audit.influences,
            jain=Spread.of(audit.over_seeds(fairness.jain)),
            entitlements=audit.entitlements if audit.comes_and_goes else None,
            per_presence=tuple(Spread.of([group.per_presence]) for group in audit.groups),
        )

    @property
    def fair(self) -> float:
        """The share of each client if all had the same."""
        return 1 / len(self.clients)

    @property
    def entitled(self) -> Floats:
        """Per client: the mean share that it is entitled to; the fair share if that is the same for all."""
        if self.entitlements is None:
            return np.full(len(self.clients), self.fair)
        return np.asarray(self.entitlements.mean(axis=0))

    @property
    def jain_entitled(self) -> Spread:
        """Jain's index of influence ÷ entitlement."""
        if self.entitlements is None:
            return self.jain
        rows = zip(self.shares, self.entitlements, strict=True)
        return Spread.of(fairness.jain_entitled(*row) for row in rows if row[0].min() >= 0)

    @property
    def mean(self) -> Floats:
        """Per client: its mean share over seeds."""
        return np.asarray(self.shares.mean(axis=0))

    @property
    def deviation(self) -> Floats | None:
        """Per client: the sample standard deviation over seeds, if there are several."""
        return np.asarray(self.shares.std(axis=0, ddof=1)) if len(self.shares) > 1 else None

    def quantiles(self, group: int, points: int = 101) -> tuple[Floats, Floats]:
        """Quantiles of influence ÷ entitlement over the clients of a group: the probabilities, and one row per seed.

        Clients that were never present have no entitlement, and count as 0.
        """
        where, mine = np.linspace(0, 1, points), self.group_of == group
        shares = self.shares[:, mine]
        due = np.full_like(shares, self.fair) if self.entitlements is None else self.entitlements[:, mine]
        times = np.divide(shares, due, out=np.zeros_like(shares), where=due > 0)
        return where, np.quantile(times, where, axis=1).T

    def heard_by(self, part: float) -> float:
        """The largest over all groups of the quantile of influence ÷ entitlement at `part`; at least 1."""
        place = round(20 * part)
        groups = (self.quantiles(int(group), 21)[1] for group in np.unique(self.group_of))
        return max(1.0, *(float(times.mean(axis=0)[place]) for times in groups))

    def of_group(self, group: int) -> tuple[Spread, float]:
        """The total share of a group's clients, and the share that they are entitled to."""
        mine = self.group_of == group
        return Spread.of(self.shares[:, mine].sum(axis=1)), float(self.entitled[mine].sum())

    def over_seeds(self, measure: Callable[[Floats], float]) -> Spread:
        """A measure of evenness, over the seeds in which no client has a negative weight."""
        return Spread.of(measure(row) for row in self.shares if row.min() >= 0)

    def lorenz(self) -> tuple[Floats, Floats] | None:
        """The mean Lorenz curve, over the seeds in which no client has a negative weight; None if there are none."""
        curves = [fairness.lorenz(row) for row in self.shares if row.min() >= 0]
        return (curves[0][0], np.asarray(np.mean([part for _, part in curves], axis=0))) if curves else None


def influence(strategy: Repeated) -> Influence:
    """The influence of every client, over the seeds that have weights yet."""
    if (found := influence_if_any(strategy)) is None:
        raise InputError(f"{_named(strategy)} has no influence to draw: none of its updates has been aggregated yet")
    return found


def influence_if_any(strategy: Repeated) -> Influence | None:
    """The influence of every client; None if no update has been aggregated yet."""
    frames = [frame for frame in (run.influence() for run in strategy.runs) if frame["weight"].sum() > 0]
    if not frames:
        return None
    groups = strategy.runs[0].groups
    places = {name: place for place, name in enumerate(groups)}
    first = frames[0]
    if len(sizes := {len(frame) for frame in frames}) > 1:
        raise InputError(f"{_named(strategy)} has runs of different fleets, of {min(sizes)} to {max(sizes)} clients")
    member: Integers = np.array([places[name] for name in first["group"]], np.int64)
    order = np.lexsort((first["client"].to_numpy(), member))
    entitlements = np.array([frame["entitled"].to_numpy()[order] for frame in frames])
    comes_and_goes = fairness.comes_and_goes(entitlements.mean(axis=0))
    return Influence(
        groups=tuple(groups),
        clients=first["client"].to_numpy(np.int64)[order],
        group_of=member[order],
        shares=np.array([frame["influence"].to_numpy()[order] for frame in frames]),
        jain=Spread.of(jain_if_any(frame["weight"].to_numpy()) for frame in frames),
        entitlements=entitlements if comes_and_goes else None,
        per_presence=tuple(Spread.of(_per_presence(frame, name) for frame in frames) for name in groups),
    )


def _per_presence(frame: "pd.DataFrame", group: str) -> float:
    mine = frame.loc[frame["group"] == group, ["influence", "presence"]].sum()
    return float(mine["influence"] / mine["presence"]) if mine["presence"] else nan


@dataclass(frozen=True, slots=True)
class GroupStaleness:
    """The staleness of a group's updates, over all seeds together."""

    name: str
    counts: Integers
    """The number of its updates with staleness 0, 1, 2 …; empty if it sent none."""
    predicted: float
    """The mean by the closed form; NaN if none applies."""

    @classmethod
    def of_audit(cls, audit: StrategyAudit) -> "list[GroupStaleness]":
        """The staleness of every group, as an audit found it."""
        return [cls(group.name, group.histogram, group.staleness_predicted) for group in audit.groups]

    @property
    def mean(self) -> float:
        """The mean over its updates; NaN if there are none."""
        return float(np.arange(len(self.counts)) @ self.counts / self.counts.sum()) if self.counts.any() else nan

    @property
    def cumulative(self) -> Floats:
        """The share of its updates with a staleness of at most 0, 1, 2 …"""
        return np.asarray(np.cumsum(self.counts) / max(1, self.counts.sum()), np.float64)

    def at_most(self, part: float) -> float:
        """The staleness that this part of its updates does not exceed; NaN if there are no updates."""
        return float(np.searchsorted(np.cumsum(self.counts), part * self.counts.sum())) if self.counts.any() else nan


def staleness(strategy: Repeated) -> list[GroupStaleness]:
    """The staleness of each group's updates, and the mean that theory predicts for clients that never wait."""
    if (found := staleness_if_any(strategy)) is None:
        raise InputError(f"{_named(strategy)} has no staleness to draw: none of its updates has been aggregated yet")
    return found


def staleness_if_any(strategy: Repeated) -> list[GroupStaleness] | None:
    """The staleness of each group's updates; None if no update has been aggregated yet."""
    counted: dict[str, dict[int, int]] = {name: {} for name in strategy.runs[0].groups}
    for run in strategy.runs:
        with reading(run.folder) as database:
            for name, late, count in database.execute(_HISTOGRAM):
                counted[name][late] = counted[name].get(late, 0) + count
    if not any(counted.values()):
        return None
    means = _predictions(strategy.runs)
    return [GroupStaleness(name, _dense(counts), means.get(name, nan)) for name, counts in counted.items()]


def experiment_of(run: Run) -> Experiment:
    """The experiment of a run, with only the run's strategy and seed. Code that it names is never imported."""
    check_experiment(run.folder, run.meta)
    try:
        return Plan.open(run.folder, code=False).experiment
    except InputError as error:
        raise InputError(f"the experiment of the run in {str(run.folder)!r} cannot be rebuilt: {error}") from None


def _dense(counts: dict[int, int]) -> Integers:
    found = np.zeros(max(counts, default=-1) + 1, np.int64)
    found[list(counts)] = list(counts.values())
    return found


def _predictions(runs: Sequence[Run]) -> dict[str, float]:
    """Mean staleness per group by the closed forms that the audit uses; empty or NaN if they do not apply.

    They assume that clients are always present. A group's mean is over its updates, like the simulated one. For a real
    fleet they use the fleet fitted to its runs. For a strategy that is code they predict nothing.
    """
    try:
        experiment = fit_fleet(runs, split=False).experiment if runs[0].deployed else experiment_of(runs[0])
        strategy = experiment.strategy(experiment.strategies[0])
    except InputError:
        return {}
    fleet, buffer = experiment.fleet(), _buffer(runs)
    if buffer < 1:
        return {}
    late, share = predicted(strategy, fleet, buffer)
    members = {group.name: fleet.members(place) for place, group in enumerate(fleet.groups)}
    even = np.where(np.isnan(share), 1.0, share)
    return {name: float(np.average(late[mine], weights=even[mine])) for name, mine in members.items()}


def _buffer(runs: Sequence[Run]) -> float:
    """The mean number of updates in an aggregation."""
    updates = versions = 0
    for run in runs:
        with reading(run.folder) as database:
            more, made = database.execute("SELECT COALESCE(SUM(updates), 0), COUNT(*) FROM aggregations").fetchone()
        updates, versions = updates + more, versions + made
    return updates / versions if versions else 0.0


def _named(strategy: Repeated) -> str:
    return f"{strategy.label} in {str(strategy.runs[0].folder)!r}"
