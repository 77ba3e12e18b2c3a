"""The paper's figures: draws runs of its experiments beside each other, and prints the tables of docs/reproduction.md.

    python -m benchmarks.reproduction RUNS... [--target 0.7 --target 0.8] [--figure docs/reproduction.png]

One column of the figure, and one pair of tables, per folder of runs. Curves are rough, so strategies are compared by
the mean over the last quarter of the aggregations.
"""

import argparse
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from matplotlib.ticker import MaxNLocator, PercentFormatter

import fairlag
from fairlag.analyse.compare import Repeated, repeated
from fairlag.analyse.curves import Curves, curves
from fairlag.analyse.significance import FEWEST, Test, factor, holm, told_apart
from fairlag.errors import FairlagError, InputError
from fairlag.lab.run import Run
from fairlag.lab.scores import first_at
from fairlag.report.figures import check_format, identity

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TAIL = 0.25
"""The part of a run, at its end, over which strategies are compared."""


class Found(NamedTuple):
    """The runs in a folder, by strategy."""

    name: str
    strategies: Sequence[Repeated]
    curves: Sequence[Curves]
    groups: tuple[str, ...]

    @classmethod
    def of(cls, folder: Path) -> "Found":
        """All runs of one experiment in a folder; those that are not finished are drawn as far as they got."""
        runs = list(fairlag.runs(folder))
        names = {run.experiment for run in runs}
        if len(names) != 1:
            raise InputError(f"{str(folder)!r} has runs of {len(names)} experiments: give folders of one each")
        strategies = repeated(runs)
        return cls(names.pop(), strategies, [curves(each) for each in strategies], tuple(runs[0].groups))


def finished(strategy: Repeated) -> list[Run]:
    """The runs that came to their end."""
    return [run for run in strategy.runs if run.status == "finished"]


def tail(run: Run, group: str | None) -> float:
    """The mean of the curve over the last part of a finished run."""
    curve = run.curve() if group is None else run.curve("group", group)
    return float(curve.loc[curve["version"] > (1 - TAIL) * run.version, "accuracy"].mean())


def by_seed(strategy: Repeated, group: str | None) -> dict[int, float]:
    """The tail of each finished run, by seed."""
    return {run.seed: tail(run, group) for run in finished(strategy)}


def shown(values: Sequence[float], scale: float = 100, digits: int = 1) -> str:
    """The mean and its 95 % interval; with fewer than three values, all of them.

    >>> shown([0.5, 0.6, 0.7]), shown([0.5, 0.6]), shown([]), shown([0.5, float("nan"), 0.6])
    ('60.0 ± 24.8', '50.0 / 60.0', '–', '50.0 / never / 60.0')
    """
    scaled = scale * np.array(values)
    if len(scaled) < FEWEST or np.isnan(scaled).any():
        return " / ".join("never" if np.isnan(each) else f"{each:.{digits}f}" for each in scaled) or "–"
    margin = factor(len(scaled)) * scaled.std(ddof=1)
    return f"{scaled.mean():.{digits}f} ± {margin:.{digits}f}"


def summary(found: Found, targets: Sequence[float]) -> str:
    """One row per strategy: accuracy over the tail and at the end, influence, and aggregations to the targets."""
    scopes: dict[str | None, str] = {None: "all labels", **{name: f"labels of {name}" for name in found.groups}}
    head = ["strategy", "seeds", *(f"{words}, last quarter" for words in scopes.values()), "all labels, at the end"]
    head += [f"influence of {found.groups[-1]}", *(f"aggregations to {100 * each:g} %" for each in targets)]
    lines = [f"| {' | '.join(head)} |", f"|---|{'--:|' * (len(head) - 1)}"]
    for strategy in found.strategies:
        ended = finished(strategy)
        shares = [run.influence("group").set_index("group")["influence"] for run in ended]
        influence = [float(each[found.groups[-1]]) for each in shares]
        cells = [strategy.label, str(len(ended))]
        cells += [shown([*by_seed(strategy, scope).values()]) for scope in scopes]
        cells += [shown([run.accuracy() for run in ended]), shown(influence, 1, 3)]
        for target in targets:
            cells.append(shown([first_at(run.curve(), target, "version", run.lead) for run in ended], 1, 0))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def differences(found: Found) -> str:
    """One row per pair of strategies: the paired difference over the tail, with its interval and Holm's correction."""
    scopes = (None, *found.groups)
    values = [{scope: by_seed(each, scope) for scope in scopes} for each in found.strategies]
    pairs = list(combinations(range(len(values)), 2))
    lines = ["| difference, points | all labels | " + " | ".join(f"labels of {name}" for name in found.groups) + " |"]
    lines.append("|---|" + "--:|" * len(scopes))
    tests = {scope: holm([told_apart(values[b][scope], values[a][scope]) for a, b in pairs]) for scope in scopes}
    for place, (a, b) in enumerate(pairs):
        words = f"{found.strategies[b].label} − {found.strategies[a].label}"
        lines.append(f"| {words} | {' | '.join(_difference(tests[scope][place]) for scope in scopes)} |")
    return "\n".join(lines)


def _difference(test: Test) -> str:
    if not test.seeds:
        return "–"
    if test.seeds < FEWEST:
        return f"{100 * test.difference:+.1f}"
    words = f"{100 * test.difference:+.1f} ± {100 * test.margin:.1f}"
    return f"**{words}**" if test.clear else words


def drawn(columns: Sequence[Found], file: Path) -> None:
    """Saves the figure: one column per experiment, one row for all labels and for those of each group."""
    check_format(file)
    scopes: tuple[str | None, ...] = (None, *columns[0].groups)
    looks = _looks(columns)
    with identity.drawing(file, height=0.8 + 1.9 * len(scopes)) as figure:
        grid = figure.subplots(len(scopes), len(columns), sharex="col", sharey="row", squeeze=False)
        for row, scope in zip(grid, scopes, strict=True):
            for axes, found in zip(row, columns, strict=True):
                _panel(axes, found, scope, looks)
            row[0].set_ylabel("accuracy")
        for axes, found in zip(grid[0], columns, strict=True):
            axes.set_title(f"{found.name}: all labels")
        for axes in grid[-1]:
            axes.set_xlabel("aggregations")
        lines = {line.get_label(): line for axes in grid.flat for line in axes.get_lines()}
        identity.legend(figure, [lines[label] for label in looks])
        identity.caption(
            figure,
            "Faint: the curve, evaluated on a sample of the test examples. Lines: its mean over a tenth of the run, "
            "and over seeds. Bands: the 95 % interval of that mean, where there are three seeds.",
        )


def _looks(columns: Sequence[Found]) -> dict[str, identity.Look]:
    """The look of each strategy, by its label: the same in all columns."""
    labels = dict.fromkeys(each.label for found in columns for each in found.strategies)
    return {label: identity.strategy_look(place) for place, label in enumerate(labels)}


def _panel(axes: "Axes", found: Found, scope: str | None, looks: Mapping[str, identity.Look]) -> None:
    for strategy, each in zip(found.strategies, found.curves, strict=True):
        scored, (colour, line) = each.of(scope), looks[strategy.label]
        if scored is None:
            continue
        versions = scored.band("version").where
        smooth = np.array([_smoothed(np.interp(versions, c["version"], c["accuracy"])) for c in scored.curves])
        middle = smooth.mean(axis=0)
        axes.plot(versions, scored.band("version").mean, color=colour, linestyle=line, alpha=0.25, linewidth=0.6)
        axes.plot(versions, middle, color=colour, linestyle=line, label=strategy.label)
        if len(smooth) >= FEWEST:
            width = factor(len(smooth)) * smooth.std(axis=0, ddof=1)
            low, high = np.clip([middle - width, middle + width], 0, 1)
            axes.fill_between(versions, low, high, color=colour, alpha=0.2, linewidth=0)
    axes.set_title(f"{'all labels' if scope is None else f'labels of group {scope}'}")
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
    axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.margins(x=0.01)
    axes.set_xlim(left=0)


def _smoothed(values: np.ndarray) -> np.ndarray:
    """The mean over a tenth of the points, centred; over fewer at both ends."""
    half = len(values) // 20
    return np.array([values[max(0, at - half) : at + half + 1].mean() for at in range(len(values))])


def main() -> None:
    parser = argparse.ArgumentParser(description="Tables and a figure of runs of the paper's experiments.")
    parser.add_argument("folders", type=Path, nargs="+", help="folders of runs, one per experiment")
    parser.add_argument("--target", type=float, action="append", default=[], help="an accuracy between 0 and 1")
    parser.add_argument("--figure", type=Path, help="where to save the figure")
    options = parser.parse_args()
    try:
        columns = [Found.of(folder) for folder in options.folders]
        for found in columns:
            print(f"## {found.name}\n\n{summary(found, options.target)}\n\n{differences(found)}\n")
        if options.figure is not None:
            drawn(columns, options.figure)
    except FairlagError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
