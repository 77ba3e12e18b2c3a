"""`fairlag figure`: what is drawn, how large, in which colours, and what is refused with which sentence."""

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import same_color, to_hex
from matplotlib.figure import Figure
from matplotlib.image import imread
from matplotlib.patches import Rectangle

from fairlag import simulate
from fairlag.analyse.audit import audit
from fairlag.analyse.evidence import experiment_of
from fairlag.analyse.throttling import SERVER_UPDATES
from fairlag.lab.experiment import parse
from fairlag.lab.run import Run
from fairlag.report.figures import (
    incentives_figure,
    influence_figure,
    rewards,
    staleness_figure,
    timeline_figure,
)
from fairlag.report.figures.identity import group_look, strategy_look
from fairlag.runtime.compiled import available
from tests.support.command import Call
from tests.support.experiments import LEAN
from tests.support.runs import bare, made, shuffled

FAST, SLOW = group_look(0).colour, group_look(1).colour


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Figure]]:
    """The figures that were written."""
    found: list[Figure] = []
    save = Figure.savefig

    def savefig(figure: Figure, *words: object, **options: object) -> None:
        found.append(figure)
        save(figure, *words, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Figure, "savefig", savefig)
    yield found


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """Two strategies, one of them with two seeds."""
    for label, seed, finished in (("FedAvg", 0, True), ("FedAvg", 1, False), ("Mine", 0, True)):
        made(tmp_path / f"runs/{label.lower()}-seed{seed}", label=label, seed=seed, finished=finished)
    return tmp_path / "runs"


@pytest.fixture(scope="module")
def lean(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of an experiment that can be built again."""
    return simulate(parse(LEAN), out=tmp_path_factory.mktemp("lean") / "run")


def bars(axes: Axes) -> list[tuple[float, float, str]]:
    """Where the upright bars are, how high, and in which colour."""
    patches = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
    return [
        (round(bar.get_x() + bar.get_width() / 2, 6), bar.get_height(), to_hex(bar.get_facecolor())) for bar in patches
    ]


def lines(axes: Axes, colour: str) -> list[tuple[list[float], list[float]]]:
    """The data of all lines in a colour."""
    found = [line for line in axes.get_lines() if same_color(line.get_color(), colour)]
    return [(np.asarray(line.get_xdata()).tolist(), np.asarray(line.get_ydata()).tolist()) for line in found]


def below(figure: Figure) -> str:
    return " ".join(figure.get_supxlabel().split())


def test_influence_is_drawn_as_it_was_recorded(kept: Path, tmp_path: Path, drawn: list[Figure], call: Call) -> None:
    done = call("figure", str(kept), "--kind", "influence", "--out", str(tmp_path / "figure.svg"))
    told = f"The figure was written to {tmp_path / 'figure.svg'}, its numbers to {tmp_path / 'figure.numbers.csv'}\n"
    assert (done.code, done.out) == (0, told)
    fedavg, mine = drawn[0].axes
    assert bars(mine) == [(0, 0.375, FAST.lower()), (1, 0.25, FAST.lower()), (2, 0.375, SLOW.lower())]
    assert [height for _, height, _ in bars(fedavg)] == [0.4375, 0.375, 0.1875]
    assert lines(mine, "#222222") == [([0, 1], [1 / 3, 1 / 3])]
    spread = [segment[:, 1].tolist() for segment in fedavg.collections[0].get_segments()]  # type: ignore[attr-defined]
    assert spread[0] == pytest.approx([0.4375 - 0.125 / 2**0.5, 0.4375 + 0.125 / 2**0.5])
    assert not mine.collections
    assert (fedavg.get_title(loc="left"), fedavg.get_title(loc="right")) == ("FedAvg", "Jain 0.818")
    assert "mean and standard deviation over 1 to 2 seeds" in below(drawn[0])


def test_influence_of_many_clients_is_a_curve_a_group(tmp_path: Path, drawn: list[Figure]) -> None:
    run = shuffled(tmp_path / "run", clients=202, tasks=303)
    influence_figure([run], tmp_path / "figure.png")
    (axes,) = drawn[0].axes
    ((where, even),) = lines(axes, FAST)
    assert len(where) == 101
    assert [even[0], even[-1]] == pytest.approx([202 / 303, 2 * 202 / 303])
    assert not axes.patches
    assert below(drawn[0]).startswith("202 clients are too many for one bar each")


def test_staleness_is_a_cumulative_line_with_both_means(lean: Run, tmp_path: Path, drawn: list[Figure]) -> None:
    staleness_figure([lean], tmp_path / "figure.png")
    (axes,) = drawn[0].axes
    tasks = lean.tasks.merge(lean.clients, on="client")
    late = tasks[(tasks["group"] == "slow") & (tasks["outcome"] == "aggregated")]["staleness"].to_numpy(int)
    predicted, (where, part), (mean, _) = lines(axes, SLOW)
    assert (where[:3], part[0], part[-1]) == ([-1, 0, 1], 0, 1)
    assert part[1:-1] == pytest.approx([(late <= most).mean() for most in range(late.max() + 1)])
    assert mean == pytest.approx([late.mean()])
    assert predicted[0][0] == pytest.approx(late.mean(), rel=0.2)
    assert "Predicted: by the closed form" in below(drawn[0])


def test_staleness_without_an_experiment_has_no_prediction(kept: Path, tmp_path: Path, drawn: list[Figure]) -> None:
    staleness_figure([Run(kept / "mine-seed0")], tmp_path / "figure.png")
    assert len(lines(drawn[0].axes[0], SLOW)) == 2
    assert "redicted" not in below(drawn[0])


def test_a_timeline_has_a_bar_a_task(kept: Path, tmp_path: Path, drawn: list[Figure]) -> None:
    timeline_figure([Run(kept / "mine-seed0")], tmp_path / "figure.png")
    axes = drawn[0].axes[0]
    found = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
    spans = [(bar.get_y() + bar.get_height() / 2, bar.get_x(), bar.get_x() + bar.get_width()) for bar in found]
    assert np.allclose(spans, [(0, 0, 1), (1, 0, 2), (2, 0, 8), (0, 2, 9), (1, 2, 3)])
    assert [bool(bar.get_hatch()) for bar in found] == [False] * 4 + [True]
    colours = [to_hex(bar.get_facecolor()) for bar in found[:4]]
    assert colours[0] == colours[1] == colours[2] != colours[3]
    assert lines(axes, "#222222")[0][0] == [2, 9]
    assert [where for where, _ in lines(axes, FAST) + lines(axes, SLOW)] == [[0, 0]] * 2
    assert [text.get_text() for text in drawn[0].legends[0].get_texts()][-1] == "refused"
    assert axes.get_xlim() == (0, 9)


def test_the_window_of_a_timeline_can_be_said(kept: Path, tmp_path: Path, drawn: list[Figure], call: Call) -> None:
    words = ("--kind", "timeline", "--out", str(tmp_path / "figure.png"), "--from", "1.5", "--until", "4")
    assert call("figure", str(kept), *words).code == 0
    assert [axes.get_xlim() for axes in drawn[0].axes[:2]] == [(1.5, 4.0)] * 2
    assert "Virtual time from 1.5 to 4." in below(drawn[0])


def test_few_lanes_of_many_are_said_to_be_few(tmp_path: Path, drawn: list[Figure]) -> None:
    timeline_figure([shuffled(tmp_path / "run", clients=100, tasks=1000)], tmp_path / "figure.png", "single")
    assert "40 of 100 clients that worked, chosen evenly over the groups" in below(drawn[0])


def test_incentives_are_the_audits(lean: Run, tmp_path: Path, drawn: list[Figure], call: Call) -> None:
    words = ("--kind", "incentives", "--out", str(tmp_path / "figure.svg"), "--workers", "1")
    done = call("figure", str(lean.folder), *words)
    assert done.code == 0
    assert f"fairness: {lean.label}: 1 of 1 trials" in done.err
    (found,) = audit(experiment_of(lean), seeds=1, incentive_updates=SERVER_UPDATES)
    (axes,) = drawn[0].axes
    for place, group in enumerate(found.groups):
        factors, influence = lines(axes, group_look(place).colour)[0]
        assert factors == list(group.incentive.factors)
        assert influence == pytest.approx(group.incentive.influence.tolist())
    verdict = axes.texts[0].get_text().splitlines()
    assert [line.partition(": gains ")[0] for line in verdict] == ["fast", "slow"]


def test_a_gain_is_told_and_marked(tmp_path: Path, drawn: list[Figure]) -> None:
    clients = [{"group": "racer", "count": 1, "delay": 0.1}, {"group": "others", "count": 5, "delay": "uniform(1, 2)"}]
    strategies = [{"use": "fedstaleweight", "buffer": 3}]
    experiment = parse({**LEAN, "clients": clients, "strategies": strategies})
    found = audit(experiment, seeds=1, incentive_updates=200_000, incentive_error=0.9)
    racer = found[0].groups[0].incentive
    assert not racer.truthful
    incentives_figure(found, tmp_path / "figure.png")
    (axes,) = drawn[0].axes
    star = next(line for line in axes.get_lines() if line.get_marker() == "*")
    assert (star.get_xdata(), same_color(star.get_color(), FAST)) == ([racer.best_throttle], True)
    gain = f"{racer.throttle_gain:.0%} ± {racer.gain_error:.0%} at ×{racer.best_throttle:g}"
    assert axes.texts[0].get_text().startswith(f"racer: gains {gain}")
    incentives_figure(found * 7, tmp_path / "figure.png")
    assert {panel.texts[0].get_text().splitlines()[0] for panel in drawn[1].axes} == {
        f"racer: +{gain.replace('± ', '±')}"
    }


def test_what_could_not_be_afforded_is_said(tmp_path: Path, drawn: list[Figure]) -> None:
    found = audit(parse({**LEAN, "aggregations": 5}), seeds=1, incentive_updates=1000)
    incentives_figure(found, tmp_path / "figure.png")
    words = "not tried: it would take too many updates"
    assert drawn[0].axes[0].texts[0].get_text() == f"fast: {words}\nslow: {words}"


@pytest.mark.parametrize(("size", "width"), [("single", 3.4), ("double", 7.0)])
@pytest.mark.parametrize("kind", ["curve", "influence", "staleness", "timeline"])
def test_sizes_and_letters(kept: Path, tmp_path: Path, call: Call, kind: str, size: str, width: float) -> None:
    pdf, png = tmp_path / "figure.pdf", tmp_path / "figure.PNG"
    for file in (pdf, png):
        assert call("figure", str(kept), "--kind", kind, "--size", size, "--out", str(file)).code == 0
    content = pdf.read_bytes()
    (box,) = re.findall(rb"/MediaBox \[ 0 0 ([\d.]+) ", content)
    assert float(box) / 72 == pytest.approx(width)
    assert b"/Type3" not in content
    assert b"/FontFile2" in content  # TrueType, embedded
    assert imread(png).shape[1] == round(width * (300 if size == "single" else 200))


def test_a_strategy_keeps_its_colour_without_the_others(kept: Path, tmp_path: Path, drawn: list[Figure]) -> None:
    plan = '{"experiment": {"strategies": [{"label": "Other"}, {"label": "FedAvg"}, {"label": "Mine"}]}}'
    (kept / "plan.json").write_text(plan)
    influence_figure([Run(kept / "mine-seed0")], tmp_path / "figure.png")
    assert same_color(drawn[0].axes[0].spines["top"].get_edgecolor(), strategy_look(2).colour)
    staleness_figure([Run(kept / f"{name}-seed0") for name in ("fedavg", "mine")], tmp_path / "figure.png")
    colours = [axes.spines["top"].get_edgecolor() for axes in drawn[1].axes]
    assert [same_color(colour, strategy_look(place).colour) for place, colour in enumerate(colours, 1)] == [True] * 2


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            "--kind pie --out x.pdf",
            "the kind of a figure is 'pie', it must be one of curve, influence, staleness, ranks, privacy, timeline",
        ),
        ("--kind influence --out x.jpg", "'x.jpg' cannot be drawn: the name must end with .png, .pdf, .svg"),
        ("--kind influence --out no/x.pdf", "there is no folder 'no'"),
        ("--kind influence --out x.pdf --size triple", "the size of a figure is 'triple', it must be single or double"),
        ("--kind influence --out x.pdf --until 3", "a window until 3 was given, but only a timeline has one"),
        ("--kind timeline --out x.pdf --from 100", "no task runs from 100"),
        ("--kind incentives --out x.pdf", "cannot be rebuilt"),
        ("--out x.pdf", "Missing option '--kind'"),
        ("--kind incentives --out x.pdf --workers 0", "--workers is 0, it must be at least 1"),
    ],
)
def test_what_is_refused(
    call: Call, kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = call("figure", "runs", *words.split())
    assert (done.code, done.out) == (2, "")
    assert sentence in done.err
    assert len(done.err.splitlines()) == 1
    assert not list(tmp_path.glob("x.*"))


def test_runs_that_cannot_be_drawn(call: Call, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    bare(tmp_path / "bare")
    for place in range(9):
        made(tmp_path / f"many/{place}", label=f"S{place}")
    for folder, kind, sentence in (
        ("nowhere", "curve", "there is no folder"),
        ("empty", "curve", "there are no runs in"),
        ("bare", "curve", "has no curve to draw: no version of it was evaluated"),
        ("bare", "influence", "has no influence to draw"),
        ("bare", "timeline", "has no timeline: none of its tasks has ended yet"),
        ("many", "influence", "there are 9 strategies, but a figure has room for 8 panels: give fewer runs"),
        ("many", "incentives", "there are 9 strategies"),
        ("many", "timeline", "there are 9 strategies, but a timeline has room for 4: give fewer runs"),
    ):
        done = call("figure", str(tmp_path / folder), "--kind", kind, "--out", str(tmp_path / "x.pdf"))
        assert (done.code, sentence in done.err) == (2, True), done.err


@pytest.mark.skipif(not available(), reason="needs the extra `fast`")
def test_rewards_are_drawn_of_an_experiment(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drawn: list[Figure]
) -> None:
    monkeypatch.setattr(rewards, "REWARDS", (0.0, 1.0))
    file = tmp_path / "even.toml"
    file.write_text(
        'name = "even"\naggregations = 10\n[[clients]]\ngroup = "all"\ncount = 4\ndelay = "uniform(1, 2)"\n'
        'cost = 0.6\n[[strategies]]\nuse = "fairshare"\nbuffer = 2\nestimator = "gap"\nfresh = false\n'
    )
    words = ("--kind", "rewards", "--out", str(tmp_path / "x.svg"), "--workers", "1")
    done = call("figure", str(file), *words)
    told = f"The figure was written to {tmp_path / 'x.svg'}, its numbers to {tmp_path / 'x.numbers.csv'}\n"
    assert (done.code, done.out) == (0, told)
    (axes,) = drawn[0].axes
    (line,) = axes.get_lines()
    # At full speed a client sends 1/1.5 per second, at rest with s = 1 (n−1)/(n²κ).
    assert np.asarray(line.get_xdata()).tolist() == pytest.approx([1 / 64, 3 / 16 / 0.6 * 1.5], rel=0.06)
    assert np.asarray(line.get_ydata()).tolist() == pytest.approx([1, 1])
    assert [text.get_text() for text in axes.texts] == ["s = 0", "s = 1"]


def test_what_rewards_need(call: Call, tmp_path: Path) -> None:
    out = ("--out", str(tmp_path / "x.png"))
    for words, sentence in (
        (("demo", "--kind", "rewards"), "rewards need a cost of updates: give --cost 0.01, or `cost` in [[clients]]"),
        (("demo", "racer", "--kind", "rewards"), "rewards are drawn for one experiment, but 2 were given"),
        (("demo", "--kind", "influence", "--cost", "1"), "--cost is only for --kind rewards, not for influence"),
    ):
        done = call("figure", *words, *out)
        assert (done.code, sentence in done.err) == (2, True), done.err


def test_what_is_too_long_for_rewards_names_a_command_that_can(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlag.analyse.settling.COMPILED_UPDATES", 1)
    monkeypatch.setattr("fairlag.analyse.settling.SERVER_UPDATES", 1)
    done = call("figure", "demo", "--kind", "rewards", "--cost", "0.1", "--out", str(tmp_path / "x.png"))
    assert done.code == 2
    assert "`fairlag audit --cost` with --incentive-updates " in done.err
