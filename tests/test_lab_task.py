"""`[task]` in experiments: runs learn by it, the same on any executor; files and runs of before do not have it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fairlag.data.dataset import Dataset
from fairlag.errors import ExperimentError, InputError
from fairlag.lab.experiment import load, parse
from fairlag.lab.serialise import as_tables, sha256, toml
from fairlag.lab.simulate import simulate
from tests.support.models import successor

SUGAR = '''
import numpy as np
from sklearn.datasets import load_diabetes

def data():
    """Ten measures of 442 patients, and how far their diabetes went in a year, in standard units."""
    inputs, target = load_diabetes(return_X_y=True)
    return inputs / inputs.std(axis=0), (target - target.mean()) / target.std()
'''

FLEET: dict[str, Any] = {
    "name": "sugar",
    "aggregations": 60,
    "clients": [
        {"group": "fast", "count": 6, "delay": "uniform(1, 2)"},
        {"group": "slow", "count": 4, "delay": "uniform(5, 9)"},
    ],
    "strategies": [{"use": "fedavg", "cohort": 5}],
    "local": {"steps": 5, "lr": 0.02},
    "evaluate": {"every": 30},
}


def sugar(folder: Path, **changes: Any) -> dict[str, Any]:
    (folder / "sugar.py").write_text(SUGAR)
    tables = {"data": {"use": "sugar:data"}, "model": {"use": "mlp", "hidden": 16}, "task": {"use": "regression"}}
    return {**FLEET, **tables, **changes}


def test_a_regression_learns_and_workers_change_nothing(tmp_path: Path) -> None:
    experiment = parse(sugar(tmp_path), tmp_path)
    run = simulate(experiment, out=tmp_path / "one", workers=1)
    curve = run.curve()
    assert curve["mse"].iloc[0] > 1 > 0.6 > curve["mse"].iloc[-1]
    assert curve["r2"].iloc[0] < 0.1 < 0.4 < curve["r2"].iloc[-1]
    assert run.meta["engine_reason"].endswith("'task.use'") and run.lead.name == "mse"
    assert set(run.evaluations["scope"]) == {"all"}
    other = simulate(experiment, out=tmp_path / "two", workers=2)
    assert other.evaluations.equals(run.evaluations)
    assert {name: each.tobytes() for name, each in other.tensors().items()} == {
        name: each.tobytes() for name, each in run.tensors().items()
    }
    assert run.model()(torch.zeros(3, 10)).shape == (3, 1)


def test_metrics_that_are_asked_for_are_computed_beside_fast_training(tmp_path: Path) -> None:
    tables = as_tables(load("demo").checked(aggregations=5, evaluate={"every": 5}).only(["fedstaleweight"]))
    plain = simulate(parse(tables), out=tmp_path / "plain", workers=1)
    asked = parse({**tables, "task": {"use": "classification", "metrics": ["macro_f1", "accuracy", "auroc"]}})
    run = simulate(asked, out=tmp_path / "asked", workers=1)
    assert run.lead.name == "macro_f1" and "engine_reason" not in run.meta
    assert 0 < run.score() < 1 and 0.5 < run.score("auroc") < 1
    assert run.accuracy() == plain.accuracy() and run.accuracy("class", 3) == plain.accuracy("class", 3)
    assert (tmp_path / "asked/model.safetensors").read_bytes() == (tmp_path / "plain/model.safetensors").read_bytes()


def several() -> Dataset:
    """Three labels, each the sign of one input."""
    inputs = np.random.default_rng(0).standard_normal((400, 5), np.float32)
    return Dataset("several", inputs, (inputs[:, :3] > 0).astype(np.int64), classes=2, official=400)


def test_multilabel_learns_and_labels_have_scores(tmp_path: Path) -> None:
    tables = {**FLEET, "data": {"use": several}, "model": {"use": "logistic"}, "task": {"use": "multilabel"}}
    run = simulate(parse({**tables, "local": {"steps": 5, "lr": 0.5}}), out=tmp_path, workers=1)
    curve = run.curve()
    assert curve["macro_f1"].iloc[0] < 0.8 < 0.95 < run.score() and run.score("auroc") > 0.98
    assert run.score("auroc", "class", 2) > 0.95 and run.score("accuracy", "group", "slow") > 0.9


def counting() -> Dataset:
    """Sequences that count up, modulo 7."""
    starts = np.random.default_rng(0).integers(7, size=(300, 1))
    tokens = (starts + np.arange(6)) % 7
    return Dataset("counting", tokens[:, :-1].copy(), tokens[:, 1:].copy(), classes=7, official=300)


def test_next_token_learns_from_token_ids(tmp_path: Path) -> None:
    tables = {**FLEET, "data": {"use": counting}, "model": {"use": successor}, "task": {"use": "next_token", "top": 2}}
    run = simulate(parse({**tables, "local": {"steps": 5, "lr": 2.0}}), out=tmp_path, workers=1)
    curve = run.curve()
    assert curve["perplexity"].iloc[0] > 5 > 1.5 > run.score() and run.score("accuracy") == 1 == run.score("top_2")
    assert not run.lead.higher
    assert run.model(successor)(torch.zeros(2, 5, dtype=torch.int64)).shape == (2, 5, 7)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"task": {"use": "regresion"}}, "unknown task 'regresion': did you mean 'regression'?"),
        ({"task": {"use": "regression", "metrics": ["acuracy"]}}, "the task regression has no metric 'acuracy'"),
        ({"task": {"use": "multilabel"}}, "the labels of sugar:data are float32 of the shape"),
        ({"task": None}, "are float32 of the shape (442,), but its task needs one class number per example"),
    ],
)
def test_a_task_that_does_not_fit_is_refused(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as caught:
        simulate(parse(sugar(tmp_path, **changes), tmp_path), out=tmp_path / "out", workers=1)
    assert words in str(caught.value)


def test_a_task_needs_data() -> None:
    with pytest.raises(ExperimentError, match=r"there is a \[task\] but no \[data\]: training needs both"):
        parse({**FLEET, "task": {"use": "regression"}})


def test_the_default_task_is_not_written() -> None:
    demo = load("demo")
    written = parse({**as_tables(demo), "task": {"use": "classification"}})
    assert sha256(written) == sha256(demo) and "task" not in as_tables(written)
    asked = parse({**as_tables(demo), "task": {"use": "classification", "metrics": ["macro_f1"]}})
    assert sha256(asked) != sha256(demo) and '[task]\nuse = "classification"' in toml(asked)
    assert json.loads(json.dumps(as_tables(asked)))["task"]["metrics"] == ["macro_f1"]
