"""Recorded presence: exact periods, repeated as a plain loop would repeat them, and a sentence for every bad row."""

import math
from itertools import islice, pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlag.errors import InputError
from fairlag.fleet.availability import Period, between, parse
from fairlag.fleet.clients import Fleet, Group
from fairlag.fleet.delay import Constant
from fairlag.fleet.recorded import Recorded, recorded
from fairlag.fleet.schedule import Schedule
from fairlag.fleet.table import Source
from tests.support.traces import put

NOWHERE = Source("x.csv", Path(), "")


def read(text: str, folder: Path) -> Recorded:
    found = parse(text, folder)
    assert isinstance(found, Recorded)
    return found


def first(there: Recorded, client: int, count: int = 4) -> list[Period]:
    return list(islice(there.periods(client), count))


def test_periods_of_a_csv_file(tmp_path: Path) -> None:
    there = read('file("presence.csv")', put(tmp_path))
    assert there.names == ("a", "b", "c", "d")
    assert [first(there, client) for client in range(4)] == [
        [(0, 20), (80, 100)],
        [(30, 70)],
        [(0, 100)],
        [(10, 50)],
    ]
    assert str(there) == "file('presence.csv')"


def test_periods_repeat_and_join_across_the_end_of_a_cycle(tmp_path: Path) -> None:
    there = read('file("presence.csv", period=100)', put(tmp_path))
    assert first(there, 0, 3) == [(0, 20), (80, 120), (180, 220)]
    assert first(there, 1, 3) == [(30, 70), (130, 170), (230, 270)]
    assert first(there, 2, 3) == [(0, math.inf)]
    assert first(there, 3, 2) == [(10, 50), (110, 150)]
    assert there.duty == pytest.approx((0.4 + 0.4 + 1 + 0.4) / 4)
    assert read(str(there), tmp_path).names == there.names


def test_fedscale_has_a_cycle_per_client(tmp_path: Path) -> None:
    there = read('fedscale("client_behave_trace")', put(tmp_path))
    assert there.names == ("1", "2", "3")
    assert first(there, 0, 3) == [(0, 20), (80, 120), (180, 220)]
    assert first(there, 1, 3) == [(30, 75), (120, 165), (210, 255)]
    assert first(there, 2) == []


def plain(periods: list[Period], cycle: float, until: float) -> set[int]:
    """The whole seconds at which a client is there, one by one."""
    return {second for second in range(int(until)) if any(start <= second % cycle < end for start, end in periods)}


@st.composite
def cyclic(draw: st.DrawFn) -> tuple[list[Period], int]:
    cycle = draw(st.integers(2, 30))
    cuts = sorted(draw(st.sets(st.integers(0, cycle), min_size=2)))
    found = [(float(start), float(end)) for start, end in zip(cuts[::2], cuts[1::2], strict=False)]
    touching = [(cuts[1], cuts[2])] if len(cuts) > 2 and draw(st.booleans()) else []
    return [*found, *((float(start), float(end)) for start, end in touching)], cycle


@given(clients=st.lists(cyclic(), min_size=1, max_size=4), until=st.integers(1, 200))
def test_repeated_periods_are_those_of_a_plain_loop(clients: list[tuple[list[Period], int]], until: int) -> None:
    there = recorded("x", NOWHERE, {str(place): each for place, each in enumerate(clients)})
    for client, (periods, cycle) in enumerate(clients):
        found = list(between(there.periods(client), 0, until))
        assert all(start < end for start, end in found)
        assert all(one[1] < other[0] for one, other in pairwise(found))
        seconds = {second for start, end in found for second in range(int(start), int(min(end, until)))}
        assert seconds == plain(periods, cycle, until)


@given(clients=st.lists(cyclic(), min_size=1, max_size=4))
def test_the_schedule_of_a_fleet_is_that_of_its_clients(clients: list[tuple[list[Period], int]]) -> None:
    there = recorded("x", NOWHERE, {str(place): each for place, each in enumerate(clients)})
    order = list(range(len(clients)))[::-1]
    fleet = Fleet([Group("all", len(order), Constant(1), there.at(order))], seed=0)
    expected = sorted(
        (time, client) for client in order for period in between(fleet.periods(client), 0, 100) for time in period
    )
    schedule, found = Schedule(fleet), list[tuple[float, int]]()
    while schedule.next is not None and schedule.next[0] < 100:
        time = schedule.next[0]
        found += [(time, client) for client in schedule.take()]
    assert sorted(found) == [each for each in expected if each[0] < 100]


def test_clients_of_a_group_are_the_first_of_the_file_or_those_with_its_names(tmp_path: Path) -> None:
    there = read('file("presence.csv", 100)', put(tmp_path))
    assert there.of("g", 2, None).streams(0, 2).tolist() == [0, 1]
    chosen = there.of("g", 2, ["d", "b"])
    assert chosen.streams(0, 2).tolist() == [3, 1] and chosen.stream(0, 1) == 1
    assert chosen.at([1, 1, 0]).streams(0, 3).tolist() == [1, 1, 3]
    with pytest.raises(InputError, match=r"'presence.csv' has 4 clients, but group 'g' has 5"):
        there.of("g", 5, None)
    with pytest.raises(InputError, match=r"client 'z' of group 'g' is not in 'presence.csv'"):
        there.of("g", 1, ["z"])


def test_the_order_of_rows_does_not_matter_within_a_client(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("end,client,start,note\n9,a,5,late\n\n4,a,1,early\n")
    assert first(read("file('x.csv')", tmp_path), 0) == [(1, 4), (5, 9)]


@pytest.mark.parametrize(
    ("content", "text", "parts"),
    [
        ("", "file('x.csv')", ["no column 'client'", "client,start,end"]),
        ("client,begin,end\na,1,2\n", "file('x.csv')", ["no column 'start'", "'client,begin,end'"]),
        ("client,start,end\n", "file('x.csv')", ["has no rows"]),
        ("client,start,end\na,1\n", "file('x.csv')", ["line 2", "2 cells", "3"]),
        ("client,start,end\na,-1,2\n", "file('x.csv')", ["start in line 2 of 'x.csv' is -1", "at least 0"]),
        ("client,start,end\na,1,soon\n", "file('x.csv')", ["end in line 2", "'soon'"]),
        ("client,start,end\na,1,inf\n", "file('x.csv')", ["end in line 2", "inf", "finite"]),
        ("client,start,end\na,2,2\n", "file('x.csv')", ["line 2", "from 2 to 2", "end after it starts"]),
        ("client,start,end\n,1,2\n", "file('x.csv')", ["client in line 2", "empty"]),
        ("client,start,end\na,0,9\nb,0,9\na,5,7\n", "file('x.csv')", ["line 4", "'a' from 5 to 7", "0 to 9 in line 2"]),
        ("client,start,end\na,0,9\n", "file('x.csv', 8)", ["line 2", "ends at 9", "period of 8"]),
        ("client,start,end\na,0,9\n", "file('x.csv', period=0)", ["period of file is 0"]),
        ("client,start,end\na,0,9\n", "file('x.csv', 9, 9)", ["file(path, period=inf)"]),
        ("client,start,end\na,0,9\n", "file('y.csv')", ["y.csv", "cannot be opened", "No such file"]),
        ("client,start,end\na,0,9\n", "file('.')", ["not a regular file"]),
        ("client,start,end\na,0,9\n", "file(x)", ["x"]),
        ("\xff", "file('x.csv')", ["not a CSV file in UTF-8"]),
    ],
)
def test_a_bad_file_is_one_sentence_with_its_line(content: str, text: str, parts: list[str], tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_bytes(content.encode("latin-1"))
    with pytest.raises(InputError) as error:
        parse(text, tmp_path)
    assert all(part in str(error.value) for part in parts), str(error.value)


def test_a_client_that_never_comes_and_one_that_leaves_for_good() -> None:
    there = recorded("x", NOWHERE, {"never": ([], 10.0), "once": ([(2.0, 5.0)], math.inf)})
    start, end, known = there.following(np.array([0, 1], np.uint64), np.array([0, 1]), np.array([0.0, 5.0]))
    assert start.tolist() == [math.inf, math.inf] and end.tolist() == [math.inf, math.inf] and known.tolist() == [1, 2]
    with pytest.raises(InputError, match=r"no client of the availability 'x.csv' is ever present"):
        recorded("x", NOWHERE, {"never": ([], 10.0)})
