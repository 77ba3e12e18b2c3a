"""What clients are asked for, and what is believed of what they say: within bounds, and never their own effort."""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from fairlag.core.types import Dispatch, Report
from fairlag.lab.orders import Orders
from fairlag.learn.local import Recipe, schedule
from fairlag.learn.optimiser import parse
from fairlag.learn.within import within
from fairlag.runtime.flower.options import Options
from fairlag.runtime.flower.wire import Told

TASK = Dispatch(task=0, client=1, version=0, ordinal=0, time=0.0)
PUSHED = Recipe(steps=20, batch=32, lr=schedule(0.1), momentum=0.9)


def orders(recipe: Recipe = PUSHED, own: tuple[int, ...] = (0, 0), most: int = 1000, **options: Any) -> Orders:
    return Orders(recipe, 0, np.array(own), most, Options(**options))


def reported(by: Orders, told: Told) -> Report:
    report = by.report(TASK, told)
    assert isinstance(report, Report), report
    return report


def with_momentum(steps: int, rho: float) -> float:
    """FedNova's closed form."""
    return (steps - rho * (1 - rho**steps) / (1 - rho)) / (1 - rho)


@pytest.mark.parametrize("steps", [None, 20, 15, 40])
def test_the_effort_is_that_of_the_steps_as_the_experiment_has_them_made(steps: int | None) -> None:
    """Of 20 steps with momentum 0.9, 120.9: not four times the 13.1 of five."""
    report = reported(orders(), Told(7, steps, 0.5))
    made = 20 if steps is None else steps
    assert report == Report(7, made, report.effort, 0.5) and report.effort == pytest.approx(with_momentum(made, 0.9))
    pulled = reported(orders(replace(PUSHED, prox=1.0)), Told(7, steps, 0.5))
    assert pulled.effort == Recipe(steps=1, momentum=0.9, prox=1.0).effort(made, 0.1) < report.effort / 5


def test_the_steps_of_epochs_follow_from_the_examples_that_are_believed() -> None:
    by_epochs = orders(Recipe(epochs=2, batch=32, momentum=0.9), most=640)
    report = reported(by_epochs, Told(320, None, 0.0))
    assert report == Report(320, 20, report.effort, 0.0) and report.effort == pytest.approx(with_momentum(20, 0.9))
    assert reported(by_epochs, Told(10**12, 10**12, 0.0)).steps == 2 * 40
    assert by_epochs.asked(TASK)["local-epochs"] == 2 and "local-steps" not in by_epochs.asked(TASK)


def test_steps_of_a_group_or_of_the_strategy_come_before_epochs() -> None:
    by_epochs = orders(Recipe(epochs=2, batch=32), own=(0, 7))
    assert by_epochs.asked(TASK)["local-steps"] == 7 and "local-epochs" not in by_epochs.asked(TASK)
    assert by_epochs.asked(TASK._replace(steps=3))["local-steps"] == 3
    assert reported(by_epochs, Told(320, None, 0.0)).steps == 7


@dataclass(frozen=True, slots=True)
class NewRecipe(Recipe):
    new_field: float | None = None


def test_a_new_field_of_a_recipe_is_sent_if_it_is_given() -> None:
    plain = orders(Recipe(steps=20)).asked(TASK)
    assert orders(NewRecipe(steps=20)).asked(TASK) == plain
    assert orders(NewRecipe(steps=20, new_field=0.5)).asked(TASK) == {**plain, "new-field": 0.5}


def test_an_optimiser_is_sent_as_it_is_written() -> None:
    given: dict[str, Any] = {
        "optimiser": parse("adamw(betas=[0.9, 0.95])"),
        "lr_within_task": within("warmup(3)"),
        "clip_norm": 0.5,
    }
    asked = orders(Recipe(steps=20, accumulate=2, precision="bfloat16", **given)).asked(TASK)
    assert asked == {
        **orders(Recipe(steps=20)).asked(TASK),
        "optimiser": "adamw(betas=[0.9, 0.95])",
        "lr-within-task": "warmup(3)",
        "clip-norm": 0.5,
        "accumulate": 2,
        "precision": "bfloat16",
    }


def test_the_steps_of_epochs_are_fewer_than_their_batches_if_steps_accumulate() -> None:
    accumulated = orders(Recipe(epochs=1, batch=10, accumulate=4))
    assert reported(accumulated, Told(100, None, 0.0)).steps == 3


@pytest.mark.parametrize(
    ("told", "believed"),
    [
        (Told(10**12, None, 0.0), (1000, 20, 0.0)),
        (Told(5, 10**9, 1e300), (5, 40, 100.0)),
        (Told(5, 1, 0.0), (5, 10, 0.0)),
    ],
)
def test_what_clients_say_counts_within_the_bounds(told: Told, believed: tuple[int, int, float]) -> None:
    report = reported(orders(), told)
    assert (report.examples, report.steps, report.loss) == believed
    assert report.effort == PUSHED.effort(report.steps, 0.1)
    loose = reported(orders(most=10**15, steps_within=10.0**12, max_loss=1e301), told._replace(steps=200))
    assert (loose.examples, loose.steps, loose.loss) == (told.examples, 200, told.loss)


@pytest.mark.parametrize("told", [Told(0, 20, 0.0), Told(5, 0, 0.0), Told(5, -3, 0.0), Told(5, 20, math.inf)])
def test_what_cannot_be_true_is_left_as_it_is_and_so_refused(told: Told) -> None:
    report = reported(orders(), told)
    assert (report.examples, report.steps, report.loss) == told[:3]


def test_the_loss_before_training_is_asked_for_believed_within_its_bound_and_refused_if_missing() -> None:
    asking = orders(replace(PUSHED, start_loss=True))
    assert asking.asked(TASK) == {**orders().asked(TASK), "start-loss": True}
    for said, counts in ((0.25, 0.25), (1e300, 100.0), (-1.0, -1.0)):
        assert reported(asking, Told(7, 20, 9.0, said)).loss == counts
    assert asking.report(TASK, Told(7, 20, 9.0)) == "its metrics have no number start-loss, which the strategy needs"
    assert orders().report(TASK, Told(7, 20, 9.0, 0.25)) == orders().report(TASK, Told(7, 20, 9.0))
