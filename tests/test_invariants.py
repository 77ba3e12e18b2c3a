"""What is always true, in random fleets, strategies, faults and orders of events; `Watched` checks it at each event."""

from dataclasses import replace
from itertools import islice
from math import inf
from typing import Any, Literal

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlag import zoo
from fairlag.errors import StalledError
from fairlag.fleet import availability
from fairlag.fleet.clients import Fleet, Group
from fairlag.fleet.delay import parse
from fairlag.rules import select, trigger, weigh
from fairlag.runtime.virtual import run
from fairlag.strategy import Strategy
from fairlag.types import Aggregation, Arrived, Dispatch, Event, Failed, Joined, Left, Report, Row, Update, Wake, Woke
from tests.helpers import DELAYS, Computes, Watched, vec

PER: list[Literal["task", "step"]] = ["task", "task", "step"]
PRESENCE = [
    "always",
    "alternating(exponential(30), exponential(10))",
    "alternating(5, 5)",
    "daily(0, 12)",
    "daily(23, 1, 2)",
]


@st.composite
def group(draw: st.DrawFn, name: str, most: int) -> Group:
    join = draw(st.sampled_from([0.0, 0.0, 5.0]))
    return Group(
        name,
        draw(st.integers(1, most)),
        parse(draw(st.sampled_from(DELAYS))),
        availability.parse(draw(st.sampled_from(PRESENCE))),
        join=join,
        leave=draw(st.sampled_from([inf, inf, join + 40.0])),
        vanish=draw(st.sampled_from([0.0, 0.0, 0.3])),
        away=draw(st.sampled_from([None, parse("exponential(5)")])),
        steps=draw(st.sampled_from([None, None, 3])),
        per=draw(st.sampled_from(PER)),
    )


@st.composite
def groups(draw: st.DrawFn) -> list[Group]:
    """One to three groups, one to eight clients."""
    made: list[Group] = []
    for name in draw(st.sampled_from([["a"], ["a", "b"], ["a", "b", "c"]])):
        left = 8 - sum(each.count for each in made)
        if left:
            made.append(draw(group(name, min(left, 4))))
    return made


@st.composite
def strategies(draw: st.DrawFn, clients: int) -> Strategy:
    """Every algorithm of the zoo, and compositions with the other triggers."""
    name = draw(st.sampled_from([*sorted(zoo.ALGORITHMS), "every", "quorum", "places"]))
    fresh = draw(st.booleans())
    buffer = draw(st.integers(1, clients if fresh else 8))
    few = draw(st.integers(1, clients))
    loop: dict[str, Any] = {"buffer": buffer, "fresh": fresh, "lr": draw(st.sampled_from([1.0, 0.1]))}
    match name:
        case "every":
            rule = trigger.every(draw(st.sampled_from([0.5, 7.0])))
            return Strategy(select.all_idle(fresh=fresh), rule, weigh.uniform)
        case "quorum":
            return Strategy(select.all_idle(fresh=fresh), trigger.quorum(buffer, deadline=6.0), weigh.mean_gap)
        case "places":
            return Strategy(select.concurrency(few, fresh=fresh), trigger.count(buffer), weigh.by_examples)
        case "fedavg" | "fedprox" | "fedavgm" | "fednova" | "fedadagrad" | "fedadam" | "fedyogi":
            over, deadline = draw(st.sampled_from([0.0, 0.5, 2.0])), draw(st.sampled_from([None, 3.0]))
            return zoo.ALGORITHMS[name].make(cohort=few, over=over, deadline=deadline)
        case "fedbuff":
            limit = draw(st.sampled_from([None, 0, 3]))
            return zoo.fedbuff(buffer=buffer, concurrency=few, max_staleness=limit)
        case "fedstaleweight":
            loop["scaling"] = draw(st.sampled_from(["derivation", "algorithm1"]))
            return zoo.fedstaleweight(**loop, window=draw(st.sampled_from([None, 1, 3])))
        case "fairshare":
            terms: dict[str, Any] = {"estimator": draw(st.sampled_from(["account", "account", "gap", "staleness"]))}
            if terms["estimator"] == "account":
                terms["entitled"] = draw(st.sampled_from(["present", "known"]))
                terms["importance"] = draw(st.sampled_from(["uniform", "examples", {"a": 2.5}]))
                terms["limit"] = draw(st.sampled_from([None, 0.3, 5.0]))
                terms["most"] = draw(st.sampled_from([None, 0.1]))
                terms["reward"] = draw(st.sampled_from([0.0, 0.0, 0.4]))
            else:
                terms["normalise"] = draw(st.sampled_from(["expectation", "buffer"]))
            return zoo.fairshare(**loop, **terms, cap=draw(st.sampled_from([None, 0.5, 2.0])))
        case "exponential":
            return zoo.exponential(**loop, gamma=draw(st.sampled_from([0.5, 1.0, 3.0])))
        case "safa":
            share, deadline = draw(st.sampled_from([0.1, 0.5, 1.0])), draw(st.sampled_from([None, 3.0]))
            return zoo.safa(share=share, lag=draw(st.integers(0, 3)), deadline=deadline)
        case "fedasync":
            kind: dict[str, Any] = {"staleness": draw(st.sampled_from(["constant", "polynomial", "hinge"]))}
            return zoo.fedasync(**kind, max_staleness=draw(st.sampled_from([None, 0, 3])))
        case "fedfix":
            return zoo.fedfix(interval=draw(st.sampled_from([0.5, 7.0])))
        case "asyncfeded":
            return zoo.asyncfeded(steps=few, max_gamma=draw(st.sampled_from([None, 2.0])))
        case "asofed":
            return zoo.asofed(attention=draw(st.sampled_from([None, "paper", "normalised"])))
        case "pisces":
            bound, window = draw(st.sampled_from([0.5, 5.0])), draw(st.sampled_from([None, 2]))
            return zoo.pisces(
                concurrency=few, staleness_bound=bound, window=window, credit=draw(st.sampled_from([None, 1]))
            )
        case "buffered_fedavg" | "rate_tracking":
            return zoo.ALGORITHMS[name].make(**loop)
        case _:
            return zoo.ALGORITHMS[name].make()


@st.composite
def worlds(draw: st.DrawFn) -> tuple[list[Group], Strategy]:
    made = draw(groups())
    return made, draw(strategies(sum(each.count for each in made)))


def lived(made: list[Group], strategy: Strategy, seed: int, *, faults: float = 0.0, length: int = 25) -> Watched:
    """A watched server after a life in which a share of all updates is faulty."""
    fleet = Fleet(made, seed=seed)
    server = Watched(
        strategy, clients=fleet.clients, parameters=vec(0, 0), seed=seed, aggregations=length, until_time=400.0
    )
    executor = Computes(faults)
    try:
        run(server, fleet, executor)
    except StalledError:
        assert server.barred or server.counts["lost"] + server.counts["refused"] > 1000
    delivered = {task.task for task in server.live.values() if fleet.vanishes(task.client, task.ordinal) is None}
    assert set(executor.open) == delivered, "the executor holds the tasks that still run and end, and no other"
    return server


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


STEPS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 10**6), st.integers(0, 2)), min_size=20, max_size=80)
BROKEN = [Update(vec(1, np.nan)), Update(vec(1)), Update(vec(1, 2), Report(0))]


@st.composite
def scripts(draw: st.DrawFn) -> tuple[int, Strategy, list[tuple[int, int, int]]]:
    clients = draw(st.integers(1, 6))
    return clients, draw(strategies(clients)), draw(STEPS)


def play(server: Watched, clients: int, steps: list[tuple[int, int, int]]) -> None:
    """Any events in any order: joining, leaving, failing, replays, broken updates and good ones."""
    pending: list[float] = []
    time = 0.0
    for kind, pick, gap in steps:
        time += gap / 2
        due = [at for at in pending if at <= time]
        running, absent = sorted(server.live), sorted(set(range(clients)) - server.there)
        event: Event
        if due:
            time = max(time, min(due))
            pending.remove(min(due))
            event = Woke(time)
        elif kind == 0 and absent:
            event = Joined(time, absent[: 1 + pick % len(absent)])
        elif kind == 1 and server.there:
            event = Left(time, sorted(server.there)[pick % len(server.there)])
        elif kind == 2 and running:
            event = Failed(time, running[pick % len(running)], "broke", gone=pick % 3 == 0, refused=pick % 5 == 0)
        elif kind == 3:
            event = Arrived(time, pick % (len(server.outcomes) + len(running) + 3) - 1, Update(vec(1, 1)))
        elif kind == 4 and running:
            event = Arrived(time, running[pick % len(running)], BROKEN[pick % 3])
        elif running:
            event = Arrived(time, running[pick % len(running)], Update(vec(pick % 7, -1), Report(1 + pick % 5)))
        else:
            event = Joined(time, absent) if absent else Woke(time)
        commands = server.handle(event)
        pending += [command.time for command in commands if isinstance(command, Wake)]
        if server.strategy.select.fresh and server.there and not server.live:
            assert any(at >= time for at in pending) or not server.pending, "everyone waits, and nothing will wake them"


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
    assert len(durations(server)) == 25
    for (client, ordinal), duration in durations(server).items():
        assert abs(duration - fleet.duration(client, ordinal)) < 1e-9 * (1 + server.view.time)


def test_old_versions_are_freed_however_long_the_run() -> None:
    made = [Group("fast", 7, parse("uniform(1, 2)")), Group("slow", 1, parse("uniform(40, 80)"))]
    server = lived(made, zoo.fedstaleweight(buffer=2), seed=0, length=300)
    assert server.view.version == 300 and len(server.versions.kept) <= 9
    assert isinstance(server.log[-1], Row | Dispatch)
