"""Rounds, deadlines and times on a fleet: what is called off, what waits its turn, and what a restart finds."""

from collections.abc import Callable

import pytest

from fairlag.core.state import take
from fairlag.core.strategy import Strategy
from fairlag.core.types import Outcome
from fairlag.zoo import buffered_fedavg, fedavg, fedfix, safa
from tests.support.flower_bench import Bench, four
from tests.support.flower_grid import failing

pytestmark = pytest.mark.usefixtures("quick_grid")


@pytest.mark.parametrize(
    "strategy",
    [
        fedavg(cohort=3, deadline=0.1),
        fedavg(cohort=2, over=1.0),
        safa(share=0.5, lag=2, deadline=0.1),
        fedfix(interval=0.05),
    ],
    ids=str,
)
def test_slow_and_failing_nodes_hang_no_round(strategy: Strategy, bench: Callable[..., Bench]) -> None:
    grid = four(seconds=0.01)
    grid.nodes[101].answer = failing
    grid.nodes[103].seconds = 0.3
    made = bench(grid, strategy, aggregations=15, at_least=4)
    assert made.to_the_end().reason == "15 aggregations were made"


def test_a_node_finishes_what_was_called_off_before_it_is_sent_more(bench: Callable[..., Bench]) -> None:
    """Otherwise its tasks pile up, and it would train for ever what nobody waits for any more."""
    grid = four(seconds=0.01)
    slow = grid.nodes[103]
    slow.seconds = 0.4
    made = bench(grid, fedavg(cohort=3, over=0.3), aggregations=80, at_least=4)
    made.to_the_end()
    assert sum(outcome is Outcome.CANCELLED for _, outcome, _ in made.ended) >= 50
    assert 2 <= len(slow.sent) <= 2 + made.server.view.time / 0.4
    versions = [int(message.metadata.group_id) for _, message in slow.sent]
    assert versions == sorted(set(versions)) and versions[-1] > len(versions)  # the newest each time
    assert grid.waiting <= 4  # and what came of it is taken, not left at the SuperLink


def test_what_waited_for_a_node_is_sent_and_counts(bench: Callable[..., Bench]) -> None:
    grid = four(seconds=0.02)
    grid.nodes[103].seconds = 0.03
    made = bench(grid, fedavg(cohort=3, over=0.3), aggregations=60, at_least=4)
    made.until(lambda: len(grid.nodes[103].sent) >= 3)
    for each in (100, 101, 102):
        grid.nodes[each].seconds = 0.3
    made.until(lambda: made.updates(3) > 0)


def test_what_is_over_is_over_after_a_restart(bench: Callable[..., Bench]) -> None:
    first = bench(four(), aggregations=3, at_least=4)
    stop = first.to_the_end()
    second = bench(four(), aggregations=3, at_least=4)
    second.link.restore(first.link.state())
    assert second.link.proceed(1) == stop


def test_a_round_that_a_restart_completes_may_be_the_last(bench: Callable[..., Bench]) -> None:
    grid = four(seconds=0.01)
    grid.nodes[103].answer = lambda message: None
    first = bench(grid, fedavg(cohort=4), aggregations=1, at_least=4)
    first.until(lambda: first.server.view.buffered == 3)
    second = bench(grid, fedavg(cohort=4), aggregations=1, at_least=4)
    second.link.restore(first.link.state())
    assert second.to_the_end().reason == "1 aggregations were made"
    assert second.server.versions.newest.tolist() == [0.5] * 3


def test_versions_that_only_running_tasks_need_are_not_saved(bench: Callable[..., Bench]) -> None:
    grid = four(seconds=0.01)
    for each in (102, 103):
        grid.nodes[each].seconds = 60.0
    first = bench(grid, buffered_fedavg(buffer=1), aggregations=20, at_least=4)
    first.until(lambda: first.server.view.version == 7)
    assert {0, 7} <= set(first.server.versions.kept)
    state = first.link.state()
    versions = take(take(state, "server", dict), "versions", dict)
    assert list(take(versions, "parameters", dict)) == ["7"]
    second = bench(grid, buffered_fedavg(buffer=1), aggregations=20, at_least=4)
    second.link.restore(state)
    assert second.server.versions.kept == (7,)
    assert second.server.versions.newest.tolist() == first.server.versions.newest.tolist()
    second.to_the_end()
