"""What became of all tasks: exact counts of small runs by group and reason, and how the page shows them."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from fairlag.analyse.audit import audit
from fairlag.analyse.outcomes import Outcomes, TaskEnd, audited_outcomes, outcomes
from fairlag.core.types import Aggregation, Dispatch, Ended, Outcome
from fairlag.lab.experiment import parse
from fairlag.lab.run import Run
from fairlag.lab.store import Store
from fairlag.report.page.losses import losses_section
from fairlag.report.page.spec import Named
from tests.support.experiments import LEAN
from tests.support.page import checked, named, size, values
from tests.support.runs import bare, made, shuffled

FEDAVG, MINE = Named("FedAvg", 0), Named("Mine", 1)


def mixed(folder: Path) -> Run:
    """Ten tasks of two clients: the first client's are merged but one, which is lost; the other's come to nothing."""
    ends = [(Outcome.LOST, "its client left"), (Outcome.CANCELLED, "the round is over")]
    ends += [(Outcome.REFUSED, "too old")] * 2 + [(Outcome.REFUSED, "<b>%{x}</b>")]
    meta = {"experiment": "demo", "label": "Mixed", "seed": 0, "aggregations": 4}
    groups, two = ["fast", "slow"], np.array([0, 1])
    with Store.create(folder, meta, experiment="", groups=groups, group_of=two, examples=two) as store:
        for place in range(4):
            task = (Dispatch(place, 0, place, place, float(place)),)
            store.record(Aggregation(place + 1, place + 1.0, task, [1.0], np.array([0]), np.array([1.0]), place > 1))
        store.record(Ended(Dispatch(4, 0, 4, 4, 4.0), 5.0, Outcome.LOST, "its client left"))
        for place, (outcome, reason) in enumerate(ends, start=5):
            store.record(Ended(Dispatch(place, 1, 0, place, 0.0), 1.0, outcome, reason))
        counts = {"running": 2, "buffered": 1}
        refusals = {"too old": 2, "<b>%{x}</b>": 1, "unknown task": 3}
        store.finish({}, "done", refusals=refusals, meta={"counts": counts})
    return Run(folder)


def test_tasks_are_counted_by_group_and_reason(tmp_path: Path) -> None:
    found = outcomes([mixed(tmp_path)])
    assert found.groups == ("fast", "slow")
    assert found.tasks == {
        ("fast", TaskEnd("aggregated")): 4,
        ("fast", TaskEnd("lost", "its client left")): 1,
        ("slow", TaskEnd("lost", "its client left")): 1,
        ("slow", TaskEnd("cancelled", "the round is over")): 1,
        ("slow", TaskEnd("refused", "too old")): 2,
        ("slow", TaskEnd("refused", "<b>%{x}</b>")): 1,
    }
    assert (found.aggregations, found.partial, found.open) == (4, 2, 3)
    assert found.unmatched == {"unknown task": 3}
    assert found.of()[TaskEnd("lost", "its client left")] == 2
    assert found.of("fast").total() == 5


def test_seeds_are_added(tmp_path: Path) -> None:
    found = outcomes([made(tmp_path / "a"), made(tmp_path / "b", seed=1, finished=False)])
    assert found.tasks == {
        ("fast", TaskEnd("aggregated")): 5,
        ("slow", TaskEnd("aggregated")): 1,
        ("fast", TaskEnd("refused", "too old")): 2,
    }
    assert (found.aggregations, found.partial, found.open, found.unmatched) == (3, 1, None, Counter())


def test_parts_are_in_per_cent_of_the_tasks_that_ended(tmp_path: Path) -> None:
    section = losses_section([(FEDAVG, outcomes([made(tmp_path / "a")])), (MINE, outcomes([mixed(tmp_path / "b")]))])
    checked(section)
    (chart,) = section.charts
    assert list(chart.switches[0].options.values()) == ["all", "fast", "slow"]
    whole = named(chart.views["all|all"])
    assert values(whole["merged"]["x"]) == [0.8, 0.4]
    assert whole["merged"]["customdata"] == [[4, 5], [4, 10]]
    assert values(whole["refused: too old"]["x"]) == [0.2, 0.2]
    assert values(whole["lost: its client left"]["x"]) == [0.0, 0.2]
    assert values(whole["cancelled: the round is over"]["x"]) == [0.0, 0.1]
    assert whole["refused: too old"]["hovertext"] == ["FedAvg", "Mine"]
    some = named(chart.views["g1|some"])
    assert "merged" not in some
    assert values(some["refused: too old"]["x"]) == [0.0, 0.4]
    assert some["refused: too old"]["customdata"] == [[0, 1], [2, 5]]
    looks = {(each["marker"]["color"], each["marker"]["pattern"]["shape"]) for each in whole.values()}
    assert len(looks) == len(whole) == 5


def test_tables_and_remarks_have_the_numbers(tmp_path: Path) -> None:
    section = losses_section([(MINE, outcomes([mixed(tmp_path)]))])
    checked(section)
    table = section.charts[0].table
    assert table is not None
    assert table.rows == [
        ["Mine, all", "10", "4", "3", "2", "1", "60.00%"],
        ["Mine, fast", "5", "4", "0", "1", "0", "20.00%"],
        ["Mine, slow", "5", "0", "3", "1", "1", "100.00%"],
    ]
    (reasons,) = section.tables
    assert sorted(map(list, reasons.rows)) == [
        ["Mine", "cancelled", "the round is over", "1", "10.00%"],
        ["Mine", "lost", "its client left", "2", "20.00%"],
        ["Mine", "refused", "<b>%{x}</b>", "1", "10.00%"],
        ["Mine", "refused", "too old", "2", "20.00%"],
    ]
    partial, strays, left = section.remarks
    assert partial.startswith("Partial aggregations") and partial.endswith(": Mine 2 of 4.")
    assert strays.endswith("belonged to no running task: Mine 3 (unknown task).")
    assert left.endswith("are not counted: Mine 3.")
    assert "refused: &lt;b&gt;%&#123;x}&lt;/b&gt;" in named(section.charts[0].views["all|some"])


def test_nothing_lost_is_a_sentence(tmp_path: Path) -> None:
    section = losses_section([(FEDAVG, outcomes([shuffled(tmp_path)]))])
    checked(section)
    assert not section.charts
    assert section.remarks == ["No task was refused, lost or cancelled: every task that ended was merged."]


def test_a_run_in_which_no_task_has_ended_is_a_sentence(tmp_path: Path) -> None:
    nothing = outcomes([bare(tmp_path / "bare")])
    section = losses_section([(FEDAVG, nothing)])
    checked(section)
    assert (section.charts, section.remarks) == ((), ["No task has ended yet."])
    some = losses_section([(FEDAVG, nothing), (MINE, outcomes([mixed(tmp_path / "mixed")]))])
    checked(some)
    assert some.remarks[0] == "For FedAvg, no task has ended yet."


def counted(**reasons: int) -> Outcomes:
    tasks = Counter({("a", TaskEnd("refused", reason)): many for reason, many in reasons.items()})
    tasks["a", TaskEnd("aggregated")] = 10
    return Outcomes(("a",), tasks, 10, 0, Counter(), 0)


def test_rare_reasons_share_a_part() -> None:
    found = counted(**{f"reason{place:02}": 50 - place for place in range(30)})
    section = losses_section([(FEDAVG, found)])
    checked(section)
    parts = named(section.charts[0].views["all|all"])
    assert list(parts) == ["merged", *(f"refused: reason{place:02}" for place in range(5)), "refused: other reasons"]
    total = 10 + sum(50 - place for place in range(30))
    assert parts["refused: other reasons"]["customdata"] == [[sum(50 - place for place in range(5, 30)), total]]
    assert sum(values(part["x"])[0] for part in parts.values()) == pytest.approx(1)
    assert section.tables[0].rows[-1][2:4] == ["other reasons", f"{sum(50 - place for place in range(8, 30)):,}"]
    assert section.charts[0].switches[0].options == {"all": "all"}


def test_groups_of_which_no_task_ended_are_named(tmp_path: Path) -> None:
    (chart,) = losses_section([(FEDAVG, counted(old=1)), (MINE, outcomes([mixed(tmp_path)]))]).charts
    assert chart.views["g1|all"].words == "No task of these clients ended under FedAvg."
    assert chart.views["all|all"].words == ""


def test_an_audit_knows_less() -> None:
    clients = [{"group": "fast", "count": 4, "delay": "uniform(1, 2)", "vanish": 0.3}]
    (found,) = audit(parse({**LEAN, "aggregations": 30, "clients": clients}), seeds=2, incentive_updates=0)
    assert found.lost > 0
    known = audited_outcomes(found, 2)
    assert known.of() == {TaskEnd("aggregated"): 120, TaskEnd("lost"): found.lost}
    section = losses_section([(FEDAVG, known)])
    checked(section)
    part = named(section.charts[0].views["all|some"])["lost"]
    assert part["customdata"] == [[found.lost, 120 + found.lost]]
    assert section.tables[0].rows == [
        ["FedAvg", "lost", "–", f"{found.lost:,}", f"{found.lost / (120 + found.lost):.2%}"]
    ]


def test_many_strategies_and_groups_stay_light() -> None:
    groups = tuple(f"group {place}" for place in range(50))
    tasks = Counter({(name, TaskEnd("lost", f"reason {place}")): 1 for name in groups for place in range(20)})
    found = Outcomes(groups, tasks, 1, 0, Counter(), None)
    section = losses_section([(Named(f"S{place}", place), found) for place in range(22)])
    checked(section)
    assert "The first 12 of 50 client groups are shown." in section.remarks
    assert size(section) < 1_000_000
