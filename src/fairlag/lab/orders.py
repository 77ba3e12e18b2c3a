"""What the server asks the clients of a real fleet to do, and how much of their reports it believes."""

import math
from dataclasses import dataclass, fields
from typing import Any

from fairlag.core.types import Dispatch, Integers, Report
from fairlag.learn.local import Recipe
from fairlag.runtime.flower.options import Options
from fairlag.runtime.flower.wire import START_LOSS, Told

_NOT_SENT = frozenset(
    ("steps", "epochs", "lr", "direction", "losses", "start_loss", "optimiser_state", "train", "memory")
)
"""The fields of a recipe that are sent in a different form, or not sent to a Flower ClientApp."""
_FLOWER = {"batch": "batch-size", "prox": "proximal-mu"}
"""Flower's names for fields of a recipe, if they differ."""


@dataclass(frozen=True, slots=True)
class Orders:
    """The local training of an experiment, as requests to a fleet.

    >>> import numpy as np
    >>> from fairlag.learn.local import Recipe
    >>> orders = Orders(Recipe(steps=20, momentum=0.9), 0, np.zeros(2, np.int64), 600, Options())
    >>> task = Dispatch(task=0, client=0, version=0, ordinal=0, time=0.0)
    >>> said = orders.report(task, Told(examples=10**12, steps=10**9, loss=10.0**300))
    >>> said.examples, said.steps, said.loss
    (600, 40, 100.0)
    >>> orders.cut(Told(examples=10**12, steps=40, loss=2.0), said._replace(loss=2.0))
    ['its number of examples']
    """

    recipe: Recipe
    seed: int
    own: Integers
    """Per client of the experiment: its own number of local steps; 0 for the recipe's."""
    most_examples: int
    """The most training examples that a client can have."""
    options: Options

    def asked(self, task: Dispatch) -> dict[str, Any]:
        """A client's settings, under the names that Flower's own strategies and examples use, if they have one."""
        recipe, steps = self.recipe, self._fixed(task)
        given = {field.name: getattr(recipe, field.name) for field in fields(recipe) if field.name not in _NOT_SENT}
        for name in ("optimiser", "lr_within_task"):
            given[name] = None if given[name] is None else str(given[name])
        return {
            "local-steps" if steps else "local-epochs": steps or recipe.epochs,
            "lr": self._lr(task),
            **{_FLOWER.get(name, name.replace("_", "-")): value for name, value in given.items() if value is not None},
            **({START_LOSS: True} if recipe.start_loss else {}),
            "client": task.client // self.options.queued,
            "ordinal": task.ordinal,
            "seed": self.seed,
        }

    def report(self, task: Dispatch, told: Told) -> Report | str:
        """The part of a client's report that is believed, within the bounds of the options; or why it is refused.

        The effort is never taken from the report: it is computed from the believed steps by the recipe.
        """
        options, loss = self.options, told.start_loss if self.recipe.start_loss else told.loss
        if loss is None:
            return f"its metrics have no number {START_LOSS}, which the strategy needs"
        examples = min(told.examples, self.most_examples)
        expected = self._fixed(task) or self.recipe.task_steps(max(examples, 1))
        steps = expected if told.steps is None else told.steps
        if steps > 0:  # otherwise it is refused
            least = math.ceil(expected / options.steps_within)
            steps = min(max(steps, least), math.floor(expected * options.steps_within))
        loss = min(loss, options.max_loss) if math.isfinite(loss) else loss
        return Report(examples, steps, self.recipe.effort(steps, self._lr(task)), loss)

    def cut(self, told: Told, report: Report) -> list[str]:
        """What a client said about its update that counts differently, because of a bound."""
        loss = told.start_loss if self.recipe.start_loss else told.loss
        found = ["its number of examples"] * (told.examples > report.examples)
        found += ["its number of steps"] * (told.steps is not None and told.steps != report.steps)
        return found + ["its loss"] * (loss is not None and loss > report.loss)

    def _fixed(self, task: Dispatch) -> int:
        """The number of steps to ask for; 0 if it follows from epochs and examples."""
        number = task.client // self.options.queued
        own = int(self.own[number]) if number < len(self.own) else 0
        return task.steps or own or self.recipe.steps or 0

    def _lr(self, task: Dispatch) -> float:
        return self.recipe.lr.at(task.version) * task.pace
