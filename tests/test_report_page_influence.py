"""The page's influence: exact bars, lines of many clients, Lorenz curves, and what weights below nothing leave out."""

from dataclasses import replace

import numpy as np
import pytest

from fairlag.analyse.evidence import Influence
from fairlag.analyse.fairness import jain
from fairlag.analyse.spread import Spread
from fairlag.report.page.influence import influence_section
from fairlag.report.page.spec import Chart, Named
from tests.support.page import HOSTILE, checked, named, size, values


def found(*seeds: list[float], groups: tuple[str, ...] = ("fast", "slow"), last: int = 1) -> Influence:
    """Shares of clients, of which so many are in the last group; one list a seed."""
    shares = np.array(seeds)
    clients = shares.shape[1]
    group_of = np.array([0] * (clients - last) + [len(groups) - 1] * last)
    index = Spread.of(jain(row) if row.min() >= 0 else np.nan for row in shares)
    return Influence(groups, np.arange(clients), group_of, shares, index)


def table(chart: Chart) -> list[list[str]]:
    assert chart.table is not None
    return [list(row) for row in chart.table.rows]


def test_bars_of_few_clients_beside_the_fair_share() -> None:
    section = influence_section([(Named("FedAvg", 0), found([0.5, 0.25, 0.25], [0.5, 0.5, 0.0]))])
    checked(section)
    clients, lorenz = section.charts
    fast, slow, fair = clients.views[""].traces
    assert (values(fast["x"]), values(fast["y"])) == ([0, 1], [0.5, 0.375])
    assert values(fast["error_y"]["array"]) == pytest.approx([0, 0.25 / np.sqrt(2)])
    assert (values(slow["x"]), values(slow["y"]), slow["marker"]["color"]) == ([2], [0.125], "@g1")
    assert fast["marker"]["pattern"]["shape"] != slow["marker"]["pattern"]["shape"]
    assert fair["y"] == [1 / 3, 1 / 3]
    assert slow["hovertext"] == [
        "client 2 of slow<br>influence 12.50% ± 17.68 over 2 seeds of all weight<br>0.38 times its fair share of 33.33%"
    ]
    assert clients.views[""].words == (
        "Jain index: 0.778 ±0.157 under FedAvg. It is 1 if all clients have equal influence, and 1/3 if one has all."
    )
    assert table(clients)[0][:6] == ["FedAvg", "3", "0.778 ±0.157", "0.250 ±0.118", "0.500 ±0.236", "0.250 ±0.118"]
    assert table(clients)[0][6:] == ["0.875, fair 0.667", "0.125, fair 0.333"]
    equal, line = lorenz.views[""].traces
    assert equal["y"] == [0, 1]
    assert values(line["x"]) == pytest.approx([0, 1 / 3, 2 / 3, 1])
    assert values(line["y"]) == pytest.approx([0, 0.125, 0.5, 1])
    assert "Gini 0.250 ±0.118, Jain 0.778 ±0.157" in line["hovertemplate"]


def test_one_seed_has_no_deviation() -> None:
    section = influence_section([(Named("FedAvg", 0), found([0.5, 0.25, 0.25]))])
    checked(section)
    fast = section.charts[0].views[""].traces[0]
    assert "error_y" not in fast
    assert fast["hovertext"][0] == (
        "client 0 of fast<br>influence 50.00% of all weight<br>1.50 times its fair share of 33.33%"
    )


def test_three_strategies_stand_below_one_another_and_more_are_chosen_from() -> None:
    shown = [(Named(f"S{place}", place), found([0.5, 0.5 - 0.1 * place, 0.1 * place])) for place in range(4)]
    together = influence_section(shown[:3])
    checked(together)
    view = together.charts[0].views[""]
    assert [trace["yaxis"] for trace in view.traces] == ["y"] * 3 + ["y2"] * 3 + ["y3"] * 3
    assert [*named(view)] == ["fast", "slow", "fair share"]
    assert view.layout["xaxis"]["anchor"] == "y3"
    domains = [view.layout[name]["domain"] for name in ("yaxis", "yaxis2", "yaxis3")]
    assert all(low < high for low, high in domains)
    assert domains[0][0] > domains[1][1] > domains[1][0] > domains[2][1]
    one_by_one = influence_section(shown)
    checked(one_by_one)
    assert [*one_by_one.charts[0].views] == ["s0", "s1", "s2", "s3"]
    ranges = {tuple(view.layout["yaxis"]["range"]) for view in one_by_one.charts[0].views.values()}
    assert ranges == {(0.0, 0.54)}  # the same, so that strategies can be compared


def test_many_clients_are_sorted_into_a_line_a_group() -> None:
    shares = [*[1.0] * 60, *np.linspace(0, 2, 41)]
    shares = (np.array(shares) / sum(shares)).tolist()
    section = influence_section([(Named("FedAvg", 0), found(shares, shares, last=41))])
    checked(section)
    view = section.charts[0].views[""]
    lines = named(view)
    assert values(lines["fast"]["y"]) == [pytest.approx(1.0)] * 101
    assert values(lines["slow"]["y"]) == pytest.approx(np.linspace(0, 2, 101), abs=1e-6)
    assert lines["fast"]["line"]["dash"] != lines["slow"]["line"]["dash"]
    assert lines["fair share"]["y"] == [1.0, 1.0]
    assert len(view.traces) == 7


def test_a_few_that_are_heard_far_more_are_cut_off_and_that_is_said() -> None:
    shares = np.array([1.0] * 99 + [300.0])
    section = influence_section([(Named("FedAvg", 0), found((shares / shares.sum()).tolist(), last=50))])
    view = section.charts[0].views[""]
    assert view.layout["yaxis"]["range"][1] == pytest.approx(1.1 * 1.2)
    assert "The highest values, up to 75.2 times the fair share, are cut off" in view.words


def test_weights_below_nothing_are_drawn_but_have_no_index() -> None:
    odd, plain = found([1.25, 0.25, -0.5]), found([0.5, 0.25, 0.25])
    section = influence_section([(Named("Odd", 0), odd), (Named("Plain", 1), plain)])
    checked(section)
    assert section.remarks == ["Odd: no Lorenz curve, because the weight of some clients is negative."]
    assert table(section.charts[0])[0][2:6] == ["–"] * 4
    assert section.charts[0].views[""].layout["yaxis"]["range"][0] == -0.5
    assert [*named(section.charts[1].views[""])] == ["equality", "Plain"]
    assert len(influence_section([(Named("Odd", 0), odd)]).charts) == 1


def test_nothing_aggregated() -> None:
    section = influence_section([(Named("A", 0), None), (Named("B", 1), found([0.5, 0.5]))])
    checked(section)
    assert section.remarks == ["For A, no update has been aggregated yet."]
    nothing = influence_section([(Named("A", 0), None)])
    checked(nothing)
    assert (nothing.charts, nothing.remarks) == (
        (),
        ["No update has been aggregated yet, so no client has had any influence."],
    )


def test_hostile_names_are_no_markup() -> None:
    shown = [(Named(name, place), found([0.5, 0.5], groups=(name, "<i>"))) for place, name in enumerate(HOSTILE)]
    section = influence_section(shown)
    checked(section)
    view = section.charts[0].views["s0"]
    assert [*named(view)] == ["&lt;b&gt;bold&lt;/b&gt;", "&lt;i&gt;", "fair share"]
    assert view.layout["annotations"][0]["text"] == "<b>&lt;b&gt;bold&lt;/b&gt;</b>  Jain 1.000"
    assert "<b>bold" not in view.traces[0]["hovertext"][0]
    assert len(named(section.charts[0].views["s3"])) == 3


def test_many_strategies_of_a_hundred_thousand_clients_stay_light() -> None:
    rng = np.random.default_rng(0)
    shares = rng.random((2, 100_000))
    shares /= shares.sum(axis=1, keepdims=True)
    groups = tuple(f"group {place}" for place in range(20))
    group_of = np.sort(np.arange(100_000) % 20)
    each = Influence(groups, np.arange(100_000), group_of, shares, Spread.of([0.75, 0.75]))
    section = influence_section([(Named(f"S{place}", place), each) for place in range(4)])
    checked(section)
    assert size(section) < 250_000
    assert len(values(section.charts[1].views[""].traces[1]["x"])) == 200
    assert section.remarks == ["The first 12 of 20 client groups are shown."]
    few = found((np.ones(60) / 60).tolist(), last=20)
    many = influence_section([(Named(f"S{place}", place), few) for place in range(22)])
    checked(many)
    assert size(many) < 300_000


# Clients that come and go


def coming(*seeds: list[float], entitled: list[float], last: int = 1) -> Influence:
    times = tuple(Spread.of([each]) for each in (0.5, 1.25))
    entitlements = np.array([entitled] * len(seeds))
    return replace(found(*seeds, last=last), entitlements=entitlements, per_presence=times)


def test_bars_of_clients_that_come_and_go_beside_what_they_are_entitled_to() -> None:
    section = influence_section([(Named("FedAvg", 0), coming([0.5, 0.25, 0.25], entitled=[0.25, 0.25, 0.5]))])
    checked(section)
    assert "Each version is shared among the clients that are present when it is made" in section.lead
    clients = section.charts[0]
    assert "more than what it is entitled to" in clients.reading
    *_, slow, line = clients.views[""].traces
    assert slow["hovertext"] == [
        "client 2 of slow<br>influence 25.00% of all weight<br>0.50 times what it is entitled to, 50.00%"
    ]
    assert (line["name"], line["line"]["shape"]) == ("entitled to", "hvh")
    assert (values(line["x"]), values(line["y"])) == ([-0.5, 0, 1, 2, 2.5], [0.25, 0.25, 0.25, 0.5, 0.5])
    index = jain([2.0, 1.0, 0.5])
    assert clients.views[""].layout["annotations"][0]["text"] == f"<b>FedAvg</b>  Jain 0.889, Jain÷ {index:.3f}"
    assert clients.views[""].words.endswith(
        f"Jain÷ (of influence ÷ entitlement): {index:.3f} under FedAvg. It is 1 if each client has what it is "
        "entitled to. Influence per unit of time present (1 is the mean of all clients): fast 0.50, "
        "slow 1.25 under FedAvg."
    )
    assert clients.table is not None and list(clients.table.head[:4]) == ["strategy", "clients", "Jain", "Jain÷"]
    assert table(clients)[0][2:4] == ["0.889", f"{index:.3f}"]
    assert table(clients)[0][-2:] == [
        "0.750, entitled 0.500, per time 0.50",
        "0.250, entitled 0.500, per time 1.25",
    ]


def test_lines_of_many_clients_that_come_and_go_are_in_parts_of_what_they_are_entitled_to() -> None:
    """All have the same; half of them, those of the last group, were there a third of the time of the others."""
    shares, entitled = [0.01] * 100, [0.015] * 50 + [0.005] * 50
    section = influence_section([(Named("FedAvg", 0), coming(shares, entitled=entitled, last=50))])
    checked(section)
    view = section.charts[0].views[""]
    fast, slow, line = view.traces
    assert values(fast["y"]) == pytest.approx([2 / 3] * 101) and values(slow["y"]) == pytest.approx([2.0] * 101)
    assert (line["name"], line["y"]) == ("entitled to", [1.0, 1.0])
    assert view.layout["yaxis"]["title"]["text"] == "times entitlement"
    assert "what they are entitled to" in slow["hovertemplate"]


def test_who_was_never_there_is_entitled_to_nothing() -> None:
    section = influence_section([(Named("FedAvg", 0), coming([0.5, 0.5, 0.0], entitled=[0.5, 0.5, 0.0]))])
    checked(section)
    assert section.charts[0].views[""].traces[1]["hovertext"][0].endswith("<br>entitled to nothing")
    many = coming([0.01] * 99 + [0.0], entitled=[1 / 99] * 99 + [0.0])
    assert many.quantiles(1)[1].tolist() == [[0.0] * 101]
    assert many.jain_entitled.mean == pytest.approx(1)
