"""Random fleets, strategies and orders of events, for properties that always hold."""

from collections.abc import Callable, Sequence
from math import inf
from pathlib import Path
from typing import Any, Concatenate, Literal, ParamSpec, Protocol, TypeVar

from hypothesis import strategies as st

from fairlag import zoo
from fairlag.core.strategy import Strategy
from fairlag.errors import StalledError
from fairlag.fleet import availability
from fairlag.fleet.clients import Fleet, Group
from fairlag.fleet.delay import parse
from fairlag.fleet.recorded import recorded
from fairlag.fleet.table import Source
from fairlag.rules import select, trigger, weigh
from fairlag.runtime.virtual import run
from tests.support.hostile import HostileEvents
from tests.support.scenes import vec
from tests.support.watched import Computes, Watched

T = TypeVar("T")
P = ParamSpec("P")

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


class Chance(Protocol):
    """What draws a world: Hypothesis, or `random.Random`."""

    def choice(self, options: Sequence[T], /) -> T: ...
    def randint(self, least: int, most: int, /) -> int: ...


class _Drawn:
    """Draws by Hypothesis, which finds the smallest world that fails."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw

    def choice(self, options: Sequence[T], /) -> T:
        return self._draw(st.sampled_from(options))

    def randint(self, least: int, most: int, /) -> int:
        return self._draw(st.integers(least, most))


def drawn(make: Callable[Concatenate[Chance, P], T]) -> Callable[P, st.SearchStrategy[T]]:
    """The same as a strategy of Hypothesis."""

    @st.composite
    def made(draw: st.DrawFn, /, *arguments: P.args, **options: P.kwargs) -> T:
        return make(_Drawn(draw), *arguments, **options)

    return made


def any_group(chance: Chance, name: str, most: int) -> Group:
    join = chance.choice([0.0, 0.0, 5.0])
    return Group(
        name,
        chance.randint(1, most),
        parse(chance.choice(DELAYS)),
        availability.parse(chance.choice(PRESENCE)),
        join=join,
        leave=chance.choice([inf, inf, join + 40.0]),
        vanish=chance.choice([0.0, 0.0, 0.3]),
        away=chance.choice([None, parse("exponential(5)")]),
        steps=chance.choice([None, None, 3]),
        per=chance.choice(PER),
    )


def any_groups(chance: Chance) -> list[Group]:
    """One to three groups, one to eight clients."""
    made: list[Group] = []
    for name in chance.choice([["a"], ["a", "b"], ["a", "b", "c"]]):
        left = 8 - sum(each.count for each in made)
        if left:
            made.append(any_group(chance, name, min(left, 4)))
    return made


def any_strategy(chance: Chance, clients: int) -> Strategy:
    """Every algorithm of the zoo, and compositions with the other triggers."""
    name = chance.choice([*sorted(zoo.ALGORITHMS), "every", "quorum", "places"])
    fresh = chance.choice([False, True])
    buffer = chance.randint(1, clients if fresh else 8)
    few = chance.randint(1, clients)
    loop: dict[str, Any] = {"buffer": buffer, "fresh": fresh, "lr": chance.choice([1.0, 0.1])}
    match name:
        case "every":
            rule = trigger.every(chance.choice([0.5, 7.0]))
            return Strategy(select.all_idle(fresh=fresh), rule, weigh.uniform)
        case "quorum":
            return Strategy(select.all_idle(fresh=fresh), trigger.quorum(buffer, deadline=6.0), weigh.mean_gap)
        case "places":
            return Strategy(select.concurrency(few, fresh=fresh), trigger.count(buffer), weigh.by_examples)
        case "fedstale":
            return zoo.fedstale(beta=chance.choice([0.0, 0.3, 1.0]), cohort=few)
        case "area":
            return zoo.area(buffer=buffer, fresh=fresh)
        case "fedau" | "mifa" | "fedvarp" | "scaffold":
            return zoo.ALGORITHMS[name].make(cohort=few, deadline=chance.choice([None, 3.0]))
        case "fedavg" | "fedprox" | "fedavgm" | "fednova" | "fedadagrad" | "fedadam" | "fedyogi" | "qfedavg":
            over, deadline = chance.choice([0.0, 0.5, 2.0]), chance.choice([None, 3.0])
            return zoo.ALGORITHMS[name].make(cohort=few, over=over, deadline=deadline)
        case "fedbuff":
            limit = chance.choice([None, 0, 3])
            return zoo.fedbuff(buffer=buffer, concurrency=few, max_staleness=limit)
        case "fedstaleweight":
            loop["scaling"] = chance.choice(["derivation", "algorithm1"])
            return zoo.fedstaleweight(**loop, window=chance.choice([None, 1, 3]))
        case "fairshare":
            terms: dict[str, Any] = {"estimator": chance.choice(["account", "account", "gap", "staleness"])}
            if terms["estimator"] == "account":
                terms["entitled"] = chance.choice(["present", "known"])
                terms["importance"] = chance.choice(["uniform", "examples", {"a": 2.5}])
                terms["limit"] = chance.choice([None, 0.2937, 4.9371])  # reached by no sum of simple fractions
                terms["most"] = chance.choice([None, 0.1])
                terms["reward"] = chance.choice([0.0, 0.0, 0.4])
            else:
                terms["normalise"] = chance.choice(["expectation", "buffer"])
            return zoo.fairshare(**loop, **terms, cap=chance.choice([None, 0.5, 2.0]))
        case "exponential":
            return zoo.exponential(**loop, gamma=chance.choice([0.5, 1.0, 3.0]))
        case "safa":
            share, deadline = chance.choice([0.1, 0.5, 1.0]), chance.choice([None, 3.0])
            return zoo.safa(share=share, lag=chance.randint(0, 3), deadline=deadline)
        case "fedasync":
            kind: dict[str, Any] = {"staleness": chance.choice(["constant", "polynomial", "hinge"])}
            return zoo.fedasync(**kind, max_staleness=chance.choice([None, 0, 3]))
        case "fedfix":
            return zoo.fedfix(interval=chance.choice([0.5, 7.0]))
        case "asyncfeded":
            return zoo.asyncfeded(steps=few, max_gamma=chance.choice([None, 2.0]))
        case "asofed":
            return zoo.asofed(attention=chance.choice([None, "paper", "normalised"]))
        case "pisces":
            bound, window = chance.choice([0.5, 5.0]), chance.choice([None, 2])
            return zoo.pisces(concurrency=few, staleness_bound=bound, window=window, credit=chance.choice([None, 1]))
        case "rennala":
            return zoo.rennala(buffer=buffer, call_off=chance.choice([False, True]))
        case "ringmaster":
            return zoo.ringmaster(max_delay=chance.choice([None, 1, 3, 20]))
        case "fadas":
            return zoo.fadas(buffer=buffer, delay_limit=chance.choice([0, 2, inf]))
        case "fedcompass":
            slack = chance.choice([1.0, 1.5])
            return zoo.fedcompass(min_steps=chance.randint(1, 3), max_steps=3 * few, slack=slack)
        case "fedfa":
            return zoo.fedfa(models=few)
        case "buffered_fedavg" | "rate_tracking" | "ca2fl" | "buffered_scaffold":
            return zoo.ALGORITHMS[name].make(**loop)
        case _:
            return zoo.ALGORITHMS[name].make()


def any_world(chance: Chance) -> tuple[list[Group], Strategy]:
    made = any_groups(chance)
    return made, any_strategy(chance, sum(each.count for each in made))


group, groups, strategies, worlds = drawn(any_group), drawn(any_groups), drawn(any_strategy), drawn(any_world)


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


def play(server: Watched, clients: int, steps: list[tuple[int, int, int]]) -> None:
    """Any events in any order: joining, leaving, failing, replays, broken updates and good ones."""
    events = HostileEvents(server, clients)
    for step in steps:
        events.step(*step)
