"""Incentives on the report page: the curves, what counts as a gain, the verdicts, and what was not tried."""

from dataclasses import replace

import numpy as np
import pytest

from fairlag.analyse.audit import StrategyAudit, audit
from fairlag.analyse.identities import Identities
from fairlag.analyse.incentives import FACTORS, Incentive
from fairlag.analyse.throttling import Throttling
from fairlag.analyse.timings import Found
from fairlag.fleet.timing import Schedule, Truthful
from fairlag.lab.experiment import parse
from fairlag.report.page.incentives import incentives_section
from fairlag.report.page.spec import Named
from tests.support.experiments import LEAN
from tests.support.page import checked, named, values

FEDBUFF = Named("FedBuff", 0)


def incentive(influence: list[float], error: float, best: float, gain: float) -> Incentive:
    return Incentive(FACTORS, np.array(influence), np.full(len(FACTORS), error), best, gain)


@pytest.fixture(scope="module")
def audited() -> StrategyAudit:
    """Four fast clients, who gain nothing, and two slow ones, who gain 80 % by taking four times as long."""
    (found,) = audit(parse({**LEAN, "aggregations": 30}), seeds=1, incentive_updates=5_000)
    truthful = incentive([0.2, 0.18, 0.16, 0.14, 0.12, 0.1, 0.08, 0.06, 0.04], 0.05, 1.0, 0.0)
    cheating = incentive([0.1, 0.12, 0.14, 0.16, 0.18, 0.15, 0.12, 0.1, 0.05], 0.25, 4.0, 0.8)
    fast, slow = (replace(each, cheat=Found(Truthful(), tried=False), identities=Identities()) for each in found.groups)
    groups = (replace(fast, incentive=truthful), replace(slow, incentive=cheating))
    return replace(found, groups=groups, throttling=Throttling((), (100, 500), 10, 0.05))


def test_lines_bars_and_the_star_where_it_pays_most(audited: StrategyAudit) -> None:
    section = incentives_section([(FEDBUFF, audited)])
    checked(section)
    traces = named(section.charts[0].views["s0"])
    assert list(traces) == ["fast", "slow", "slow: pays most", "fair share"]
    slow = traces["slow"]
    assert slow["x"] == list(FACTORS)
    assert values(slow["y"]) == [0.1, 0.12, 0.14, 0.16, 0.18, 0.15, 0.12, 0.1, 0.05]
    assert values(slow["error_y"]["array"]) == [0.0] + [0.025] * 8
    assert slow["text"][0] == "takes as long as necessary<br>10.000% of all weight"
    assert slow["text"][4] == (
        "takes 4 times as long<br>18.000% of all weight, +80.0%<br>a gain counts if it is above 25.0%"
    )
    star = traces["slow: pays most"]
    assert (star["x"], star["y"], star["marker"]["symbol"]) == ([4.0], [0.18], "star")
    assert "gains 80% ± 25% at ×4" in star["hovertemplate"]
    assert traces["fair share"]["y"] == pytest.approx([1 / 6, 1 / 6])
    assert (traces["fast"]["marker"]["color"], slow["marker"]["color"]) == ("@g0", "@g1")


def test_clients_that_come_and_go_are_measured_by_what_they_are_entitled_to(audited: StrategyAudit) -> None:
    fast, slow = audited.groups
    groups = tuple(
        replace(group, metrics={**group.metrics, "entitled": part}) for group, part in ((fast, 0.9), (slow, 0.1))
    )
    seldom = replace(audited, groups=groups, entitlements=np.array([[0.225] * 4 + [0.05] * 2]))
    section = incentives_section([(FEDBUFF, seldom)])
    checked(section)
    (chart,) = section.charts
    traces = {each["name"]: each for each in chart.views["s0"].traces}
    assert "fair share" not in traces and "is entitled to" in chart.reading
    for name, due, colour in (("fast", 0.225, "@g0"), ("slow", 0.05, "@g1")):
        line = traces[f"{name}: entitled to"]
        assert (line["y"], line["line"]["color"]) == ([pytest.approx(due)] * 2, colour)
    assert chart.table is not None and chart.table.head[4] == "entitled to"
    assert [row[4] for row in chart.table.rows] == ["22.500%", "5.000%"]


def test_the_verdict_is_in_words_and_in_the_table(audited: StrategyAudit) -> None:
    (chart,) = incentives_section([(FEDBUFF, audited)]).charts
    assert chart.views["s0"].words == "fast: gains nothing; slow: gains 80% ± 25% at ×4."
    assert chart.table is not None
    assert chart.table.rows == [
        ["FedBuff, fast", "20.000%", "20.000%", "×1", "16.667%", "gains nothing", "not tried", "–", "–"],
        ["FedBuff, slow", "10.000%", "18.000%", "×4", "16.667%", "gains 80% ± 25% at ×4", "not tried", "–", "–"],
    ]


def test_the_best_timing_is_marked_beside_the_factors_and_put_into_words(audited: StrategyAudit) -> None:
    fast, slow = audited.groups
    none = Found(Truthful(), at_most=0.031)
    best = Found(Schedule((64, 64, 1, 1)), gain=2.0, error=0.1, influence=0.3)
    groups = (replace(fast, cheat=none), replace(slow, cheat=best, identities=Identities(0.5, 0.75)))
    section = incentives_section([(FEDBUFF, replace(audited, groups=groups))])
    checked(section)
    (chart,) = section.charts
    (view,) = chart.views.values()
    mark = named(view)["slow: best timing"]
    assert (values(mark["y"]), mark["marker"]["symbol"]) == ([0.3], "hexagram")
    assert values(mark["error_y"]["array"]) == [0.01]  # of the truthful influence, 0.3 / (1 + 2)
    assert mark["x"][0] > FACTORS[-1]
    low, high = view.layout["xaxis"]["range"]
    assert low < 0 and 10**high > mark["x"][0]
    assert view.layout["yaxis"]["range"][1] > 0.3
    words = "gains 200% ± 10% by schedule(64, 64, 1, 1): 64 times slower in the first half of the run, then truthful"
    assert view.words.endswith(f"Best timing: slow {words}.")
    assert chart.table is not None
    assert [row[6:] for row in chart.table.rows] == [
        ["none found (< 4%)", "–", "–"],
        ["+200% ± 10%, schedule(64, 64, 1, 1)", "+50%", "+75%"],
    ]


def test_all_strategies_have_the_same_axis(audited: StrategyAudit) -> None:
    lower = replace(audited, groups=audited.groups[1:])
    (chart,) = incentives_section([(FEDBUFF, audited), (Named("Other", 1), lower)]).charts
    heights = [view.layout["yaxis"]["range"] for view in chart.views.values()]
    assert heights == [[0, pytest.approx(0.23)]] * 2
    assert chart.views["s0"].layout["xaxis"]["type"] == "log"


def test_a_strategy_for_which_it_was_not_tried_is_a_sentence_and_a_row(audited: StrategyAudit) -> None:
    untried = replace(audited, throttling=Throttling((), (0, 0), 10, 0.05))
    section = incentives_section([(Named("Rare", 0), untried), (FEDBUFF, audited)])
    checked(section)
    assert section.remarks[0] == "For Rare, throttling was not tried, because it would take too many updates."
    (chart,) = section.charts
    assert chart.switches[0].options == {"s0": "FedBuff"}
    assert chart.table is not None
    untold = ["–", "–", "–", "16.667%", "not tried: it would take too many updates", "not tried", "–", "–"]
    assert chart.table.rows[0] == ["Rare, fast", *untold]
    alone = incentives_section([(Named("Rare", 0), untried)])
    checked(alone)
    assert (alone.charts, len(alone.remarks)) == ((), 1)


def test_without_audits_it_is_said_how_to_get_them() -> None:
    section = incentives_section([])
    checked(section)
    assert not section.charts
    assert "`fairlag watch --incentives`" in section.remarks[0]


def test_a_client_that_is_never_heard_and_hostile_names(audited: StrategyAudit) -> None:
    silent = incentive([0.0] * len(FACTORS), 3.0, 1.0, 0.0)
    groups = tuple(replace(each, incentive=silent, name=f"<b>%{{x}}@s0</b>{each.name}") for each in audited.groups)
    section = incentives_section([(Named("<i>", 0), replace(audited, groups=groups))])
    checked(section)
    view = section.charts[0].views["s0"]
    assert "&lt;b&gt;%&#123;x}&#64;s0&lt;/b&gt;slow" in named(view)
    assert view.words.startswith("<b>%{x}@s0</b>fast: trials too short to tell; ")
    assert view.layout["yaxis"]["range"] == [0, pytest.approx(1.15 / 6)]


def test_of_many_groups_the_first_are_shown(audited: StrategyAudit) -> None:
    groups = tuple(replace(audited.groups[1], name=f"group {place}") for place in range(30))
    section = incentives_section([(FEDBUFF, replace(audited, groups=groups))])
    checked(section)
    assert len(section.charts[0].views["s0"].traces) == 25
    assert "The first 12 of 30 client groups are shown." in section.remarks
