"""Who was there when: entitlement and presence by hand, and against code that looks at everybody in every version."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlag.core.types import Presence
from fairlag.lab.entitlement import Attendance, ranges

ROWS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 3), st.lists(st.integers(0, 7), min_size=1, unique=True), st.booleans())
)
"""Seconds and versions since the row before, and who came or went."""

IMPORTANCE, BOOLEANS = st.sampled_from([0.1, 0.7, 1.0, 3.0]), st.booleans()


def plainly(
    importance: list[float], rows: list[Presence], version: int, time: float, *, known: bool
) -> tuple[list[float], list[float]]:
    """Every version and every second is looked at by itself."""
    clients = len(importance)
    entitled, seconds = [0.0] * clients, [0.0] * clients

    def there(before: list[Presence], *, stay: bool = False) -> set[int]:
        found = set[int]()
        for row in before:
            if row.present or not stay:
                found = found | set(row.clients) if row.present else found - set(row.clients)
        return found

    for made in range(1, version + 1):
        present = there([row for row in rows if row.version < made], stay=known)
        for client in present:
            entitled[client] += importance[client] / sum(importance[each] for each in present)
    for second in range(int(time)):
        for client in there([row for row in rows if row.time <= second]):
            seconds[client] += 1
    return entitled, seconds


@given(ROWS, st.integers(0, 5), st.integers(0, 5), st.none() | st.lists(IMPORTANCE, min_size=8, max_size=8), BOOLEANS)
def test_it_is_what_looking_at_everybody_in_every_version_gives(
    steps: list[tuple[int, int, list[int], bool]], more: int, longer: int, importance: list[float] | None, known: bool
) -> None:
    attendance = Attendance(8, None if importance is None else np.array(importance), known=known)
    rows, time, version = list[Presence](), 0, 0
    for seconds, versions, clients, present in steps:
        time, version = time + seconds, version + versions
        rows.append(Presence(time, version, clients, present))
        attendance.add(rows[-1])
    version, time = version + more, time + longer
    entitled, there = plainly(importance or [1.0] * 8, rows, version, time, known=known)
    assert attendance.entitled(version).tolist() == pytest.approx(entitled, abs=1e-9)
    assert attendance.seconds(time).tolist() == pytest.approx(there)


def test_each_version_is_shared_equally_by_those_who_are_there() -> None:
    """Versions 1 and 2 are of three clients, 3 of one, 4 and 5 of nobody, 6 to 9 of two."""
    attendance = Attendance(4)
    for row in (
        Presence(0.0, 0, range(3), True),
        Presence(10.0, 2, [0, 2], False),
        Presence(12.0, 3, [1], False),
        Presence(20.0, 5, [3, 0], True),
    ):
        attendance.add(row)
    assert attendance.entitled(9).tolist() == pytest.approx([2 / 3 + 2, 2 / 3 + 1, 2 / 3, 2])
    assert attendance.seconds(24.0).tolist() == [14, 12, 10, 4]
    assert attendance.entitled(9).sum() == pytest.approx(9 - 2)  # nobody was there for two of them


def test_asking_changes_nothing() -> None:
    attendance = Attendance(1)
    attendance.add(Presence(0.0, 0, [0], True))
    assert [attendance.entitled(version).item() for version in (5, 2, 5)] == [5, 2, 5]
    assert [attendance.seconds(time).item() for time in (5.0, 2.0, 5.0)] == [5, 2, 5]


@given(st.lists(st.integers(0, 40), unique=True))
def test_ranges_have_every_client_once_and_do_not_touch(clients: list[int]) -> None:
    found = ranges(clients)
    assert [client for first, last in found for client in range(first, last + 1)] == sorted(clients)
    assert all(after[0] > before[1] + 1 for before, after in pairwise(found))


@pytest.mark.parametrize("clients", [range(0), range(3, 7), range(3, 4), range(0, 6, 2), (5,), ()])
def test_ranges_of_what_is_no_list(clients: range | tuple[int, ...]) -> None:
    assert ranges(clients) == ranges(np.array(clients, int).tolist())
