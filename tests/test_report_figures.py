"""Figures and tables of runs: they are drawn for all that runs may lack, fit a terminal, and say what is in them."""

import xml.etree.ElementTree as ElementTree
from io import StringIO
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from rich.console import Console, RenderableType

from fairlag.analyse.compare import compare
from fairlag.analyse.ranking import ranked
from fairlag.errors import InputError
from fairlag.report.comparison import Listed, compare_table, runs_table
from fairlag.report.figures import curve_figure, holdings_figure
from fairlag.report.figures.identity import styled
from tests.support.command import Call
from tests.support.runs import bare, made, strategies


def words(file: Path) -> list[str]:
    """The text of an SVG: its letters are kept as letters."""
    return [element.text or "" for element in ElementTree.parse(file).iter() if element.tag.endswith("text")]


def shown(what: RenderableType, width: int = 80) -> str:
    console = Console(file=StringIO(), width=width, color_system=None)
    console.print(what, highlight=False)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_accuracy_of_all_strategies_and_groups_is_drawn(tmp_path: Path) -> None:
    runs = [
        made(tmp_path / f"{label}-{seed}", label=label, seed=seed) for label in ("FedAvg", "Mine") for seed in (0, 1)
    ]
    curve_figure(runs, tmp_path / "figure.svg")
    found = words(tmp_path / "figure.svg")
    assert {"FedAvg", "Mine", "Labels of group fast", "Labels of group slow", "aggregations"} <= set(found)
    assert "Lines and bands: mean and standard deviation over 2 seeds, up to the end of the shortest run." in found


def test_runs_of_other_settings_are_lines_of_their_own(tmp_path: Path) -> None:
    runs = [made(tmp_path / f"{name}/run", experiment_key=name) for name in ("a", "b")]
    curve_figure(runs, tmp_path / "figure.svg")
    found = words(tmp_path / "figure.svg")
    assert {f"FedAvg [{tmp_path / name}]" for name in ("a", "b")} <= set(found)
    assert "Lines and bands: one seed, with the standard error of the test sample." in found


def styles(file: Path) -> list[tuple[str, str]]:
    """The colour and the dashes of every line of the first panel, in the order in which they are drawn."""
    panel = next(each for each in ElementTree.parse(file).iter() if each.get("id") == "axes_1")
    words = [path.get("style", "") for each in panel if "line2d" in each.get("id", "") for path in each]
    found = (dict(part.split(": ", 1) for part in style.split("; ") if ": " in part) for style in words)
    return [(each.get("stroke", ""), each.get("stroke-dasharray", "")) for each in found if "stroke" in each]


def test_many_strategies_are_told_apart_and_named_below_in_the_order_of_their_ends(tmp_path: Path) -> None:
    runs = [made(tmp_path / f"{gain:02}", label=f"S{gain}", gain=gain) for gain in range(22)]
    for count, legend in ((8, range(8)), (9, range(8, -1, -1)), (22, range(21, -1, -1))):
        curve_figure(runs[:count], tmp_path / "figure.svg")
        assert [word for word in words(tmp_path / "figure.svg") if word[0] == "S"] == [f"S{gain}" for gain in legend]
        assert len(set(styles(tmp_path / "figure.svg"))) == len(styles(tmp_path / "figure.svg")) == count
        below = "Lines and bands: one seed, with the standard error of the test sample."
        below += " Listed by the ends of the lines, the highest first." if count > 8 else ""
        assert below in words(tmp_path / "figure.svg")


def test_many_long_labels_are_cut_such_that_they_differ_in_the_legend(tmp_path: Path) -> None:
    labels = [f"FedStaleWeight (scaling=algorithm1, window={window})" for window in range(9)]
    runs = [made(tmp_path / str(place), label=label) for place, label in enumerate(labels)]
    curve_figure(runs, tmp_path / "figure.svg")
    found = [word for word in words(tmp_path / "figure.svg") if word.startswith("FedStale")]
    assert found == [f"FedStaleWeight (sca… window={window})" for window in range(9)]


def test_many_strategies_without_a_curve_are_drawn(tmp_path: Path) -> None:
    curve_figure([bare(tmp_path / str(place), f"S{place}") for place in range(9)], tmp_path / "figure.svg")
    assert "S0" not in words(tmp_path / "figure.svg")


def test_seeds_of_any_length_are_drawn(tmp_path: Path) -> None:
    runs = [made(tmp_path / "a"), made(tmp_path / "b", seed=1, finished=False), bare(tmp_path / "c")]
    curve_figure(runs, tmp_path / "figure.svg")
    assert "Lines and bands: one seed, with the standard error of the test sample." in words(tmp_path / "figure.svg")


def test_what_a_run_lacks_is_left_out(tmp_path: Path) -> None:
    curve_figure([bare(tmp_path / "bare"), made(tmp_path / "one", finished=False)], tmp_path / "figure.svg")
    assert "Labels of group slow" in words(tmp_path / "figure.svg")
    curve_figure([bare(tmp_path / "nothing", "Nothing")], tmp_path / "nothing.svg")
    assert "Nothing" not in words(tmp_path / "nothing.svg")
    with pytest.raises(InputError, match="no runs"):
        curve_figure([], tmp_path / "figure.svg")


@pytest.mark.parametrize(("suffix", "begins"), [("png", b"\x89PNG"), ("pdf", b"%PDF"), ("SVG", b"<?xml")])
def test_formats_and_that_the_same_figure_is_the_same_bytes(tmp_path: Path, suffix: str, begins: bytes) -> None:
    run = made(tmp_path / "run")
    first, second = tmp_path / f"a.{suffix}", tmp_path / f"b.{suffix}"
    for file in (first, second):
        curve_figure([run], file)
    assert first.read_bytes().startswith(begins)
    assert first.read_bytes() == second.read_bytes()


def test_an_unknown_format_is_refused_before_anything_is_drawn(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"the name must end with \.png, \.pdf, \.svg"):
        curve_figure([made(tmp_path / "run")], tmp_path / "figure.jpeg2000")


def test_holdings_show_numbers_where_there_is_room(tmp_path: Path) -> None:
    holdings_figure(np.array([[1234, 0], [0, 7]]), ["fast 0", "slow 0"], "Who holds what", tmp_path / "few.svg")
    found = words(tmp_path / "few.svg")
    assert {"fast 0", "slow 0", "1,234", "7", "Who holds what", "examples"} <= set(found)
    names = [f"client {place}" for place in range(100)]
    holdings_figure(np.ones((100, 10), int), names, "Many", tmp_path / "many.svg")
    found = words(tmp_path / "many.svg")
    assert "Many (first 60 of 100)" in found
    assert "client 59" in found
    assert "client 60" not in found


@pytest.mark.parametrize("counts", [np.zeros((2, 3), int), np.full((2, 3), 10**9), np.eye(2, 3, dtype=np.int32)])
def test_holdings_of_any_size(tmp_path: Path, counts: np.ndarray) -> None:
    holdings_figure(counts, ["a", "b"], "", tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 1000
    with pytest.raises(InputError, match=r"counts has shape \(2, 3\) for 1 rows"):
        holdings_figure(counts, ["a"], "", tmp_path / "figure.png")


def test_the_table_of_runs(tmp_path: Path) -> None:
    runs = [made(tmp_path / "a"), made(tmp_path / "b", seed=1, finished=False), bare(tmp_path / "c", planned=None)]
    text = shown(runs_table([Listed.of(run.folder) for run in runs]), 160)
    assert [line.split()[0] for line in text.splitlines() if line.rstrip().endswith(("%", "–"))] == ["a", "b", "c"]
    assert all(word in text for word in ("finished", "interrupted", "2/2", "1/2", "64.00 %", "50.00 %"))
    assert "Runs in" in shown(runs_table([]))


def test_the_table_of_a_comparison_fits_a_terminal(tmp_path: Path) -> None:
    runs = [made(tmp_path / "a"), made(tmp_path / "b", seed=1, gain=10), made(tmp_path / "c", label="Mine")]
    text = shown(compare_table(ranked(compare(runs, [0.5, 0.9]))))
    assert max(len(line.rstrip()) for line in text.splitlines()) <= 80
    assert "FedAvg  2 seeds, 2 aggregations, Jain index 0.970" in text
    assert "  slow               1   69.00 ±7.07   75.00 ±7.07      0.375  0.333       1.00" in text
    assert [line.split() for line in text.splitlines() if " of " in line and "%" in line] == [
        ["FedAvg", "50", "%", "2", "1", "2", "of", "2"],
        ["FedAvg", "90", "%", "–", "–", "0", "of", "2"],
        ["Mine", "50", "%", "2", "1", "1", "of", "1"],
        ["Mine", "90", "%", "–", "–", "0", "of", "1"],
    ]
    assert "Mine: no run has seed 1, which other strategies have." in text


def test_the_table_says_how_many_seeds_finished_and_which_settings_are_meant(tmp_path: Path) -> None:
    runs = [made(tmp_path / "a/0", experiment_key="a"), made(tmp_path / "a/1", seed=1, experiment_key="a")]
    runs += [made(tmp_path / "b/0"), made(tmp_path / "b/1", seed=1, finished=False)]
    text = shown(compare_table(ranked(compare(runs))), 300)
    assert f"FedAvg [{tmp_path / 'a'}]  2 seeds, 2 aggregations" in text
    assert f"FedAvg [{tmp_path / 'b'}]  1 of 2 seeds finished, 2 aggregations" in text
    assert [line.split()[1] for line in text.splitlines() if "60 %" in line and line.startswith(" FedAvg")] == [
        f"[{tmp_path / x}]" for x in "ab"
    ]
    assert "  slow               1         64.00" in text


def test_a_run_that_cannot_be_read_is_a_row(tmp_path: Path) -> None:
    made(tmp_path / "a")
    for name, content in (("b", b"something else, and long enough to be none"), ("c", b"")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.sqlite").write_bytes(content)
    made(tmp_path / "d")
    (tmp_path / "d/lock").write_bytes(b"no lock" * 100)
    lines = shown(runs_table([Listed.of(tmp_path / name) for name in "abcd"]), 200).splitlines()
    assert [line.split() for line in lines if "unreadable" in line] == [["b", "unreadable"], ["c", "unreadable"]]
    assert sum("finished" in line for line in lines) == 2
    assert any(line.startswith("b: there is no run in") and "not a database" in line for line in lines)


def test_the_table_of_a_run_that_has_nothing_to_say(tmp_path: Path) -> None:
    text = shown(compare_table(ranked(compare([bare(tmp_path)]))))
    assert "0 of 1 seed finished, 0 aggregations, Jain index –" in text
    assert "Time to an accuracy" not in text


def test_the_numbers_are_written_beside_the_picture_and_a_style_changes_only_the_picture(tmp_path: Path) -> None:
    runs = strategies(tmp_path / "runs", A=[93, 91, 90], B=[60, 58, 59])
    plain, other = tmp_path / "plain.svg", tmp_path / "other.svg"
    curve_figure(runs, plain)
    with styled("ggplot"):
        curve_figure(runs, other)
    found = pd.read_csv(plain.with_suffix(".numbers.csv"))
    lines = found[(found["kind"] == "line") & (found["panel"] == 1)]
    assert dict(zip(lines["label"], lines["y"], strict=True)) == pytest.approx({"A": 0.9133333, "B": 0.59})
    assert plain.with_suffix(".numbers.csv").read_bytes() == other.with_suffix(".numbers.csv").read_bytes()
    assert plain.read_bytes() != other.read_bytes()
    curve_figure(runs, other)
    assert plain.read_bytes() == other.read_bytes()  # nothing stays


def test_a_style_that_does_not_exist_is_refused(call: Call, tmp_path: Path) -> None:
    strategies(tmp_path / "runs", A=[93])
    words = ("figure", str(tmp_path / "runs"), "--kind", "curve", "--out", str(tmp_path / "a.png"), "--style", "nope")
    assert call(*words).err.startswith(
        "fairlag: --style is 'nope', it must be the name of a matplotlib style, such as "
    )
