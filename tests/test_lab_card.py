"""What a run shows of itself: exact words and HTML, whatever it is called and however far it came."""

from math import nan
from pathlib import Path

import numpy as np

from fairlag.text.markup import bar
from tests.support.cards import HOSTILE, bars, hostile, page, rows
from tests.support.runs import bare, made


def test_a_finished_run(tmp_path: Path) -> None:
    run = made(tmp_path / "run")
    assert str(run).splitlines() == [
        "FedAvg on demo, seed 0: finished",
        "2 of 2 aggregations, virtual time 9.0, accuracy 64.00 %",
        "group  clients  accuracy %  influence   fair  staleness",
        "fast         2       64.00      0.625  0.667       0.00",
        "slow         1       64.00      0.375  0.333       1.00",
        str(tmp_path / "run"),
    ]
    html = run._repr_html_()
    assert rows(html) == [
        ["group", "clients", "accuracy %", "influence", "fair", "staleness"],
        ["fast", "2", "64.00", "0.625", "0.667", "0.00"],
        ["slow", "1", "64.00", "0.375", "0.333", "1.00"],
    ]
    np.testing.assert_allclose(bars(html), [(0.9375, 1.0), (0.5625, 0.5)], atol=0.001)


def test_an_unfinished_run_has_a_bar_of_its_progress(tmp_path: Path) -> None:
    html = made(tmp_path, finished=False)._repr_html_()
    assert "seed 0: interrupted" in html
    assert bars(html)[0][0] == 0.5
    assert rows(html)[2] == ["slow", "1", "50.00", "0.000", "0.333", "–"]


def test_progress_may_be_in_virtual_time(tmp_path: Path) -> None:
    run = made(tmp_path, finished=False, aggregations=None, until_time=8.0)
    assert "1 aggregations, virtual time 2.0 of 8.0, accuracy 50.00 %" in str(run)
    assert bars(run._repr_html_())[0][0] == 0.25


def test_a_run_of_which_nothing_is_known_yet(tmp_path: Path) -> None:
    run = bare(tmp_path)
    assert "0 of 2 aggregations, virtual time 0.0, not evaluated yet" in str(run)
    assert rows(run._repr_html_())[1:] == [[name, "1", "–", "–", "0.500", "–"] for name in ("fast", "slow")]
    assert bars(run._repr_html_())[1:] == []


def test_negative_influence_is_told_but_no_bar_is_longer_than_its_place(tmp_path: Path) -> None:
    html = bare(tmp_path, weight=-0.5)._repr_html_()
    assert [row[3] for row in rows(html)[1:]] == ["2.000", "-1.000"]
    assert bars(html)[1:] == [(1.0, 0.25), (0.0, 0.25)]


def test_names_are_text_and_not_markup(tmp_path: Path) -> None:
    html = hostile(tmp_path)._repr_html_()
    assert "<script" not in html
    first = "".join(next(iter(page(html))).itertext())
    assert first == f"{HOSTILE} on {HOSTILE}, seed 0: failed: {HOSTILE}"
    assert rows(html)[1][0] == HOSTILE


def test_colours_are_the_readers_own(tmp_path: Path) -> None:
    html = made(tmp_path)._repr_html_()
    assert "background" not in html
    assert "color:" not in html
    assert {svg.attrib["fill"] for svg in page(html).iter("svg")} == {"currentColor"}


def test_where_there_is_no_number_there_is_no_bar() -> None:
    assert (bar(None), bar(nan)) == ("", "")
