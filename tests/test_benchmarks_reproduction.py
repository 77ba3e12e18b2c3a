"""The tables and the figure of docs/reproduction.md, from short runs: numbers beside those computed by hand."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import fairlag
from benchmarks.reproduction import Found, differences, drawn, summary
from fairlag.errors import InputError
from fairlag.report.figures.numbers import beside


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("reproduction")
    experiment = fairlag.load("demo").checked(aggregations=40, evaluate={"every": 4})
    for strategy in ("buffered_fedavg", "fairshare"):
        for seed in range(3):
            fairlag.simulate(
                experiment, strategy=strategy, seed=seed, workers=1, out=place / "runs" / f"{strategy}-{seed}"
            )
    return place / "runs"


def by_hand(folder: Path, strategy: str, group: str | None) -> np.ndarray:
    """The mean of versions 32, 36 and 40 of each seed, in per cent."""
    found = []
    for seed in range(3):
        run = fairlag.Run(folder / f"{strategy}-{seed}")
        rows = run.evaluations.query("version > 30")
        rows = rows[rows["scope"].eq("all") if group is None else rows["name"].eq(group)]
        rows = rows[~rows["whole"]] if (~rows["whole"]).any() else rows
        assert rows["version"].tolist() == [32, 36, 40]
        found.append(100 * rows["accuracy"].mean())
    return np.array(found)


def cells(table: str, begin: str) -> list[str]:
    (line,) = (line for line in table.splitlines() if line.startswith(f"| {begin} |"))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_tables_say_what_is_computed_by_hand(folder: Path) -> None:
    found = Found.of(folder)
    row = cells(summary(found, [0.2, 0.999]), "FairShare")
    for place, group in ((2, None), (3, "fast"), (4, "slow")):
        values = by_hand(folder, "fairshare", group)
        low, high = stats.t.interval(0.95, 2, values.mean(), stats.sem(values))
        assert row[place] == f"{values.mean():.1f} ± {(high - low) / 2:.1f}"
    assert row[1] == "3" and row[-1] == "never / never / never"
    pair = cells(differences(found), "FairShare − Buffered FedAvg")
    for place, group in ((1, None), (2, "fast"), (3, "slow")):
        paired = by_hand(folder, "fairshare", group) - by_hand(folder, "buffered_fedavg", group)
        low, high = stats.t.interval(0.95, 2, paired.mean(), stats.sem(paired))
        assert re.sub(r"\*", "", pair[place]) == f"{paired.mean():+.1f} ± {(high - low) / 2:.1f}"
        clear = stats.ttest_1samp(paired, 0).pvalue < 0.05
        assert pair[place].startswith("**") == clear


def test_the_figure_has_a_column_per_experiment_and_its_numbers(folder: Path, tmp_path: Path) -> None:
    found = Found.of(folder)
    drawn([found, found], tmp_path / "figure.png")
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
    numbers = pd.read_csv(beside(tmp_path / "figure.png"))
    assert len(numbers) > 6 * 2 * 11 and numbers.select_dtypes("number").to_numpy().size


def test_a_folder_without_runs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="0 experiments"):
        Found.of(tmp_path)
