"""Triggers: counts, ticks at exact multiples, quorums and cohorts with deadlines, through scripted timelines."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from fairlag import zoo
from fairlag.core.strategy import Strategy
from fairlag.core.types import Outcome
from fairlag.errors import StrategyError
from fairlag.rules import select, trigger, weigh
from tests.support.scenes import Scene, cancelled, handed, vec, wakes


def loop(rule: trigger.Trigger, *, fresh: bool = True) -> Strategy:
    return Strategy(select.all_idle(fresh=fresh), rule, weigh.uniform)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_a_count_merges_exactly_so_many(k: int) -> None:
    scene = Scene(loop(trigger.count(k)), 3)
    for arrivals in range(1, 7):
        scene.arrive((arrivals - 1) % 3)
        assert scene.server.view.version == arrivals // k
    assert {len(record.tasks) for record in scene.merged} == {k} and scene.server.partial == 0


def test_every_merges_what_has_arrived_at_the_tick() -> None:
    scene = Scene(loop(trigger.every(2.0)), 3, parameters=vec(0, 0, 0))
    assert wakes(scene.first) == [2.0]
    scene.arrive(0, at=0.5)
    scene.arrive(2, at=1.5)
    commands = scene.wake(2.0)
    assert handed(commands) == [(0, 1), (2, 1)] and wakes(commands) == [4.0]
    assert scene.parameters == [0.5, 0.0, 0.5]


def test_every_makes_no_version_where_nothing_has_arrived() -> None:
    scene = Scene(loop(trigger.every(2.0)), 1)
    assert wakes(scene.wake(2.0)) == [4.0] and wakes(scene.wake(4.0)) == [6.0]
    assert not scene.merged and scene.server.view.version == 0
    scene.arrive(0, at=5.0)
    scene.wake(6.0)
    assert [(record.time, record.partial) for record in scene.merged] == [(6.0, False)]


def test_every_takes_any_number_of_updates() -> None:
    scene = Scene(loop(trigger.every(100.0), fresh=False), 2, parameters=vec(0, 0))
    for arrival in range(40):
        scene.arrive(arrival % 2)
    scene.wake(100.0)
    assert scene.weights == [[1 / 40] * 40] and scene.parameters == pytest.approx([0.5, 0.5])


@pytest.mark.parametrize("interval", [0.1, 1 / 3, 0.7, 3.0])
def test_ticks_are_exact_multiples(interval: float) -> None:
    scene = Scene(loop(trigger.every(interval)), 1)
    ticks = wakes(scene.first)
    while len(ticks) < 3000:
        ticks += wakes(scene.wake(ticks[-1]))
    assert ticks == [tick * interval for tick in range(1, 3001)]


def test_a_tick_is_asked_for_once() -> None:
    scene = Scene(loop(trigger.every(10.0)), 3)
    assert [wakes(scene.arrive(client)) for client in range(3)] == [[], [], []]


def test_ticks_go_on_after_months() -> None:
    last = 20_971_524  # (last * 0.1) / 0.1 rounds to less than last
    scene = Scene(loop(trigger.every(0.1)), 1)
    assert wakes(scene.wake(last * 0.1)) == [(last + 1) * 0.1]


def test_a_quorum_merges_when_full_or_at_the_deadline_since_the_last_version() -> None:
    scene = Scene(loop(trigger.quorum(2, deadline=5.0)), 3)
    assert wakes(scene.first) == [5.0]
    scene.arrive(0, at=1.0)
    assert wakes(scene.arrive(1, at=2.0)) == [7.0]
    assert scene.wake(5.0) == [], "that deadline was of the version before"
    scene.arrive(0, at=6.0)
    assert wakes(scene.wake(7.0)) == [12.0]
    assert scene.wake(12.0) == [] and scene.server.view.version == 2, "nothing has arrived"
    assert wakes(scene.arrive(2, at=13.0)) == [18.0], "the deadline has passed: the first arrival is enough"
    assert [(record.time, len(record.tasks), record.partial) for record in scene.merged] == [
        (2.0, 2, False),
        (7.0, 1, False),
        (13.0, 1, False),
    ]


def test_the_first_deadline_counts_from_the_first_client() -> None:
    scene = Scene(loop(trigger.quorum(2, deadline=5.0)), 2, join=False)
    scene.join(at=0.0)
    assert wakes(scene.join(0, 1, at=3.0)) == [8.0]


def test_a_cohort_picks_more_than_it_needs_and_cancels_the_rest() -> None:
    scene = Scene(zoo.fedavg(cohort=2, over=0.5), 3, parameters=vec(0, 0, 0))
    assert len(handed(scene.first)) == 3
    scene.arrive(2, examples=1)
    commands = scene.arrive(0, examples=3)
    assert cancelled(commands) == [scene.first[[client for client, _ in handed(scene.first)].index(1)][0]]
    assert sorted(handed(commands)) == [(0, 1), (1, 1), (2, 1)]
    assert [(end.task.client, end.outcome, end.reason) for end in scene.ended] == [
        (1, Outcome.CANCELLED, "the round is over")
    ]
    assert scene.parameters == [0.75, 0.0, 0.25] and scene.server.counts["cancelled"] == 1


def test_a_cancelled_update_that_comes_all_the_same_is_refused() -> None:
    scene = Scene(zoo.fedavg(cohort=1, over=1.0), 2, parameters=vec(0, 0))
    late = scene.tasks[1]
    scene.arrive(0)
    scene.tasks[1] = late
    assert scene.arrive(1) == [] and scene.server.refusals == {"replay of a task that has ended": 1}
    assert scene.parameters == [1.0, 0.0]


def test_at_the_deadline_what_is_in_is_merged_and_the_late_one_cancelled() -> None:
    scene = Scene(zoo.fedavg(cohort=2, deadline=5.0), 2, parameters=vec(0, 0))
    assert wakes(scene.first) == [5.0]
    scene.arrive(0, at=2.0)
    late = scene.tasks[1].task
    commands = scene.wake(5.0)
    assert cancelled(commands) == [late] and len(handed(commands)) == 2 and wakes(commands) == [10.0]
    assert scene.weights == [[1.0]] and scene.parameters == [1.0, 0.0] and not scene.merged[0].partial


def test_a_deadline_with_an_empty_buffer_waits_for_the_first_arrival() -> None:
    scene = Scene(zoo.fedavg(cohort=2, deadline=5.0), 2, parameters=vec(0, 0))
    assert scene.wake(5.0) == []
    late = scene.tasks[0].task
    commands = scene.arrive(1, at=7.0)
    assert cancelled(commands) == [late] and len(handed(commands)) == 2 and wakes(commands) == [12.0]
    assert scene.parameters == [0.0, 1.0]


def test_a_cohort_does_not_wait_for_members_that_left_or_failed() -> None:
    scene = Scene(zoo.fedavg(cohort=3), 3, parameters=vec(0, 0, 0))
    scene.arrive(0)
    scene.leave(1)
    commands = scene.fail(2)
    assert sorted(handed(commands)) == [(0, 1), (2, 1)] and scene.parameters == [1.0, 0.0, 0.0]


def test_a_cohort_that_all_failed_is_picked_again_from_the_same_version() -> None:
    scene = Scene(zoo.fedavg(cohort=2), 2)
    assert scene.fail(0) == []
    assert sorted(handed(scene.fail(1))) == [(0, 0), (1, 0)]


def test_a_count_is_refused_in_rounds() -> None:
    """A round of two never fills a buffer of five, nor one of two from which a client vanished."""
    for number in (2, 5):
        with pytest.raises(StrategyError, match=rf"count\({number}\) may wait for ever: a round"):
            replace(zoo.fedavg(cohort=2), trigger=trigger.count(number))


@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf])
def test_triggers_refuse_what_is_not_positive(value: float) -> None:
    makes: list[Callable[[], object]] = [
        lambda: trigger.count(value),  # type: ignore[arg-type]
        lambda: trigger.every(value),
        lambda: trigger.quorum(value, deadline=1.0),  # type: ignore[arg-type]
        lambda: trigger.quorum(1, deadline=value),
    ]
    for make in makes:
        with pytest.raises(StrategyError, match=f"is {value}, it must be a positive (whole )?number"):
            make()
