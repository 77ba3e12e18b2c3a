"""The schedule of a fleet: the same comings and goings as each client's own periods, in order, and saved anywhere."""

from itertools import takewhile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlag.fleet import availability, schedule
from fairlag.fleet.clients import Fleet, Group
from fairlag.fleet.delay import Constant
from fairlag.fleet.schedule import Schedule

PATTERNS = (
    "always",
    "daily(8, 20)",
    "daily(22.5, 6, 3)",
    "alternating(60, 30)",
    "alternating(uniform(0, 900), exponential(2000))",
)
Entry = tuple[float, bool, int]


@st.composite
def fleets(draw: st.DrawFn) -> Fleet:
    groups = [
        Group(
            str(place),
            draw(st.integers(1, 4)),
            Constant(1),
            availability.parse(draw(st.sampled_from(PATTERNS))),
            join=draw(st.sampled_from((0.0, 60.0, 30_000.0))),
            leave=draw(st.sampled_from((np.inf, 30_001.0, 90_000.0))),
        )
        for place in range(draw(st.integers(1, 3)))
    ]
    return Fleet(groups, seed=draw(st.integers(0, 9)))


def entries(made: Schedule, count: int) -> list[Entry]:
    """The next entries, one for each client."""
    found: list[Entry] = []
    while len(found) < count and (moment := made.next) is not None:
        found += [(*moment, client) for client in made.take()]
    return found


def own_periods(fleet: Fleet, until: float) -> list[Entry]:
    """All that each client's own periods say, in the order of time, goings before comings."""
    found: list[Entry] = []
    for client in range(fleet.clients):
        for start, end in takewhile(lambda period: period[0] <= until, fleet.periods(client)):
            found += [(start, True, client), (end, False, client)]
    return sorted(each for each in found if each[0] <= until)


@settings(max_examples=60, deadline=None)
@given(fleet=fleets(), block=st.sampled_from((4, 8192)))
def test_it_is_what_the_periods_of_the_clients_say(fleet: Fleet, block: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schedule, "_BLOCK", block)
        found = entries(Schedule(fleet), 300)
    times = [(time, comes) for time, comes, _ in found]
    assert times == sorted(times)
    over = len(found) < 300  # then nothing is missing, and otherwise nothing before the last moment
    expected = own_periods(fleet, 1e9 if over else np.nextafter(found[-1][0], 0))
    assert sorted(found)[: len(expected)] == expected and (not over or len(found) == len(expected))


@settings(max_examples=60, deadline=None)
@given(fleet=fleets(), taken=st.integers(0, 50))
def test_it_goes_on_where_it_was_saved(fleet: Fleet, taken: int) -> None:
    original, other = Schedule(fleet), Schedule(fleet)
    entries(original, taken)
    other.restore(original.state())
    assert other.expects == original.expects
    assert entries(other, 100) == entries(original, 100)


def test_those_who_leave_together_go_in_the_order_in_which_they_came() -> None:
    groups = [Group("late", 1, Constant(1), join=5.0, leave=9.0), Group("early", 2, Constant(1), leave=9.0)]
    made = Schedule(Fleet(groups, seed=0))
    assert [(made.next, made.take()) for _ in range(5)] == [
        ((0.0, True), [1, 2]),
        ((5.0, True), [0]),
        ((9.0, False), [1]),
        ((9.0, False), [2]),
        ((9.0, False), [0]),
    ]
    assert made.next is None and not made.expects


def test_somebody_is_expected_as_long_as_somebody_comes() -> None:
    made = Schedule(Fleet([Group("two", 2, Constant(1), join=5.0, leave=9.0)], seed=0))
    assert made.expects
    made.take()
    assert not made.expects and made.next == (9.0, False)


def test_a_hundred_thousand_clients_come_and_go_within_a_day() -> None:
    night = Group("night", 100_000, Constant(1), availability.parse("daily(20, 7, 2)"))
    made = Schedule(Fleet([night], seed=0))
    assert len(entries(made, 100_000)) == 100_000  # at time 0, all at once
    found = entries(made, 200_000)
    assert found == sorted(found) and found[-1][0] < 86_400
    assert sum(comes for _, comes, _ in found) == 100_000
