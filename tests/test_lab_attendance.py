"""Who was there during a run, from its database: by hand, and as the audit of the same experiment says."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fairlag.analyse.trial import Trial, observe
from fairlag.core.types import Presence
from fairlag.errors import UnreadableError
from fairlag.lab.experiment import Experiment, parse
from fairlag.lab.folder import _LAYOUTS, LAYOUT
from fairlag.lab.run import Run
from fairlag.lab.simulate import simulate
from fairlag.lab.store import Store
from fairlag.lab.verify import verified
from tests.support.lab_run import made
from tests.support.lab_store import STATE, aggregation, create, rows
from tests.support.sealed import edited


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
    with edited(folder) as database:
        database.execute("UPDATE meta SET value = '3' WHERE key = 'format'")
    with edited(folder, _LAYOUTS[3]) as database:
        kept = database.execute("SELECT number, version, file, refusals, tasks FROM checkpoints").fetchall()
        database.execute("DROP TABLE presence")
        database.execute("DROP TABLE checkpoints")
        for sql in _LAYOUTS[3].definitions - LAYOUT.definitions:
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
    with pytest.raises(UnreadableError, match="has format 3, which does not say who was there when"):
        Store.open(tmp_path)


def test_tables_of_format_3_are_those_that_it_had() -> None:
    """Written down, because no fairlag writes them any more: the digest of a run that one had made."""
    text = "\n".join(sorted(_LAYOUTS[3].definitions))
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == "388d174b5d239dc2"
