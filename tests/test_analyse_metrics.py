"""The table of metrics: what is added to it comes out everywhere, and nothing in it is ambiguous."""

from io import StringIO
from math import nan

import numpy as np
import pytest
from rich.console import Console

import fairlag
from fairlag.analyse import metrics
from fairlag.analyse.audit import audit
from fairlag.analyse.compare import compare
from fairlag.analyse.metrics import LEAD, METRICS, Better, Metric, Scope, Shown, criteria, select
from fairlag.analyse.ranking import ranked
from fairlag.analyse.totals import Totals
from fairlag.lab.plan import Plan
from fairlag.lab.run import Run
from fairlag.lab.simulate import execute
from fairlag.lab.track.points import Points
from fairlag.report.comparison import compare_table
from fairlag.report.page.build import runs_page
from fairlag.report.tables import audit_table
from tests.support.cards import rows
from tests.support.experiments import idle


def median(totals: Totals, name: str) -> float:
    """Of the mean staleness of clients, of all or of a group."""
    known = totals.updates > 0
    if name:
        known &= totals.group_of == totals.groups.index(name)
    return float(np.median(totals.staleness[known] / totals.updates[known])) if known.any() else nan


FLEET = [
    {"group": "fast", "count": 4, "delay": "uniform(1, 2)"},
    {"group": "slow", "count": 2, "delay": "uniform(4, 6)"},
]
USES = [{"use": "fedbuff", "buffer": 2}, {"use": "fairshare", "buffer": 2}]

ADDED = [
    Metric(name="late", scope=scope, of=median, title="late", form="{:.1f}", better=better, reading="late: the median")
    for scope, better in ((Scope.RUN, Better.LOWER), (Scope.GROUP, None))
]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    experiment = idle(*USES, aggregations=40, clients=FLEET)
    return execute(Plan(experiment, (0, 1), tmp_path_factory.mktemp("runs")), new=True)


@pytest.fixture(autouse=True)
def added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "METRICS", (*METRICS, *ADDED))


def by_hand(run: Run, group: str | None = None) -> float:
    """The same from the frame of all tasks."""
    tasks = run.tasks.dropna(subset="aggregation").merge(run.clients, on="client")
    mine = tasks if group is None else tasks[tasks["group"] == group]
    return float(np.median(mine.groupby("client")["staleness"].mean().to_numpy(np.float64)))


def test_it_is_in_comparisons_their_json_and_their_frame(made: list[Run]) -> None:
    first = compare(made)[0]
    seeds = [run for run in made if run.label == first.label]
    expected = np.mean([by_hand(run) for run in seeds])
    assert first.late.mean == pytest.approx(expected)
    assert first.as_json()["late"]["mean"] == first.late.mean
    for group in first.groups:
        assert group.late.mean == pytest.approx(np.mean([by_hand(run, group.name) for run in seeds]))
        assert first.as_json()["groups"][group.name]["late"]["mean"] == group.late.mean
    frame = fairlag.compare(made).frame().set_index("strategy")
    assert frame["late"][first.label] == first.late.mean
    assert frame[f"late: {first.groups[1].name}"][first.label] == first.groups[1].late.mean


def test_strategies_are_ranked_by_it_in_its_direction(made: list[Run]) -> None:
    assert [*criteria()] == ["accuracy", "group", "influence", "jain", "late", "time"]
    found = fairlag.compare(made, by="late")
    values = [each.late.mean or 0.0 for each in found]
    assert values == sorted(values)
    assert "ranked by late" in repr(found) and "▾ the lowest first" in repr(found) and "▾late" in repr(found)


def test_it_is_in_the_tables_of_terminal_notebook_and_page(made: list[Run]) -> None:
    console = Console(file=StringIO(), width=120, color_system=None)
    console.print(compare_table(ranked(compare(made))), highlight=False)
    assert isinstance(console.file, StringIO)
    lines = console.file.getvalue().splitlines()
    first = compare(made)[0]
    whole, slow = (f"{each.late.mean:.1f}" for each in (first, first.groups[1]))
    head = lines[2].split()
    assert [name for name in head if name == "late"] == ["late", "late"]
    assert lines[3].split()[-1] == whole
    assert any(line.split()[:1] == ["slow"] and line.split()[-1] == slow for line in lines)
    assert "late: the median" in lines
    above, below, best, *_ = rows(fairlag.compare(made)._repr_html_())
    assert below.count("late") == 1 + len(above) - 2
    assert whole in best and slow in best
    table = runs_page(made).sections[0].tables[0]  # nothing was trained: ranked by Jain index
    row = next(each for each in table.rows if each[0].endswith(first.label))
    assert [row[table.head.index(name)] for name in ("late", "slow: late")] == [whole, slow]


def test_trackers_are_told_it(made: list[Run]) -> None:
    point = Points(made[0].folder, 10, trains=False).new(finished=True)[-1]
    assert point.metrics["late/all"] == pytest.approx(by_hand(made[0]))
    assert point.metrics["late/group/slow"] == pytest.approx(by_hand(made[0], "slow"))


def test_audits_show_it(made: list[Run]) -> None:
    experiment = idle(USES[0], aggregations=40, clients=FLEET)
    (found,) = audit(experiment, seeds=1, incentive_updates=1)
    assert found.as_json()["late"] == pytest.approx(by_hand(made[0]), abs=1e-6)
    assert found.as_json()["groups"]["slow"]["late"] == pytest.approx(by_hand(made[0], "slow"), abs=1e-6)
    console = Console(file=StringIO(), width=120, color_system=None)
    console.print(audit_table(experiment, [found], 1), highlight=False)
    assert isinstance(console.file, StringIO)
    assert f"late {found.late:.1f}" in console.file.getvalue()
    assert "late" in next(line for line in console.file.getvalue().splitlines() if line.startswith("group")).split()


def test_what_no_run_knows_is_no_attribute(made: list[Run]) -> None:
    first = compare(made)[0]
    with pytest.raises(AttributeError, match="'Comparison' object has no attribute 'speed'"):
        _ = first.speed


def test_names_and_criteria_are_unique() -> None:
    assert len({(metric.name, metric.scope) for metric in METRICS}) == len(METRICS)
    for uneven in (False, True):
        shown = select(Shown.TABLES, *Scope, uneven=uneven)
        by = [metric.by or metric.name for metric in shown if metric.better is not None]
        assert sorted(by) == [*criteria(uneven=uneven)]
    assert LEAD in METRICS and LEAD.better is not None


@pytest.mark.parametrize("uneven", [False, True])
def test_titles_in_one_table_are_unique(uneven: bool) -> None:
    for where in Shown:
        for scopes in ((Scope.RUN, Scope.TARGET), (Scope.GROUP,)):
            titles = [metric.title for metric in select(where, *scopes, uneven=uneven)]
            assert len(set(titles)) == len(titles)
