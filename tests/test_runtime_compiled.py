"""The compiled loop: the same numbers as the reference server, event for event, and what it leaves to the reference."""

import math
import re
from collections import Counter, deque
from dataclasses import replace
from functools import reduce, wraps
from operator import add
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from fairlag import jit, zoo
from fairlag.core.accounts import Accounts, Entitlement
from fairlag.core.buffer import Buffer
from fairlag.core.server import Server
from fairlag.core.strategy import Strategy
from fairlag.core.types import Aggregation, Ended, Floats, Outcome, Row
from fairlag.core.view import View
from fairlag.errors import StalledError
from fairlag.fleet import timing
from fairlag.fleet.clients import Fleet, Group
from fairlag.fleet.delay import parse
from fairlag.rules import admit, keep, recent, replay, select, trigger, weigh
from fairlag.rules.rule import provenance
from fairlag.runtime import virtual
from fairlag.runtime.compiled import timeline as compiled
from fairlag.runtime.compiled.books import Books
from fairlag.runtime.compiled.moment import running
from fairlag.runtime.compiled.spec import LoopSpec, Spending, loop_spec
from fairlag.runtime.compiled.sums import exact_sums
from fairlag.runtime.compiled.timeline import Timeline
from fairlag.runtime.compiled.weights import Fallback
from tests.support.compiled_worlds import worlds

BY_BOOKS = {"buffer": 3, "estimator": "account"}
ZOO: list[tuple[str, dict[str, Any]]] = [
    ("buffered_fedavg", {"buffer": 3}),
    ("fedstaleweight", {"buffer": 3}),
    ("fedstaleweight", {"buffer": 3, "scaling": "algorithm1", "fresh": False}),
    ("fedstaleweight", {"buffer": 3, "window": 1}),
    ("fedstaleweight", {"buffer": 3, "window": 40, "fresh": False}),
    ("fairshare", {"buffer": 3, "estimator": "gap"}),
    ("fairshare", BY_BOOKS),
    ("fairshare", {**BY_BOOKS, "fresh": False, "cap": None, "limit": 0.4}),
    (
        "fairshare",
        {"buffer": 3, "estimator": "account", "cap": 0.6, "limit": 0.5, "reward": 0.7, "importance": "examples"},
    ),
    (
        "fairshare",
        {
            "buffer": 3,
            "estimator": "account",
            "most": 0.3,
            "cap": None,
            "limit": None,
            "importance": {"a": 2.5, "b": 0.3},
        },
    ),
    ("fairshare", {"buffer": 3, "cap": None, "estimator": "staleness", "normalise": "buffer"}),
    ("exponential", {"buffer": 3}),
    ("rate_tracking", {"buffer": 3}),
    ("fedbuff", {"buffer": 3, "concurrency": 2, "max_staleness": 5}),
    ("fedasync", {"staleness": "constant"}),
    ("fedasync", {"staleness": "polynomial", "max_staleness": 2}),
    ("fedasync", {"staleness": "hinge"}),
    ("async_fedavg", {}),
    ("async_fedavg", {"cap": 1.5}),
    ("async_fedavg", {"cap": None}),
    ("asofed", {}),
    ("fedavg", {"cohort": 3}),
    ("fedprox", {"cohort": 3}),
    ("fedadam", {"cohort": 3}),
    ("delay_adaptive", {}),
    ("rennala", {"buffer": 3}),
    ("rennala", {"buffer": 3, "call_off": True}),
    ("malenia", {}),
    ("ringmaster", {"max_delay": None}),
    ("ringmaster", {"max_delay": 5}),
    ("fadas", {"buffer": 3}),
    ("fadas", {"buffer": 3, "concurrency": 4}),
    ("mifa", {"cohort": 3}),
    ("fedvarp", {"cohort": 3}),
    ("ca2fl", {"buffer": 3}),
    ("ca2fl", {"buffer": 2, "fresh": False}),
    ("fedstale", {"cohort": 3, "beta": 0.3}),
    ("fedfa", {"models": 4}),
    ("ace", {}),
    ("area", {"buffer": 3}),
    ("fedau", {"cohort": 3, "cutoff": 4}),
    ("scaffold", {"cohort": 3}),
    ("buffered_scaffold", {"buffer": 3}),
]
"""The algorithms that the loop knows."""


def reference(strategy: Strategy, fleet: Fleet, **until: Any) -> tuple[Server, list[Aggregation], list[Ended], str]:
    records: list[Row] = []
    server = Server(strategy, clients=fleet.clients, group_of=fleet.group_name, record=records.append, **until)
    reason = virtual.run(server, fleet).reason
    merged = [record for record in records if isinstance(record, Aggregation)]
    return server, merged, [record for record in records if isinstance(record, Ended)], reason


def check(
    strategy: Strategy, fleet: Fleet, *, seed: int = 0, aggregations: int | None = 40, until_time: Any = None
) -> None:
    """Every aggregation, update by update, and the account at the end are the reference's, bit for bit."""
    known = loop_spec(strategy, fleet)
    assert isinstance(known, LoopSpec), known
    until = {"seed": seed, "aggregations": aggregations, "until_time": until_time}
    server, expected, unmerged, reason = reference(strategy, fleet, **until)
    timeline = Timeline(known, fleet, **until)
    seen = 0
    for merges in timeline:
        assert merges.first == seen + 1
        for row, time in enumerate(merges.times):
            record = expected[seen]
            assert record.version == seen + 1 and record.time == time and not record.partial
            assert [task.task for task in record.tasks] == merges.tasks[row].tolist()
            assert [task.client for task in record.tasks] == merges.clients[row].tolist()
            assert [task.ordinal for task in record.tasks] == merges.ordinals[row].tolist()
            assert [task.time for task in record.tasks] == merges.given_at[row].tolist()
            assert list(record.arrivals) == merges.arrivals[row].tolist()
            assert record.staleness.tolist() == merges.staleness[row].tolist()
            assert record.weights.tobytes() == merges.weights[row].tobytes()
            seen += 1
    assert seen == len(expected) == timeline.version == server.view.version
    assert timeline.reason == reason and timeline.time == server.view.time
    assert timeline.updates.tolist() == server.view.update_counts.tolist()
    assert timeline.staleness.tolist() == server.view.staleness_sums.tolist()
    assert timeline.weights.tobytes() == server.view.weight_sums.tobytes()
    assert timeline.tasks.sum() == server.counts["dispatched"]
    for outcome, found in ((Outcome.REFUSED, timeline.refused), (Outcome.CANCELLED, timeline.cancelled)):
        ended = Counter(row.task.client for row in unmerged if row.outcome is outcome)
        assert found.tolist() == [ended[client] for client in range(fleet.clients)]
    assert timeline.wasted == reduce(add, (row.time - row.task.time for row in unmerged), 0.0)
    assert [task[:5] for _, task in running(timeline)] == [task[:5] for task in server.running.values()]  # no pace


REDUCTIONS = st.sampled_from(
    [
        keep.replacing(),
        *(replay.replaying(beta) for beta in (0.0, 0.3, 1.0)),
        *(recent.last_models(k) for k in (1, 4, 20)),
    ]
)
"""Those that keep updates."""

SIZES = [{}, {"_FEW": 2, "_BUCKET": 1, "_PAGE": 7, "_ROOM": 8}, {"_FEW": 0, "_BUCKET": 4, "_AHEAD": 2}]
"""As they are, and so small that a few clients need buckets, and a few updates fill a page."""


def check_with(sizes: dict[str, int], strategy: Strategy, fleet: Fleet, **until: Any) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in sizes.items():
            patch.setattr(compiled, name, value)
        check(strategy, fleet, **until)


@settings(max_examples=200, deadline=None)
@given(worlds(), st.none() | REDUCTIONS, st.integers(0, 2**32), st.sampled_from(SIZES))
def test_the_same_events_and_weights_as_the_reference(
    world: tuple[Fleet, Strategy], keeping: keep.Keeping | None, seed: int, sizes: dict[str, int]
) -> None:
    """If a client is thousands of times slower than the others, a version of everyone takes too many updates. Then the
    loop leaves the run to the server, and it must do so if the server stalls."""
    fleet, strategy = world
    if keeping is not None and strategy.account is None:
        strategy = replace(strategy, reduce=keeping)
    try:
        check_with(sizes, strategy, fleet, seed=seed)
    except Fallback:
        assert strategy.trigger.awaits
        reject()
    except StalledError:
        known = loop_spec(strategy, fleet)
        assert isinstance(known, LoopSpec) and strategy.trigger.awaits
        with pytest.raises(Fallback):
            deque(Timeline(known, fleet, seed=seed, aggregations=40), 0)


@settings(max_examples=50, deadline=None)
@given(worlds(), st.sampled_from([0.5, 4.0, 12.0, 31.7]), st.sampled_from([None, 5]))
def test_the_same_end_in_time(world: tuple[Fleet, Strategy], until_time: float, aggregations: int | None) -> None:
    fleet, strategy = world
    check(strategy, fleet, aggregations=aggregations, until_time=until_time)


PAPER = [Group("fast", 10, parse("uniform(1, 2)")), Group("slow", 5, parse("uniform(8, 12)"))]


@pytest.mark.parametrize(("name", "options"), ZOO)
def test_algorithms(name: str, options: dict[str, Any]) -> None:
    check(zoo.ALGORITHMS[name].make(**options), Fleet(PAPER, seed=3), seed=3, aggregations=200)


LATE_OFF = select.restarting(select.concurrency(400), delay=2)


@pytest.mark.parametrize("delay", ["uniform(1, 2)", "exponential(3)", "constant(1)", "mixture(0.999, 1, 0.001, 500)"])
def test_large_fleets_go_through_buckets(delay: str) -> None:
    fleet = Fleet([Group("many", 600, parse(delay)), Group("few", 5, parse("pareto(1, 1.1)"))], seed=1)
    sizes = {"_FEW": 100, "_BUCKET": 16}
    check_with(sizes, zoo.fedstaleweight(buffer=50), fleet, aggregations=60)
    check_with(sizes, zoo.fedbuff(buffer=50, concurrency=400), fleet, aggregations=60)
    check_with(sizes, zoo.rennala(buffer=50, call_off=True), fleet, aggregations=60)
    check_with(sizes, replace(BUFFERED, select=LATE_OFF, trigger=trigger.count(50)), fleet, aggregations=60)


LATE = replace(PAPER[1], name="late", join=1.0)


def by_hand(buffer: Buffer, view: View) -> Floats:
    return np.full(len(buffer), 1 / len(buffer))


@wraps(weigh.polynomial(0.5))
def disguised(buffer: Buffer, view: View) -> Floats:
    return by_hand(buffer, view)


BUFFERED = zoo.buffered_fedavg(buffer=3)

LEFT_ALONE: list[tuple[Strategy, str]] = [
    (replace(BUFFERED, weigh=by_hand), "by_hand"),
    (replace(BUFFERED, weigh=disguised), "polynomial(0.5)"),
    (replace(BUFFERED, weigh=weigh.normalised(by_hand)), "normalised(by_hand)"),
    (replace(BUFFERED, weigh=weigh.times(weigh.uniform, by_hand)), "times(uniform, by_hand)"),
    (replace(BUFFERED, admit=lambda update, task, view: None), "<lambda>"),
    (replace(BUFFERED, admit=admit.max_drift(2.0)), "max_drift(2.0)"),
    (replace(BUFFERED, admit=admit.max_norm(10.0)), "max_norm(10.0)"),
    (replace(BUFFERED, trigger=replace(BUFFERED.trigger, ready=lambda view: view.buffered > 4)), "count(3)"),
    (replace(BUFFERED, trigger=replace(BUFFERED.trigger, needs=2)), "count(3)"),
    (replace(BUFFERED, trigger=replace(BUFFERED.trigger, wake=lambda view: view.time + 1)), "count(3)"),
    (replace(BUFFERED, select=replace(BUFFERED.select, start=zoo.fedfix().select.start)), "all_idle(fresh=True)"),
    (
        replace(BUFFERED, weigh=weigh.times(*(weigh.mean_staleness(window=each) for each in (2, 3)))),
        "times(mean_staleness(window=2), mean_staleness(window=3))",
    ),
    (zoo.fedavg(cohort=3, over=0.5), "cohort(3, over=0.5)"),
    (zoo.fedavg(cohort=3, deadline=4.0), "cohort(3, deadline=4.0)"),
    (zoo.fednova(cohort=3), "by_effort"),
    (zoo.asyncfeded(max_gamma=None), "Local(steps=toward_drift(3.0, gain=1.0, first=10))"),
    (zoo.pisces(), "paced(10, unseen=180.0)"),
    (zoo.fedfix(), "every(5.0)"),
    (replace(BUFFERED, reduce=keep.averaging()), "averaging()"),
    (zoo.ringleader(), "client_means()"),
    (zoo.fedcompass(), "as_planned()"),
    (zoo.qfedavg(cohort=3), "by_loss(1.0, local_lr=0.1)"),
]


@pytest.mark.parametrize(("strategy", "what"), LEFT_ALONE)
def test_what_it_does_not_know_is_left_to_the_reference(strategy: Strategy, what: str) -> None:
    reason = loop_spec(strategy, Fleet(PAPER, seed=0))
    assert isinstance(reason, str) and reason.startswith("the loop does not implement ") and what in reason


def test_the_documentation_lists_what_is_left_to_the_reference() -> None:
    page = (Path(__file__).parents[1] / "docs/scale.md").read_text(encoding="utf-8")
    table = page.partition("| `use` | what the loop does not implement |")[2].partition("\n\n")[0]
    fleet = Fleet([Group("all", 20, parse("uniform(1, 2)"))], seed=0)
    left = {name for name, each in zoo.ALGORITHMS.items() if isinstance(loop_spec(each.make(), fleet), str)}
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == left


def test_clients_that_come_and_go_are_left_to_the_reference() -> None:
    assert loop_spec(BUFFERED, Fleet([PAPER[0], LATE], seed=0)) == "clients join, leave or vanish"


def test_a_run_without_progress_is_left_to_the_reference_which_says_so() -> None:
    fleet = Fleet([Group("busy", 1, parse("constant(0.001)")), Group("slow", 1, parse("constant(1000)"))], seed=0)
    with pytest.raises(StalledError, match="no progress"):
        reference(zoo.malenia(), fleet, aggregations=1)
    known = loop_spec(zoo.malenia(), fleet)
    assert isinstance(known, LoopSpec)
    with pytest.raises(Fallback):
        list(Timeline(known, fleet, seed=0, aggregations=1))


def test_weights_that_the_reference_refuses_are_in_doubt() -> None:
    fleet = Fleet(PAPER, seed=0)
    empty = weigh.normalised(weigh.constant(0.0)), weigh.constant(0.0), weigh.constant(-1.0)
    for rule in (*empty, weigh.divided(weigh.uniform, 1e-320)):
        known = loop_spec(replace(BUFFERED, weigh=rule), fleet)
        assert isinstance(known, LoopSpec)
        with np.errstate(all="ignore"), pytest.raises(Fallback):
            list(Timeline(known, fleet, seed=0, aggregations=5))


NUMBERS = st.lists(
    st.one_of(
        st.floats(-1e300, 1e300),
        st.floats(-1, 1),
        st.sampled_from([1.0, 1e16, -1e16, 2.0**-53, 2.0**-54, -(2.0**-53), 1 + 2.0**-52, 0.1]),
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=300, deadline=None)
@given(NUMBERS)
def test_sums_are_those_of_the_standard_library(numbers: list[float]) -> None:
    assert exact_sums(np.array([numbers, numbers[::-1]])).tolist() == [math.fsum(numbers)] * 2


def test_where_nothing_can_be_kept_it_is_compiled_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[bool] = []

    def nowhere(function: Any, cache: bool = False, **options: Any) -> Any:
        kept.append(cache)
        if cache:
            raise RuntimeError("no locator available")
        return numba.njit(function, **options)

    monkeypatch.setattr(jit, "_njit", nowhere)
    assert jit.compiled(lambda number: number + 1)(2) == 3
    assert kept == [True, False]


def test_recipes_of_rules() -> None:
    made = provenance(weigh.capped(weigh.uniform, cap=2.0))
    assert made is not None and made.make is weigh.capped and made.arguments == {"rule": weigh.uniform, "cap": 2.0}
    assert provenance(disguised) is None and provenance(weigh.uniform) is None and provenance(None) is None


def test_a_plan_that_nobody_follows_any_more_is_none() -> None:
    slow = Group("a", 1, parse("uniform(1, 2)"), timing=timing.parse("throttle(3)"))
    strategy = zoo.buffered_fedavg(buffer=1)
    times = []
    for fleet in (
        Fleet([slow], seed=0).planned({0: timing.parse("truthful")}),
        Fleet([replace(slow, timing=timing.parse("truthful"))], seed=0),
    ):
        known = loop_spec(strategy, fleet)
        assert isinstance(known, LoopSpec)
        times.append([merges.times.tolist() for merges in Timeline(known, fleet, seed=0, aggregations=20)])
    assert times[0] == times[1]


def test_accounts_whose_notes_of_who_is_due_are_more_than_there_is_room_for() -> None:
    terms = Entitlement(reward=0.3)
    books, accounts = Books(Spending(terms, most=0.01, cap=None), np.ones(2)), Accounts(terms, 2)
    for client in range(2):
        accounts.join(client)
    # Client 1 is rewarded with more than it may spend, and so is due earlier every time. Client 0 is noted once.
    for sender in [0] + [1] * 30:
        weight = books.weights(np.array([[sender]])).item()
        accounts.earn([sender])
        assert weight == min(accounts.held(sender), 0.01)
        accounts.spend([sender], [weight])
        np.testing.assert_equal(books.state(), accounts.state())
