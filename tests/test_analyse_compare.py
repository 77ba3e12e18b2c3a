"""Comparisons of small runs made by hand: exact means, deviations and times, and what is remarked."""

import json
from math import sqrt
from pathlib import Path

import pytest

from fairlag.analyse.compare import compare, repeated
from fairlag.analyse.fairness import jain
from fairlag.analyse.spread import Spread
from fairlag.errors import InputError
from tests.support.runs import bare, made


def test_accuracy_over_seeds(tmp_path: Path) -> None:
    (found,) = compare([made(tmp_path / "b", seed=1, gain=10), made(tmp_path / "a", seed=0)])
    assert (found.experiment, found.label, found.seeds, found.finished) == ("demo", "FedAvg", (0, 1), 2)
    assert found.leading.final.mean == pytest.approx(0.69)
    assert found.leading.final.deviation == pytest.approx(0.1 / sqrt(2))
    assert found.leading.best.mean == pytest.approx(0.75)
    assert found.remarks == ()
    slow = found.groups[1]
    assert (slow.name, slow.clients) == ("slow", 1)
    assert slow.fair == pytest.approx(1 / 3)
    assert slow.leading.final.mean == pytest.approx(0.69)
    assert slow.influence == Spread(0.375, 0.0, 2)
    assert (slow.share.mean, slow.staleness.mean) == (0.25, 1.0)
    assert found.jain.mean == pytest.approx(jain([0.375, 0.25, 0.375]))
    assert (found.staleness.mean, found.updates.mean, found.aggregations.mean) == (0.25, 4.0, 2.0)


def test_times_to_targets_are_over_the_seeds_that_reached_them(tmp_path: Path) -> None:
    runs = [made(tmp_path / "a"), made(tmp_path / "b", seed=1, gain=10)]
    (found,) = compare(runs, [0.5, 0.75, 0.9])
    half, most, never = found.leading.reached
    assert (half.target, half.virtual_time, half.aggregations) == (0.5, Spread(2.0, 0.0, 2), Spread(1.0, 0.0, 2))
    assert (most.virtual_time, most.aggregations) == (Spread(9.0, None, 1), Spread(2.0, None, 1))
    assert (never.virtual_time, never.aggregations) == (Spread(None, None, 0), Spread(None, None, 0))
    with pytest.raises(InputError, match="a target accuracy is 70, it must be above 0 and at most 1"):
        compare(runs, [70])


def test_without_a_target_one_is_taken_that_the_worst_strategy_reached(tmp_path: Path) -> None:
    found = compare([made(tmp_path / "a"), made(tmp_path / "b", label="FairShare", gain=20)])
    assert [each.label for each in found] == ["FedAvg", "FairShare"]
    assert [[goal.target for goal in each.leading.reached] for each in found] == [[0.6], [0.6]]
    how = "95 % of the lowest final accuracy, 64.0 % of FedAvg"
    assert [goal.chosen for each in found for goal in each.leading.reached] == [how, how]
    assert found[0].as_json()["accuracy"]["reached"][0]["chosen"] == how
    asked = compare([made(tmp_path / "asked")], [0.6])[0].leading.reached[0]
    assert asked.chosen == ""


def test_a_target_that_a_model_meets_before_it_has_learnt_is_none(tmp_path: Path) -> None:
    (late,) = compare([made(tmp_path / "late", first=59)])
    assert [goal.target for goal in late.leading.reached] == [0.6]
    (once,) = compare([made(tmp_path / "once", first=60)])
    assert once.leading.reached == ()
    (asked,) = compare([made(tmp_path / "asked", first=60)], [0.6])
    assert asked.leading.reached[0].virtual_time.mean == 0.0


def test_what_is_unfinished_has_no_final_accuracy_and_sets_no_target(tmp_path: Path) -> None:
    runs = [made(tmp_path / "a"), made(tmp_path / "b", seed=1, finished=False)]
    average, mine = compare([*runs, made(tmp_path / "c", label="Mine", finished=False)])
    assert average.leading.final == Spread(0.64, None, 1)
    assert average.groups[1].leading.final == Spread(0.64, None, 1)
    assert average.leading.best.mean == pytest.approx(0.6)
    assert mine.leading.final == Spread(None, None, 0)
    assert mine.leading.best == Spread(0.5, None, 1)
    assert [goal.target for goal in mine.leading.reached] == [0.6]
    (alone,) = compare([made(tmp_path / "d", finished=False)])
    assert alone.leading.reached == ()


def test_runs_of_other_settings_are_no_seeds_of_each_other(tmp_path: Path) -> None:
    runs = [
        made(tmp_path / f"{name}/seed{seed}", seed=seed, gain=gain, experiment_key=name)
        for name, gain in (("demo", 0), ("demo-lr2", 20))
        for seed in (1, 0)
    ]
    one, two = compare([*runs, made(tmp_path / "demo/other", label="Mine", experiment_key="demo")])[:2]
    assert (one.label, two.label) == (f"FedAvg [{tmp_path / 'demo'}]", f"FedAvg [{tmp_path / 'demo-lr2'}]")
    assert (one.leading.final, two.leading.final) == (Spread(0.64, 0.0, 2), Spread(0.84, 0.0, 2))
    assert [each.label for each in repeated(runs[:2])] == ["FedAvg"]


def test_runs_of_other_settings_in_one_folder_are_called_by_their_own(tmp_path: Path) -> None:
    runs = [made(tmp_path / "a"), made(tmp_path / "b", experiment_key="b"), made(tmp_path / "c", seed=1)]
    assert [each.label for each in repeated(runs)] == [
        f"FedAvg [{tmp_path / 'a'}, {tmp_path / 'c'}]",
        f"FedAvg [{tmp_path / 'b'}]",
    ]


def test_runs_of_other_groups_are_no_seeds_of_each_other(tmp_path: Path) -> None:
    one, two = compare([made(tmp_path / "a/0"), bare(tmp_path / "b/0", groups=("all",))])
    assert [[group.name for group in each.groups] for each in (one, two)] == [["fast", "slow"], ["all"]]
    assert two.label == f"FedAvg [{tmp_path / 'b'}]"


def test_what_differs_is_remarked(tmp_path: Path) -> None:
    runs = [
        made(tmp_path / "a"),
        made(tmp_path / "b", seed=1, finished=False),
        made(tmp_path / "c", label="FairShare"),
        made(tmp_path / "d", label="FairShare"),
    ]
    first, second = compare(runs)
    assert first.remarks == ("seed 1 is unfinished, at 1 of 2 aggregations",)
    assert first.finished == 1
    assert second.remarks == ("more than one run has seed 0", "no run has seed 1, which other strategies have")


def test_different_lengths_are_remarked(tmp_path: Path) -> None:
    found = compare([made(tmp_path / "a"), bare(tmp_path / "b", planned=5), bare(tmp_path / "c", "Z", planned=None)])
    assert "lengths differ: here 2, 5 aggregations were planned" in found[0].remarks
    assert "lengths differ: here any number of aggregations were planned" in found[1].remarks


def test_a_run_that_has_nothing_to_say_says_nothing(tmp_path: Path) -> None:
    (found,) = compare([bare(tmp_path)])
    nothing = Spread(None, None, 0)
    assert (found.leading.final, found.jain, found.staleness) == (nothing, nothing, nothing)
    assert found.leading.reached == ()
    assert [group.leading.final for group in found.groups] == [nothing, nothing]
    assert compare([]) == []


def test_negative_weights_have_influence_but_no_index(tmp_path: Path) -> None:
    (found,) = compare([bare(tmp_path, weight=-0.5)])
    assert [group.influence.mean for group in found.groups] == [2.0, -1.0]
    assert found.jain.mean is None


def test_as_json(tmp_path: Path) -> None:
    (found,) = compare([made(tmp_path / "a"), bare(tmp_path / "b")], [0.7])
    text = json.loads(json.dumps(found.as_json(), allow_nan=False))
    assert list(text) == [
        "experiment",
        "label",
        "seeds",
        "finished",
        "accuracy",
        "groups",
        "jain",
        "jain_entitled",
        "staleness",
        "updates",
        "aggregations",
        "virtual_time",
        "comes_and_goes",
        "remarks",
        "deployed",
        "real_time",
        "settings",
    ]
    assert text["accuracy"]["final"] == {"mean": 0.64, "deviation": None, "seeds": 1}
    assert text["accuracy"]["reached"][0]["virtual_time"]["mean"] == 9.0
    assert list(text["groups"]) == ["fast", "slow"]
    slow = text["groups"]["slow"]
    others = ["update_share", "influence", "entitled", "per_presence", "staleness"]
    assert list(slow) == ["clients", "accuracy", "fair", *others]
    assert (slow["clients"], slow["fair"], slow["update_share"]["mean"]) == (1, pytest.approx(1 / 3), 0.25)
