"""Trials in which a client throttles itself: against an independent simulation, a closed form, and their own error."""

import random
from heapq import heappop, heappush
from typing import Any

import numpy as np
import pytest

from fairlag.analyse.audit import StrategyAudit, audit
from fairlag.analyse.incentives import FACTORS
from fairlag.analyse.throttling import is_lasting
from fairlag.lab.experiment import Experiment, load, parse
from fairlag.runtime.compiled import available

fast_loops = pytest.mark.skipif(not available(), reason="needs the extra `fast`")


def plain_influence(
    groups: list[tuple[float, float, int]], buffer: int, versions: int, factor: float, seed: int = 0
) -> float:
    """The influence of the first client under FedStaleWeight if it takes `factor` times as long, by a plain simulation.

    Written without any part of fairlag. The first half is warm-up.
    """
    draw, spans = random.Random(seed), [(low, high) for low, high, count in groups for _ in range(count)]
    running: list[tuple[float, int, int, int]] = []
    version = started = 0
    late, sent, weight = [0] * len(spans), [0] * len(spans), [0.0] * len(spans)
    buffered: list[tuple[int, int]] = []
    waiting: list[int] = []

    def start(client: int, time: float) -> None:
        nonlocal started
        started += 1
        lasts = draw.uniform(*spans[client]) * (factor if client == 0 else 1.0)
        heappush(running, (time + lasts, started, client, version))

    for client in range(len(spans)):
        start(client, 0.0)
    while version < versions:
        time, _, client, trained = heappop(running)
        buffered.append((client, version - trained))
        if len(buffered) == buffer:
            for each, staleness in buffered:
                sent[each] += 1
                late[each] += staleness
            claims = [buffer * late[each] / sent[each] + 1 for each, _ in buffered]
            for (each, _), claim in zip(buffered, claims, strict=True):
                weight[each] += claim / sum(claims) if version >= versions // 2 else 0.0
            version, buffered = version + 1, []
            for each in waiting:
                start(each, time)
            waiting = []
        if trained == version:
            waiting.append(client)
        else:
            start(client, time)
    return weight[0] / sum(weight)


def throttled(experiment: Experiment, **options: Any) -> StrategyAudit:
    (found,) = audit(experiment, seeds=1, **options)
    return found


@fast_loops
@pytest.mark.parametrize("buffer", [5, 10])
def test_the_default_audit_agrees_with_an_independent_simulation_within_its_error(buffer: int) -> None:
    """The short trials of before said +338 % and +547 % where the truth is about +370 % and +854 %."""
    experiment = load("racer").checked(strategies=({"use": "fedstaleweight", "buffer": buffer},))
    found = throttled(experiment.checked(aggregations=400))
    racer = found.groups[0].incentive
    fleet = [(0.1, 0.2, 1), (1.0, 2.0, 9), (8.0, 12.0, 5)]
    plain = [plain_influence(fleet, buffer, 60_000 // buffer, factor) for factor in (1.0, racer.best_throttle)]
    assert racer.throttle_gain == pytest.approx(plain[1] / plain[0] - 1, abs=racer.gain_error)
    assert racer.gain_error <= 0.05 * (1 + racer.throttle_gain)
    assert found.throttling.advice == ""


def test_errors_hold_where_the_answer_is_known() -> None:
    """With equal weights and clients that never wait, influence is the share of updates, r_i / Σ r_j, exactly."""
    clients = [
        {"group": "a", "count": 2, "delay": "exponential(1)"},
        {"group": "b", "count": 2, "delay": "uniform(1, 5)"},
    ]
    use = {"use": "buffered_fedavg", "buffer": 2, "fresh": False}
    rates = np.array([1.0, 1.0, 1 / 3, 1 / 3])
    outside, ratios = 0, []
    for seed in range(0, 50, 10):
        tables = {"name": "known", "seed": seed, "aggregations": 50, "clients": clients, "strategies": [use]}
        found = throttled(parse(tables), incentive_updates=90_000, incentive_error=0.5, compiled=True)
        for group, client in zip(found.groups, (0, 2), strict=True):
            slowed = rates[client] / np.array(FACTORS)
            share = slowed / (slowed + rates.sum() - rates[client])
            off = np.abs(group.incentive.gains - (share / share[0] - 1))[1:] / group.incentive.error[1:]
            outside += int((off > 1).sum())
            ratios += off.tolist()
    assert outside == 0  # of 80, each at a risk of 0.25 %
    assert max(ratios) > 0.2  # and the errors are not just very large


def test_what_is_advised_suffices() -> None:
    clients = [{"group": "all", "count": 3, "delay": "exponential(1)"}]
    uses = [{"use": "fairshare", "buffer": 1, "cap": "none"}]
    experiment = parse({"name": "small", "aggregations": 200, "clients": clients, "strategies": uses})
    untried = throttled(experiment, incentive_updates=1000)
    assert not untried.throttling.tried
    assert untried.as_json()["groups"]["all"]["truthful"] is None
    short = throttled(experiment, incentive_updates=25_000, incentive_error=0.2, compiled=True)
    assert short.throttling.tried and not short.groups[0].incentive.is_sure(0.2)
    option, number = short.throttling.advice.split()
    assert option == "--incentive-updates"
    enough = throttled(experiment, incentive_updates=int(number), incentive_error=0.2, compiled=True)
    assert enough.throttling.advice == "" and enough.groups[0].incentive.is_sure(0.2)


@pytest.mark.parametrize(
    ("more", "expected"),
    [({}, True), ({"availability": "alternating(5, 5)"}, True), ({"leave": 50.0}, False), ({"vanish": 0.1}, True)],
)
def test_only_fleets_that_stay_as_they_are_are_tried_for_longer_than_the_experiment(
    more: dict[str, Any], expected: bool
) -> None:
    clients = [
        {"group": "some", "count": 2, "delay": "exponential(1)", **more},
        {"group": "rest", "count": 2, "delay": "exponential(1)"},
    ]
    uses = [{"use": "buffered_fedavg", "buffer": 2}]
    experiment = parse({"name": "brief", "aggregations": 40, "clients": clients, "strategies": uses})
    assert is_lasting(experiment.fleet()) == expected
    found = throttled(experiment, incentive_updates=60_000, incentive_error=0.9)
    assert found.throttling.tried
    assert (found.throttling.aggregations != (40, 40)) == expected
