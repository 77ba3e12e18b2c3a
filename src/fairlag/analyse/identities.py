"""What several identities gain: rejoining under a new name, and being two clients. No weighting can prevent these."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from math import ceil
from typing import Any

import numpy as np

from fairlag.analyse.case import Case
from fairlag.analyse.progress import Progress, counter
from fairlag.analyse.throttling import SERVER_UPDATES, is_lasting
from fairlag.analyse.trial import Trial, influence, simulated
from fairlag.core.server import Server
from fairlag.core.types import Arrived, Command, Event, Floats, Joined, Left
from fairlag.fleet.clients import Fleet, Group
from fairlag.lab.experiment import Experiment
from fairlag.runtime import virtual

_SEEDS = 5
_UPDATES = 4000
"""The updates per run. It has more if a client of some group would send too few, and never more than the experiment."""

_ENOUGH = 20
_STAYS = (1, 4)
"""After how many updates a client takes a new name."""


@dataclass(frozen=True, slots=True)
class Identities:
    """Relative gains of one client, summed over all its names, beside one truthful client; None if not tried."""

    rejoin_anew: float | None = None
    """It leaves after one or a few updates, and rejoins at once under a new name."""
    two: float | None = None
    """It is two clients of its group."""

    def as_json(self) -> dict[str, float | None]:
        """The fields of `fairlag audit --json`."""
        return {name: None if gain is None else round(gain, 6) for name, gain in asdict(self).items()}


class _Renaming(Server):
    """A server whose client `first` leaves after every `stay` updates, and rejoins at once as the next of `names`."""

    def __init__(self, *args: Any, first: int, names: Sequence[int], stay: int, **options: Any) -> None:
        super().__init__(*args, **options)
        self._name, self._names, self._stay, self._sent = first, list(reversed(names)), stay, 0

    def handle(self, event: Event) -> list[Command]:
        """Handles events as the server does, but renames the client; a task that the old name was given is lost."""
        if isinstance(event, Joined):
            unused = set(self._names)
            return super().handle(Joined(event.time, [each for each in event.clients if each not in unused]))
        if not isinstance(event, Arrived):
            return super().handle(event)
        task = self.running.get(event.task)
        commands = super().handle(event)
        self._sent += task is not None and task.client == self._name
        if self._sent == self._stay and self._names and self.stopped is None:
            commands += super().handle(Left(event.time, self._name))
            if self.stopped is None:
                self._name, self._sent = self._names.pop(), 0
                commands += super().handle(Joined(event.time, [self._name]))
        return commands


def two(experiment: Experiment, trial: Trial) -> float:
    """The total influence of the trial's client and of one more client in its group."""
    fleet = experiment.fleet(trial.seed)
    group = int(fleet.group_of[trial.client])
    groups = list(fleet.groups)
    groups[group] = groups[group].like([*range(groups[group].count), trial.client - fleet.members(group)[0]])
    larger = _like(experiment, groups, trial.seed)
    seen = simulated(experiment.strategy(experiment.strategies[trial.strategy]), larger, trial)
    return _share(seen.weights, [trial.client, larger.members(group)[-1]])


def anew(experiment: Experiment, trial: Trial, names: int, stay: int) -> float:
    """The total influence of the trial's client if it takes up to `names` new names, one after every `stay` updates."""
    fleet = experiment.fleet(trial.seed)
    number = int(fleet.group_of[trial.client])
    group, place = fleet.groups[number], trial.client - fleet.members(number)[0]
    larger = _like(experiment, [*fleet.groups, group.like([place] * names, f"{group.name}, anew")], trial.seed)
    later = larger.members(len(fleet.groups))
    server = _Renaming(
        experiment.strategy(experiment.strategies[trial.strategy]),
        clients=larger.clients,
        seed=trial.seed,
        aggregations=trial.aggregations,
        until_time=trial.until_time,
        group_of=lambda client: group.name if client in later else larger.group_name(client),
        first=trial.client,
        names=later,
        stay=stay,
    )
    virtual.run(server, larger)
    weights = server.view.weight_sums
    return _share(weights, [trial.client, *range(later.start, len(weights))])


def _like(experiment: Experiment, groups: Sequence[Group], seed: int) -> Fleet:
    return Fleet(groups, seed=seed, model_bytes=experiment.model_bytes, steps=experiment.local.steps or 1)


def _share(weights: Floats, clients: Sequence[int]) -> float:
    total = float(weights.sum())
    return float(weights[list(clients)].sum()) / total if total else 0.0


def _most_tasks(case: Case, client: int) -> float:
    """An upper bound on the updates of a client that never waits for a version, as one with a new name does not."""
    long, time = case.fleet.mean_durations[client], np.mean([each.virtual_time for each in case.observations])
    return min(1.5 * float(time) / float(long), 2 * case.updates) if long > 0 else 2 * case.updates


def identities(case: Case, name: str, progress: Progress | None) -> tuple[Identities, ...]:
    """What one client of each group would gain, measured in short runs; nothing if these would merge too many updates.

    For reference: among n clients with equal influence, being two clients gains 2 n / (n + 1) − 1.
    """
    fleet, bench = case.fleet, case.bench
    needed = max(_UPDATES, _ENOUGH / float(case.shares.min()))
    part = min(1.0, needed / case.updates) if is_lasting(fleet) else 1.0
    runs = len(case.clients) * _SEEDS * (2 + len(_STAYS))
    if runs * (part * case.updates + fleet.clients) > case.effort(compiled=SERVER_UPDATES, server=SERVER_UPDATES):
        return tuple(Identities() for _ in case.clients)
    whole = case.trial(part)
    found = []
    stays = _STAYS if fleet.steady else ()
    count = counter(progress, name, len(case.clients) * _SEEDS * (2 + len(stays)))
    for client in case.clients:
        trials = [replace(whole, client=client, seed=whole.seed + seed) for seed in range(_SEEDS)]
        honest = float(np.mean([heard.share for heard in bench.map(influence, trials, count)]))
        twice = float(np.mean(bench.map(two, trials, count)))
        most = part * _most_tasks(case, client)
        asks = [partial(anew, names=ceil(most / stay) + 8, stay=stay) for stay in stays]
        new = max((float(np.mean(bench.map(ask, trials, count))) for ask in asks), default=None)
        found.append(Identities(*(None if each is None or not honest else each / honest - 1 for each in (new, twice))))
    return tuple(found)
