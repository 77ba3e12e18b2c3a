"""Who of a fleet is there when: the same as counted client by client."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlag.analyse.presence import CLIENTS, presence
from fairlag.errors import InputError
from fairlag.fleet.availability import between, parse
from fairlag.fleet.clients import Fleet, Group
from fairlag.fleet.delay import Constant, Uniform
from tests.support.worlds import groups


@settings(max_examples=50, deadline=None)
@given(groups(), st.integers(0, 2**32), st.sampled_from([7.0, 100.0, 3000.0]))
def test_the_same_as_counted_client_by_client(made: list[Group], seed: int, until: float) -> None:
    fleet = Fleet(made, seed=seed)
    found = presence(fleet, until)
    for number, group in enumerate(found.groups):
        periods = [list(between(fleet.periods(client), 0, until)) for client in fleet.members(number)]
        rows = sorted((who, *period) for who, mine in enumerate(periods) for period in mine)
        assert sorted(zip(group.who.tolist(), group.starts.tolist(), group.ends.tolist(), strict=True)) == rows
        counted = [sum(start <= now < end for _, start, end in rows) for now in found.moments]
        assert group.present.tolist() == counted
        assert group.duty(until) == pytest.approx(sum(end - start for _, start, end in rows) / until / len(periods))
        drawn = sorted(fleet.duration(client, task) for client in fleet.members(number) for task in range(20))
        assert group.durations == pytest.approx(drawn)


def test_of_a_large_group_some_clients_stand_for_all() -> None:
    fleet = Fleet([Group("all", 4_000, Uniform(1, 2), parse("alternating(exponential(60), exponential(30))"))], seed=1)
    (group,) = presence(fleet, 600.0).groups
    assert (group.clients, group.seen) == (4_000, CLIENTS)
    assert group.duty(600.0) == pytest.approx(2 / 3, abs=0.02)
    assert group.present.mean() == pytest.approx(4_000 * 2 / 3, rel=0.03)
    assert group.durations.mean() == pytest.approx(1.5, rel=0.01)


def test_a_fleet_that_comes_and_goes_too_often_is_refused() -> None:
    fleet = Fleet([Group("all", 500, Constant(1), parse("alternating(0.01, 0.01)"))], seed=0)
    with pytest.raises(InputError, match="group 'all' comes and goes too often up to 86400 s"):
        presence(fleet, 86_400.0)
    assert np.isfinite(presence(fleet, 1.0).groups[0].duty(1.0))
