"""`fairlag.compare` and `fairlag.figure`: a comparison as a sequence, text, frame and HTML; pictures in memory."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fairlag
from fairlag.errors import InputError
from fairlag.lab.run import Run
from tests.support.cards import HOSTILE, bars, hostile, page, rows
from tests.support.runs import bare, made, played


@pytest.fixture
def several(tmp_path: Path) -> list[Run]:
    return [
        played(tmp_path / "a0", "A", right=(90, 50), influence=(0.45, 0.45, 0.1), time=10.0),
        played(tmp_path / "a1", "A", right=(90, 40), influence=(0.45, 0.45, 0.1), time=20.0, seed=1),
        played(tmp_path / "b0", "B", right=(80, 70), influence=(0.25, 0.25, 0.5), time=30.0),
        played(tmp_path / "b1", "B", right=(80, 70), influence=(0.25, 0.25, 0.5), time=30.0, seed=1, finished=False),
    ]


def test_it_is_a_sequence_with_the_best_first(several: list[Run]) -> None:
    found = fairlag.compare(several)
    assert [each.label for each in found] == ["B", "A"]
    assert (len(found), found[-1].label, [each.label for each in found[:1]]) == (2, "A", ["B"])
    assert [each.label for each in fairlag.compare(several, by="time", targets=[0.6])] == ["A", "B"]


def test_the_frame_has_a_row_a_strategy(several: list[Run]) -> None:
    frame = fairlag.compare(several, [0.7]).frame().set_index("strategy")
    assert frame.index.tolist() == ["B", "A"]
    assert frame["accuracy"].tolist() == pytest.approx([0.75, 0.675])
    assert frame["accuracy: slow"].tolist() == pytest.approx([0.7, 0.45])
    assert frame["influence: slow"].tolist() == pytest.approx([0.5, 0.1])
    assert frame["fair: slow"].tolist() == pytest.approx([1 / 3, 1 / 3])
    assert frame["rank"].tolist() == [1, 2]
    assert frame["time_to_target"].tolist() == [30.0, 10.0]
    assert frame["target"].tolist() == [0.7, 0.7]


def test_the_text_is_the_table_of_the_command_line(several: list[Run]) -> None:
    lines = repr(fairlag.compare(several)).splitlines()
    assert lines[0] == "Comparison of demo, ranked by accuracy; group: slow"
    assert lines[3].split() == ["1", "B", "75.00", "70.00", "0.500", "0.333", "0.889", "30"]
    assert max(map(len, lines)) <= 80


def test_the_text_of_many_says_where_the_rest_is(tmp_path: Path) -> None:
    runs = [made(tmp_path / str(place), label=f"S{place}") for place in range(7)]
    assert "7 strategies: `.frame()` shows the groups of each" in repr(fairlag.compare(runs))


def test_the_html_has_a_row_a_strategy_and_a_block_a_group(several: list[Run]) -> None:
    html = fairlag.compare(several)._repr_html_()
    above, below, best, last = rows(html)
    assert above == ["", "all", "fast", "slow"]
    group = ["accuracy %", "influence", "fair", "staleness"]
    assert below == ["", "strategy", "▾accuracy %", "Jain", "staleness", "time", *group, *group]
    fast, slow = ["80.00", "0.500", "0.667", "0.00"], ["70.00", "0.500", "0.333", "0.00"]
    assert best == ["1", "B1 of 2 seeds finished, 1 aggregations", "75.00", "0.889", "0.00", "30", *fast, *slow]
    assert last[:3] == ["2", "A2 seeds, 1 aggregations", "67.50 ±3.54"]
    found = [(0.5, 2 / 3), (0.5, 1 / 3), (0.9, 2 / 3), (0.1, 1 / 3)]
    np.testing.assert_allclose(bars(html), np.array(found) / 0.9, atol=0.001)
    text = "".join(page(html).itertext())
    assert "B: seed 1 is unfinished, at 1 of 1 aggregations." in text
    assert "time: virtual time to 64 % accuracy (95 % of the lowest final accuracy, 67.5 % of A)" in text
    assert "not distinguishable from the first: A (1 seed is too few)" in text


def test_the_column_that_decides_is_marked_and_bold(several: list[Run]) -> None:
    html = fairlag.compare(several, by="influence")._repr_html_()
    assert [(place, text) for place, text in enumerate(rows(html)[1]) if "▾" in text] == [(11, "▾influence")]
    bold = ["".join(each.itertext()) for each in page(html).iter("td") if "bold" in each.attrib["style"]]
    assert bold == ["0.500", "0.100"]


def test_runs_without_numbers_and_fleets_without_a_group(tmp_path: Path) -> None:
    runs = [bare(tmp_path / "a", "Nothing"), bare(tmp_path / "b", "Other", groups=("phones",))]
    above, _, nothing, other = rows(fairlag.compare(runs)._repr_html_())
    assert above == ["", "all", "fast", "slow", "phones"]
    dashes = ["–"] * 4
    known = ["–", "–", "0.500", "–"]
    assert nothing == ["–", "Nothing0 of 1 seed finished, 0 aggregations", *dashes, *known, *known, *dashes]
    assert other[-4:] == ["–", "–", "1.000", "–"]


def test_several_experiments_are_several_tables(tmp_path: Path) -> None:
    found = fairlag.compare([made(tmp_path / "a"), made(tmp_path / "b", experiment="other")])
    assert len(list(page(found._repr_html_()).iter("table"))) == 2
    assert found.frame()["experiment"].tolist() == ["demo", "other"]


def test_names_are_text_and_not_markup(tmp_path: Path) -> None:
    html = fairlag.compare(hostile(tmp_path))._repr_html_()
    assert "<script" not in html
    assert rows(html)[0][-1] == HOSTILE
    assert rows(html)[2][1].startswith(HOSTILE)
    assert "background" not in html


def test_runs_may_be_one_several_or_a_folder(several: list[Run], tmp_path: Path) -> None:
    assert len(fairlag.compare(several[0])) == 1
    assert len(fairlag.compare(iter(several))) == len(fairlag.compare(tmp_path)) == len(fairlag.compare(str(tmp_path)))
    (tmp_path / "empty").mkdir()
    for given, sentence in (([], "no runs were given"), (tmp_path / "empty", "there are no runs in '.*empty'")):
        with pytest.raises(InputError, match=sentence):
            fairlag.compare(given)
        with pytest.raises(InputError, match=sentence):
            fairlag.figure(given)


@pytest.mark.parametrize(("size", "width"), [("single", 340), ("double", 700)])
def test_a_picture_is_shown_as_large_as_on_paper_and_saved(tmp_path: Path, size: str, width: int) -> None:
    run = made(tmp_path / "run")
    picture = fairlag.figure(run, "influence", size=size)
    png, shown = picture._repr_png_()
    assert png.startswith(b"\x89PNG")
    assert shown["width"] == width
    assert shown["height"] / width == pytest.approx(picture.pixels[1] / picture.pixels[0], rel=0.01)
    assert repr(picture).startswith("<influence of 1 run, ")
    picture.save(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").read_bytes() == png
    picture.save(str(tmp_path / "figure.svg"))
    assert (tmp_path / "figure.svg").read_bytes().startswith(b"<?xml")
    with pytest.raises(InputError, match=r"the name must end with \.png, \.pdf, \.svg"):
        picture.save(tmp_path / "figure.jpg")


def test_the_window_of_a_timeline_changes_the_picture(tmp_path: Path) -> None:
    run = made(tmp_path / "run")
    assert fairlag.figure(run, "timeline", until=4).png != fairlag.figure(run, "timeline").png


def test_what_cannot_be_drawn_is_refused_at_once(tmp_path: Path) -> None:
    refused: list[tuple[str, dict[str, Any], str]] = [
        ("pie", {}, "the kind of a figure is 'pie', it must be one of curve, influence"),
        ("influence", {"until": 3.0}, "a window until 3 was given, but only a timeline has one, not influence"),
        ("curve", {"begin": 3.0}, "a window from 3 was given, but only a timeline has one, not curve"),
        ("curve", {}, "has no curve to draw"),
    ]
    for kind, options, sentence in refused:
        with pytest.raises(InputError, match=sentence):
            fairlag.figure(bare(tmp_path / f"{kind}{options}"), kind, **options)
