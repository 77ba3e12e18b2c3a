"""Presets and examples, one per kind of task: each learns something real under the three strategies it compares."""

from pathlib import Path

import pytest

from fairlag.data import docstrings
from fairlag.lab.experiment import Experiment, load
from fairlag.lab.run import Run
from fairlag.lab.simulate import simulate
from fairlag.lab.strategies import parameters_of
from fairlag.lab.sweep.make import searches_of
from fairlag.lab.sweep.plan import SweepPlan

EXAMPLES = Path(__file__).parent.parent / "examples"


def each_strategy(experiment: Experiment, folder: Path) -> list[Run]:
    runs = [simulate(experiment, strategy=use.label, out=folder / use.use, workers=1) for use in experiment.strategies]
    assert [run.meta["use"] for run in runs] == ["buffered_fedavg", "fedstaleweight", "fairshare"]
    return runs


def test_a_regression(tmp_path: Path) -> None:
    for run in each_strategy(load("diabetes").checked(aggregations=80), tmp_path):
        assert [metric.name for metric in run.metrics][:3] == ["mse", "mae", "r2"]
        assert run.score("mse") < 0.6 and run.score("r2") > 0.4 and run.score("mae") < 0.65


def test_two_classes_by_auroc(tmp_path: Path) -> None:
    for run in each_strategy(load("cancer").checked(aggregations=50), tmp_path):
        assert run.lead.name == "auroc" and run.score() > 0.97
        assert run.score("balanced_accuracy") > 0.8 and run.accuracy("class", 1) < run.accuracy("class", 0)


def test_several_labels(tmp_path: Path) -> None:
    experiment = load(EXAMPLES / "many_labels.toml").checked(aggregations=80, evaluate={"every": 80})
    for run in each_strategy(experiment, tmp_path):
        assert run.curve()["macro_f1"].iloc[0] < 0.6 and run.score("macro_f1") > 0.8 and run.score("auroc") > 0.9


@pytest.fixture
def text(monkeypatch: pytest.MonkeyPatch) -> Experiment:
    """The preset with other texts than the standard library's, which differ from Python to Python; and short."""
    names = ["asyncio", "email", "logging", "unittest", "xml", *"abcdefghij"]
    texts = {name: f"the {name} of a package is read, and the next one is not. " * 40 for name in names}
    monkeypatch.setattr(docstrings, "_installed", lambda: texts)
    data = {"use": "docstrings", "length": 16, "clients": 15, "least": 1000}
    return load("text").checked(data=data, aggregations=6, evaluate={"every": 6})


def test_the_next_character(text: Experiment, tmp_path: Path) -> None:
    for run in each_strategy(text.checked(model={"use": "lstm", "hidden": 32}), tmp_path):
        assert run.lead.name == "perplexity"
        assert run.curve()["perplexity"].iloc[0] == pytest.approx(97, rel=0.1)  # as good as guessing
        assert run.score() < 30


def test_the_next_character_by_a_transformer(text: Experiment, tmp_path: Path) -> None:
    small = text.checked(model={"use": "transformer", "width": 32, "layers": 1})
    run = simulate(small, strategy="FairShare", out=tmp_path / "run", workers=1)
    assert run.curve()["perplexity"].iloc[0] > 80 and run.score() < 30


def test_the_sweep_of_the_zoo_tries_as_many_settings_of_every_strategy(tmp_path: Path) -> None:
    plan = SweepPlan(load("zoo"), tmp_path)
    assert len(plan.spaces) == len(load("zoo").strategies)
    assert {search.total for search in searches_of(plan)} == {15}
    for space in plan.spaces:
        own = parameters_of(space.use.use, None)
        assert "local.lr" in space.domains and {"lr", "buffer", "cohort"} & set(own) <= set(space.domains)


def test_everything_of_ones_own_fits_on_a_page(tmp_path: Path) -> None:
    assert len((EXAMPLES / "own_everything.py").read_text("utf-8").splitlines()) <= 60
    constant = 0.139  # the loss of the best bound that is the same for all patients
    experiment = load(EXAMPLES / "own_everything.toml").checked(evaluate={"every": 100})
    for run in each_strategy(experiment, tmp_path):
        assert run.lead.name == "pinball" and run.score() < 0.95 * constant
        assert run.score("coverage_error") < 0.15
