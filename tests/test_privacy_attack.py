"""An attack on the promise: the best possible test of whether one client's updates are in the noisy versions.

The attacker knows everything but the client's updates and the noise: who arrives when, all weights, all other updates.
It sees every version of a model with one parameter, and computes the likelihood ratio of two inputs: the client sends
the longest update every time, or zeros. (ε, δ)-differential privacy says that P(right alarm) ≤ e^ε · P(false alarm) + δ
for every test. For the test "log likelihood ratio > ε", the exact ε makes the two sides equal.
"""

from heapq import heappop, heappush
from math import exp, sqrt
from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy.special import ndtr

from fairlag.core.server import Server
from fairlag.core.types import Aggregation, Arrived, Dispatch, Floats, Joined, Row, Stop, Update
from fairlag.lab.experiment import parse
from fairlag.lab.privacy import simulated
from fairlag.privacy.accounting import epsilon, loss

CLIP, DELTAS, VERSIONS = 0.5, (0.02, 0.1, 0.3), 6
DURATIONS = (1.0, 1.3, 4.1)


class Case(NamedTuple):
    use: dict[str, Any]
    noise: float
    bound: float
    """On a client's share of a version."""
    most: float
    """The largest weight of a client in a version."""
    victim: int = 2


CASES = {
    "uniform": Case({"use": "buffered_fedavg", "buffer": 2}, 1.0, 0.5, 0.5),
    "staleness": Case({"use": "fedstaleweight", "buffer": 2}, 1.2, 0.8, 0.8),
    "accounts": Case({"use": "fairshare", "buffer": 2, "most": 0.6}, 1.0, 0.75, 0.6),
    "twice": Case({"use": "buffered_fedavg", "buffer": 3, "fresh": False}, 1.0, 1.0, 1.0, victim=0),
}


class Released(NamedTuple):
    """What the attacker sees."""

    steps: Floats
    """What every version adds to the one before."""
    weights: Floats
    """The victim's weight in each version."""


class World:
    """A fleet in which the victim always sends the same number, and all others send 0."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self._experiment = parse(
            {
                "name": "attacked",
                "aggregations": VERSIONS,
                "clients": [{"group": "all", "count": len(DURATIONS), "delay": "1"}],
                "strategies": [case.use],
                "privacy": {"clip": CLIP, "noise": case.noise, "delta": 1e-5, "bound": case.bound},
            }
        )
        self._strategy = self._experiment.strategy(self._experiment.strategies[0])
        self.weights = self.released(0, CLIP).weights
        assert self.weights.any() and self.weights.max() <= case.most + 1e-9

    def released(self, seed: int, sent: float) -> Released:
        """All versions, if the victim sends this number."""
        models, weights = [0.0], []

        def record(row: Row) -> None:
            if isinstance(row, Aggregation):
                pairs = zip(row.tasks, row.weights.tolist(), strict=True)
                weights.append(sum(weight for task, weight in pairs if task.client == self.case.victim))

        server = Server(
            self._strategy,
            clients=len(DURATIONS),
            parameters=np.zeros(1, np.float32),
            aggregations=VERSIONS,
            privacy=simulated(self._experiment.privacy, self._strategy, seed),
            record=record,
            on_version=lambda version, time, parameters: models.append(float(parameters[0])),
        )
        under_way: list[tuple[float, int, int]] = []
        commands = server.handle(Joined(0.0, range(len(DURATIONS))))
        while not any(isinstance(command, Stop) for command in commands):
            for command in commands:
                assert isinstance(command, Dispatch)
                heappush(under_way, (command.time + DURATIONS[command.client], command.task, command.client))
            time, task, client = heappop(under_way)
            delta = np.array([sent if client == self.case.victim else 0.0], np.float32)
            commands = server.handle(Arrived(time, task, Update(delta)))
        return Released(np.diff(models), np.array(weights))

    def log_ratios(self, runs: int, sent: float = CLIP) -> tuple[Floats, Floats]:
        """The log likelihood ratio in runs with and without the victim's updates; no two runs share their noise."""
        shift, deviation = self.weights * CLIP, self.case.noise * CLIP * self.case.most
        found = []
        for seed in range(2 * runs):
            steps, weights = self.released(seed, 0.0 if seed % 2 else sent)
            assert weights.tolist() == self.weights.tolist()  # they are public: they tell nothing
            found.append(float(shift @ steps - shift @ shift / 2) / deviation**2)
        return np.array(found[::2]), np.array(found[1::2])


def check(ratios: tuple[Floats, Floats], loss: float) -> None:
    """Does the attack gain what the accounting states for this loss, up to four standard errors of that statement?"""
    ratio, (there, not_there) = sqrt(2 * loss), ratios
    for delta in DELTAS:
        stated = epsilon(loss, delta)
        assert stated > 0
        gained = float((there > stated).mean() - exp(stated) * (not_there > stated).mean())
        right, false = (float(ndtr(sign * ratio / 2 - stated / ratio)) for sign in (1, -1))
        error = sqrt((right * (1 - right) + exp(2 * stated) * false * (1 - false)) / len(there))
        assert gained <= delta + 4 * error, f"the attack beats ε = {stated:.3f} at δ = {delta}"
        assert gained >= delta - 4 * error, f"ε = {stated:.3f} at δ = {delta} is not tight"


def attack(case: Case, runs: int, sent: float = CLIP) -> None:
    world = World(case)
    check(world.log_ratios(runs, sent), loss(world.weights, noise=case.noise, bound=case.most))


def test_the_best_attack_gains_what_is_stated_even_if_the_client_sends_more_than_the_longest_update() -> None:
    attack(CASES["staleness"], runs=600, sent=1000 * CLIP)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_the_best_attack_in_many_runs(case: str) -> None:
    attack(CASES[case], runs=5_000)


def test_the_attack_notices_a_wrong_statement() -> None:
    case = CASES["staleness"]._replace(noise=0.8)
    world = World(case)
    ratios = world.log_ratios(600)
    for factor, words in ((1.5, "beats"), (1 / 1.5, "not tight")):
        with pytest.raises(AssertionError, match=words):
            check(ratios, loss(world.weights, noise=factor * case.noise, bound=case.most))
