"""Virtual time: exact timelines of constant delays, coming and going, runs that stall, and the statistical facts.

The facts, at the end, are about the paper's fleet in long runs of the server with an executor that computes nothing:
what each strategy's staleness and influence must come to, and who gains by throttling.
"""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from fairlag import zoo
from fairlag.core.server import Server
from fairlag.core.strategy import Strategy
from fairlag.core.types import Aggregation, Dispatch, Ended, Outcome, Stop, Update
from fairlag.core.vector import EMPTY
from fairlag.core.view import View
from fairlag.errors import DivergedError, StalledError
from fairlag.execute.nothing import Nothing
from fairlag.fleet.availability import parse as available
from fairlag.fleet.clients import Fleet, Group
from fairlag.fleet.delay import parse
from fairlag.fleet.timing import Throttle
from fairlag.rules import select, trigger, weigh
from fairlag.runtime import virtual
from tests.support.scenes import vec
from tests.support.watched import Computes, Watched

ENDLESS = "nothing more can happen: no task is running and no client will come"


def lived(
    strategy: Strategy, *groups: Group, aggregations: int | None = None, until_time: float | None = None
) -> tuple[Watched, Stop]:
    """A watched server after the life of that fleet."""
    fleet = Fleet(groups, seed=0)
    size = vec(0, 0) if fleet.clients < 9 else EMPTY
    server = Watched(strategy, clients=fleet.clients, parameters=size, aggregations=aggregations, until_time=until_time)
    return server, virtual.run(server, fleet, Computes() if size.size else Nothing())


def merged(server: Watched) -> list[tuple[float, list[int], list[int]]]:
    """When, whose and how stale, of each aggregation."""
    return [
        (record.time, [task.client for task in record.tasks], record.staleness.tolist())
        for record in server.log
        if isinstance(record, Aggregation)
    ]


def test_constant_delays_give_the_timeline_drawn_by_hand() -> None:
    one, two = Group("fast", 1, parse("1")), Group("slow", 1, parse("2.5"))
    server, stop = lived(zoo.buffered_fedavg(buffer=1), one, two, aggregations=7)
    assert stop == Stop("7 aggregations were made")
    assert merged(server) == [
        (1.0, [0], [0]),
        (2.0, [0], [0]),
        (2.5, [1], [2]),
        (3.0, [0], [1]),
        (4.0, [0], [0]),
        (5.0, [1], [2]),  # a tie: who was dispatched first (at 2.5, and at 4.0) arrives first
        (5.0, [0], [1]),
    ]


def test_overhead_is_a_part_of_each_task_and_keeps_the_device_busy() -> None:
    one, two = Group("fast", 1, parse("1"), overhead=parse("0.5")), Group("slow", 1, parse("2"), overhead=parse("1.25"))
    server, _ = lived(zoo.buffered_fedavg(buffer=1), one, two, aggregations=5)
    assert merged(server) == [
        (1.5, [0], [0]),
        (3.0, [0], [0]),
        (3.25, [1], [2]),
        (4.5, [0], [1]),
        (6.0, [0], [0]),
    ]
    pair = Group("pair", 2, parse("1"), overhead=parse("0.5"), per_device=2)
    assert merged(lived(zoo.buffered_fedavg(buffer=1), pair, aggregations=4)[0]) == [
        (1.5, [0], [0]),
        (3.0, [1], [1]),
        (4.5, [0], [1]),
        (6.0, [1], [1]),
    ]


def test_a_run_ends_at_its_time_and_an_update_of_that_moment_counts() -> None:
    server, stop = lived(zoo.buffered_fedavg(buffer=1), Group("only", 1, parse("1")), until_time=3.0)
    assert stop == Stop("time 3.0 was reached") and [time for time, *_ in merged(server)] == [1.0, 2.0, 3.0]


def test_a_client_comes_late_and_goes_early() -> None:
    server, stop = lived(zoo.buffered_fedavg(buffer=1), Group("guest", 1, parse("2"), join=2.0, leave=5.0))
    assert merged(server) == [(4.0, [0], [0])] and stop == Stop(ENDLESS)
    tasks = [entry for entry in server.log if isinstance(entry, Dispatch)]
    assert [task.time for task in tasks] == [2.0, 4.0]
    assert [entry for entry in server.log if isinstance(entry, Ended)] == [
        Ended(tasks[1], 5.0, Outcome.LOST, "its client left")
    ]


def test_an_update_that_arrives_as_its_client_leaves_counts() -> None:
    server, _ = lived(zoo.buffered_fedavg(buffer=1), Group("guest", 1, parse("2"), leave=4.0))
    assert [time for time, *_ in merged(server)] == [2.0, 4.0]
    assert server.counts["lost"] == 1, "the task that was handed out at that very moment"


def test_a_fleet_that_comes_and_goes_every_day() -> None:
    group = Group("phones", 2, parse("constant(7200)"), available("daily(0, 5)"))
    server, _ = lived(zoo.buffered_fedavg(buffer=2), group, until_time=2 * 86_400.0)
    hour = 3600.0
    assert [time / hour for time, *_ in merged(server)] == [2.0, 4.0, 26.0, 28.0]
    assert server.counts["lost"] == 4


def test_clients_that_come_together_join_together() -> None:
    group = Group("phones", 3, parse("60"), available("daily(1, 5)"))
    server, _ = lived(zoo.fedavg(cohort=3), group, until_time=4000.0)
    assert sorted(merged(server)[0][1]) == [0, 1, 2], "a cohort of all, not of the first to be named"


def test_a_client_vanishes_in_the_middle_of_a_task_and_comes_back() -> None:
    group = Group("shy", 1, parse("10"), vanish=0.5, away=parse("3"))
    fleet = Fleet([group], seed=0)
    server, _ = lived(zoo.buffered_fedavg(buffer=1), group, aggregations=20)
    time = 0.0
    expected: list[tuple[str, float]] = []
    for ordinal in range(server.counts["dispatched"]):
        vanishing = fleet.vanishes(0, ordinal)
        if vanishing is None:
            time += 10.0
            expected.append(("merged", time))
        else:
            expected.append(("lost", time + vanishing[0] * 10.0))
            time = time + vanishing[0] * 10.0 + 3.0
    happened = [
        ("merged" if isinstance(entry, Aggregation) else "lost", entry.time)
        for entry in server.log
        if not isinstance(entry, Dispatch)
    ]
    assert happened == expected and server.counts["lost"] > 5


def test_without_an_absence_who_vanishes_is_back_when_the_task_would_have_ended() -> None:
    server, _ = lived(zoo.buffered_fedavg(buffer=1), Group("shy", 1, parse("10"), vanish=0.5), aggregations=20)
    assert {entry.time % 10.0 for entry in server.log if isinstance(entry, Dispatch)} == {0.0}
    assert server.counts["lost"] > 5


def test_nothing_is_remembered_of_tasks_that_are_over() -> None:
    group = Group("shy", 4, parse("uniform(1, 2)"), available("alternating(20, 5)"), vanish=0.5)
    fleet = Fleet([group], seed=0)
    life = virtual.Simulation(Server(zoo.buffered_fedavg(buffer=1), clients=4, aggregations=1000), fleet)
    life.to_the_end()
    assert len(life._agenda.heap) <= 20


@pytest.mark.parametrize("interval", [0.3, 1.0])
def test_a_timed_trigger_merges_at_its_ticks_only(interval: float) -> None:
    strategy = Strategy(select.all_idle(), trigger.every(interval), weigh.uniform)
    server, _ = lived(strategy, Group("a", 3, parse("uniform(0.5, 4)")), Group("b", 1, parse("1")), aggregations=50)
    ticks = [time / interval for time, *_ in merged(server)]
    assert ticks == pytest.approx(np.round(ticks), abs=1e-9) and server.partial == 0


def test_a_lone_client_that_is_done_at_every_tick_is_not_merged_partially() -> None:
    strategy = Strategy(select.all_idle(), trigger.every(1.0), weigh.uniform)
    server, _ = lived(strategy, Group("only", 1, parse("1")), aggregations=5)
    assert [time for time, *_ in merged(server)] == [1.0, 2.0, 3.0, 4.0, 5.0] and server.partial == 0


# Runs that cannot go on


def stalls(strategy: Strategy, group: Group) -> str:
    server, fleet = Server(strategy, clients=group.count), Fleet([group], seed=0)
    with pytest.raises(StalledError) as caught:
        virtual.run(server, fleet)
    message = str(caught.value)
    assert "\n" not in message and repr(strategy) in message and message.startswith("no progress in ")
    return message


def test_clients_that_never_finish_are_noticed() -> None:
    stalls(zoo.fedstaleweight(buffer=1), Group("brief", 2, parse("10"), available("alternating(3, 1)")))


def test_clients_that_always_vanish_are_noticed() -> None:
    assert "were lost" in stalls(zoo.fedbuff(buffer=2), Group("shy", 2, parse("10"), vanish=1 - 1e-12))


def test_a_strategy_that_refuses_everything_is_noticed() -> None:
    strategy = replace(zoo.buffered_fedavg(buffer=1), admit=lambda update, task, view: "never")
    message = stalls(strategy, Group("a", 2, parse("1")))
    assert "0 of the 1 updates" in message and message.endswith(" refused (most of them: never)")


class Diverging(Nothing):
    """Its updates are not finite from some version on."""

    def __init__(self, version: int) -> None:
        self._version = version

    def result(self, task: Dispatch) -> Update:
        return Update(np.full(2, np.nan if task.version >= self._version else 0.0, np.float32))


def test_training_that_diverged_is_noticed_early() -> None:
    server = Server(zoo.fedbuff(buffer=2), clients=4, parameters=np.zeros(2, np.float32), aggregations=1000)
    with pytest.raises(DivergedError, match=r"^training diverged after version 8: the last \d+ updates, up to time "):
        virtual.run(server, Fleet([Group("a", 4, parse("uniform(1, 2)"))], seed=0), Diverging(7))
    assert server.refusals["not finite"] <= 3000


def test_one_client_that_sends_what_is_not_finite_is_no_divergence() -> None:
    class OneBroken(Diverging):
        def result(self, task: Dispatch) -> Update:
            return super().result(task._replace(version=task.client))

    server = Server(zoo.fedbuff(buffer=2), clients=4, parameters=np.zeros(2, np.float32), aggregations=1000)
    virtual.run(server, Fleet([Group("a", 4, parse("uniform(1, 2)"))], seed=0), OneBroken(3))
    assert server.refusals["not finite"] > 200


def test_only_the_newest_is_ever_late_enough_to_be_refused() -> None:
    """max_staleness=0 refuses whoever is overtaken, yet always admits the next to arrive: it does not stall."""
    server, stop = lived(zoo.fedbuff(buffer=1, max_staleness=0), Group("a", 3, parse("uniform(1, 9)")), aggregations=50)
    assert stop == Stop("50 aggregations were made") and server.counts["refused"] > 10


@pytest.mark.parametrize(
    "strategy",
    [
        zoo.buffered_fedavg(buffer=2),
        zoo.fedavg(cohort=2, deadline=3.0),
        Strategy(select.all_idle(), trigger.every(1.0), weigh.uniform),
        Strategy(select.all_idle(), trigger.quorum(2, deadline=3.0), weigh.uniform),
    ],
    ids=["count", "cohort", "every", "quorum"],
)
def test_a_fleet_that_has_gone_for_good_ends_the_run(strategy: Strategy) -> None:
    server, stop = lived(strategy, Group("guests", 2, parse("uniform(1, 2)"), leave=30.0), aggregations=1000)
    assert stop == Stop(ENDLESS) and server.view.version > 5 and server.counts["running"] == 0


def test_ticks_much_shorter_than_tasks_are_not_a_stall() -> None:
    strategy = Strategy(select.all_idle(), trigger.every(0.001), weigh.uniform)
    _, stop = lived(strategy, Group("a", 2, parse("60")), aggregations=1)
    assert stop == Stop("1 aggregations were made")


# Statistical facts


FIRST, SLOW = slice(0, 1), slice(10, 15)
PAPER = [Group("first", 1, parse("uniform(1, 2)")), Group("fast", 9, parse("uniform(1, 2)"))]


@cache
def audited(strategy: Strategy, first: str = "uniform(1, 2)", factor: float = 1.0, length: int = 20_000) -> View:
    """The paper's fleet, of which the first client may differ and be throttled, after so many aggregations."""
    groups = [replace(PAPER[0], delay=parse(first)), PAPER[1], Group("slow", 5, parse("uniform(8, 12)"))]
    server = Server(strategy, clients=15, aggregations=length)
    virtual.run(server, Fleet(groups, seed=0).planned({0: Throttle(factor)}))
    return server.view


def influence(view: View, clients: slice) -> float:
    return float(view.weight_sums[clients].sum() / view.weight_sums.sum())


BUFFERED, WEIGHTED, FAIR = zoo.buffered_fedavg(), zoo.fedstaleweight(), zoo.fairshare()


def test_staleness_is_what_theory_says() -> None:
    view = audited(BUFFERED)
    staleness = view.staleness_sums / view.update_counts
    assert staleness[:10].mean() == pytest.approx(1.95, abs=0.03)
    assert staleness[10:].mean() == pytest.approx(14.12, abs=0.15)


@pytest.mark.parametrize(
    ("strategy", "share", "error"),
    [
        (BUFFERED, 0.070, 0.003),
        (WEIGHTED, 0.203, 0.005),
        (zoo.fedstaleweight(scaling="algorithm1"), 0.184, 0.005),
        (FAIR, 0.333, 0.005),
        (zoo.fairshare(cap=None), 0.333, 0.005),
        (zoo.fairshare(cap=1.5), 0.333, 0.005),
        (zoo.fairshare(estimator="gap", cap=None), 0.333, 0.005),
        (zoo.fairshare(estimator="gap", cap=1.5), 0.317, 0.006),
    ],
    ids=["buffered_fedavg", "fedstaleweight", "algorithm1", "fairshare", "no-cap", "low-cap", "gap", "gap-low-cap"],
)
def test_the_slow_third_of_the_fleet_has_its_influence(strategy: Strategy, share: float, error: float) -> None:
    assert influence(audited(strategy), SLOW) == pytest.approx(share, abs=error)


def test_a_very_fast_client_gains_severalfold_by_throttling_under_fedstaleweight() -> None:
    honest, throttled = (
        influence(audited(WEIGHTED, "uniform(0.1, 0.2)", factor, 8000), FIRST) for factor in (1.0, 8.0)
    )
    assert honest == pytest.approx(0.017, abs=0.002) and throttled == pytest.approx(0.081, abs=0.005)
    assert throttled > 4 * honest


def test_nobody_gains_by_throttling_under_fairshare() -> None:
    for factor in (1.0, 8.0):
        assert influence(audited(FAIR, "uniform(0.1, 0.2)", factor, 8000), FIRST) == pytest.approx(1 / 15, abs=0.002)


def test_a_buffer_that_fills_slowly_is_no_stall() -> None:
    """Nearly every task is lost, but one update after the other comes in."""
    server, stop = lived(
        zoo.buffered_fedavg(buffer=400, fresh=False), Group("shy", 10, parse("1"), vanish=0.97), aggregations=1
    )
    assert server.counts["lost"] > 10_000 and stop.reason == "1 aggregations were made"


def test_wokes_without_end_are_a_stall() -> None:
    never = trigger.Trigger("never()", lambda view: False, lambda view: view.time + 1)
    with pytest.raises(StalledError, match=r"trigger=never\(\)"):
        lived(replace(zoo.fedavg(cohort=2), trigger=never), Group("all", 2, parse("1")), aggregations=1)
