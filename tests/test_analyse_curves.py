"""Accuracy over runs: exact lines, bands and heat maps of small runs made by hand."""

import json
from math import isnan
from pathlib import Path

import numpy as np
import pytest

from fairlag.analyse.classes import COLUMNS, class_curves
from fairlag.analyse.compare import repeated
from fairlag.analyse.curves import band, curves, evenly
from fairlag.analyse.spread import Spread
from fairlag.lab.run import Run
from fairlag.lab.store import Store
from tests.support.edits import changed
from tests.support.runs import bare, curve, made
from tests.support.scores import scored


def test_the_mean_ends_with_the_first_seed_and_does_not_jump_to_the_others() -> None:
    rising = [curve([0.0, 8.0], [0.0, 0.8]), curve([0.0, 5.0, 10.0], [0.0, 0.3, 0.6])]
    where, mean, spread, _ = band(rising, "time")
    assert where.tolist() == [0.0, 5.0, 8.0]
    assert mean.tolist() == pytest.approx([0.0, 0.4, 0.64])  # at 10 it would be 0.6: a hook
    assert spread.tolist() == pytest.approx([0.0, 0.2 / np.sqrt(2), 0.32 / np.sqrt(2)])
    assert band(rising, "version").where.tolist() == [0.0, 10.0]


def test_a_seed_that_has_just_begun_does_not_hide_those_that_are_finished(tmp_path: Path) -> None:
    runs = [made(tmp_path / "a"), classified(tmp_path / "b", {0: [1, 1]}, seed=1)]
    assert len(curves(repeated(runs)[0]).overall.band("time").where) == 2
    begun = [classified(tmp_path / str(seed), {0: [0, 5], 5: [5, 5]}, seed=seed) for seed in (2, 3)]
    begun[0] = changed(begun[0], "REPLACE INTO meta VALUES ('status', '\"finished\"')")
    found = class_curves(repeated(begun)[0])
    assert found is not None and len(found.seeds) == 1


def test_seeds_are_read_off_wherever_one_of_them_has_a_point() -> None:
    where, mean, spread, _ = band([curve([0.0, 10.0], [0.0, 1.0]), curve([0.0, 5.0, 10.0], [0.0, 0.1, 1.0])], "time")
    assert where.tolist() == [0.0, 5.0, 10.0]
    assert mean.tolist() == pytest.approx([0.0, 0.3, 1.0])
    assert spread.tolist() == pytest.approx([0.0, 0.4 / np.sqrt(2), 0.0])


def test_a_band_stays_within_what_an_accuracy_can_be() -> None:
    found = band([curve([0.0], [0.1]), curve([0.0], [0.9])], "time")
    assert (found.low.tolist(), found.high.tolist()) == ([0.0], [1.0])


def test_curves_of_a_strategy_on_all_labels_and_on_those_of_each_group(tmp_path: Path) -> None:
    runs = [made(tmp_path / "a"), made(tmp_path / "b", seed=1, gain=10, finished=False), bare(tmp_path / "c")]
    found = curves(repeated(runs)[0])
    assert len(found.overall.curves) == 1
    assert found.overall.final == Spread(0.64, None, 1)  # only one is finished, and that is on the whole test set
    assert (found.overall.best.mean, found.overall.best.seeds) == (0.6, 2)
    assert found.overall.best.deviation == pytest.approx(0.2 / np.sqrt(2))
    assert found.overall.band("version").where.tolist() == [1.0, 2.0]
    assert found.overall.band("time").mean.tolist() == [0.5, 0.7]
    assert [*found.groups] == ["fast", "slow"]
    slow = found.of("slow")
    assert slow is not None
    assert slow.band("time").where.tolist() == [2.0, 9.0]
    assert found.of("nobody") is None


def test_a_strategy_that_was_not_evaluated_has_no_curve(tmp_path: Path) -> None:
    found = curves(repeated([bare(tmp_path)])[0])
    assert found.of(None) is None
    assert not found.groups


def test_thinning_keeps_the_ends_and_is_even_over_the_axis() -> None:
    where = np.concatenate([np.linspace(0, 1, 1000), np.linspace(1, 10, 20)])
    kept = evenly(where, 50)
    assert len(kept) <= 50
    assert (kept[0], kept[-1]) == (0, len(where) - 1)
    assert np.diff(where[kept]).max() < 0.5  # as close as the points are where there are few
    assert evenly(where[:3], 3).tolist() == [0, 1, 2]
    thin = band([curve(where.tolist(), np.linspace(0, 1, len(where)).tolist())], "time").thinned(50)
    assert thin.where.tolist() == where[kept].tolist()
    assert thin.mean[-1] == 1.0


def classified(
    folder: Path,
    rounds: dict[int, list[int]],
    *,
    seed: int = 0,
    whole: dict[int, list[int]] | None = None,
    clients: list[dict[str, object]] | None = None,
    **data: str,
) -> Run:
    """A run of evaluations alone: at a version, how many of the ten examples of each class were right."""
    tables = {
        "name": "demo",
        "seed": 0,
        "aggregations": 5,
        "strategies": [{"use": "buffered_fedavg", "buffer": 1}],
        "clients": [{"count": 1, "delay": "constant(1)", **each} for each in clients or []],
        "data": {"use": "digits"} | data,
        "model": {"use": "logistic"},
    }
    store = Store.create(
        folder,
        {"experiment": "demo", "label": "FedAvg", "seed": seed},
        experiment=json.dumps({"experiment": tables} if clients else {}),
        groups=["fast", "slow"],
        group_of=np.array([0, 1]),
        examples=np.array([1, 1]),
    )
    with store:
        for on_whole, found in ((False, rounds), (True, whole or {})):
            for version, right in found.items():
                scores = [scored("class", str(each), 10, count, 0.0, on_whole) for each, count in enumerate(right)]
                store.evaluated(version, (2.0 + seed) * version, scores)
        store.commit({}, "", 0)
    return Run(folder)


def test_classes_are_the_mean_up_to_the_end_of_the_shortest_seed(tmp_path: Path) -> None:
    first = classified(tmp_path / "a", {0: [0, 5], 10: [10, 5]}, whole={10: [1, 1]})
    second = classified(tmp_path / "b", {0: [2, 5]}, seed=1)
    found = class_curves(repeated([first, second])[0])
    assert found is not None
    assert (found.names, found.holders, found.evaluations) == (("0", "1"), {}, 2)
    where, accuracy = found.mean("version")
    assert (where.tolist(), accuracy.tolist()) == ([0], [[0.1], [0.5]])
    assert found.mean("time")[0].tolist() == [0]
    assert (found.last(0).mean, found.last(0).seeds) == (0.6, 2)
    assert found.last(0).deviation == pytest.approx(0.8 / np.sqrt(2))


def test_classes_are_read_off_between_evaluations_against_time(tmp_path: Path) -> None:
    runs = [classified(tmp_path / str(seed), {0: [0], 6: [6 + 2 * seed]}, seed=seed) for seed in (0, 1)]
    found = class_curves(repeated(runs)[0])
    assert found is not None
    where, accuracy = found.mean("time")
    assert where.tolist() == [0, 12]
    assert accuracy[0].tolist() == pytest.approx([0, (0.6 + 0.8 * 12 / 18) / 2])


def test_many_evaluations_of_classes_are_thinned(tmp_path: Path) -> None:
    found = class_curves(repeated([classified(tmp_path, {version: [version % 11] for version in range(1000)})])[0])
    assert found is not None
    assert found.evaluations == 1000
    where, accuracy = found.mean("version")
    assert len(where) <= COLUMNS
    assert (where[0], where[-1]) == (0, 999)
    assert accuracy[0].tolist() == [int(each) % 11 / 10 for each in where]
    assert len(found.mean("time", 20)[0]) <= 20


def test_eleven_classes_are_in_the_order_of_their_numbers_and_an_unknown_one_is_no_number(tmp_path: Path) -> None:
    run = classified(tmp_path, {0: [1] * 11})
    with Store.open(tmp_path) as store:
        store.evaluated(5, 10.0, [scored("class", "0", 0, 0, 0.0)])
        store.commit({}, "", 0)
    found = class_curves(repeated([run])[0])
    assert found is not None
    assert found.names == tuple(map(str, range(11)))
    assert isnan(found.mean("version")[1][0, 1])


def test_who_holds_a_class_is_known_where_labels_were_dealt_by_group(tmp_path: Path) -> None:
    clients: list[dict[str, object]] = [{"group": "fast", "labels": [0, 1]}, {"group": "slow", "labels": [1]}]
    run = classified(tmp_path / "a", {0: [0, 5]}, clients=clients)
    found = class_curves(repeated([run])[0])
    assert found is not None
    assert found.holders == {"0": ("fast",), "1": ("fast", "slow")}
    shuffled = class_curves(repeated([classified(tmp_path / "b", {0: [0]}, clients=clients, partition="iid")])[0])
    assert shuffled is not None
    assert shuffled.holders == {}


def test_classes_that_were_not_evaluated(tmp_path: Path) -> None:
    assert class_curves(repeated([bare(tmp_path)])[0]) is None
