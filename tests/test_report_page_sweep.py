"""The page's section on a sweep: every trial, the spread over settings, the test of the best, and what failed."""

from pathlib import Path
from statistics import stdev

import pytest

from fairlag.analyse.sweep import Sensitivity, Swept
from fairlag.lab.sweep.objective import Objective
from fairlag.lab.sweep.result import FAILED, FINISHED, STOPPED, Result, Tried, Tuned
from fairlag.report.page.spec import Named
from fairlag.report.page.sweep import sweep_section
from fairlag.text.scored import ACCURACY
from tests.support.page import HOSTILE, checked, named, values

TESTED = (0.88, 0.90, 0.92)


def tried(value: float | None, status: str = FINISHED, reason: str = "", **setting: object) -> Tried:
    return Tried(setting, "", Result(status, reason, {} if value is None else {0: value}))


TRIALS = {
    "FedBuff": [
        *(tried(value, lr=lr, buffer=5) for lr, value in zip((0.1, 0.3, 1.0), (0.5, 0.7, 0.9), strict=True)),
        tried(0.6, lr=1.0, buffer=10),
        tried(None, FAILED, "seed 0: version 3 is not finite", lr=300.0, buffer=5),
        tried(None, STOPPED, lr=0.01, buffer=5),
    ],
    "FedAvg": [tried(0.8, lr=0.1), tried(0.82, lr=1.0)],
    "Lost": [tried(None, FAILED, "seed 0: it diverged", lr=1e9)],
}


def swept(trials: dict[str, list[Tried]] = TRIALS, unfinished: str = "") -> Swept:
    tuned = tuple(Tuned.of(label, each, higher=True) for label, each in trials.items())
    rows = tuple(Sensitivity.of(each, TESTED if each.winner else (), higher=True) for each in tuned)
    return Swept(Path("sweep"), Objective("all", ACCURACY), (0,), rows, tuned, unfinished)


def test_every_trial_is_drawn_with_the_spread_and_the_test_of_the_best() -> None:
    section = sweep_section(swept(), {"FedBuff": Named("FedBuff [lr=1]", 0), "FedAvg": Named("FedAvg [lr=1]", 1)})
    checked(section)
    (chart,) = section.charts
    assert chart.switches[0].options == {"all": "strategies", "k0": "lr", "k1": "buffer"}
    view = chart.views["all"]
    dots, test, *_ = view.traces
    assert values(dots["x"]) == pytest.approx([0.5, 0.7, 0.9, 0.6])
    assert dots["text"][3] == "lr=1, buffer=10" and dots["marker"]["color"] == "@s0"
    assert values(test["x"]) == pytest.approx([0.9])
    assert test["error_x"]["array"] == pytest.approx([4.3027 * stdev(TESTED) / 3**0.5], abs=1e-5)
    box, median, *_ = view.layout["shapes"]
    assert [box["x0"], box["x1"], median["x0"]] == pytest.approx([0.575, 0.75, 0.65])
    assert view.layout["yaxis"]["ticktext"] == ["FedBuff", "FedAvg"]
    assert "mean and 95 % interval" in chart.reading
    table, lost = section.tables
    assert [row[0] for row in table.rows] == ["FedBuff", "FedAvg", "Lost"]
    assert table.rows[0][1:6] == ("lr=1, buffer=5", "6*", "90.00", "57.50 to 75.00", "50.00")
    assert table.rows[2][1] == "no trial ended well"
    assert [row[2:] for row in lost.rows] == [
        ["failed", "seed 0: version 3 is not finite"],
        ["stopped", "other settings were better"],
        ["failed", "seed 0: it diverged"],
    ]
    assert "* FedBuff: 1 of 6 trials diverged or stalled and count as worst." in section.remarks


def test_along_a_setting_a_line_joins_the_best_trials() -> None:
    chart = sweep_section(swept(), {}).charts[0]
    along = chart.views["k0"]
    assert along.layout["xaxis"]["type"] == "log"
    assert along.layout["xaxis"]["ticktext"] == ["0.1", "0.3", "1"]
    assert [*named(along)] == ["FedBuff", "FedAvg"]
    (line,) = (trace for trace in along.traces if trace["mode"] == "lines")
    assert line["x"] == [0.1, 0.3, 1.0] and values(line["y"]) == pytest.approx([0.5, 0.7, 0.9])
    assert chart.views["k1"].words == "buffer was not tried with FedAvg."


def test_words_as_values_and_hostile_names() -> None:
    trials = {name: [tried(0.5, rule="<b>x</b>"), tried(0.6, rule="%{y}")] for name in HOSTILE}
    section = sweep_section(swept(trials), {})
    checked(section)
    along = section.charts[0].views["k0"]
    assert along.layout["xaxis"]["type"] == "category"
    assert along.traces[0]["x"] == ["&lt;b&gt;x&lt;/b&gt;", "%&#123;y}"]


def test_a_sweep_without_any_good_trial_says_so() -> None:
    section = sweep_section(swept({"Lost": TRIALS["Lost"]}), {})
    checked(section)
    assert not section.charts and section.tables[0].rows[0][1] == "no trial ended well"


def test_missing_tests_are_named() -> None:
    section = sweep_section(swept(unfinished="the sweep in 'x' is not finished: 3 of 9 tests"), {}, 1)
    assert section.name == "sweep1" and section.charts[0].name == "sweep1"
    assert "The sweep in 'x' is not finished: 3 of 9 tests." in section.remarks
