"""Strategies with their own keys of [local]: what they train with, what runs record, and what is refused."""

from pathlib import Path
from typing import Any

import pytest

import fairlag
from fairlag.analyse.compare import repeated
from fairlag.errors import InputError
from fairlag.lab.experiment import Experiment, parse
from fairlag.lab.plan import Plan
from fairlag.lab.simulate import execute
from fairlag.lab.strategies import Use
from tests.support.experiments import three_on_digits
from tests.support.resuming import contents

PLAIN = {"use": "fedbuff", "buffer": 2, "concurrency": 2}
OWN = {**PLAIN, "label": "own", "local": {"lr": 0.3, "steps": 3}}


def experiment(*uses: dict[str, Any], lr: float = 0.05) -> Experiment:
    return parse(
        {**three_on_digits("own", slow="uniform(4, 6)", model="logistic", lr=lr), "aggregations": 6, "strategies": uses}
    )


def test_it_trains_as_if_the_keys_were_in_local(tmp_path: Path) -> None:
    """Between runs of a plain strategy, so that nothing of one may be left for the other."""
    both = execute(Plan(experiment(PLAIN, OWN), (0, 1), tmp_path / "both"), new=True, workers=1)
    tables = experiment({**PLAIN, "label": "own"}).local.model_dump() | OWN["local"]  # type: ignore[operator]
    alone = experiment({**PLAIN, "label": "own"}).checked(local=tables)
    for run in both:
        fresh = alone if run.label == "own" else experiment(PLAIN)
        expected = fairlag.simulate(fresh, seed=run.seed, workers=1, out=tmp_path / f"{run.label}-{run.seed}")
        assert contents(run.folder) == contents(expected.folder)
        assert run.settings["local"]["lr"] == (0.3 if run.label == "own" else 0.05)


def test_a_comparison_does_not_repeat_what_the_plan_sets_for_a_strategy(tmp_path: Path) -> None:
    runs = execute(Plan(experiment(PLAIN, {**OWN, "local": {"lr": 0.3}}), (0,), tmp_path / "both"), new=True, workers=1)
    assert [each.label for each in repeated(runs)] == ["FedBuff (buffer=2, concurrency=2)", "own"]


def test_its_label_names_the_keys() -> None:
    assert Use.model_validate({"use": "fedbuff", "local": {"lr": 0.3}}).label == "FedBuff (local.lr=0.3)"


@pytest.mark.parametrize(
    ("local", "sentence"),
    [({"lrr": 0.3}, "own: unknown key 'local.lrr': did you mean 'lr'?"), ({"lr": -1.0}, "own: local.lr")],
)
def test_a_wrong_key_is_one_sentence(local: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence.replace("?", r"\?")):
        experiment({**OWN, "local": local})


def test_an_audit_refuses_different_amounts_of_work() -> None:
    with pytest.raises(InputError, match="own has its own steps of"):
        fairlag.audit(experiment(PLAIN, OWN), seeds=1)
