"""Random fleets and strategies of the kinds that the compiled loop implements."""

import math
from dataclasses import replace
from pathlib import Path

from hypothesis import strategies as st

from fairlag.core.strategy import Strategy
from fairlag.fleet import timing
from fairlag.fleet.capacity import Capacity, Client
from fairlag.fleet.clients import Fleet, Group
from fairlag.fleet.delay import parse
from fairlag.fleet.table import Source
from fairlag.rules import admit, select, trigger, weigh
from tests.support.worlds import DELAYS

TIMINGS = ["throttle(3)", "late(5, 0.3)", "late(5, 12)", "alternate(3, 5, 4)", "schedule(4, 1, 16, 0.5)"]


def capacities(count: int) -> st.SearchStrategy[Capacity]:
    """Recorded speeds of a group; equal ones are common."""
    speeds = st.tuples(st.sampled_from([0.5, 2.0, 3.7]), st.sampled_from([math.inf, 8.0]))
    clients = st.lists(speeds.map(lambda each: Client("x", *each)), min_size=count, max_size=count)
    return clients.map(lambda found: Capacity("x", Source("x.csv", Path(), ""), tuple(found)))


@st.composite
def fleets(draw: st.DrawFn) -> Fleet:
    """One to three groups of clients that are always present. Constant delays are common, and so are ties."""
    groups = [
        Group(
            name,
            draw(st.integers(1, 4)),
            parse(draw(st.sampled_from(["constant(2)", "constant(4)", "uniform(1, 3)", *DELAYS]))),
            upload=draw(st.sampled_from([None, None, parse("uniform(1, 2)")])),
            overhead=draw(st.sampled_from([None, None, parse("lognormal(2, 1)")])),
            steps=draw(st.sampled_from([None, 3])),
            per=draw(st.sampled_from(["task", "step"])),
            timing=timing.parse(draw(st.sampled_from(["truthful", "truthful", *TIMINGS]))),
        )
        for name in draw(st.sampled_from([["a"], ["a", "b"], ["a", "b", "c"]]))
    ]
    groups = [replace(each, capacity=draw(st.none() | capacities(each.count))) for each in groups]
    fleet = Fleet(groups, seed=draw(st.integers(0, 2**32)), model_bytes=draw(st.sampled_from([0, 100_000])))
    factor = draw(st.sampled_from([1.0, 0.5, 3.0]))
    fleet = fleet if factor == 1 else fleet.planned({draw(st.integers(0, fleet.clients - 1)): timing.Throttle(factor)})
    plan = draw(st.sampled_from([None, None, None, "truthful", *TIMINGS]))
    return fleet if plan is None else fleet.planned({draw(st.integers(0, fleet.clients - 1)): timing.parse(plan)})


LEAVES = [
    weigh.uniform,
    weigh.by_examples,
    weigh.by_share,
    weigh.equal_share,
    weigh.per_client,
    weigh.by_slowness,
    weigh.mean_gap,
    weigh.mean_interval,
    weigh.constant(0.3),
    weigh.hinge(10.0, start=1.0),
    weigh.polynomial(0.5),
    weigh.polynomial(1.3),
    weigh.exponential(0.9),
    weigh.exponential(1.7),
    weigh.by_ticks(3.0),
    weigh.mean_staleness(scale=5.0),
    weigh.mean_staleness(scale=1.0),
    weigh.mean_staleness(scale=5.0, window=3),
    weigh.mean_rounds(longest=3),
]

RULES = st.recursive(
    st.sampled_from(LEAVES),
    lambda inner: st.one_of(
        st.builds(weigh.times, inner, inner),
        st.builds(weigh.divided, inner, st.sampled_from([3, 7.0])),
        st.builds(weigh.normalised, inner),
        st.builds(weigh.capped, inner, st.sampled_from([None, 0.2, 1.5, math.inf])),
    ),
    max_leaves=3,
)

BY_ACCOUNT = st.builds(
    weigh.capped,
    st.builds(
        weigh.at_most,
        st.builds(
            weigh.by_balance,
            entitled=st.sampled_from(["present", "known"]),
            importance=st.sampled_from(["uniform", "examples", {"a": 2.5, "b": 0.3}]),
            limit=st.sampled_from([None, 0.2, 0.7, 5.0]),
            reward=st.sampled_from([0.0, 0.0, 0.3, 1.0]),
        ),
        st.sampled_from([None, 0.1, 0.5]),
    ),
    st.sampled_from([None, 0.2, 0.9, 2.0]),
)
WEIGHTINGS = st.one_of(RULES, RULES, BY_ACCOUNT)


@st.composite
def compositions(draw: st.DrawFn, clients: int, *, counted: bool = False) -> Strategy:
    """Every composition that the loop supports; if `counted`, versions of equal size, without calling off."""
    fresh, few = draw(st.booleans()), draw(st.integers(1, clients))
    if draw(st.integers(0, 4)) == 0:
        return Strategy(select.cohort(few), trigger.cohort_done(), draw(WEIGHTINGS))
    chosen = draw(
        st.sampled_from([select.all_idle(fresh=fresh), select.all_idle(), select.concurrency(few, fresh=fresh)])
    )
    delay = None if counted else draw(st.sampled_from([None, None, 1, 2, 5]))
    chosen = chosen if delay is None else select.restarting(chosen, delay=delay)
    buffer = draw(st.integers(1, clients if chosen.fresh else 8))
    triggers = [trigger.count(buffer), trigger.everyone(), *([trigger.everyone_first(buffer)] if chosen.fresh else [])]
    limit = draw(st.sampled_from([None, None, 0, 2]))
    admission = None if limit is None else admit.max_staleness(limit)
    ready = triggers[0] if counted else draw(st.sampled_from(triggers))
    return Strategy(chosen, ready, draw(WEIGHTINGS), admit=admission)


@st.composite
def worlds(draw: st.DrawFn, *, counted: bool = False) -> tuple[Fleet, Strategy]:
    fleet = draw(fleets())
    return fleet, draw(compositions(fleet.clients, counted=counted))
