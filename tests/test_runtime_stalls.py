"""Runs that cannot go on, in both runtimes: each ends at once, and says which strategy waits for what.

Every run here has an `until_time` too, an hour away, and so a Woke that is due: nobody may idle until then.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from fairlag import zoo
from fairlag.core.server import Server
from fairlag.core.strategy import Strategy
from fairlag.core.types import Dispatch, Report, Stop, Update
from fairlag.core.vector import EMPTY
from fairlag.errors import StalledError, StrategyError
from fairlag.execute import Executor
from fairlag.execute.nothing import Nothing
from fairlag.fleet.availability import parse as available
from fairlag.fleet.clients import Fleet, Group
from fairlag.fleet.delay import parse
from fairlag.rules import select, trigger, utility, weigh
from fairlag.runtime import threads, virtual
from fairlag.runtime.agenda import Watchdog
from fairlag.runtime.presence import NOTHING_MORE
from fairlag.runtime.virtual import Simulation

AN_HOUR = 3600.0
Runtime = Callable[[Server, Fleet, Executor], Stop]


def in_threads(server: Server, fleet: Fleet, executor: Executor) -> Stop:
    return threads.run(server, fleet, executor, speed=100.0)


BOTH = pytest.mark.parametrize("runtime", [virtual.run, in_threads], ids=["virtual", "threads"])
BOTH_TIMED = pytest.mark.parametrize(
    "runtime", [virtual.run, pytest.param(in_threads, marks=pytest.mark.slow)], ids=["virtual", "threads"]
)
"""For tests in which updates must come before a moment of the fleet: on threads they have two seconds or more."""


class OddLosses(Nothing):
    """No two losses are alike."""

    def result(self, task: Dispatch) -> Update:
        return Update(EMPTY, Report(loss=10.0 * task.task))


def lived(
    runtime: Runtime, strategy: Strategy, *groups: Group, executor: Executor | None = None, until: float = AN_HOUR
) -> tuple[Server, Stop]:
    fleet = Fleet(groups, seed=0)
    server = Server(strategy, clients=fleet.clients, until_time=until)
    return server, runtime(server, fleet, executor or Nothing())


def stalled(
    runtime: Runtime, strategy: Strategy, *groups: Group, executor: Executor | None = None, until: float = AN_HOUR
) -> str:
    """What is said of the run, apart from the time and the strategy."""
    with pytest.raises(StalledError) as caught:
        lived(runtime, strategy, *groups, executor=executor, until=until)
    words = re.fullmatch(
        rf"nothing more can happen after time ([\d.]+): {re.escape(repr(strategy))} (has .*)", str(caught.value)
    )
    assert words is not None, caught.value
    assert float(words[1]) < until
    return words[2]


# Credit that bars everyone


BARRED = zoo.pisces(concurrency=2, credit=1)


@BOTH
@pytest.mark.parametrize(
    "life",
    [
        {},
        {"leave": 1000.0},  # who only goes away brings nothing either
        {"availability": available("alternating(40, 20)")},  # nor does who comes back, but is barred
    ],
    ids=["steady", "leaving", "coming and going"],
)
def test_credit_that_bars_everyone_ends_the_run(runtime: Runtime, life: dict[str, Any]) -> None:
    group = replace(Group("odd", 3, parse("uniform(1, 2)")), **life)
    assert stalled(runtime, BARRED, group, executor=OddLosses()) == (
        "has 0 of the 1 updates it waits for, 0 tasks are running, 3 clients are present, "
        "but 3 of 3 clients have no credit left"
    )


@BOTH
def test_what_barred_clients_still_sent_waits_for_nobody(runtime: Runtime) -> None:
    """With a count instead of Pisces' pace, the last updates fill no buffer and are merged all the same."""
    strategy = replace(BARRED, trigger=trigger.count(4), select=utility.by_utility(3, credit=utility.Credit(1)))
    assert stalled(runtime, strategy, Group("odd", 3, parse("uniform(1, 1.1)")), executor=OddLosses()) == (
        "has 0 of the 4 updates it waits for, 0 tasks are running, 3 clients are present, "
        "but 3 of 3 clients have no credit left"
    )


def test_when_some_are_barred_the_others_are_waited_for() -> None:
    """Two are barred; two more, who come much later and have losses alike, go on."""

    class Late(OddLosses):
        def result(self, task: Dispatch) -> Update:
            return super().result(task) if task.client < 2 else Update(EMPTY, Report(loss=1.0))

    groups = Group("odd", 2, parse("uniform(1, 2)")), Group("late", 2, parse("uniform(1, 2)"), join=3000.0)
    server, stop = lived(virtual.run, zoo.pisces(concurrency=2, credit=20), *groups, executor=Late(), until=3100.0)
    assert stop == Stop("time 3100.0 was reached") and server.barred == 2
    assert server.view.update_counts[:2].sum() < 60 and (server.view.update_counts[2:] > 50).all()


# Selectors that pick nobody


class Nobody(select.Selector):
    """Never picks anybody."""

    def free(self, client: int, current: bool, pending: bool) -> None:
        pass

    def gone(self, client: int) -> None:
        pass

    def pick(self) -> Sequence[int]:
        return ()


class Once(Nobody):
    """Picks whoever is first free, and nobody ever after."""

    def __init__(self) -> None:
        super().__init__()
        self.first: list[int] | None = []

    def free(self, client: int, current: bool, pending: bool) -> None:
        if self.first is not None:
            self.first.append(client)

    def pick(self) -> Sequence[int]:
        picked, self.first = self.first or (), None
        return picked


NOBODY = select.Select("nobody()", lambda view, stream: Nobody())
ONCE = select.Select("once()", lambda view, stream: Once())


@BOTH
@pytest.mark.parametrize("when", [trigger.count(2), trigger.every(60.0)], ids=["count", "every"])
def test_a_selector_that_never_picks_anybody_is_noticed(runtime: Runtime, when: trigger.Trigger) -> None:
    words = stalled(runtime, Strategy(NOBODY, when, weigh.uniform), Group("idle", 3, parse("1")))
    assert words == (
        f"has 0 of the {when.needs} updates it waits for, 0 tasks are running, 3 clients are present, "
        "but nobody() picks none of them"
    )


@BOTH
def test_a_buffer_that_cannot_fill_is_noticed(runtime: Runtime) -> None:
    words = stalled(runtime, Strategy(ONCE, trigger.count(5), weigh.uniform), Group("idle", 3, parse("1")))
    assert words == (
        "has 3 of the 5 updates it waits for, 0 tasks are running, 3 clients are present, but once() picks none of them"
    )


@BOTH_TIMED
def test_a_quorum_that_cannot_fill_is_merged_at_its_deadline(runtime: Runtime) -> None:
    strategy = Strategy(ONCE, trigger.quorum(5, deadline=300.0), weigh.uniform)
    fleet, merged = Fleet([Group("idle", 3, parse("1"))], seed=0), Server(strategy, clients=3, until_time=AN_HOUR)
    with pytest.raises(StalledError, match="has 0 of the 1 updates it waits for, 0 tasks are running, 3 clients"):
        runtime(merged, fleet, Nothing())
    assert merged.view.version == 1 and merged.view.time >= 300.0


# Clients that are gone


@BOTH_TIMED
@pytest.mark.parametrize(
    "strategy",
    [
        zoo.fedavg(cohort=4),
        zoo.fedavg(cohort=4, over=0.5, deadline=5.0),
        zoo.fedbuff(buffer=4, concurrency=10),
        zoo.fedstaleweight(buffer=4),
        zoo.fedasync(),
        zoo.fedfix(interval=30.0),
        zoo.safa(share=1.0),
        zoo.safa(share=1.0, deadline=5.0),
        zoo.pisces(concurrency=10),
    ],
    ids=lambda strategy: strategy.select.label + strategy.trigger.label,
)
def test_a_fleet_that_has_gone_for_good_ends_the_run_before_its_time(runtime: Runtime, strategy: Strategy) -> None:
    server, stop = lived(runtime, strategy, Group("guests", 6, parse("uniform(1, 2)"), leave=200.0))
    assert stop == NOTHING_MORE and server.view.version >= 1


@pytest.mark.parametrize("deadline", [None, 5.0])
@pytest.mark.parametrize("strategy", ["fedavg", "safa"])
def test_a_quota_that_most_have_left_is_filled_by_the_others(strategy: str, deadline: float | None) -> None:
    """Nine of ten are gone: the last one makes versions by itself, with and without a deadline."""
    made = zoo.safa(share=1.0, deadline=deadline) if strategy == "safa" else zoo.fedavg(cohort=10, deadline=deadline)
    groups = Group("most", 9, parse("1"), leave=10.0), Group("last", 1, parse("1"))
    server, stop = lived(virtual.run, made, *groups, until=100.0)
    assert stop == Stop("time 100.0 was reached") and server.view.version > 90


@pytest.mark.parametrize(
    "strategy", [zoo.fedavg(cohort=3), zoo.safa(share=1.0), zoo.fedfix(), zoo.pisces(), zoo.fedstaleweight(buffer=3)]
)
def test_who_comes_back_much_later_is_waited_for(strategy: Strategy) -> None:
    groups = Group("soon", 2, parse("1"), leave=20.0), Group("late", 1, parse("1"), join=1e6)
    server, stop = lived(virtual.run, strategy, *groups, until=1e6 + 30)
    assert stop == Stop("time 1000030.0 was reached") and server.view.update_counts[2] > 3


def test_a_cohort_whose_members_vanish_goes_on_with_the_next() -> None:
    group = Group("shy", 4, parse("10"), vanish=0.9, away=parse("1e5"))
    server, stop = lived(virtual.run, zoo.fedavg(cohort=4), group, until=1e7)
    assert stop == Stop("time 10000000.0 was reached") and server.view.version > 10 and server.counts["lost"] > 50


@pytest.mark.parametrize("make", [zoo.safa, zoo.pisces, zoo.fedfix, zoo.fedavg, zoo.asyncfeded])
def test_updates_that_are_all_refused_are_noticed(make: Callable[[], Strategy]) -> None:
    strategy = replace(make(), admit=lambda update, task, view: "never")
    with pytest.raises(StalledError) as caught:
        lived(virtual.run, strategy, Group("all", 10, parse("uniform(1, 2)")), until=1e9)
    message = str(caught.value)
    assert message.startswith("no progress in ") and f": {strategy} has 0 of the " in message
    assert message.endswith(" refused (most of them: never)")


@pytest.mark.parametrize("strategy", [zoo.fedbuff(buffer=5, concurrency=100), zoo.pisces(concurrency=100)])
def test_a_fleet_of_fewer_clients_than_places_goes_on(strategy: Strategy) -> None:
    server, _ = lived(virtual.run, strategy, Group("few", 2, parse("1")), until=50.0)
    assert server.view.version > 15


def test_a_fleet_of_fewer_clients_than_a_cohort_is_refused() -> None:
    with pytest.raises(StrategyError, match=r"^cohort\(10\) needs 10 clients, the fleet has 2$"):
        lived(virtual.run, zoo.fedavg(cohort=10), Group("few", 2, parse("1")))


# What is no stall


@pytest.mark.parametrize(
    "strategy",
    [
        Strategy(select.concurrency(2), trigger.every(20_000.0), weigh.uniform),
        Strategy(select.all_idle(fresh=False), trigger.quorum(10**6, deadline=20_000.0), weigh.uniform),
    ],
    ids=["every", "quorum"],
)
def test_many_updates_on_the_way_to_a_moment_are_no_stall(strategy: Strategy) -> None:
    server = Server(strategy, clients=2, aggregations=2)
    assert virtual.run(server, Fleet([Group("quick", 2, parse("1"))], seed=0)) == Stop("2 aggregations were made")
    assert server.counts["aggregated"] >= 79_990


@BOTH
def test_a_trigger_that_puts_off_its_moment_for_ever_is_noticed(runtime: Runtime) -> None:
    put_off = trigger.Trigger("put_off()", lambda view: False, lambda view: view.time + 0.01)
    server = Server(Strategy(select.all_idle(fresh=False), put_off, weigh.uniform), clients=2)
    with pytest.raises(StalledError, match=r"^no progress in 1\d{4} events.* trigger=put_off\(\)"):
        runtime(server, Fleet([Group("quick", 2, parse("0.01"))], seed=0), Nothing())


def test_a_trigger_needs_at_least_one_update() -> None:
    with pytest.raises(StrategyError, match=r"^the number of updates that a trigger needs is 0, it must be a positive"):
        trigger.Trigger("mine()", lambda view: True, needs=0)


def test_the_watchdog_remembers_all_it_has_seen() -> None:
    fleet = Fleet([Group("all", 2, parse("1"))], seed=0)

    def fresh() -> Simulation:
        return Simulation(Server(zoo.fedfix(interval=3000.0), clients=2), fleet)

    simulation, other = fresh(), fresh()
    simulation.proceed(events=2500)
    other.restore(simulation.state())
    found, kept = (
        {name: value for name, value in vars(each._watchdog).items() if not isinstance(value, Server)}
        for each in (simulation, other)
    )
    assert found == kept and isinstance(simulation._watchdog, Watchdog) and found["_reached"] != (0, 0)
