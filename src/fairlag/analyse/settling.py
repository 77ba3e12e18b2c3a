"""Where a fleet settles under each strategy if updates have a cost: payoffs are measured by trials."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from fairlag.analyse import fairness
from fairlag.analyse.equilibrium import SLOWEST, Look, Response, considered, settle
from fairlag.analyse.progress import Progress, teller
from fairlag.analyse.throttling import COMPILED_UPDATES, SERVER_UPDATES, advised, is_lasting
from fairlag.analyse.trial import Bench, Trial, observe, quarter
from fairlag.core.types import Floats
from fairlag.errors import InputError
from fairlag.fleet.timing import Throttle, Timing
from fairlag.lab.experiment import Experiment
from fairlag.lab.strategies import Use
from fairlag.lab.worth import updates_per_version
from fairlag.runtime.compiled.spec import plan_if_available

SEEDS = 8

_SENT = (10, 40, 160)
"""The updates of the slowest client in the half of a trial that counts: at first, and then in ever longer trials."""

_ENOUGH, _PRECISE = 40, 0.003
"""Trials with at least the first number of updates get no longer once errors of gains are below the second number, in
fair shares."""

_LOOKS = 8
"""The approximate number of times that all groups are looked at before the fleet is at rest."""


@dataclass(frozen=True, slots=True)
class GroupAtRest:
    """What one client of a group does and gets when the fleet is at rest."""

    name: str
    clients: int
    cost: float
    throttle: float
    """How many times as long as necessary its tasks take: 1 is the full speed."""
    rate: float
    """Its updates per unit of time."""
    influence: float
    """The whole group's share of all weight."""
    response: Response
    """Its best response."""

    @property
    def payoff(self) -> float:
        """Its influence minus the cost of its updates, x_i − κ r_i."""
        return self.influence / self.clients - self.cost * self.rate

    @property
    def prefers(self) -> float:
        """The throttle of its best response."""
        return float(2**self.response.octaves)

    @property
    def slowest(self) -> bool:
        """Is it at the slowest speed that is tried?"""
        return self.throttle >= 2**SLOWEST


@dataclass(frozen=True, slots=True)
class Equilibrium:
    """The state in which the fleet settles under one strategy."""

    groups: tuple[GroupAtRest, ...]
    versions: float
    """Per unit of time."""
    full_speed: float
    """Versions per unit of time if all clients were at full speed."""
    settled: bool

    @property
    def speed(self) -> float:
        """Versions per unit of time, relative to those at full speed."""
        return self.versions / self.full_speed

    @property
    def jain(self) -> float:
        """Jain's index of all clients' influence."""
        return fairness.jain([group.influence / group.clients for group in self.groups for _ in range(group.clients)])

    @property
    def welfare(self) -> float:
        """The sum of all payoffs, Σ_i (x_i − κ_i r_i) = 1 − Σ_i κ_i r_i."""
        return sum(group.clients * group.payoff for group in self.groups)

    @property
    def largest_gain(self) -> float:
        """The most that a client might gain by a different speed, in fair shares."""
        clients = sum(group.clients for group in self.groups)
        return clients * max(max(group.response.gain, 0.0) + group.response.error for group in self.groups)

    def as_json(self) -> dict[str, Any]:
        """The fields of `fairlag audit --json`."""
        return {
            "settled": self.settled,
            "versions_per_time": round(self.versions, 6),
            "speed": round(self.speed, 6),
            "jain": round(self.jain, 6),
            "welfare": round(self.welfare, 6),
            "largest_gain": round(self.largest_gain, 6),
            "groups": {
                group.name: {
                    "cost": group.cost,
                    "throttle": round(group.throttle, 6),
                    "updates_per_time": round(group.rate, 6),
                    "influence": round(group.influence, 6),
                    "payoff": round(group.payoff, 6),
                    "prefers": round(group.prefers, 6),
                }
                for group in self.groups
            },
        }


class Untried(NamedTuple):
    """Why it is not known where the fleet settles."""

    reason: str
    advice: str = ""
    """The option with which an audit would find it, if there is one."""

    def __str__(self) -> str:
        return f"{self.reason}: {self.advice} suffices" if self.advice else self.reason

    def as_json(self) -> dict[str, Any]:
        """The fields of `fairlag audit --json`."""
        return {"settled": None, "reason": str(self)}


def priced(experiment: Experiment) -> bool:
    """Do the updates of any client have a cost?"""
    return any(table.cost for table in experiment.clients)


def equilibria(
    experiment: Experiment, *, workers: int = 1, budget: int | None = None, progress: Progress | None = None
) -> list[Equilibrium | Untried]:
    """Where the fleet settles under each strategy, if every client chooses the speed with the highest payoff.

    The payoff of a client is its influence minus the cost of its updates, x_i − κ_i r_i, with r_i its updates per unit
    of time. All clients of a group have the same speed. `budget` is the approximate number of updates that the trials
    of a strategy may merge.

    >>> from fairlag.lab.experiment import load
    >>> equilibria(load("million").only(["fedbuff"]))[0].reason
    'clients join late, leave for good or follow a trace, so no state of the fleet lasts'
    """
    with Bench(experiment, workers=workers) as bench:
        return [
            _Settler(experiment, bench, number, budget, teller(progress, f"equilibrium: {use.label}")).run()
            for number, use in enumerate(experiment.strategies)
        ]


def rewarded(experiment: Experiment, rewards: Sequence[float]) -> Experiment:
    """The same experiment with FairShare by account only, once per reward; its other parameters stay as in the file.

    >>> from fairlag.lab.experiment import load
    >>> [use.parameters for use in rewarded(load("demo"), [0.5]).strategies]
    [{'buffer': 5, 'estimator': 'account', 'reward': 0.5}]
    """
    first, *_ = experiment.only(["fairshare"]).strategies
    same = {key: value for key, value in first.parameters.items() if key != "normalise"}
    tables = ({"use": "fairshare", **same, "estimator": "account", "reward": reward} for reward in rewards)
    return experiment.checked(strategies=tuple(map(Use.model_validate, tables)))


class Seen(NamedTuple):
    """What the second half of a trial shows about its client, and about all clients."""

    share: float
    rate: float
    versions: float
    """Per unit of time."""
    groups: tuple[float, ...]
    """Each group's share of all weight."""
    updates: int
    """The number of updates that the whole trial merged."""


def seen(experiment: Experiment, trial: Trial) -> Seen:
    """What a trial of four strides shows."""
    found = observe(experiment, trial)
    if len(found.marks) < 4:
        label = experiment.strategies[trial.strategy].label
        raise InputError(f"{label} stops by itself, so the fleet never settles: {found.reason}")
    time, weight, sent, *groups = found.marks[3] - found.marks[1]
    total = sum(groups)
    parts = tuple(float(group / total) for group in groups)
    return Seen(float(weight / total), sent / time, 2 * trial.stride / time, parts, int(found.updates.sum()))


class _Settler:
    """Plans and runs the trials of one strategy."""

    def __init__(
        self,
        experiment: Experiment,
        bench: Bench,
        number: int,
        budget: int | None,
        told: Callable[[int, int], None],
    ) -> None:
        self._experiment, self._bench, self._number, self._told = experiment, bench, number, told
        self._fleet = fleet = experiment.fleet()
        strategy = experiment.strategy(experiment.strategies[number])
        self._buffer = updates_per_version(strategy)
        self._compiled = plan_if_available(strategy, fleet) is not None
        self._budget = budget if budget is not None else COMPILED_UPDATES if self._compiled else SERVER_UPDATES
        self._sizes = np.bincount(fleet.group_of)
        self._firsts = [fleet.members(group)[0] for group in range(len(self._sizes))]
        with np.errstate(divide="ignore"):
            self._rates = fleet.factors[self._firsts] / fleet.mean_durations[self._firsts]
        self._costs = np.array([table.cost or 0.0 for table in experiment.clients])
        self._sent, self._spent, self._done = 0, 0, 0

    def run(self) -> Equilibrium | Untried:
        """Settles the fleet with ever longer trials, while the budget lasts, each time from the last state of rest."""
        if not is_lasting(self._fleet):
            return Untried("clients join late, leave for good or follow a trace, so no state of the fleet lasts")
        if not np.isfinite(self._rates).all():
            return Untried("tasks of some clients take no time, so their speed has no bounds")
        state, rest = np.zeros(len(self._sizes)), None
        for self._sent in _SENT:
            # A fleet that was at rest in shorter trials is nearly at rest in longer ones.
            needed = self._spent + (_LOOKS if rest is None else _LOOKS / 2) * self._cost(state)
            if needed > self._budget:
                break
            rest = settle(self._looks, state)
            state = rest.octaves
            self._told(self._done, self._done)  # the number of further trials is not known
            if self._sent >= _ENOUGH and max(each.error for each in rest.responses) * self._sizes.sum() < _PRECISE:
                break
        if rest is None:
            return Untried("it takes too many updates", advised(needed))
        _, versions, _ = self._whole_fleet(np.zeros_like(state))
        rates, now, influence = self._whole_fleet(state)
        rows = zip(self._experiment.clients, 2.0**state, rates, influence, rest.responses, strict=True)
        groups = (
            GroupAtRest(
                table.group, table.count, table.cost or 0.0, float(throttle), float(rate), float(part), response
            )
            for table, throttle, rate, part, response in rows
        )
        return Equilibrium(tuple(groups), now, versions, rest.settled)

    def _looks(self, state: Floats) -> list[Look]:
        """The payoffs of one client of each group at each speed that it considers."""
        speeds = [considered(octaves) for octaves in state]
        asked = [self._trial(state, group, speed) for group, each in enumerate(speeds) for speed in each]
        found = iter(self._measured(asked))
        looks = []
        for cost, each in zip(self._costs, speeds, strict=True):
            payoffs = [[one.share - cost * one.rate for one in next(found)] for _ in each]
            looks.append(Look(each, np.array(payoffs).T))
        return looks

    def _whole_fleet(self, state: Floats) -> tuple[Floats, float, Floats]:
        """Updates per unit of time of one client of each group, versions per unit of time, and influence per group."""
        found = self._measured([self._trial(state, group, octaves) for group, octaves in enumerate(state)])
        rates = np.array([np.mean([one.rate for one in each]) for each in found])
        versions = float(np.mean([one.versions for each in found for one in each]))
        return rates, versions, np.mean([one.groups for each in found for one in each], axis=0)

    def _measured(self, trials: Sequence[Trial]) -> list[list[Seen]]:
        """The results of each of these trials, with the same seeds for all."""
        asked = [replace(trial, seed=self._experiment.seed + each) for trial in trials for each in range(SEEDS)]
        found = self._bench.map(seen, asked)
        self._done += len(found)
        self._spent += sum(one.updates for one in found)
        return [found[place : place + SEEDS] for place in range(0, len(found), SEEDS)]

    def _trial(self, state: Floats, group: int, octaves: float) -> Trial:
        """A trial in which one client of a group has its own speed, and all others have those of their groups."""
        plans: dict[int, Timing] = {}
        for place, each in enumerate(state):
            plans |= dict.fromkeys(self._fleet.members(place), Throttle(float(2**each)))
        client = self._firsts[group]
        plans[client] = Throttle(float(2**octaves))
        stride = quarter(self._length(state, group, octaves) / self._buffer)
        return Trial(self._number, 0, 4 * stride, None, client, tuple(plans.items()), stride, self._compiled)

    def _length(self, state: Floats, group: int, octaves: float) -> float:
        """The updates that a trial needs for each client to send `_sent` in its second half; the first is warm-up."""
        rates, own = self._rates / 2**state, self._rates[group] / 2**octaves
        total = rates @ self._sizes - rates[group] + own
        return float(2 * self._sent * total / min(own, rates.min()))

    def _cost(self, state: Floats) -> float:
        """The approximate number of updates of one look at all groups."""
        return SEEDS * sum(
            self._length(state, group, each) for group, now in enumerate(state) for each in considered(now)
        )
