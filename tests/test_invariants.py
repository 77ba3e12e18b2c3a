"""What is always true, in random fleets, strategies, faults and orders of events; `Watched` checks it at each event."""

from dataclasses import replace
from itertools import islice
from math import inf

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlag import zoo
from fairlag.core.strategy import Strategy
from fairlag.core.types import Aggregation, Dispatch, Row
from fairlag.fleet import availability
from fairlag.fleet.clients import Fleet, Group
from fairlag.fleet.delay import parse
from tests.support.scenes import vec
from tests.support.watched import Watched
from tests.support.worlds import STEPS, group, groups, lived, play, strategies, worlds


def written(server: Watched) -> list[tuple[object, ...]]:
    """A whole history in values that compare."""
    history: list[tuple[object, ...]] = []
    for entry in server.log:
        if isinstance(entry, Aggregation):
            arrays = entry.staleness.tobytes(), entry.weights.tobytes()
            history.append((entry.version, entry.time, entry.tasks, *arrays, entry.partial))
        else:
            history.append(tuple(entry))
    return [*history, tuple(server.versions.newest.tolist())]


REFUSALS = {"staler than 0", "staler than 3", "drift above 2.0"}
"""What the strategies here may say of updates that are not faulty."""


@settings(max_examples=150, deadline=None)
@given(worlds(), st.integers(0, 2**32))
def test_in_every_fleet_with_every_strategy(world: tuple[list[Group], Strategy], seed: int) -> None:
    server = lived(*world, seed)
    assert np.isfinite(server.versions.newest).all() and not server.refusals.keys() - REFUSALS


@settings(max_examples=100, deadline=None)
@given(worlds(), st.integers(0, 2**32))
def test_in_every_fleet_with_faults(world: tuple[list[Group], Strategy], seed: int) -> None:
    server = lived(*world, seed, faults=0.3)
    assert np.isfinite(server.versions.newest).all()


@settings(max_examples=40, deadline=None)
@given(worlds(), st.integers(0, 2**32))
def test_the_same_seed_gives_the_same_bytes(world: tuple[list[Group], Strategy], seed: int) -> None:
    assert written(lived(*world, seed, faults=0.1)) == written(lived(*world, seed, faults=0.1))


@st.composite
def scripts(draw: st.DrawFn) -> tuple[int, Strategy, list[tuple[int, int, int]]]:
    clients = draw(st.integers(1, 6))
    return clients, draw(strategies(clients)), draw(STEPS)


@settings(max_examples=250, deadline=None)
@given(scripts())
def test_in_every_order_of_events(script: tuple[int, Strategy, list[tuple[int, int, int]]]) -> None:
    clients, strategy, steps = script
    play(Watched(strategy, clients=clients, parameters=vec(0, 0)), clients, steps)


@settings(max_examples=25, deadline=None)
@given(groups(), group("z", 3), st.integers(0, 2**32))
def test_other_clients_change_nobodys_draws(made: list[Group], more: Group, seed: int) -> None:
    old = Fleet(made, seed=seed)
    larger = [replace(made[0], count=made[0].count + 1), *made[1:]]
    for changed in ([more, *made], [*made, more], larger):
        new = Fleet(changed, seed=seed)
        names = [each.name for each in changed]
        for number, each in enumerate(made):
            for one, other in zip(old.members(number), new.members(names.index(each.name)), strict=False):
                assert list(islice(old.periods(one), 5)) == list(islice(new.periods(other), 5))
                for ordinal in (0, 1, 64):
                    assert old.duration(one, ordinal) == new.duration(other, ordinal)
                    assert old.vanishes(one, ordinal) == new.vanishes(other, ordinal)


def durations(server: Watched) -> dict[tuple[int, int], float]:
    """How long each task took, by client and ordinal, of those whose end was an aggregation at their arrival."""
    return {
        (task.client, task.ordinal): entry.time - task.time
        for entry in server.log
        if isinstance(entry, Aggregation)
        for task in entry.tasks[-1:]
    }


@settings(max_examples=25, deadline=None)
@given(groups(), st.data(), st.integers(0, 2**32))
def test_every_strategy_meets_the_same_durations(made: list[Group], data: st.DataObject, seed: int) -> None:
    fleet = Fleet(made, seed=seed)
    made = [replace(each, availability=availability.Always(), vanish=0.0, join=0.0, leave=inf) for each in made]
    server = lived(made, zoo.ALGORITHMS[data.draw(st.sampled_from(["fedstaleweight", "fedbuff"]))].make(buffer=1), seed)
    assert len(durations(server)) == server.view.version > 0
    for (client, ordinal), duration in durations(server).items():
        assert abs(duration - fleet.duration(client, ordinal)) < 1e-9 * (1 + server.view.time)


def test_old_versions_are_freed_however_long_the_run() -> None:
    made = [Group("fast", 7, parse("uniform(1, 2)")), Group("slow", 1, parse("uniform(40, 80)"))]
    server = lived(made, zoo.fedstaleweight(buffer=2), seed=0, length=300)
    assert server.view.version == 300 and len(server.versions.kept) <= 9
    assert isinstance(server.log[-1], Row | Dispatch)
