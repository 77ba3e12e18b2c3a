"""The `[local]` table: what it makes of optimisers and train functions, which strategies they fit, what is noted."""

from pathlib import Path
from typing import Any

import pytest

from fairlag.errors import InputError
from fairlag.lab.experiment import Experiment, parse
from fairlag.lab.serialise import as_tables, toml
from fairlag.lab.simulate import simulate
from fairlag.learn.optimiser import Optimiser
from fairlag.learn.within import Warmup
from fairlag.report.page.summary import _task
from tests.support import trains

FEDAVG: dict[str, Any] = {"use": "fedavg", "cohort": 2}


def experiment(local: dict[str, Any], use: dict[str, Any] = FEDAVG, model: str = "logistic") -> Experiment:
    return parse(
        {
            "name": "local",
            "aggregations": 2,
            "clients": [{"group": "all", "count": 4, "delay": 1.0}],
            "strategies": [use],
            "data": {"use": "digits"},
            "model": {"use": model},
            "local": local,
        }
    )


def test_a_table_becomes_a_recipe_and_is_written_again() -> None:
    given = {"optimiser": "AdamW( betas=(0.9, 0.95) )", "lr_within_task": "warmup(steps=3)", "precision": "float32"}
    made = experiment(given)
    recipe = made.local.build()
    assert recipe.optimiser == Optimiser("adamw", (("betas", (0.9, 0.95)),))
    assert recipe.lr_within_task == Warmup(3) and recipe.precision is None
    assert as_tables(made)["local"]["optimiser"] == "adamw(betas=[0.9, 0.95])"
    assert 'optimiser = "adamw(betas=[0.9, 0.95])"' in toml(made)
    assert "precision" not in as_tables(made)["local"]


def test_what_is_not_given_is_not_written() -> None:
    """So the digests of experiments of before stay the same, and their runs can be resumed."""
    assert set(as_tables(experiment({}))["local"]) == {"batch", "lr", "momentum", "weight_decay", "prox"}


def test_the_page_says_it() -> None:
    local = as_tables(experiment({"steps": 2, "optimiser": "adamw", "clip_norm": 0.5}))["local"]
    words = "A task is 2 steps on batches of 32 at a learning rate of 0.01, with optimiser adamw and clip norm 0.5."
    assert _task(local) == words


@pytest.mark.parametrize(
    ("local", "words"),
    [
        ({"optimiser": "adamm"}, r"^local.optimiser: there is no optimiser 'adamm': did you mean 'adam'\?$"),
        ({"optimizer": "adam"}, r"^unknown key 'local.optimizer': did you mean 'optimiser'\?$"),
        ({"optimiser": "lbfgs"}, "^local.optimiser: the optimiser lbfgs cannot be used, because it computes the loss"),
        ({"optimiser_state": "kep"}, "^local.optimiser_state is 'kep': it must be 'kept'$"),
        ({"precision": "float16"}, "^local.precision is 'float16': it must be 'float32' or 'bfloat16'$"),
        ({"lr_within_task": "warmup(0)"}, "^local.lr_within_task: steps of warmup is 0, but must be a finite number"),
        ({"train": "plainly"}, "^local.train: it is 'plainly', but must be 'module:function', or a function$"),
        ({"clip_norm": 0}, "^local.clip_norm is 0: it must be greater than 0$"),
        ({"accumulate": 0}, "^local.accumulate is 0: it must be greater than or equal to 1$"),
    ],
)
def test_a_table_that_is_refused(local: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        experiment(local)


FEDNOVA = {"use": "fednova", "cohort": 2}
FEDPROX = {"use": "fedprox", "cohort": 2, "mu": 0.1}
OWN = {"train": "tests.support.trains:plainly"}


@pytest.mark.parametrize(
    ("use", "local", "words"),
    [
        (
            FEDNOVA,
            {"optimiser": "adam"},
            "^FedNova .* which is not known with the optimiser adam: use gradient",
        ),
        (FEDNOVA, OWN, "which is not known with train = 'tests.support.trains:plainly': use gradient descent"),
        (FEDNOVA, {"momentum": 0.5, "optimiser_state": "kept"}, "with a momentum that is kept between tasks: use"),
        (FEDNOVA, {"prox": 0.5, "clip_norm": 1.0}, "with a proximal term that clip_norm cuts: use gradient descent"),
        (FEDPROX, OWN, r"^FedProx .* does not fit \[local\]: train = .* makes its steps by itself, so prox would"),
        ({"use": "asofed"}, OWN, r"^ASO-Fed does not fit \[local\]: train = .* makes its steps by itself"),
    ],
)
def test_strategies_that_do_not_fit(use: dict[str, Any], local: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        experiment(local, use)


@pytest.mark.parametrize(
    "local", [{"momentum": 0.5}, {"clip_norm": 1.0, "accumulate": 2, "lr_within_task": "warmup(2)"}, {"prox": 0.5}]
)
def test_fednova_takes_what_it_can_count(local: dict[str, Any]) -> None:
    assert experiment(local, FEDNOVA).local.build().uncounted is None


@pytest.mark.parametrize(
    ("local", "model", "reason"),
    [
        ({}, "logistic", None),
        ({"optimiser": "adamw"}, "logistic", "training many small models at once does not implement 'local.optimiser'"),
        ({"clip_norm": 1.0}, "logistic", "training many small models at once does not implement 'local.clip_norm'"),
        ({"optimiser": "adamw"}, "tests.support.models:dropout_mlp", None),
    ],
)
def test_a_run_notes_what_keeps_it_from_the_fast_way(
    tmp_path: Path, local: dict[str, Any], model: str, reason: str | None
) -> None:
    run = simulate(experiment(local, model=model), out=tmp_path / "run", workers=1)
    assert run.meta["engine"] == "standard" and run.meta.get("engine_reason") == reason


@pytest.mark.parametrize(
    ("local", "words"),
    [
        ({"train": "tests.support.trains:missing"}, "^module 'tests.support.trains' has no function 'missing'$"),
        ({"optimiser": "muon"}, "^the optimiser muon cannot be used: Muon only supports 2D parameters"),
    ],
)
def test_what_does_not_fit_the_model_is_refused_before_anything_is_written(
    tmp_path: Path, local: dict[str, Any], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        simulate(experiment(local), out=tmp_path / "run", workers=1)
    assert not list(tmp_path.rglob("*.sqlite"))


def test_a_run_that_was_given_the_function_itself_can_be_read_but_not_made_again(tmp_path: Path) -> None:
    run = simulate(experiment({"train": trains.plainly}), out=tmp_path / "run", workers=1)
    named = simulate(experiment({"train": "tests.support.trains:plainly"}), out=tmp_path / "named", workers=1)
    assert run.accuracy() == named.accuracy() and run.settings["local"]["train"] == "<plainly>"
    with pytest.raises(InputError, match=r"^unknown train function '<plainly>': choose from module:function$"):
        simulate(experiment(run.settings["local"]), out=tmp_path / "again", workers=1)
