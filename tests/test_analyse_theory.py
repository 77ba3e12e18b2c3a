"""The closed forms against the paper's numbers, exact rational arithmetic, and a small independent simulation."""

import math
import random
from collections.abc import Callable
from fractions import Fraction
from heapq import heapify, heapreplace
from itertools import combinations
from math import inf
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlag.analyse import predictions, theory
from fairlag.core.types import Floats
from fairlag.errors import InputError
from fairlag.lab.experiment import parse

PAPER = 1 / np.repeat([1.5, 10.0], [10, 5])
DURATIONS = [1.0, 1.0, 2.0, 3.0, 5.0, 8.0]
STEPS: dict[str, Any] = {
    "gap": 3.0,
    "server_lr": 0.5,
    "local_lrs": [0.1, 0.05],
    "aggregations": 100,
    "buffer": 3,
    "max_staleness": 2.0,
    "smoothness": 2.0,
    "local_variance": 0.25,
    "global_variance": 0.5,
    "gradient": 1.25,
}

fleets = st.lists(st.floats(1e-3, 1e3), min_size=2, max_size=20)
buffers = st.integers(1, 12)


def test_staleness_of_the_papers_fleet() -> None:
    staleness = theory.expected_staleness(PAPER, buffer=5)
    assert staleness[0] == pytest.approx(1.95)
    assert staleness[-1] == pytest.approx(14.1333333333)
    assert theory.expected_share(PAPER)[-5:].sum() == pytest.approx(0.5 / (10 / 1.5 + 0.5))


@given(fleets, buffers)
def test_staleness_determines_share_and_fair_weight(rates: list[float], buffer: int) -> None:
    share = theory.expected_share(rates)
    staleness = theory.expected_staleness(rates, buffer)
    assert theory.share_from_staleness(staleness, buffer) == pytest.approx(share)
    influence = theory.fair_weight(staleness, buffer, len(rates)) * share
    assert influence == pytest.approx(np.full(len(rates), 1 / len(rates)))


def test_a_million_clients() -> None:
    rates = np.repeat([1.0, 0.5], 500_000)
    assert theory.expected_staleness(rates, 1000)[[0, -1]].tolist() == [749.999, 1499.999]


def test_weight_bounds_exactly() -> None:
    assert theory.largest_weight(5, 2.0) == 11 / 15
    assert theory.smallest_weight(5, 2.0) == 1 / 45
    assert theory.largest_deviation(5, 2.0) == pytest.approx((11 / 15 - 1 / 5) ** 2)


@pytest.mark.parametrize("staleness", [0.0, 0.1, 7.0])
def test_a_buffer_of_one_has_only_the_weight_one(staleness: float) -> None:
    assert theory.largest_weight(1, staleness) == theory.smallest_weight(1, staleness) == 1.0
    assert theory.largest_deviation(1, staleness) == 0.0


@given(st.lists(st.floats(0, 100), min_size=1, max_size=12), st.floats(0, 10))
def test_bounds_hold_for_every_buffer(staleness: list[float], slack: float) -> None:
    buffer, most = len(staleness), max(staleness) + slack
    weights = theory.fair_weight(staleness, buffer, clients=50)
    weights /= weights.sum()
    assert weights.max() <= theory.largest_weight(buffer, most) + 1e-12
    assert weights.min() >= theory.smallest_weight(buffer, most) - 1e-12
    assert ((weights - 1 / buffer) ** 2).max() <= theory.largest_deviation(buffer, most) + 1e-12


@given(buffers, st.floats(0, 100))
def test_bounds_are_reached_and_the_largest_weight_decides(buffer: int, most: float) -> None:
    one_stale = theory.fair_weight([most] + [0.0] * (buffer - 1), buffer, clients=9)
    one_fresh = theory.fair_weight([0.0] + [most] * (buffer - 1), buffer, clients=9)
    assert one_stale[0] / one_stale.sum() == pytest.approx(theory.largest_weight(buffer, most))
    if buffer > 1:
        assert one_fresh[0] / one_fresh.sum() == pytest.approx(theory.smallest_weight(buffer, most))
    closed_form = ((buffer - 1) * most / (buffer * (most + 1))) ** 2
    assert theory.largest_deviation(buffer, most) == pytest.approx(closed_form, abs=1e-15)


def test_convergence_bound_term_by_term() -> None:
    start = 2 * 3 / (0.5 * 0.15 * 100)
    lag = 12 * 0.5**2 * 2**2 * 0.0125 * 2 * 2**2 * (7 / 3) ** 2 * 2
    drift = 12 * 0.0125 * 2 * 2**2 * 2
    reweighting = 4 * 3**2 * (4 / 9) ** 2 * 1.25
    assert theory.convergence_bound(**STEPS) == pytest.approx(start + lag + drift + reweighting)


def test_convergence_bound_admits_the_largest_step() -> None:
    # 3 · 0.1 exceeds 0.3 in floating point.
    largest: dict[str, Any] = STEPS | {"server_lr": 3.0, "local_lrs": [0.1], "smoothness": 1 / 0.3}
    assert theory.convergence_bound(**largest) > 0


@pytest.mark.parametrize("buffer", [2, 3, 10])
@pytest.mark.parametrize("staleness", [1.0, 20.0])
def test_the_bound_is_no_smaller_than_the_assumed_gradient(buffer: int, staleness: float) -> None:
    harmless: dict[str, Any] = {"gap": 0.0, "local_variance": 0.0, "global_variance": 0.0, "local_lrs": [1e-9]}
    bound = theory.convergence_bound(**STEPS | harmless | {"buffer": buffer, "max_staleness": staleness})
    assert bound >= STEPS["gradient"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"server_lr": 4.0}, "1/smoothness = 0.5, not 4 · 0.1 · 2 = 0.8"),
        ({"server_lr": 0.0}, "server_lr, smoothness must be finite and positive, not 0"),
        ({"local_lrs": []}, r"local_lrs must be a list of at least one number, not an array of shape \(0,\)"),
        ({"aggregations": 0}, "aggregations must be at least 1, not 0"),
        ({"gap": -1.0}, "at least 0, not -1"),
        ({"max_staleness": -2.0}, "staleness must be finite and at least 0, not -2"),
    ],
)
def test_convergence_bound_refuses(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        theory.convergence_bound(**STEPS | change)


def test_incentive_of_one_very_fast_client_in_the_papers_fleet() -> None:
    found = theory.incentive([1 / 0.15, *PAPER[1:]], client=0, buffer=5)
    assert found.others == pytest.approx(6.5)
    assert found.third_parties == 4 * 13
    assert found.slowness == pytest.approx(4 * 14 / 6.5)
    assert found.best_rate == pytest.approx(6.5 / 56**0.5) == pytest.approx(0.86859904)
    assert found.throttle == pytest.approx(7.6752, abs=1e-4)


def test_no_incentive_in_the_papers_fleet_or_in_a_buffer_of_one() -> None:
    assert [theory.incentive(PAPER, client, 5).throttle for client in (0, 14)] == [1.0, 1.0]
    alone = theory.incentive([100.0, 1.0], client=0, buffer=1)
    assert (alone.slowness, alone.best_rate, alone.throttle) == (0.0, inf, 1.0)


@given(fleets, st.data())
def test_expected_composition_is_the_mean_over_members(rates: list[float], data: st.DataObject) -> None:
    client, buffer = data.draw(st.integers(0, len(rates) - 1)), data.draw(buffers)
    others = np.delete(rates, client)
    member = theory.expected_share(others)
    found = theory.incentive(rates, client, buffer)
    assert found.slowness == pytest.approx((buffer - 1) * (member @ (1 / others)))
    assert found.third_parties == pytest.approx((buffer - 1) * (member @ ((others.sum() - others) / others)), abs=1e-9)


@given(fleets, st.integers(2, 12), st.floats(1e-3, 1e3))
def test_utility_is_largest_at_the_best_rate(rates: list[float], buffer: int, factor: float) -> None:
    found = theory.incentive(rates, 0, buffer)
    tried = found.best_rate * np.array([1.0, factor])
    best, other = theory.utility(
        tried, buffer=buffer, others=found.others, slowness=found.slowness, third_parties=found.third_parties
    )
    assert other <= best * (1 + 1e-12)


def test_utility_is_normalised_weight_times_share() -> None:
    rates, buffer = np.array([4.0, 1.0, 2.0, 0.5]), [0, 1, 3]
    weight = theory.fair_weight(theory.expected_staleness(rates, 3), 3, 4)
    member = rates[buffer[1:]]
    terms = {"others": 3.5, "slowness": (1 / member).sum(), "third_parties": ((3.5 - member) / member).sum()}
    expected = weight[0] / weight[buffer].sum() * theory.expected_share(rates)[0]
    assert theory.utility(4.0, buffer=3, **terms) == pytest.approx(expected)


@pytest.mark.parametrize("client", [-1, 3])
def test_incentive_refuses_a_stranger(client: int) -> None:
    with pytest.raises(InputError, match=f"not client {client} of 3"):
        theory.incentive([1.0, 2.0, 3.0], client, 2)


def symmetric(values: list[int]) -> list[int]:
    """Elementary symmetric polynomials in exact integers, by multiplying out Π (1 + value x)."""
    found = [1]
    for value in values:
        found = [plain + value * lower for plain, lower in zip([*found, 0], [0, *found], strict=True)]
    return found


@pytest.mark.parametrize("span", [1, 100, 10**6])
@pytest.mark.parametrize("clients", [2, 3, 6, 60])
def test_concurrent_rates_and_staleness_are_exact(clients: int, span: int) -> None:
    durations = [int(x) for x in np.random.default_rng(clients).uniform(0, 1, clients) ** 3 * span + 1]
    whole, without = symmetric(durations), [symmetric(durations[:i] + durations[i + 1 :]) for i in range(clients)]
    for m in {1, 2, clients // 2, clients - 1} - {0, clients}:
        rates = [float(Fraction(part[m - 1], whole[m])) for part in without]
        assert theory.concurrent_rates(durations, m) == pytest.approx(rates, rel=1e-11)
        total = [Fraction((clients - m + 1) * part[m - 2], part[m - 1]) if m > 1 else 0 for part in without]
        staleness = [float(t * other / 4) for t, other in zip(durations, total, strict=True)]
        assert theory.concurrent_staleness(durations, m, buffer=4) == pytest.approx(staleness, rel=1e-11)


def test_the_others_rate_is_that_of_a_smaller_fleet() -> None:
    for client, staleness in enumerate(theory.concurrent_staleness(DURATIONS, 3, buffer=2)):
        others = theory.concurrent_rates(np.delete(DURATIONS, client), 2).sum()
        assert staleness == pytest.approx(DURATIONS[client] * others / 2)


@given(fleets, buffers, st.integers(0, 3))
def test_enough_slots_for_everybody(durations: list[float], buffer: int, spare: int) -> None:
    rates, slots = 1 / np.array(durations), len(durations) + spare
    assert theory.concurrent_rates(durations, slots).tolist() == rates.tolist()
    expected = theory.expected_staleness(rates, buffer)
    assert theory.concurrent_staleness(durations, slots, buffer).tolist() == expected.tolist()


@given(fleets, st.data())
def test_slots_are_always_busy_and_slow_clients_hold_more_of_them(durations: list[float], data: st.DataObject) -> None:
    m = data.draw(st.integers(1, len(durations)))
    rates = theory.concurrent_rates(durations, m)
    order = np.argsort(durations)
    busy = (rates * durations)[order]
    assert busy.sum() == pytest.approx(m)
    assert (np.diff(busy) >= -1e-9).all() and (np.diff(rates[order]) <= 1e-9 * rates.max()).all()
    assert busy.max() <= 1 + 1e-9


def test_thousands_of_clients() -> None:
    assert theory.concurrent_rates(np.full(5000, 2.0), 100) == pytest.approx(np.full(5000, 0.01))
    assert theory.concurrent_staleness(np.full(5000, 2.0), 100, 10) == pytest.approx(np.full(5000, 9.9))
    durations = np.linspace(0.1, 10, 1500)
    for m in (1, 750, 1499):
        assert theory.concurrent_rates(durations, m) @ durations == pytest.approx(m)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: theory.concurrent_rates([1.0, 0.0], 1), "durations must be finite and positive, not 0"),
        (lambda: theory.concurrent_rates([1.0, 2.0], 0), "concurrency must be at least 1, not 0"),
        (lambda: theory.concurrent_staleness([1.0, 2.0], 1, 0), "buffer must be at least 1, not 0"),
        (lambda: theory.expected_staleness([1.0, inf], 2), "rates must be finite and positive, not inf"),
        (lambda: theory.expected_share([[1.0]]), r"not an array of shape \(1, 1\)"),
        (lambda: theory.fair_weight([1.0], 2, 0), "clients must be at least 1, not 0"),
    ],
)
def test_refusals_name_the_value(call: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()


def simulate(law: str, buffer: int, m: int, completions: int, seed: int = 0) -> tuple[Floats, Floats, Floats]:
    """Updates and summed staleness of each client, and the time passed, in 50 successive stretches of a run."""
    random, stretches = np.random.default_rng(seed), 50
    count, lag, length = (np.zeros((stretches, width)) for width in (len(DURATIONS), len(DURATIONS), 1))

    def duration(client: int) -> float:
        return DURATIONS[client] * (random.exponential() if law == "exponential" else random.uniform(0.5, 1.5))

    running = [(duration(client), client, 0) for client in range(m)]
    idle, before = list(range(m, len(DURATIONS))), 0.0
    heapify(running)
    for done in range(completions):
        now, client, version = running[0]
        stretch = done * stretches // completions
        count[stretch, client] += 1
        lag[stretch, client] += done // buffer - version
        length[stretch] += now - before
        idle.append(client)
        chosen = idle.pop(random.integers(len(idle)))
        heapreplace(running, (now + duration(chosen), chosen, (done + 1) // buffer))
        before = now
    return count, lag, length


@pytest.mark.parametrize("law", ["exponential", "uniform"])
def test_simulated_rates_and_staleness_do_not_depend_on_the_law(law: str) -> None:
    count, lag, length = simulate(law, buffer=2, m=3, completions=100_000)
    rates, staleness = theory.concurrent_rates(DURATIONS, 3), theory.concurrent_staleness(DURATIONS, 3, 2)
    for part, whole, predicted in ((count, length, rates), (lag, count, staleness)):
        # The mean of ratios is biased, a ratio of sums hardly; its standard error is that of the residuals.
        found = part.sum(axis=0) / whole.sum(axis=0)
        residual = part - found * whole
        error = residual.std(axis=0, ddof=1) * len(part) ** 0.5 / whole.sum(axis=0)
        assert (error < 0.02 * predicted).all()
        assert (np.abs(found - predicted) < 3.5 * error).all()


@pytest.mark.parametrize("interval", [1.0, 4.0])
def test_staleness_at_the_ticks_of_a_clock_is_that_of_a_plain_simulation(interval: float) -> None:
    """FedFix: clients wait until they are merged, and a tick at which nobody is makes no version. One has overhead."""
    spans = [(1.0, 2.0), (3.0, 9.0), (8.0, 12.0)]
    draw = random.Random(1)
    due, trained, version = [0] * 3, [0] * 3, 0
    late: list[list[int]] = [[], [], []]
    for tick in range(60_000):
        merged = [client for client in range(3) if due[client] == tick]
        for client in merged:
            late[client].append(version - trained[client])
        version += bool(merged)
        for client in merged:
            overhead = draw.uniform(0, 3) if client == 1 else 0
            due[client] = tick + math.ceil((draw.uniform(*spans[client]) + overhead) / interval)
            trained[client] = version
    clients = [{"group": str(low), "count": 1, "delay": f"uniform({low}, {high})"} for low, high in spans]
    clients[1]["overhead"] = "uniform(0, 3)"
    use = {"use": "fedfix", "interval": interval}
    experiment = parse({"name": "ticks", "aggregations": 1, "clients": clients, "strategies": [use]})
    found = predictions.predicted(experiment.strategy(experiment.strategies[0]), experiment.fleet(), 1.0)
    assert found.staleness == pytest.approx([sum(each) / len(each) for each in late], rel=0.02, abs=0.01)
    assert found.share == pytest.approx([len(each) / sum(map(len, late)) for each in late], rel=0.02)


@given(st.lists(st.tuples(st.floats(1e-3, 1e3), st.floats(0.1, 10)), min_size=1, max_size=7), buffers)
def test_no_group_of_clients_needs_a_larger_cap(clients: list[tuple[float, float]], buffer: int) -> None:
    rates, importance = zip(*clients, strict=True)
    share, owed = theory.expected_share(rates), np.array(importance) / sum(importance)
    needs = [
        owed[list(group)].sum() / (1 - (1 - min(share[list(group)].sum(), 1)) ** buffer)
        for size in range(1, len(clients) + 1)
        for group in combinations(range(len(clients)), size)
    ]
    assert theory.cap_needed(share, buffer, importance) == pytest.approx(max(needs), rel=1e-9)


def test_the_cap_that_a_fleet_needs() -> None:
    assert theory.cap_needed(theory.expected_share(PAPER), buffer=5) == pytest.approx(1.0985, abs=1e-4)
    uneven = theory.expected_share(1 / np.repeat([0.54, 12.7], [5, 7]))
    assert theory.cap_needed(uneven, buffer=2) == pytest.approx(5.3414, abs=1e-4)
    assert theory.cap_needed([1.0], buffer=3) == theory.cap_needed([0.5, 0.5], buffer=1) == 1
    with pytest.raises(InputError, match=r"importance must be one number per client: 2 of them, not 3\."):
        theory.cap_needed([0.5, 0.5], buffer=1, importance=[1.0, 1.0, 1.0])
