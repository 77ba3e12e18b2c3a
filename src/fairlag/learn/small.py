"""Local training of small models: tasks that start from different versions are trained together, as one computation."""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairlag import seeds
from fairlag.learn.blas import ONE_THREAD
from fairlag.learn.local import Recipe
from fairlag.learn.stack import Stack
from fairlag.types import Floats, Integers
from fairlag.vector import Matrix, Vector, published

_TOGETHER = 1 << 18
"""How many parameters are trained together: those of more models would not fit into the cache."""
_COPIED = 1 << 14
"""Of how many parameters a model may be to be copied for each task; the tasks of larger ones share theirs."""
_KEPT = 1 << 22
"""Of how many numbers a data set may be to be kept as models see it, 16 MB; larger ones are scaled batch by batch."""
_PLACE = np.uint64(0xFFFF_FFFF)
"""The lower half of a word."""
_RANDOM = ~_PLACE


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
        if inputs.size <= _KEPT:
            self._inputs, self._scaling = self._scaled(self._inputs), None

    def train(self, jobs: Sequence[Job]) -> list[tuple[Vector, Sequence[float]]]:
        """What each task changes, and the squared losses of its examples where the recipe asks for them."""
        done: dict[int, tuple[Vector, Sequence[float]]] = {}
        most = max(1, _TOGETHER // self._stack.size)
        with ONE_THREAD, np.errstate(all="ignore"):  # where training diverges, the server says so
            for places in self._courses(jobs):
                for begin in range(0, len(places), most):
                    some = places[begin : begin + most]
                    deltas, squares = self._descend([jobs[place] for place in some])
                    deltas.flags.writeable = False
                    done.update(zip(some, zip(deltas, squares, strict=True), strict=True))
        return [done.get(place) or self._nothing() for place in range(len(jobs))]

    def _nothing(self) -> tuple[Vector, Sequence[float]]:
        """What comes of a task without examples."""
        return published(np.zeros(self._stack.size, np.float32)), ()

    def _courses(self, jobs: Sequence[Job]) -> list[list[int]]:
        """Tasks whose batches have the same lengths, one after the other; of larger models, also the same start."""
        courses: dict[tuple[int, int, int], list[int]] = {}
        batch, apart = self._recipe.batch, self._stack.size > _COPIED
        for place, (_, _, examples, steps, _, start) in enumerate(jobs):
            if examples and steps:
                course = steps, examples if steps * batch > examples else 0, id(start) if apart else 0
                if course in courses:
                    courses[course].append(place)
                else:
                    courses[course] = [place]
        return list(courses.values())

    def _descend(self, jobs: Sequence[Job]) -> tuple[Matrix, Sequence[Sequence[float]]]:
        """Gradient descent: decay, pull, momentum, step; the update is the sum of the steps."""
        losses: list[Matrix] = []
        recipe = self._recipe
        keys, firsts, examples, steps, rates, starts = zip(*jobs, strict=True)
        same = all(each is starts[0] for each in starts)
        start = starts[0][None] if same else np.concatenate(starts).reshape(len(jobs), -1)
        rate = np.array(rates, np.float32)[:, None]
        first = np.array(firsts)[:, None]
        delta: Matrix | None = None
        step: Matrix | None = None
        for chosen in orders(keys, examples, recipe.batch, steps[0]):
            now = start if delta is None else start + delta
            inputs, labels = self._batch(self._holdings.take(first + chosen))
            before, (step, found) = step, self._stack.step(now, inputs, labels, -rate, losses=recipe.losses)
            if found is not None:
                losses.append(found)
            if recipe.weight_decay:
                step -= rate * recipe.weight_decay * now
            if delta is None or before is None:
                delta = step
                continue
            if recipe.prox:
                step -= rate * recipe.prox * delta
            if recipe.momentum:
                step += recipe.momentum * before
            delta = delta + step
        assert delta is not None  # nobody is without examples here
        return delta, _squares(losses) if losses else [()] * len(jobs)

    def judged(self, parameters: Vector, examples: Integers) -> tuple[Floats, NDArray[Any]]:
        """The loss of each example, and whether the model is right about it."""
        with ONE_THREAD, np.errstate(all="ignore"):
            inputs, labels = self._batch(examples[None])
            losses, right = self._stack.judged(parameters[None], inputs, labels)
        return losses[0].astype(np.float64), right[0]

    def _batch(self, examples: Integers) -> tuple[NDArray[np.float32], Integers]:
        """Their inputs, as the model sees them, and their labels."""
        return self._scaled(self._inputs.take(examples, axis=0)), self._labels.take(examples)

    def _scaled(self, inputs: NDArray[Any]) -> NDArray[np.float32]:
        if self._scaling is None:
            return inputs.astype(np.float32, copy=False)
        scaled = inputs.astype(np.float32)
        scaled *= self._scaling[0]
        scaled += self._scaling[1]
        return scaled


def _squares(losses: list[Matrix]) -> list[list[float]]:
    squares: list[list[float]] = np.square(np.concatenate(losses, axis=1, dtype=np.float64)).tolist()
    return squares


def orders(keys: Sequence[int], examples: Sequence[int], batch: int, steps: int) -> Iterator[Integers]:
    """So many batches for each of these tasks, drawn without replacement within each epoch.

    A task's examples are in the order of random numbers: the upper halves of the products of its key, which is random,
    and of a factor for each epoch and place. Where a batch is short, or a second epoch begins, all of these tasks have
    the same number of examples.
    """
    parents = np.array(keys, np.uint64)[:, None]
    fewest, most = min(examples), max(examples)
    drawn = 0
    while steps:
        wanted = min(steps * batch, fewest)
        words = parents * _factors(most, drawn)
        words &= _RANDOM
        words |= _arange(most)
        if fewest < most:
            words[_arange(most) >= np.array(examples, np.uint64)[:, None]] = ~np.uint64(0)
        if wanted < most // 8:
            words = np.partition(words, wanted - 1, axis=1)[:, :wanted]
        words.sort(axis=1)
        order = (words[:, :wanted] & _PLACE).view(np.int64)
        for begin in range(0, wanted, batch):
            yield order[:, begin : begin + batch]
            steps -= 1
        drawn += most


@lru_cache(64)
def _factors(count: int, start: int) -> NDArray[np.uint64]:
    """Odd, so that no key is lost, and otherwise random, so that no simple relation holds between products."""
    return seeds.subkeys(seeds.key("batches"), count, start) | np.uint64(1)


@lru_cache(64)
def _arange(count: int) -> NDArray[np.uint64]:
    return np.arange(count, dtype=np.uint64)
