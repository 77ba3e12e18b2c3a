"""Local training of small models: tasks that start from different versions are trained together, as one computation."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairlag import seeds
from fairlag.learn.blas import one_thread
from fairlag.learn.local import Recipe
from fairlag.learn.stack import Stack
from fairlag.types import Floats, Integers
from fairlag.vector import Matrix, Vector

_TOGETHER = 1 << 18
"""How many parameters are trained together: those of more models would not fit into the cache."""
_PLACE = np.uint64(0xFFFF_FFFF)
"""The lower half of a word."""


class Job(NamedTuple):
    """A task as it is trained here: where it starts, which examples it has, and how it steps."""

    key: int
    first: int
    """Where the client's examples begin among the holdings of all."""
    examples: int
    steps: int
    lr: float
    start: Vector


class Small:
    """Trains and judges models of a kind; what comes out for one does not depend on what else is computed with it."""

    def __init__(
        self,
        stack: Stack,
        recipe: Recipe,
        data: tuple[NDArray[Any], Integers],
        holdings: Integers,
        scaling: tuple[float, float],
    ) -> None:
        """The data are inputs and labels, the scaling is a factor and what is added to the product."""
        inputs, self._labels = data
        self._stack = stack
        self._recipe = recipe
        self._inputs = inputs.reshape(len(inputs), -1)
        self._holdings = holdings
        self._scaling = None if scaling == (1, 0) else scaling

    def train(self, jobs: Sequence[Job]) -> list[tuple[Vector, list[float]]]:
        """What each task changes, and the squared losses of its examples where the recipe asks for them."""
        done: list[tuple[Vector, list[float]]] = [(np.zeros(self._stack.size, np.float32), [])] * len(jobs)
        most = max(1, _TOGETHER // self._stack.size)
        with one_thread(), np.errstate(all="ignore"):  # where training diverges, the server says so
            for places in self._courses(jobs):
                for begin in range(0, len(places), most):
                    some = places[begin : begin + most]
                    deltas, squares = self._descend([jobs[place] for place in some])
                    deltas.flags.writeable = False
                    for place, delta, row in zip(some, deltas, squares or [[]] * len(some), strict=True):
                        done[place] = delta, row
        return done

    def _courses(self, jobs: Sequence[Job]) -> list[list[int]]:
        """Tasks whose batches have the same lengths, one after the other."""
        courses = defaultdict(list)
        batch = self._recipe.batch
        for place, (_, _, examples, steps, _, _) in enumerate(jobs):
            if examples and steps:
                courses[steps, examples if steps * batch > examples else 0].append(place)
        return list(courses.values())

    def _descend(self, jobs: Sequence[Job]) -> tuple[Matrix, list[list[float]] | None]:
        """Gradient descent: decay, pull, momentum, step; the update is the sum of the steps."""
        recipe, losses = self._recipe, list[Matrix]()
        keys, firsts, examples, steps, rates, starts = zip(*jobs, strict=True)
        start = np.stack(starts) if len(jobs) > 1 else starts[0][None]
        rate = np.array(rates, np.float32)[:, None]
        begin = np.array(firsts)[:, None]
        delta = velocity = None
        for chosen in _orders(keys, examples, recipe.batch, steps[0]):
            now = start if delta is None else start + delta
            inputs, labels = self.batch(self._holdings[begin + chosen])
            gradient, found = self._stack.gradient(now, inputs, labels, losses=recipe.losses)
            if found is not None:
                losses.append(found)
            if recipe.weight_decay:
                gradient += recipe.weight_decay * now
            if recipe.prox and delta is not None:
                gradient += recipe.prox * delta
            if recipe.momentum:
                velocity = gradient if velocity is None else recipe.momentum * velocity + gradient
                gradient = velocity
            step = gradient * -rate
            delta = step if delta is None else delta + step
        assert delta is not None  # nobody is without examples here
        return delta, _squares(losses)

    def judged(self, parameters: Vector, examples: Integers) -> tuple[Floats, NDArray[Any]]:
        """The loss of each example, and whether the model is right about it."""
        with one_thread(), np.errstate(all="ignore"):
            inputs, labels = self.batch(examples[None])
            losses, right = self._stack.judged(parameters[None], inputs, labels)
        return losses[0].astype(np.float64), right[0]

    def batch(self, examples: Integers) -> tuple[NDArray[np.float32], Integers]:
        """Their inputs, as the model sees them, and their labels."""
        inputs = self._inputs.take(examples, axis=0).astype(np.float32, copy=False)
        if self._scaling is not None:
            inputs *= self._scaling[0]
            inputs += self._scaling[1]
        return inputs, self._labels.take(examples)


def _squares(losses: list[Matrix]) -> list[list[float]] | None:
    return np.square(np.concatenate(losses, axis=1, dtype=np.float64)).tolist() if losses else None


def _orders(keys: Sequence[int], examples: Sequence[int], batch: int, steps: int) -> Iterator[Integers]:
    """So many batches for each of these tasks, drawn without replacement within each epoch.

    A task's examples are in the order of random numbers that have addresses: (key, epoch, place). Where a batch is
    short, or a second epoch begins, all of these tasks have the same number of examples.
    """
    parents = np.array(keys, np.uint64)[:, None]
    fewest, most = min(examples), max(examples)
    epoch = 0
    while steps:
        wanted = min(steps * batch, fewest)
        words = seeds.subkeys(seeds.subkeys(parents, 1, start=epoch), most)
        words = (words & ~_PLACE) | np.arange(most, dtype=np.uint64)
        if fewest < most:
            words[np.arange(most) >= np.array(examples)[:, None]] = ~np.uint64(0)
        if wanted < most:
            words = np.partition(words, wanted - 1, axis=1)[:, :wanted]
        words.sort(axis=1)
        order = (words & _PLACE).astype(np.int64)
        for begin in range(0, wanted, batch):
            yield order[:, begin : begin + batch]
            steps -= 1
        epoch += 1
