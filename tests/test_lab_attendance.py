"""Who was there when: by hand, against code that looks at everybody in every version, and in databases."""

import hashlib
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlag.analyse.trial import Trial, observe
from fairlag.core.types import Presence
from fairlag.errors import UnreadableError
from fairlag.lab.attendance import Attendance, ranges
from fairlag.lab.experiment import Experiment, parse
from fairlag.lab.run import Run
from fairlag.lab.schema import LAYOUTS
from fairlag.lab.simulate import simulate
from fairlag.lab.store import Store
from fairlag.lab.verify import verified
from tests.support.edits import edited, of_format_4
from tests.support.runs import made
from tests.support.stores import STATE, aggregation, create, rows

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

    for later in range(1, version + 1):
        present = there([row for row in rows if row.version < later], stay=known)
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


# From a database


def coming_and_going(**more: Any) -> Experiment:
    return parse(
        {
            "name": "flickering",
            "aggregations": 200,
            "clients": [
                {"group": "fast", "count": 4, "delay": "uniform(1, 2)", "vanish": 0.05},
                {
                    "group": "slow",
                    "count": 4,
                    "delay": "uniform(4, 6)",
                    "availability": "alternating(exponential(30), exponential(30))",
                },
            ],
            "strategies": [{"use": "fairshare", "buffer": 3}],
            **more,
        }
    )


def recorded(folder: Path, *changes: Presence, versions: int = 4) -> Run:
    """Client 1 is slow, 0 and 2 are fast; one version a second."""
    with create(folder) as store:
        for row in changes:
            store.record(row)
        for version in range(1, versions + 1):
            store.record(aggregation(version))
        store.commit(STATE, "", versions)
    return Run(folder)


def test_entitled_is_the_part_of_the_versions_that_one_was_there_for(tmp_path: Path) -> None:
    """Versions 1 and 2 are of clients 0 and 1, version 3 of all, version 4 of 1 and 2; each version weighs 1."""
    changes = [
        Presence(0.0, 0, [0, 1], True),
        Presence(2.0, 2, [2], True),
        Presence(3.0, 3, [0], False),
    ]
    run = recorded(tmp_path, *changes)
    frame = run.influence()
    entitled = np.array([1 + 1 / 3, 1 + 1 / 3 + 1 / 2, 1 / 3 + 1 / 2])
    assert frame["entitled"].tolist() == pytest.approx(entitled / 4)
    assert frame["presence"].tolist() == pytest.approx([3 / 9, 4 / 9, 2 / 9])
    assert frame["influence"].tolist() == [0.25, 0.75, 0.0]
    assert frame["per_presence"].tolist() == pytest.approx([0.75, 27 / 16, 0.0])
    assert frame["fair"].tolist() == [1 / 3] * 3
    groups = run.influence("group")
    assert groups["entitled"].tolist() == pytest.approx([(entitled[0] + entitled[2]) / 4, entitled[1] / 4])
    assert groups["presence"].tolist() == pytest.approx([5 / 9, 4 / 9])
    assert groups["per_presence"].tolist() == pytest.approx([0.45, 27 / 16])
    heads, fast, slow = (line.split() for line in str(run).splitlines()[2:5])
    assert heads[5] == "entitled" and (fast[4], slow[4]) == ("0.542", "0.458")


def test_who_was_never_there_has_no_influence_per_time_present(tmp_path: Path) -> None:
    frame = recorded(tmp_path, Presence(0.0, 0, [0, 1], True)).influence()
    assert frame["entitled"].tolist() == [0.5, 0.5, 0.0]
    assert frame["per_presence"].isna().tolist() == [False, False, True]


@pytest.mark.parametrize("changes", [(), (Presence(0.0, 0, range(3), True),), (Presence(3.0, 0, [0, 2, 1], True),)])
def test_whoever_is_always_there_is_entitled_to_a_fair_part(tmp_path: Path, changes: tuple[Presence, ...]) -> None:
    run = recorded(tmp_path, *changes)
    for by in ("client", "group"):
        frame = run.influence(by)
        assert frame["entitled"].tolist() == frame["presence"].tolist() == frame["fair"].tolist()
        assert frame["per_presence"].tolist() == (frame["influence"] / frame["fair"]).tolist()


@pytest.mark.parametrize(
    "terms", [{}, {"importance": {"slow": 3.0}}, {"importance": "examples"}, {"entitled": "known"}]
)
def test_a_run_says_of_presence_what_the_audit_says(tmp_path: Path, terms: dict[str, Any]) -> None:
    experiment = coming_and_going(strategies=[{"use": "fairshare", "buffer": 3, **terms}])
    seen = observe(experiment, Trial(0, 3, 200, None))
    frame = simulate(experiment, seed=3, out=tmp_path).influence()
    assert seen.presence.min() < 0.9 * seen.virtual_time
    assert frame["entitled"].tolist() == pytest.approx((seen.entitled / seen.entitled.sum()).tolist())
    assert frame["presence"].tolist() == pytest.approx((seen.presence / seen.presence.sum()).tolist())
    assert frame["influence"].tolist() == pytest.approx((seen.weights / seen.weights.sum()).tolist())


@pytest.mark.parametrize("old", [False, True])
def test_importance_entitles_clients_that_are_always_there_to_different_parts(tmp_path: Path, old: bool) -> None:
    clients = [{"group": name, "count": 2, "delay": "uniform(1, 2)"} for name in ("few", "many")]
    weighed = {"use": "fairshare", "buffer": 3, "importance": {"many": 3.0}}
    run = simulate(coming_and_going(clients=clients, strategies=[weighed]), out=tmp_path)
    if old:
        of_format_3(tmp_path)
    assert run.influence()["entitled"].tolist() == pytest.approx([1 / 8, 1 / 8, 3 / 8, 3 / 8])
    assert run.influence()["presence"].tolist() == pytest.approx([1 / 4] * 4)


def test_a_million_clients_that_are_there_from_the_start_are_one_row(tmp_path: Path) -> None:
    with create(tmp_path) as store:
        store.record(Presence(0.0, 0, range(1_000_000), True))
        store.commit(STATE, "", 0)
    assert rows(tmp_path, "presence") == [(1, 0.0, 0, 0, 999_999, 1)]


# Runs of before


def of_format_3(folder: Path) -> None:
    """Makes a run one of the format that did not say who was there."""
    of_format_4(folder)
    with edited(folder, LAYOUTS[4]) as database:
        database.execute("UPDATE meta SET value = '3' WHERE key = 'format'")
    with edited(folder, LAYOUTS[3]) as database:
        kept = database.execute("SELECT number, version, file, refusals, tasks FROM checkpoints").fetchall()
        database.execute("DROP TABLE presence")
        database.execute("DROP TABLE checkpoints")
        for sql in LAYOUTS[3].definitions - LAYOUTS[4].definitions:
            database.execute(sql)
        database.executemany("INSERT INTO checkpoints VALUES (?, ?, ?, ?, ?)", kept)


def test_a_run_that_does_not_say_who_was_there_is_read_as_if_everybody_was(tmp_path: Path) -> None:
    run = made(tmp_path)
    of_format_3(tmp_path)
    assert verified(tmp_path)[0] and run.meta["format"] == 3
    frame = run.influence("group")
    assert frame["entitled"].tolist() == frame["fair"].tolist() == [2 / 3, 1 / 3]


def test_a_run_that_does_not_say_who_was_there_is_not_continued(tmp_path: Path) -> None:
    recorded(tmp_path, Presence(0.0, 0, [0], True))
    of_format_3(tmp_path)
    with pytest.raises(UnreadableError, match="has format 3, which does not record who was present when"):
        Store.open(tmp_path)


def test_tables_of_format_3_are_those_that_it_had() -> None:
    """Written down, because no fairlag writes them any more: the digest of a run that one had made."""
    text = "\n".join(sorted(LAYOUTS[3].definitions))
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == "388d174b5d239dc2"
