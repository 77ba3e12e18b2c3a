"""Who pays how much privacy under each strategy: trials without training, and the ε of every client."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite, nan, sqrt
from typing import Any, NamedTuple

import numpy as np

from fairlag.analyse.progress import Progress, counter
from fairlag.analyse.trial import Bench, Observation, Trial, observe
from fairlag.errors import InputError, StrategyError
from fairlag.lab.experiment import Experiment
from fairlag.lab.privacy import Privacy
from fairlag.privacy.accounting import allowance, check_delta, check_extra, epsilons, losses
from fairlag.zoo.private import largest_part


class Terms(NamedTuple):
    """What a bill is computed for."""

    delta: float
    noise: float | None = None
    """The noise of all strategies; None for the smallest with which no client's ε is above `epsilon`."""
    epsilon: float | None = None
    """The largest ε that a client should have."""


@dataclass(frozen=True, slots=True)
class GroupBill:
    """What the clients of a group pay, averaged over seeds."""

    name: str
    clients: int
    influence: float
    """Its share of all weight."""
    epsilon: float
    """The mean over its clients; NaN if no update of them was merged in the trials: then nothing is known of it."""
    largest: float
    """Of the client that pays most; NaN as above."""
    lasts: float | None
    """After how many versions its clients reach the wanted ε, at the pace of the trial; None if none is wanted. NaN as
    above."""


@dataclass(frozen=True, slots=True)
class Bill:
    """What clients pay under one strategy."""

    label: str
    use: str
    aggregations: int
    bound: float
    """The largest weight that one client can have in one version, α_max."""
    noise: float
    needed: float | None
    """The smallest noise with which no client's ε is above the wanted one; None if none is wanted."""
    ratio: float
    """The largest ε of a client ÷ the smallest, averaged over seeds."""
    groups: tuple[GroupBill, ...]

    @property
    def step_noise(self) -> float:
        """The standard deviation of the noise on a step, in units of the longest update."""
        return self.noise * self.bound

    def as_json(self) -> dict[str, Any]:
        """The fields of `fairlag audit --privacy --json`; a number that is infinite is None."""
        return {
            "label": self.label,
            "use": self.use,
            "aggregations": self.aggregations,
            "largest_weight": _rounded(self.bound),
            "noise": _rounded(self.noise),
            "noise_needed": _rounded(self.needed),
            "step_noise": _rounded(self.step_noise),
            "ratio": _rounded(self.ratio),
            "groups": {
                group.name: {
                    "clients": group.clients,
                    "influence": _rounded(group.influence),
                    "epsilon": _rounded(group.epsilon),
                    "epsilon_largest": _rounded(group.largest),
                    "versions_until_spent": _rounded(group.lasts),
                }
                for group in self.groups
            },
        }


class Unbilled(NamedTuple):
    """A strategy that cannot promise any privacy, and why."""

    label: str
    use: str
    reason: str

    def as_json(self) -> dict[str, Any]:
        """The fields of `fairlag audit --privacy --json`."""
        return self._asdict()


def _rounded(value: float | None) -> float | None:
    return None if value is None or not isfinite(value) else round(value, 6)


def terms(
    experiment: Experiment, *, noise: float | None = None, delta: float | None = None, epsilon: float | None = None
) -> Terms:
    """The given terms, completed by the `[privacy]` table of the experiment.

    >>> from fairlag.lab.experiment import load
    >>> terms(load("demo"), noise=1.0, delta=1e-5)
    Terms(delta=1e-05, noise=1.0, epsilon=None)
    >>> terms(load("demo"), noise=1.0)
    Traceback (most recent call last):
    fairlag.errors.InputError: there is no delta: give --delta, such as 1e-5, or [privacy] in the file
    """
    table = experiment.privacy or Privacy()
    delta = table.delta if delta is None else delta
    epsilon = table.budget if epsilon is None else epsilon
    if delta is None:
        raise InputError("there is no delta: give --delta, such as 1e-5, or [privacy] in the file")
    noise = table.noise if noise is None else noise
    if noise is None and epsilon is None:
        raise InputError("there is no noise: give --noise, or --epsilon to find it, or [privacy] in the file")
    check_delta(delta)
    check_extra()  # before minutes of simulation
    if epsilon is not None:
        allowance(epsilon, delta)
    return Terms(delta, noise, epsilon)


def bills(
    experiment: Experiment,
    wanted: Terms,
    *,
    bound: float | None = None,
    seeds: int = 1,
    workers: int = 1,
    progress: Progress | None = None,
) -> list[Bill | Unbilled]:
    """What clients pay under each strategy of the experiment, if all of them take part to its end.

    `bound` replaces that of the `[privacy]` table. A budget in it counts as the wanted ε, but ends no participation.

    >>> from fairlag.lab.experiment import load
    >>> demo = load("demo").checked(aggregations=100).only(["buffered_fedavg"])
    >>> (bill,) = bills(demo, Terms(delta=1e-5, noise=1.0), bound=0.2)
    >>> [(group.name, round(group.epsilon, 1)) for group in bill.groups]
    [('fast', 51.8), ('slow', 13.4)]
    """
    found: list[Bill | Unbilled] = []
    for use in experiment.strategies:
        try:
            mine = experiment.checked(strategies=(use,), privacy=_table(experiment, wanted, bound))
            trials = [
                Trial(0, mine.seed + each, mine.aggregations, mine.until_time, squares=True) for each in range(seeds)
            ]
            with Bench(mine, workers=workers) as bench:
                seen = bench.map(observe, trials, counter(progress, f"privacy: {use.label}", seeds))
            found.append(_bill(mine, seen, wanted))
        except StrategyError as error:
            found.append(Unbilled(use.label, use.name, str(error)))
    return found


def _table(experiment: Experiment, wanted: Terms, bound: float | None) -> Mapping[str, Any]:
    """The table of a trial. Weights depend on its bound alone, so what is not known yet may be anything."""
    known = {} if experiment.privacy is None else experiment.privacy.model_dump(exclude={"budget"})
    known |= {} if bound is None else {"bound": bound}
    return known | {"noise": wanted.noise or 1.0, "delta": wanted.delta, "clip": known.get("clip") or 1.0}


def _bill(experiment: Experiment, seen: Sequence[Observation], wanted: Terms) -> Bill:
    """The bill for the only strategy of the experiment, from one trial per seed."""
    (use,) = experiment.strategies
    squares, weights = np.array([each.squares for each in seen]), np.array([each.weights for each in seen])
    aggregations = round(np.mean([each.aggregations for each in seen]))
    bound = largest_part(experiment.strategy(use))
    needed, allowed = None, inf
    if wanted.epsilon is not None:
        allowed = allowance(wanted.epsilon, wanted.delta)
        needed = sqrt(float(losses(squares, noise=1.0, bound=bound).max()) / allowed)
    noise = wanted.noise if wanted.noise is not None else needed
    assert noise is not None  # there is one of the two
    lost = losses(squares, noise=noise, bound=bound)
    paid = epsilons(lost, wanted.delta)
    fleet = experiment.fleet()
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = float(np.mean(paid.max(axis=1) / paid.min(axis=1)))
    members = [fleet.members(place) for place in range(len(fleet.groups))]
    return Bill(
        label=use.label,
        use=use.name,
        aggregations=aggregations,
        bound=bound,
        noise=noise,
        needed=needed,
        ratio=ratio,
        groups=tuple(
            GroupBill(
                name=group.name,
                clients=len(mine),
                influence=float(weights[:, mine].sum() / weights.sum()),
                epsilon=float(paid[:, mine].mean()) if lost[:, mine].any() else nan,
                largest=float(paid[:, mine].max(axis=1).mean()) if lost[:, mine].any() else nan,
                lasts=None if wanted.epsilon is None else _lasts(float(lost[:, mine].mean()), allowed, aggregations),
            )
            for group, mine in zip(fleet.groups, members, strict=True)
        ),
    )


def _lasts(lost: float, allowed: float, versions: int) -> float:
    return versions * allowed / lost if lost else nan
