"""The leading metric in every table, page and figure: which way is better, how it is written, and if groups have it."""

from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import fairlag
from fairlag.analyse.classes import class_curves
from fairlag.analyse.compare import compare, repeated
from fairlag.analyse.curves import curves
from fairlag.analyse.metrics import METRICS
from fairlag.analyse.ranking import Ranking, ranked
from fairlag.cli.progress import Board
from fairlag.errors import InputError
from fairlag.lab.events import Progress
from fairlag.lab.experiment import load, parse
from fairlag.lab.plan import Plan
from fairlag.lab.run import Run
from fairlag.lab.simulate import execute
from fairlag.lab.store import Score, Store
from fairlag.learn.task import Better, Metric
from fairlag.report.comparison import Listed, compare_table
from fairlag.report.figures import curve_figure
from fairlag.report.page.build import runs_page
from fairlag.report.page.classes import classes_section
from fairlag.report.page.score import score_section
from fairlag.report.page.spec import Named, Page, Section
from fairlag.report.page.summary import findings
from fairlag.text.scored import ACCURACY, LOSS, TAKEN, Scored
from tests.support.page import checked, values
from tests.support.runs import made
from tests.support.scores import regressed, scored
from tests.test_lab_task import sugar

MSE = Scored("mse", higher=False, rate=False)


def strategies(folder: Path) -> list[Run]:
    """B has the lowest error and A the highest, with each of three seeds."""
    errors = {"A": (9.0, 4.0, 5.0), "B": (9.0, 7.0, 3.0), "C": (9.0, 6.0, 4.0)}
    return [
        regressed(folder / f"{label}{seed}", *(each + 0.01 * seed for each in found), label=label, seed=seed)
        for label, found in errors.items()
        for seed in range(3)
    ]


def order(ranking: Ranking) -> list[str]:
    return [row.comparison.label for row in ranking.rows]


def written(rankings: Sequence[Ranking]) -> str:
    console = Console(file=StringIO(), width=100, color_system=None)
    console.print(compare_table(rankings))
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_less_error_is_better(tmp_path: Path) -> None:
    runs = strategies(tmp_path)
    (ranking,) = ranked(compare(runs))
    assert (order(ranking), ranking.by, [row.rank for row in ranking.rows]) == (["B", "C", "A"], "mse", [1, 2, 3])
    assert [row.comparison.leading.best.mean for row in ranking.rows] == pytest.approx([3.01, 4.01, 4.01])
    (quick,) = ranked(compare(runs, [4.5]), "time")
    assert order(quick) == ["A", "B", "C"]  # A gets there with its second version and loses it again
    assert findings(compare(runs))[0] == "B ended with the lowest MSE, 3.010. A ended with the highest, 5.010."


def test_unclear_differences_of_an_error(tmp_path: Path) -> None:
    pairs = {"A": (5.0, 3.1, 4.0), "B": (3.0, 5.1, 4.2)}
    runs = [
        regressed(tmp_path / f"{label}{seed}", 9.0, error, label=label, seed=seed)
        for label, found in pairs.items()
        for seed, error in enumerate(found)
    ]
    (line, *_) = findings(compare(runs))
    assert line.startswith("The strategies are not distinguishable by MSE (paired t-test over 3 seeds, p = ")
    assert line.endswith("): it ranges from 4.100 for B to 4.033 for A.")


def test_any_metric_of_the_runs_ranks_them(tmp_path: Path) -> None:
    runs = strategies(tmp_path)
    (ranking,) = ranked(compare(runs), "r2")
    text = written([ranking])
    assert text.startswith("Comparison of x, ranked by R²;") and "▾ the highest first" in text and "▾R²" in text
    with pytest.raises(InputError, match=r"of 'x' by 'accuracy': choose from influence, jain, mse, r2, time$"):
        ranked(compare(runs), "accuracy")
    assert fairlag.compare(runs, by="mse")[0].label == fairlag.compare(runs)[0].label == "B"


def test_groups_and_classes_with_an_error(tmp_path: Path) -> None:
    parts = {("group", "fast"): 1.0, ("group", "slow"): 3.0, ("class", "0"): 1.0, ("class", "1"): 2.0}
    worse = parts | {("group", "slow"): 4.0}
    runs = [
        regressed(tmp_path / "a", 9.0, 2.0, parts=worse),
        regressed(tmp_path / "b", 8.0, 2.1, label="B", parts=parts),
    ]
    (ranking,) = ranked(compare(runs), "group")
    assert (order(ranking), ranking.group) == (["B", "A"], "slow")
    assert "▾group MSE" in written([ranking])
    found = repeated(runs)
    (chart,) = classes_section([(Named(each.label, 0), class_curves(each)) for each in found], []).charts
    (trace,) = chart.views["s0|version"].traces
    assert (trace["zmin"], trace["zmax"], trace["reversescale"]) == (2.0, 18.0, True)
    assert chart.reading.endswith("The lighter a cell, the lower the MSE of that class.")
    assert "%{z:.4g}" in trace["hovertemplate"]
    assert chart.table is not None and "in per cent" not in chart.table.caption
    (chart,) = score_section([(Named("A", 0), curves(found[0]))], ["fast", "slow"]).charts
    assert chart.table is not None
    assert chart.table.rows == [["A", "1", "2.000", "2.000", "2.000", "2.000", "8.000", "8.000"]]


def test_a_metric_that_classes_lack_gives_way_to_one_that_they_have(tmp_path: Path) -> None:
    auroc = {"name": "auroc", "higher": True, "rate": False}
    one = np.array([0])
    for metrics, wanted in (([auroc, ACCURACY._asdict()], ACCURACY), ([auroc], LOSS)):
        folder, meta = tmp_path / wanted.name, {"metrics": metrics}
        with Store.create(folder, meta, experiment="", groups=["all"], group_of=one, examples=one) as store:
            whole = Score("all", "", 4, {"loss": 0.5, "auroc": 0.9, "accuracy": 0.75})
            store.evaluated(0, 0.0, [whole, scored("class", "0", 2, 1, 0.7), scored("class", "1", 2, 2, 0.3)])
            store.finish({}, "done")
        found = class_curves(repeated([Run(folder)])[0])
        assert found is not None and found.metric == wanted
        assert found.seeds[0].values.ravel().tolist() == ([0.5, 1.0] if wanted == ACCURACY else [0.7, 0.3])


def test_the_worst_group_of_a_live_table_has_the_largest_error(tmp_path: Path) -> None:
    plan = Plan(load("demo"), (0,), tmp_path)
    table = Board(plan)
    console = Console(file=StringIO(), width=70, color_system=None)
    table(next(iter(plan)), Progress(2, 1.0, 10, {"": 3.0, "fast": 2.5, "slow": 4.5}, MSE))
    console.print(table)
    table(next(iter(plan)), Progress(2, 1.0, 10, {"": 3.0}, MSE))
    console.print(table)
    assert isinstance(console.file, StringIO)
    head, row, *_ = console.file.getvalue().splitlines()
    assert head.split()[4:6] == ["MSE", "worst"] and row.split()[5:7] == ["3.000", "4.500"]
    assert "worst" not in console.file.getvalue().splitlines()[5]


def test_a_run_without_scores_of_groups_shows_no_empty_columns(tmp_path: Path) -> None:
    runs = strategies(tmp_path)
    text = written(ranked(compare(runs)))
    assert (
        "label" not in text
        and "%" not in text.replace("95 % of it", "").replace("95 % interval", "")
        and "accuracy" not in text
    )
    assert "time: virtual time to an MSE of 5.28 (95 % of it is the highest final MSE, 5.010 of A)" in text
    assert "Time to an MSE" in text and "5.010 ±0.010" in text
    assert str(runs[0]).splitlines()[1:3] == [
        "1 aggregations, virtual time 2.0, MSE 5.000",
        "group  clients  influence   fair  staleness",
    ]
    assert [name for name in map(str, fairlag.compare(runs).frame()) if name.startswith(("mse", "r2"))] == [
        "mse",
        "mse_deviation",
        "r2",
        "r2_deviation",
    ]
    found = compare(runs)[0].as_json()
    assert (found["metric"], found["mse"]["final"]["seeds"], found["r2"]["mean"]) == ("mse", 3, 0.5)
    listed = Listed.of(runs[0].folder).as_json()
    assert (listed["metric"], listed["mse"]) == ("mse", 5.0) and "accuracy" not in listed


def test_no_metric_has_the_name_of_something_else() -> None:
    names = {name for metric in METRICS for name in (metric.name, metric.by) if name} - {"accuracy", "loss"}
    assert names <= {*TAKEN}
    for name in ("jain", "group", "mean squared"):
        with pytest.raises(InputError, match=f"^a metric is named '{name}', it must be a word such as macro_f1"):
            Metric(name=name, better=Better.LOWER, adds=lambda output, _: output)


def test_a_figure_is_of_one_metric(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^these runs are judged by accuracy and mse: draw them separately$"):
        curve_figure([regressed(tmp_path / "a", 3.0), made(tmp_path / "b")], tmp_path / "figure.svg")


def words(section: Section) -> str:
    """Everything that a section says."""
    charts = [(each.title, each.reading, each.switches, each.table) for each in section.charts]
    views = [(view.words, view.layout, view.traces) for each in section.charts for view in each.views.values()]
    return str((section.title, section.lead, section.remarks, section.tables, charts, views))


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Page:
    """A regression, and a classification."""
    folder = tmp_path_factory.mktemp("page")
    short: dict[str, Any] = {"aggregations": 4, "evaluate": {"every": 2}}
    runs = execute(Plan(parse(sugar(folder, **short), folder), (0, 1), folder / "sugar"), new=True, workers=1)
    demo = load("demo").checked(**short).only(["fairshare"])
    return runs_page([*runs, *execute(Plan(demo, (0,), folder / "demo"), new=True, workers=1)])


def test_a_page_has_a_section_for_each_leading_metric(page: Page) -> None:
    for section in page.sections:
        checked(section)
    names = [section.name for section in page.sections]
    assert names[:4] == ["experiment", "mse", "accuracy", "classes"]
    error, accuracy, classes = page.sections[1:4]
    assert (error.title, error.lead) == ("MSE", "The model's MSE over time, on the test examples.")
    assert "labels" not in words(error) and "ccura" not in words(error)
    assert error.charts[0].reading.startswith("One line per strategy; lower is better.")
    assert accuracy.lead.startswith("How accurate the model is over time: on all labels,")
    assert "FedAvg" not in words(accuracy) and "FedAvg" not in words(classes)
    low, high = (values(trace["y"]) for trace in error.charts[0].views["time|all"].traces[:2])
    assert max(high) > 1 and min(low) > 0
    ranking = page.sections[0].tables[0]
    assert ranking.head[1:4] == ["MSE", "MAE", "R²"] and not any("MSE" in name for name in ranking.head[2:])
