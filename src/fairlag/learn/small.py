"""Local training of small models: tasks are trained together as one computation, even from different versions."""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairlag.core import seeds
from fairlag.core.types import Floats, Integers
from fairlag.core.vector import Matrix, Vector, finite, published
from fairlag.learn.blas import ONE_THREAD
from fairlag.learn.examples import Examples
from fairlag.learn.local import Recipe
from fairlag.learn.stack import Stack

if TYPE_CHECKING:
    from fairlag.learn.trainer import CompiledTrainer

BATCHED = frozenset(("steps", "epochs", "batch", "lr", "momentum", "weight_decay", "prox", "losses", "start_loss"))
"""The fields of a recipe that this module implements; if any other is set, PyTorch trains."""
BATCHED_TASK = frozenset(("metrics",))
"""The fields of a task that this module implements, with PyTorch computing metrics that are asked for by name."""
COMPILED = frozenset(("steps", "epochs", "batch", "lr", "momentum", "weight_decay", "prox"))
"""The fields that compiled loops implement; if any other is set, NumPy or PyTorch trains."""

_TOGETHER = 1 << 18
"""How many parameters are trained together: more would not fit into the cache."""
_COPIED = 1 << 14
"""The largest model, in parameters, that is copied for each task; tasks of larger models share their start."""
_KEPT = 1 << 22
"""The largest data set, in numbers, that is kept scaled (16 MB); larger ones are scaled batch by batch."""
_PLACE = np.uint64(0xFFFF_FFFF)
"""The lower half of a word."""
_RANDOM = ~_PLACE


class Lot(NamedTuple):
    """A batch of tasks, one entry each: keys, examples, steps, step sizes and starts."""

    keys: NDArray[np.uint64]
    firsts: Integers
    """Where the examples of each task's client begin among all holdings."""
    examples: Sequence[int]
    steps: Sequence[int]
    rates: Sequence[float]
    starts: Sequence[Vector]

    def some(self, places: Sequence[int]) -> "Lot":
        """The tasks at these places, in order."""
        lists: Any = ([column[place] for place in places] for column in self[2:])
        return Lot(self.keys[places], self.firsts[places], *lists)


class Trained(NamedTuple):
    """The updates of tasks, and the squared losses of their examples if the recipe asks for them."""

    deltas: Sequence[Vector]
    squares: Sequence[Sequence[float]]
    finite: bool
    """Are all updates finite?"""


class Small:
    """Trains and evaluates small models; a task's result does not depend on the tasks computed with it."""

    def __init__(self, stack: Stack, recipe: Recipe, examples: Examples, *, compiled: int = 0) -> None:
        """If `compiled` is not 0, compiled loops train all tasks, each of up to `compiled` examples.

        That needs the extra `fast`.
        """
        self._stack = stack
        self._recipe = recipe
        self._inputs = examples.inputs.reshape(len(examples.inputs), -1)
        self._labels = examples.labels
        self._holdings = examples.holdings
        self._scaling = examples.scaling
        if self._inputs.size <= _KEPT:
            self._inputs, self._scaling = self._scaled(self._inputs), None
        self._still = published(np.zeros(stack.size, np.float32))
        """The update of a task without examples."""
        self.trainer: CompiledTrainer | None = None
        """Trains by compiled loops, if they are used."""
        if compiled:
            from fairlag.learn import trainer

            shown = Examples(self._inputs, self._labels, self._holdings, *(self._scaling or ()))
            self.trainer = trainer.CompiledTrainer(stack, recipe, shown, compiled)

    def train(self, lot: Lot) -> Trained:
        """Trains all tasks of a lot, in as few computations as possible."""
        if self.trainer is not None:
            return self._by_compiled_loops(self.trainer, lot)
        with ONE_THREAD, np.errstate(all="ignore"):  # if training diverges, the server reports it
            if self._is_one_group(lot):
                deltas, squares = self._descend(lot)
                deltas.flags.writeable = False
                return Trained(list(deltas), squares, finite(deltas.reshape(-1)))
            done: list[tuple[Vector, Sequence[float]]] = [(self._still, ())] * len(lot.starts)
            for places in self._groups(lot):
                deltas, squares = self._descend(lot.some(places))
                deltas.flags.writeable = False
                for place, row in zip(places, zip(deltas, squares, strict=True), strict=True):
                    done[place] = row
        rows, losses = zip(*done, strict=True)
        return Trained(rows, losses, all(map(finite, rows)))

    def _by_compiled_loops(self, trainer: "CompiledTrainer", lot: Lot) -> Trained:
        keys, firsts, examples, steps, rates, starts = lot
        apart = {id(start): start for start in starts}
        places = dict(zip(apart, range(len(apart)), strict=True))
        tasks = np.stack(
            [keys.view(np.int64), firsts, examples, steps, [places[id(start)] for start in starts]], axis=1
        )
        deltas = np.empty((len(starts), self._stack.size), np.float32)
        sound = trainer.train(tasks, step_sizes(rates), np.array([*apart.values()]), deltas)
        deltas.flags.writeable = False
        return Trained(list(deltas), [()] * len(starts), sound)

    def _is_one_group(self, lot: Lot) -> bool:
        """A quick check: can all tasks of the lot be trained as one computation? It may miss some that can."""
        steps = lot.steps[0]
        return (
            0 < steps * self._recipe.batch <= min(lot.examples)
            and self._stack.size <= min(_COPIED, _TOGETHER // len(lot.starts))
            and lot.steps.count(steps) == len(lot.steps)
        )

    def _groups(self, lot: Lot) -> Iterator[Sequence[int]]:
        """Groups tasks whose batches have the same lengths; for larger models, also the same start."""
        batch, apart = self._recipe.batch, self._stack.size > _COPIED
        groups: dict[tuple[int, int, int], list[int]] = {}
        for place, (examples, steps, start) in enumerate(zip(lot.examples, lot.steps, lot.starts, strict=True)):
            if examples and steps:
                group = steps, examples if steps * batch > examples else 0, id(start) if apart else 0
                groups.setdefault(group, []).append(place)
        most = max(1, _TOGETHER // self._stack.size)
        for places in groups.values():
            yield from (places[begin : begin + most] for begin in range(0, len(places), most))

    def _descend(self, lot: Lot) -> tuple[Matrix, Sequence[Sequence[float]]]:
        """Gradient descent: weight decay, proximal term, momentum, step; the update is the sum of the steps."""
        losses: list[Matrix] = []
        recipe = self._recipe
        keys, firsts, examples, steps, rates, starts = lot
        same = all(each is starts[0] for each in starts)
        start = starts[0][None] if same else np.concatenate(starts).reshape(len(starts), -1)
        rate = np.array(rates, np.float32)[:, None]
        first = firsts[:, None]
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
        assert delta is not None  # every task here has examples
        return delta, _squares(losses) if losses else [()] * len(starts)

    def evaluated(self, parameters: Vector, examples: Integers) -> tuple[Floats, NDArray[Any]]:
        """The loss of each example, and whether the model predicts its label."""
        with ONE_THREAD, np.errstate(all="ignore"):
            inputs, labels = self._batch(examples[None])
            losses, right = self._stack.evaluated(parameters[None], inputs, labels)
        return losses[0].astype(np.float64), right[0]

    def _batch(self, examples: Integers) -> tuple[NDArray[np.float32], Integers]:
        """The scaled inputs and the labels of these examples."""
        return self._scaled(self._inputs.take(examples, axis=0)), self._labels.take(examples)

    def _scaled(self, inputs: NDArray[Any]) -> NDArray[np.float32]:
        if self._scaling is None:
            return inputs.astype(np.float32, copy=False)
        scaled = inputs.astype(np.float32)
        scaled *= self._scaling[0]
        scaled += self._scaling[1]
        return scaled


def step_sizes(rates: Sequence[float]) -> Vector:
    """Step sizes as float32 for compiled loops. One that overflows gives an update that the server refuses."""
    with np.errstate(over="ignore"):
        return np.array(rates, np.float32)


def _squares(losses: list[Matrix]) -> list[list[float]]:
    squares: list[list[float]] = np.square(np.concatenate(losses, axis=1, dtype=np.float64)).tolist()
    return squares


def orders(keys: NDArray[np.uint64], examples: Sequence[int], batch: int, steps: int) -> Iterator[Integers]:
    """`steps` batches for each of these tasks, drawn without replacement within each epoch.

    A task's examples are sorted by random numbers: the upper halves of the products of its random key and a factor per
    epoch and place. If a batch is short or a second epoch begins, all of these tasks have the same number of examples.
    """
    parents = keys[:, None]
    fewest, most = min(examples), max(examples)
    drawn = 0
    while steps:
        wanted = min(steps * batch, fewest)
        words = parents * _factors(most, drawn)
        words &= _RANDOM
        words |= _arange(most)
        if fewest < most:
            np.putmask(words, _arange(most) >= np.array(examples, np.uint64)[:, None], ~np.uint64(0))
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
    """Odd, so that products with different keys differ; otherwise random, so that products are unrelated."""
    return seeds.subkeys(seeds.key("batches"), count, start) | np.uint64(1)


@lru_cache(64)
def _arange(count: int) -> NDArray[np.uint64]:
    return np.arange(count, dtype=np.uint64)
