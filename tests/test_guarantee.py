"""What docs/theory.md proves of accounts, in random fleets, faults, cheats and strategies that weigh by account."""

from dataclasses import replace
from math import inf
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fairlag import zoo
from fairlag.analyse.fairness import jain
from fairlag.analyse.theory import cap_needed, expected_share
from fairlag.core.strategy import Strategy
from fairlag.core.types import Aggregation, Floats
from fairlag.errors import StalledError
from fairlag.fleet import timing
from fairlag.fleet.availability import Always
from fairlag.fleet.clients import Fleet, Group
from fairlag.fleet.delay import parse
from fairlag.runtime.compiled.spec import loop_spec
from fairlag.runtime.virtual import run
from tests.support import worlds
from tests.support.paying import ROUNDING, Paying, any_by_account
from tests.support.scenes import vec
from tests.support.watched import Computes
from tests.support.worlds import STEPS, drawn, groups, play

TIMINGS = [
    "throttle(8)",
    "late(50, 0.1)",
    "late(50, 0.4)",
    "late(20, 60)",
    "alternate(20, 30, 30)",
    "schedule(50, 1, 4, 1)",
    "schedule(1, 64, 1, 64)",
    "rejoin(20, 5)",
    "rejoin(3, 40)",
]
accounted = drawn(any_by_account)


@st.composite
def cheated(draw: st.DrawFn) -> tuple[list[Group], Strategy, dict[int, timing.Timing]]:
    """Clients that come, go and vanish, of whom up to three follow a plan of their own."""
    made = draw(groups())
    clients = sum(each.count for each in made)
    plans = draw(st.dictionaries(st.integers(0, clients - 1), st.sampled_from(TIMINGS).map(timing.parse), max_size=3))
    steady = [isinstance(each.availability, Always) for each in made for _ in range(each.count)]
    assume(all(steady[client] or plan.leaves is None for client, plan in plans.items()))
    return made, draw(accounted(clients)), plans


def paid(
    made: list[Group],
    strategy: Strategy,
    plans: dict[int, timing.Timing],
    seed: int,
    *,
    faults: float = 0.0,
    length: int = 25,
) -> Paying:
    """A server that was compared with the definition throughout a life."""
    fleet = Fleet(made, seed=seed).planned(plans)
    options: dict[str, Any] = {"seed": seed, "aggregations": length, "until_time": 2000.0}
    server = Paying(strategy, clients=fleet.clients, parameters=vec(0, 0), group_of=fleet.group_name, **options)
    try:
        run(server, fleet, Computes(faults))
    except StalledError:
        assert server.barred or server.counts["lost"] + server.counts["refused"] > 1000
    return server


@settings(max_examples=60, deadline=None)
@given(cheated(), st.integers(0, 2**32), st.sampled_from([0.0, 0.3]))
def test_everyone_is_paid_by_the_definition_and_nobody_spends_more(
    world: tuple[list[Group], Strategy, dict[int, timing.Timing]], seed: int, faults: float
) -> None:
    paid(*world, seed, faults=faults)


@settings(max_examples=100, deadline=None)
@given(st.data(), st.integers(1, 6), STEPS)
def test_so_it_is_in_every_order_of_events(
    data: st.DataObject, clients: int, steps: list[tuple[int, int, int]]
) -> None:
    play(Paying(data.draw(accounted(clients)), clients=clients, parameters=vec(0, 0)), clients, steps)


def owed(server: Paying, client: int, heard: int) -> float:
    """What the client had when a version was made, and an equal part of all that was handed out after it."""
    given = server.newest - heard + server.pool[heard]
    return float(server.history[heard][client] + given / len(server.earned))


STEADY: dict[str, Any] = {"availability": Always(), "join": 0.0, "leave": inf, "vanish": 0.0}


@settings(max_examples=25, deadline=None)
@given(groups(), st.data(), st.sampled_from(TIMINGS), st.integers(0, 2**32))
def test_no_timing_earns_more_per_version_than_the_truth(
    made: list[Group], data: st.DataObject, cheat: str, seed: int
) -> None:
    """If the others stay and nobody is at the limit, it gains nothing but a grant once all others have been heard."""
    made = [replace(each, **STEADY) for each in made]
    clients = sum(each.count for each in made)
    strategy = data.draw(accounted(clients, limit=None, reward=0.0, importance="uniform"))
    client = data.draw(st.integers(0, clients - 1))
    truthful = paid(made, strategy, {}, seed)
    cheating = paid(made, strategy, {client: timing.parse(cheat)}, seed)
    assume(truthful.heard.all() and cheating.heard.all())
    heard = int(np.delete(cheating.first, client).max(initial=0))
    grant = cheating.first[client] > heard
    assert cheating.earned[client] <= owed(cheating, client, heard) + grant + ROUNDING * (1 + cheating.newest)
    earns = owed(truthful, client, truthful.first.max()) - truthful.kept / clients
    assert abs(truthful.earned[client] - earns) <= ROUNDING * (1 + truthful.newest)


def lived(groups: list[Group], versions: int, **terms: Any) -> tuple[Floats, Floats]:
    """What each client's updates weighed together, and each version, in the compiled loop."""
    pytest.importorskip("numba")
    from fairlag.runtime.compiled.timeline import Timeline

    fleet, strategy = Fleet(groups, seed=0), zoo.fairshare(estimator="account", **{"cap": 2.0, **terms})
    known = loop_spec(strategy, fleet)
    assert not isinstance(known, str)
    timeline = Timeline(known, fleet, seed=0, aggregations=versions)
    steps = np.concatenate([merges.weights.sum(axis=1) for merges in timeline])
    return timeline.weights, steps


PAPER = [Group("fast", 10, parse("uniform(1, 2)")), Group("slow", 5, parse("uniform(8, 12)"))]


def test_the_papers_fleet_and_400_nodes_that_never_send() -> None:
    idle = Group("idle", 400, parse("constant(1e12)"))
    for fleet in (PAPER, [*PAPER, idle]):
        weights, steps = lived(fleet, 20_000)
        assert weights[10:15].sum() / weights.sum() == pytest.approx(1 / 3, abs=0.004)
        assert jain(weights[:15]) >= 0.999
        assert steps.mean() == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize("reward", [0.25, 0.5, 1.0])
def test_a_reward_moves_influence_towards_the_share_of_updates(reward: float) -> None:
    weights, _ = lived(PAPER, 20_000, reward=reward)
    slow = expected_share(1 / Fleet(PAPER, seed=0).mean_durations)[10:].sum()
    assert weights[10:].sum() / weights.sum() == pytest.approx((1 - reward) / 3 + reward * slow, abs=0.002)


def test_nodes_that_send_once_cost_what_they_may_hold() -> None:
    """They take one limit each, and thin out everybody's step only until they hold it."""
    once = Group("once", 400, parse("mixture(0.5, 1, 0.5, 1e12)"))  # half of all tasks never end
    weights, steps = lived([*PAPER, once], 20_000, limit=2.0)
    heard = (weights[15:] > 0).sum()
    assert 150 < heard < 250
    assert 1 - steps.mean() == pytest.approx(heard * 2.0 / 20_000, rel=0.1)
    assert weights[10:15].sum() / weights[:15].sum() == pytest.approx(1 / 3, abs=0.004)
    assert steps[-10_000:].mean() == pytest.approx(1, abs=0.01)


def test_ten_thousand_clients_of_whom_a_hundred_train_at_once() -> None:
    fleet = [Group("all", 10_000, parse("uniform(1, 2)"))]
    weights, steps = lived(fleet, 4_000, concurrency=100)  # two updates each, on average
    assert steps[:400].mean() >= 0.85
    assert jain(weights) >= 0.75


def test_with_the_cap_that_a_fleet_needs_everybody_gets_its_part_and_with_less_it_does_not() -> None:
    groups = [Group("fast", 5, parse("uniform(0.36, 0.72)")), Group("slow", 7, parse("uniform(8.5, 16.9)"))]
    needed = cap_needed(expected_share(1 / Fleet(groups, seed=0).mean_durations), buffer=2)
    for part, slow in ((1.05, 7 / 12), (0.8, 0.8 * 7 / 12)):
        weights, _ = lived(groups, 50_000, buffer=2, cap=part * needed, limit=50.0)
        assert weights[5:].sum() / weights.sum() == pytest.approx(slow, abs=0.01)


@settings(max_examples=20, deadline=None)
@given(groups(), st.booleans(), st.integers(0, 2**32))
def test_with_the_whole_reward_it_is_fedavg(made: list[Group], fresh: bool, seed: int) -> None:
    loop: dict[str, Any] = {"buffer": min(3, sum(each.count for each in made)) if fresh else 3, "fresh": fresh}
    whole = zoo.fairshare(estimator="account", cap=None, reward=1.0, **loop)
    paid_out, plain = paid(made, whole, {}, seed), worlds.lived(made, zoo.buffered_fedavg(**loop), seed)
    length = min(len(paid_out.log), len(plain.log))
    for one, other in zip(paid_out.log[:length], plain.log[:length], strict=True):
        if isinstance(one, Aggregation) and isinstance(other, Aggregation):
            np.testing.assert_allclose(one.weights, other.weights, rtol=1e-9)
        else:
            assert tuple(one) == tuple(other)
