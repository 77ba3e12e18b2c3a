"""Fleets: numbering, addressed draws that nothing else changes, throttling, transfers, steps, presence, vanishing."""

from dataclasses import replace
from itertools import islice
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlag.core import seeds
from fairlag.errors import InputError
from fairlag.fleet import availability
from fairlag.fleet.clients import Fleet, Group
from fairlag.fleet.delay import parse
from fairlag.fleet.timing import Throttle
from tests.support.worlds import DELAYS

FAST = Group("fast", 3, parse("uniform(1, 2)"))
SLOW = Group("slow", 2, parse("lognormal(10, 0.5)"), vanish=0.5, away=parse("exponential(3)"))
MANY = Group("many", 900_000, parse("1"))
NIGHT = Group("night", 2, parse("gamma(2, 50)"), availability.parse("alternating(exponential(60), exponential(30))"))


def draws(fleet: Fleet, client: int) -> list[object]:
    """Everything that a fleet draws for a client, up to a point."""
    tasks = range(150)  # more than two blocks of drawing ahead
    return [
        [fleet.duration(client, ordinal) for ordinal in tasks],
        list(islice(fleet.periods(client), 20)),
        [fleet.vanishes(client, ordinal) for ordinal in tasks],
    ]


def test_clients_are_numbered_through_the_groups() -> None:
    fleet = Fleet([FAST, SLOW, NIGHT], seed=0)
    assert fleet.clients == 7 and fleet.group_of.tolist() == [0, 0, 0, 1, 1, 2, 2]
    assert [fleet.members(group) for group in range(3)] == [range(0, 3), range(3, 5), range(5, 7)]


def test_a_duration_is_the_quantile_of_the_draw_at_its_address() -> None:
    fleet = Fleet([FAST, SLOW], seed=3)
    stream = seeds.subkey(seeds.key(3, "delay", "slow"), 1)
    for ordinal in (0, 63, 64, 1000, 5):
        assert fleet.duration(4, ordinal) == SLOW.delay.quantile(seeds.uniform(stream, ordinal))


def test_durations_do_not_depend_on_the_order_of_asking() -> None:
    forwards, backwards = Fleet([FAST, SLOW], seed=0), Fleet([FAST, SLOW], seed=0)
    addresses = [(client, ordinal) for ordinal in range(0, 200, 7) for client in range(5)]
    assert [forwards.duration(*each) for each in addresses] == [
        backwards.duration(*each) for each in reversed(addresses)
    ][::-1]


def test_a_large_fleet_draws_the_same_durations() -> None:
    groups = [Group("some", 5000, SLOW.delay), Group("fast", 70_000, FAST.delay)]
    small, large, larger = Fleet(groups[:1], seed=0), Fleet(groups, seed=0), Fleet([*groups, MANY], seed=0)
    for client in (2, 1023, 1024, 4999):  # those at the edges of a block, and of a group
        drawn = [small.duration(client, ordinal) for ordinal in range(70)]
        assert drawn == [large.duration(client, ordinal) for ordinal in range(70)]
        assert drawn == [larger.duration(client, ordinal) for ordinal in range(70)]


def test_durations_drawn_one_by_one_and_together_are_the_same() -> None:
    groups = [Group("lines", 1500, SLOW.delay, upload=parse("lognormal(2, 1)")), Group("fast", 700, FAST.delay)]
    forwards, backwards = (Fleet(groups, seed=0, model_bytes=10**6).planned({1499: Throttle(3.0)}) for _ in range(2))
    for ordinal in (0, 3):  # of later tasks, those that come first are drawn one by one
        drawn = [forwards.duration(client, ordinal) for client in range(2200)]
        assert drawn == [backwards.duration(client, ordinal) for client in reversed(range(2200))][::-1]
        assert len(set(drawn)) == 2200


@pytest.mark.parametrize(
    ("groups", "before", "after"),
    [
        ([NIGHT, FAST, SLOW], 0, 2),  # another group in front
        ([FAST, SLOW, NIGHT], 0, 0),  # and behind
        ([Group("fast", 9, FAST.delay), SLOW], 0, 0),  # a larger group: its first clients
    ],
)
def test_more_groups_and_more_clients_change_nobodys_draws(groups: list[Group], before: int, after: int) -> None:
    old, new = Fleet([FAST, SLOW], seed=1), Fleet(groups, seed=1)
    for client in range(3):
        assert draws(old, before + client) == draws(new, after + client)
    slow_before, slow_after = old.members(1), new.members([group.name for group in groups].index("slow"))
    for one, other in zip(slow_before, slow_after, strict=True):
        assert draws(old, one) == draws(new, other)


def test_seeds_groups_and_places_have_draws_of_their_own() -> None:
    twins = [Group("a", 2, FAST.delay), Group("b", 2, FAST.delay)]
    first = [fleet.duration(client, 0) for fleet in (Fleet(twins, seed=0), Fleet(twins, seed=1)) for client in range(4)]
    assert len(set(first)) == 8


def test_a_throttled_client_takes_longer_and_nobody_else_changes() -> None:
    fleet = Fleet([FAST, SLOW, NIGHT], seed=0)
    throttled = fleet.planned({1: Throttle(8.0)})
    for client in range(7):
        factor = 8.0 if client == 1 else 1.0
        assert throttled.duration(client, 70) == fleet.duration(client, 70) * factor
        assert draws(throttled, client)[1:] == draws(fleet, client)[1:]
    assert (throttled.mean_durations / fleet.mean_durations).tolist() == [1, 8, 1, 1, 1, 1, 1]
    assert throttled.planned({1: Throttle(0.5)}).duration(1, 70) == fleet.duration(1, 70) / 2
    assert throttled.planned({0: Throttle(3.0)}).duration(1, 70) == fleet.duration(1, 70) * 8


@pytest.mark.parametrize(("client", "factor"), [(7, 2.0), (-1, 2.0), (0, 0.0), (0, -1.0), (0, float("nan"))])
def test_senseless_throttling_is_refused(client: int, factor: float) -> None:
    with pytest.raises(InputError):
        Fleet([FAST, SLOW, NIGHT], seed=0).planned({client: Throttle(factor)})


def test_transfers_add_the_time_that_the_line_takes() -> None:
    lines = Group("lines", 2, parse("constant(10)"), download=parse("constant(8)"), upload=parse("constant(2)"))
    fleet = Fleet([lines], seed=0, model_bytes=4_000_000)  # 32 megabits: 4 s down, 16 s up
    assert fleet.duration(0, 0) == pytest.approx(30) and fleet.mean_durations == pytest.approx([30, 30])
    assert fleet.planned({0: Throttle(2.0)}).duration(0, 0) == pytest.approx(60)
    assert Fleet([lines], seed=0).duration(0, 0) == 10


def test_a_line_is_drawn_once_per_client() -> None:
    group = Group("lines", 3, parse("constant(1)"), upload=parse("lognormal(2, 1)"))
    fleet = Fleet([group], seed=0, model_bytes=1_000_000)
    durations = [[fleet.duration(client, ordinal) for ordinal in range(100)] for client in range(3)]
    assert all(len(set(each)) == 1 for each in durations) and len({each[0] for each in durations}) == 3
    stream = seeds.subkey(seeds.key(0, "upload", "lines"), 2)
    assert durations[2][0] == pytest.approx(1 + 8 / parse("lognormal(2, 1)").quantile(seeds.uniform(stream, 0)))


def test_overhead_is_added_to_each_task_with_draws_of_its_own() -> None:
    said = "lognormal(3, 0.5)"
    groups = [FAST, replace(SLOW, overhead=parse(said), upload=parse(2), per="step", steps=3), replace(NIGHT, count=3)]
    fleet = Fleet(groups, seed=4, model_bytes=1_000_000)  # 8 megabits: 4 s up
    plain = Fleet([FAST, replace(groups[1], overhead=None), groups[2]], seed=4, model_bytes=1_000_000)
    stream = seeds.subkey(seeds.key(4, "overhead", "slow"), 1)
    for ordinal in (0, 8, 300):
        work = SLOW.delay.quantile(seeds.uniform(seeds.subkey(seeds.key(4, "delay", "slow"), 1), ordinal))
        added = parse(said).quantile(seeds.uniform(stream, ordinal))
        assert fleet.duration(4, ordinal) == 3 * work + added + 4
        assert fleet.duration(4, ordinal, 1) == work + added + 4
        assert fleet.planned({4: Throttle(2.0)}).duration(4, ordinal) == 2 * (3 * work + added + 4)
    for client in (0, 1, 2, 5, 6, 7):
        assert draws(fleet, client) == draws(plain, client)
    assert draws(fleet, 3)[1:] == draws(plain, 3)[1:]
    more = parse(said).mean
    np.testing.assert_allclose(fleet.mean_durations - plain.mean_durations, [0, 0, 0, more, more, 0, 0, 0])


@pytest.mark.parametrize("count", [5, 5000, 300_000])
def test_overhead_is_the_same_however_durations_are_drawn(count: int) -> None:
    """One by one, for a block of clients at once, or ahead; without room, always one by one."""
    group = Group("all", count, parse("uniform(1, 2)"), overhead=parse("exponential(5)"))
    fleet, alone = (Fleet([group], seed=2) for _ in range(2))
    clients, ordinals = np.arange(min(count, 1100)), np.array([0, 1, 7, 8, 20])
    found = fleet.durations(clients, np.tile(ordinals, (len(clients), 1)))
    for place, ordinal in enumerate(ordinals.tolist()):
        assert [alone.duration(client, ordinal) for client in clients.tolist()] == found[:, place].tolist()


def test_a_delay_per_step_is_multiplied_by_the_steps_of_the_task() -> None:
    groups = [
        Group("whole", 1, parse(10), steps=7),
        Group("usual", 2, parse(2.5), per="step"),
        Group("own", 1, parse(3), per="step", steps=5),
    ]
    fleet = Fleet(groups, seed=0, steps=4)
    assert fleet.per_step and fleet.steps.tolist() == [7, 4, 4, 5]
    assert fleet.mean_durations.tolist() == [10, 10, 10, 15]
    for ordinal in (0, 8, 300):  # the first tasks, and where other fleets draw ahead
        assert [fleet.duration(client, ordinal) for client in range(4)] == [10, 10, 10, 15]
        assert [fleet.duration(client, ordinal, 2) for client in range(4)] == [10, 5, 5, 6]
        assert [fleet.duration(client, ordinal, steps=40) for client in range(4)] == [10, 100, 100, 120]


def test_steps_are_one_unless_said_and_matter_only_for_delays_per_step() -> None:
    fleet = Fleet([FAST, replace(SLOW, steps=9)], seed=0)
    assert not fleet.per_step and fleet.steps.tolist() == [1, 1, 1, 9, 9]
    for ordinal in (0, 8, 300):
        assert fleet.duration(4, ordinal, 3) == fleet.duration(4, ordinal) == Fleet([SLOW], seed=0).duration(1, ordinal)
    assert fleet.mean_durations.tolist() == Fleet([FAST, SLOW], seed=0).mean_durations.tolist()


def test_transfers_are_not_multiplied_by_the_steps_but_throttling_multiplies_all() -> None:
    group = Group("lines", 2, parse(10), download=parse(8), upload=parse(2), per="step", steps=3)
    fleet = Fleet([group], seed=0, model_bytes=1_000_000)  # 8 megabits: 1 s down, 4 s up
    assert fleet.duration(0, 0) == 35 and fleet.duration(0, 0, 2) == 25 and fleet.mean_durations.tolist() == [35, 35]
    throttled = fleet.planned({1: Throttle(2.0)})
    assert [throttled.duration(client, 0) for client in range(2)] == [35, 70]
    assert [throttled.duration(client, 0, 2) for client in range(2)] == [25, 50]
    assert throttled.mean_durations.tolist() == [35, 70]


def test_a_throttled_fleet_keeps_its_steps() -> None:
    fleet = Fleet([replace(FAST, per="step"), replace(SLOW, per="step", steps=2)], seed=0, steps=6)
    throttled = fleet.planned({1: Throttle(8.0), 4: Throttle(0.5)})
    assert throttled.per_step and throttled.steps.tolist() == [6, 6, 6, 2, 2]
    for client, factor in enumerate([1, 8, 1, 1, 0.5]):
        assert throttled.duration(client, 70) == fleet.duration(client, 70) * factor
        assert throttled.duration(client, 70, 5) == fleet.duration(client, 70, 5) * factor
    assert (throttled.mean_durations / fleet.mean_durations).tolist() == [1, 8, 1, 1, 0.5]


PER: tuple[Literal["task", "step"], ...] = ("task", "step")


@given(st.integers(0, 2**63), st.sampled_from(DELAYS), st.integers(0, 2000), st.integers(1, 1000), st.integers(1, 20))
def test_durations_per_step_are_those_per_task_times_the_steps_to_the_bit(
    seed: int, delay: str, ordinal: int, usual: int, asked: int
) -> None:
    group = Group("a", 2, parse(delay))
    whole = Fleet([group], seed=seed).duration(1, ordinal)
    one, many = (Fleet([replace(group, per="step")], seed=seed, steps=steps) for steps in (1, usual))
    assert one.duration(1, ordinal) == many.duration(1, ordinal, 1) == whole
    assert many.duration(1, ordinal) == one.duration(1, ordinal, usual) == whole * usual
    assert many.duration(1, ordinal, asked) == whole * asked


@given(st.integers(0, 2**63), st.sampled_from(DELAYS), st.integers(0, 2000), st.floats(0.1, 10))
def test_one_step_is_a_task_with_transfers_and_throttling_too(
    seed: int, delay: str, ordinal: int, factor: float
) -> None:
    group = Group("a", 2, parse(delay), upload=parse("lognormal(2, 1)"))
    other = Group("b", 2, parse(delay), download=parse("uniform(1, 9)"))
    # The path is that of the whole fleet: whose delay is per task must not notice that somebody else's is per step.
    fleets = [
        Fleet([replace(group, per=per), other], seed=seed, model_bytes=10**6).planned(
            {1: Throttle(factor), 3: Throttle(factor)}
        )
        for per in PER
    ]
    assert [fleet.per_step for fleet in fleets] == [False, True]
    task, step = ([fleet.duration(client, ordinal) for client in range(4)] for fleet in fleets)
    assert task == step
    assert fleets[0].mean_durations.tolist() == fleets[1].mean_durations.tolist()


def test_presence_is_cut_to_the_time_from_joining_to_leaving() -> None:
    fleet = Fleet([Group("late", 1, parse("1"), join=5.0), Group("early", 1, parse("1"), leave=7.0)], seed=0)
    assert list(fleet.periods(0)) == [(5.0, float("inf"))] and list(fleet.periods(1)) == [(0.0, 7.0)]
    night = Group("night", 1, parse("1"), availability.parse("daily(22, 6)"), join=3600.0, leave=90_000.0)
    assert list(Fleet([night], seed=0).periods(0)) == [(3600.0, 21_600.0), (79_200.0, 90_000.0)]


def test_a_steady_fleet_is_there_from_beginning_to_end() -> None:
    assert Fleet([FAST], seed=0).steady and not Fleet([FAST, SLOW], seed=0).steady
    assert not Fleet([FAST, NIGHT], seed=0).steady
    assert not Fleet([FAST, Group("late", 1, FAST.delay, join=1.0)], seed=0).steady
    assert not Fleet([FAST, Group("early", 1, FAST.delay, leave=1.0)], seed=0).steady


def test_vanishing_has_its_probability_and_a_place_within_the_task() -> None:
    fleet = Fleet([Group("shy", 1, parse("1"), vanish=0.3)], seed=0)
    drawn = [fleet.vanishes(0, ordinal) for ordinal in range(20_000)]
    parts = [each[0] for each in drawn if each is not None]
    assert len(parts) / 20_000 == pytest.approx(0.3, abs=0.01)
    assert np.mean(parts) == pytest.approx(0.5, abs=0.02) and min(parts) > 0 and max(parts) < 1
    assert all(each[1] is None for each in drawn if each is not None)
    assert Fleet([FAST], seed=0).vanishes(0, 0) is None


def test_a_vanishing_has_three_draws_of_its_own_for_each_task() -> None:
    fleet = Fleet([FAST, SLOW], seed=5)
    stream = seeds.subkey(seeds.key(5, "vanish", "slow"), 1)
    for ordinal in range(50):
        whether, away, part = seeds.uniforms(stream, 3 * ordinal, 3).tolist()
        expected = (part, parse("exponential(3)").quantile(away)) if whether < 0.5 else None
        assert fleet.vanishes(4, ordinal) == expected


def test_an_absence_is_drawn_from_its_distribution() -> None:
    fleet = Fleet([SLOW], seed=0)
    absences = [away for each in (fleet.vanishes(0, ordinal) for ordinal in range(20_000)) if each for away in each[1:]]
    assert np.mean([away for away in absences if away is not None]) == pytest.approx(3, abs=0.1)
    assert None not in absences


@given(st.integers(0, 2**63), st.integers(0, 4), st.integers(0, 10_000))
def test_the_same_address_gives_the_same_draw(seed: int, client: int, ordinal: int) -> None:
    one, other = Fleet([FAST, SLOW], seed=seed), Fleet([FAST, SLOW], seed=seed)
    other.duration(client, ordinal + 1)
    assert one.duration(client, ordinal) == other.duration(client, ordinal)
    assert one.vanishes(client, ordinal) == other.vanishes(client, ordinal)


def test_a_fleet_of_nobody_and_groups_of_one_name_are_refused() -> None:
    with pytest.raises(InputError, match="the fleet has no clients"):
        Fleet([], seed=0)
    with pytest.raises(InputError, match=r"the same name: \['fast', 'fast'\]"):
        Fleet([FAST, FAST], seed=0)


@pytest.mark.parametrize("steps", [0, -3, 2.5, True, 10**10])
def test_steps_that_are_no_number_of_steps_are_refused(steps: int) -> None:
    with pytest.raises(InputError, match=f"a task of the fleet has {steps} local steps, it must be a whole number"):
        Fleet([FAST], seed=0, steps=steps)
    with pytest.raises(InputError, match=f"group 'fast' has {steps} local steps, it must be a whole number from 1 to"):
        replace(FAST, steps=steps)


def test_steps_that_take_for_ever_are_refused() -> None:
    endless = Group("x", 1, parse(1e308), per="step")
    assert Fleet([endless], seed=0).mean_durations.tolist() == [1e308]
    with pytest.raises(InputError, match="the delay of group 'x' for 2 steps has mean inf"):
        Fleet([endless], seed=0, steps=2)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"count": 0}, "'x' has 0 clients"),
        ({"vanish": 1.0}, "'x' vanishes with probability 1.0"),
        ({"vanish": -0.1}, "probability -0.1"),
        ({"vanish": float("nan")}, "probability nan"),
        ({"join": -1.0}, "'x' joins at -1.0"),
        ({"join": 5.0, "leave": 5.0}, "joins at 5.0 and leaves at 5.0"),
        ({"join": float("inf")}, "joins at inf"),
        ({"leave": float("nan")}, "leaves at nan"),
        ({"per": "epoch"}, "'x' has a delay per 'epoch', it must be per 'task' or 'step'"),
    ],
)
def test_a_group_out_of_range_is_refused_with_its_value(options: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        Group(**{"name": "x", "count": 1, "delay": parse("1"), **options})  # type: ignore[arg-type]
