"""The server's own step in a deployment without [data]: the user's function trains on trusted examples."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fairlag.core.types import Dispatch
from fairlag.core.vector import Layout, Vector
from fairlag.errors import InputError
from fairlag.execute.reference import reference_task
from fairlag.lab.experiment import Experiment
from fairlag.lab.strategies import Use
from fairlag.learn.failure import reason
from fairlag.runtime.flower.wire import configured

Trusted = Callable[[dict[str, NDArray[Any]], dict[str, Any]], Mapping[str, ArrayLike]]
"""From the arrays of a version, and the configuration that a client gets with a task, to the arrays after training."""


def check_trusted(experiment: Experiment, use: Use, trusted: Trusted | None) -> None:
    """Refuses a function that would not be used, or that is missing."""
    if trusted is not None and experiment.data is not None:
        raise InputError(
            f"the experiment {experiment.name!r} has [data], so the function `trusted` must not be given: `trusted` in "
            "[data] says how many of its examples the server holds"
        )
    if trusted is not None and not callable(trusted):
        raise InputError(f"trusted is {trusted!r}, it must be a function of arrays and a configuration")
    if trusted is None and experiment.data is None and experiment.strategy(use).reference:
        raise InputError(
            f"{use.label} compares updates with a step on the server's own examples: give `trusted`, a function that "
            "trains arrays on them"
        )


@dataclass(frozen=True, slots=True)
class TrustedTraining:
    """The step of a user's function from a version: it is told what the client with this number would be."""

    train: Trusted
    layout: Layout
    fixed: Mapping[str, NDArray[Any]]
    """The arrays that are not trained; it gets them, too."""
    asked: Callable[[Dispatch], Mapping[str, Any]]
    client: int

    def __call__(self, version: int, parameters: Vector) -> Vector:
        """The change of the parameters."""
        task = reference_task(version, self.client)
        given = {name: each.copy() for name, each in {**self.layout.split(parameters), **self.fixed}.items()}
        try:
            trained = self.train(given, configured(task, self.asked(task)))
        except Exception as error:
            raise InputError(f"trusted failed at version {version}: {reason(error)}") from error
        step: Vector = self._vector(trained, version) - parameters
        return step

    def _vector(self, trained: Mapping[str, ArrayLike], version: int) -> Vector:
        """What the function returned, checked."""
        if not isinstance(trained, Mapping):
            raise InputError(f"trusted returned {trained!r}, it must return the arrays that it was given, trained")
        try:
            vector = self.layout.flatten({name: each for name, each in trained.items() if name not in self.fixed})
        except InputError as error:
            raise InputError(f"trusted must return the arrays that it was given, trained: {error}") from None
        if not np.isfinite(vector).all():
            raise InputError(f"trusted returned values that are not finite at version {version}")
        return vector
