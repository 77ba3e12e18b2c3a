"""Random fleets, strategies and orders of events, for properties that always hold."""

from math import inf
from pathlib import Path
from typing import Any, Literal

import numpy as np
from hypothesis import strategies as st

from fairlag import zoo
from fairlag.core.strategy import Strategy
from fairlag.core.types import (
    Arrived,
    Event,
    Failed,
    Joined,
    Left,
    Report,
    Update,
    Wake,
    Woke,
)
from fairlag.errors import StalledError
from fairlag.fleet import availability
from fairlag.fleet.clients import Fleet, Group
from fairlag.fleet.delay import parse
from fairlag.fleet.recorded import recorded
from fairlag.fleet.table import Source
from fairlag.rules import select, trigger, weigh
from fairlag.runtime.virtual import run
from tests.support.scenes import vec
from tests.support.watched import Computes, Watched

DELAYS = [
    "constant(2)",
    "uniform(1, 3)",
    "normal(10, 2)",
    "exponential(4)",
    "lognormal(3, 1)",
    "gamma(2, 2)",
    "pareto(1, 1.5)",
    "mixture(0.9, uniform(1, 2), 0.1, 30)",
    "scaled(0.1, uniform(1, 2))",
    "empirical(1, 1.5, 4)",
]
"""One delay of every kind that needs no file."""

PER: list[Literal["task", "step"]] = ["task", "task", "step"]
RECORDED = recorded(
    "recorded",
    Source("recorded.csv", Path(), ""),
    {str(client): ([(0.0, 5.0 + client), (20.0, 30.0)], inf if client == 4 else 30.0 + client) for client in range(9)},
)
"""Cycles of different lengths; the first client is there from the end of one into the next, another leaves for good."""
PRESENCE: list[str | availability.Availability] = [
    "always",
    RECORDED,
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
        case "fedstale":
            return zoo.fedstale(beta=draw(st.sampled_from([0.0, 0.3, 1.0])), cohort=few)
        case "area":
            return zoo.area(buffer=buffer, fresh=fresh)
        case "fedau" | "mifa" | "fedvarp" | "scaffold":
            return zoo.ALGORITHMS[name].make(cohort=few, deadline=draw(st.sampled_from([None, 3.0])))
        case "fedavg" | "fedprox" | "fedavgm" | "fednova" | "fedadagrad" | "fedadam" | "fedyogi" | "qfedavg":
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
        case "rennala":
            return zoo.rennala(buffer=buffer, call_off=draw(st.booleans()))
        case "ringmaster":
            return zoo.ringmaster(max_delay=draw(st.sampled_from([None, 1, 3, 20])))
        case "fadas":
            return zoo.fadas(buffer=buffer, delay_limit=draw(st.sampled_from([0, 2, inf])))
        case "fedcompass":
            slack = draw(st.sampled_from([1.0, 1.5]))
            return zoo.fedcompass(min_steps=draw(st.integers(1, 3)), max_steps=3 * few, slack=slack)
        case "fedfa":
            return zoo.fedfa(models=few)
        case "buffered_fedavg" | "rate_tracking" | "ca2fl" | "buffered_scaffold":
            return zoo.ALGORITHMS[name].make(**loop)
        case _:
            return zoo.ALGORITHMS[name].make()


@st.composite
def worlds(draw: st.DrawFn) -> tuple[list[Group], Strategy]:
    made = draw(groups())
    return made, draw(strategies(sum(each.count for each in made)))


def lived(made: list[Group], strategy: Strategy, seed: int, *, faults: float = 0.0, length: int = 25) -> Watched:
    """A watched server after a run in which a share of all updates is faulty."""
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
    assert set(executor.open) == delivered, "the executor must hold exactly the tasks that still run and will end"
    return server


STEPS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 10**6), st.integers(0, 2)), min_size=20, max_size=80)
BROKEN = [Update(vec(1, np.nan)), Update(vec(1)), Update(vec(1, 2), Report(0))]


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
            assert any(at >= time for at in pending) or not server.pending, "all clients wait, and nothing wakes them"
