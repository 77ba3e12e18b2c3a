"""A model, the data and the settings of local training in one place: computes tasks and evaluations in any process."""

import ctypes
import math
import sys
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from fairlag.core import seeds
from fairlag.core.types import CheckedUpdate, Dispatch, Integers, Report, Update, record_of
from fairlag.core.vector import EMPTY, Vector
from fairlag.errors import ProtocolError
from fairlag.learn.blueprint import Blueprint
from fairlag.learn.eager import Eager, LocalTask
from fairlag.learn.examples import Examples
from fairlag.learn.placement import Placement
from fairlag.learn.small import Lot, Small, step_sizes
from fairlag.learn.task import LOSS, ScoreSums, Task, total
from fairlag.rules.admit import well_formed
from fairlag.rules.local import Local

if TYPE_CHECKING:
    from fairlag.learn.trainer import CompiledTrainer

_Asked = tuple[Sequence[int], Sequence[float], Sequence[int], Sequence[float]]
"""Per task: its version, its time, its number of steps and its pace."""

CHUNK = 250
"""How many examples are evaluated at once: the sums over a chunk are the same in every process."""

_ALLOCATOR = {-3: 1 << 25, -1: 1 << 29, -2: 1 << 26}
"""M_MMAP_THRESHOLD (glibc's maximum), M_TRIM_THRESHOLD and M_TOP_PAD: the memory of big tensors is reused."""


def chunks(stop: int) -> list[tuple[int, int]]:
    """The chunks in which the test examples up to `stop` are evaluated.

    >>> chunks(600)
    [(0, 250), (250, 500), (500, 600)]
    """
    return [(start, min(start + CHUNK, stop)) for start in range(0, stop, CHUNK)]


class Order(NamedTuple):
    """What a task computes: its random key, its client, its version, and what the strategy asks for."""

    key: int
    client: int
    version: int
    time: float = 0.0
    steps: int = 0
    pace: float = 1.0

    @classmethod
    def of(cls, task: Dispatch, seed: int) -> "Order":
        """The order of a dispatched task, in a run with this seed."""
        _, client, version, ordinal, time, steps, pace = task
        return record_of(cls, (task_key(seed, client, ordinal), client, version, time, steps, pace))


class Learner:
    """Trains tasks and evaluates models; every result depends only on the arguments and the data."""

    def __init__(
        self,
        blueprint: Blueprint,
        inputs: NDArray[Any],
        labels: NDArray[Any],
        placement: Placement,
        seed: int = 0,
        local: Local = Local(),  # noqa: B008 (frozen)
    ) -> None:
        """`seed` is the run's seed; it sets the model's state that is never sent, such as integer buffers."""
        self._blueprint = blueprint
        self._recipe = blueprint.recipe.asked(local)
        self._labels = labels
        self._task: Task = blueprint.task.build(blueprint.folder)
        self._placement = placement
        self._own_steps = placement.steps.data
        """A memoryview, because it reads single entries faster than an array."""
        self._examples = placement.sizes
        self._usual_steps = np.where(self._examples > 0, placement.steps, 0)
        lazy = (self._examples > 0) & (placement.steps == 0)
        self._usual_steps[lazy] = [self._recipe.task_steps(count) for count in self._examples[lazy].tolist()]
        """Per client: the steps of a task if the strategy asks for no number and the client always has all examples."""
        self._keys = seeds.subkeys(_tasks_key(seed), len(self._examples))
        """Per client: the parent of its tasks' keys."""
        self._usual_report = lru_cache(1024)(self._report)
        """Reports by content: without losses, few of them differ."""
        self._streams, self._personal = seeds.key(seed, "stream"), seeds.key(seed, "personalise")
        model = blueprint.build(seed)
        stack = blueprint.stack(model, local)
        told = placement.told(labels, blueprint.classes)
        examples = Examples(inputs, told, placement.holdings, blueprint.scale, blueprint.offset)
        most = int(self._examples.max()) if blueprint.compiles(stack, local) else 0
        self._small = None if stack is None else Small(stack, self._recipe, examples, compiled=most)
        self._eager = Eager(model, self._recipe, examples, self._task, blueprint.train, torch.device(blueprint.device))

    @property
    def remembered(self) -> int:
        """How many numbers a client remembers between tasks."""
        return self._eager.remembered

    @property
    def width(self) -> int:
        """How many numbers a version and an update have."""
        return self._eager.width

    @property
    def batched(self) -> bool:
        """Can many tasks of this model be trained at once?"""
        return self._small is not None

    def train_all(self, tasks: Sequence[Dispatch], starts: Sequence[Vector]) -> list[Update]:
        """The updates of tasks, trained together if possible; each is bit-identical to training it alone."""
        _, clients, versions, ordinals, times, steps, paces = zip(*tasks, strict=True)
        who, places = np.array((clients, ordinals))
        keys = seeds.subkeys_at(self._keys.take(who), places)
        return self._together(keys, who, (versions, times, steps, paces), starts)

    def _together(
        self, keys: NDArray[np.uint64], who: Integers, asked: _Asked, starts: Sequence[Vector]
    ) -> list[Update]:
        if self._small is None:
            raise ProtocolError("only models of linear layers can be trained together")
        versions, times, steps, paces = asked
        examples = self._examples.take(who).tolist()
        if self._blueprint.stream is None and not any(steps):
            made = self._usual_steps.take(who).tolist()
        else:
            clients = who.tolist()
            if self._blueprint.stream is not None:
                examples = [self._visible(*each) for each in zip(clients, examples, times, strict=True)]
            made = [self._steps(*each) for each in zip(clients, examples, steps, strict=True)]
        schedule = self._recipe.lr.at
        rates = [schedule(version) * pace for version, pace in zip(versions, paces, strict=True)]
        lot = Lot(keys, self._placement.bounds.take(who), examples, made, rates, starts)
        deltas, squares, finite = self._small.train(lot)
        report = self._report if self._recipe.losses or self._recipe.start_loss else self._usual_report
        kinds = (Update, CheckedUpdate if finite else Update)
        losses = self._start_losses(lot) if self._recipe.start_loss else map(_root_mean, squares)
        said = zip(examples, made, rates, losses, strict=True)
        return [
            record_of(kinds[sound], (delta, told))
            for delta, (told, sound) in zip(deltas, [report(*each) for each in said], strict=True)
        ]

    @property
    def trainer(self) -> "CompiledTrainer | None":
        """The compiled trainer, if compiled loops train the tasks and clients always have all their examples."""
        return self._small.trainer if self._small is not None and self._blueprint.stream is None else None

    @property
    def work(self) -> float:
        """The approximate number of multiplications per task, averaged over all clients; at least 1."""
        seen = self._usual_steps * np.minimum(self._examples, self._recipe.batch)
        return max(float(seen.mean()) * self._eager.size, 1.0)

    def prepared(self, who: Integers, ordinals: Integers, versions: Integers) -> tuple[Integers, Vector] | None:
        """Tasks and step sizes for compiled loops, with versions as starts; None if the server would refuse a task."""
        keys = seeds.subkeys_at(self._keys.take(who), ordinals)
        examples, made = self._examples.take(who), self._usual_steps.take(who)
        rates = [self._recipe.lr.at(version) for version in versions.tolist()]
        said = set(zip(examples.tolist(), made.tolist(), rates, strict=True))
        if not all(self._usual_report(*each, 0.0)[1] for each in said):
            return None
        columns = keys.view(np.int64), self._placement.bounds.take(who), examples, made, versions
        return np.stack(columns, axis=1), step_sizes(rates)

    def train(self, order: Order, parameters: Vector, out: Vector, memory: Vector | None = None) -> Report:
        """Writes the update of a task into `out`, and overwrites its client's memory.

        The order's key determines all randomness: the batches, dropout, and whatever else the model draws from torch.
        """
        key, client, version, time, steps, pace = order
        if self._small is not None:
            asked = (version,), (time,), (steps,), (pace,)
            ((out[:], report),) = self._together(np.array([key], np.uint64), np.array([client]), asked, [parameters])
            return report
        mine = self._placement.of(client)
        if self._blueprint.stream is not None:
            mine = mine[: self._visible(client, len(mine), time)]
        asked_for, lr = steps or self._own_steps[client], self._recipe.lr.at(version) * pace
        batches = self._recipe.batches(len(mine), asked_for) if len(mine) else 0
        task = LocalTask(key, client, version, mine, self._steps(client, len(mine), steps), batches, lr)
        before = self._start_loss(parameters, mine) if self._recipe.start_loss else None
        made, squares = self._eager.train(task, parameters, out, memory)
        return self._report(len(mine), made, lr, _root_mean(squares) if before is None else before)[0]

    def _start_losses(self, lot: Lot) -> list[float]:
        """The mean loss of each task's examples at the model that its client received."""
        held = zip(lot.starts, lot.firsts.tolist(), lot.examples, strict=True)
        return [
            self._start_loss(start, self._placement.holdings[first : first + count]) for start, first, count in held
        ]

    def _start_loss(self, parameters: Vector, mine: Integers) -> float:
        """The mean loss of a client's examples, 0 if it has none; as it is evaluated, so without dropout."""
        parts = [self._losses(parameters, mine[start:stop], start) for start, stop in chunks(len(mine))]
        return float(np.concatenate(parts).mean()) if parts else 0.0

    def _losses(self, parameters: Vector, chosen: Integers, seed: int) -> NDArray[Any]:
        """The loss of each of these examples."""
        if self._small is not None:
            return self._small.evaluated(parameters, chosen)[0]
        values, _ = self._eager.evaluated(parameters, chosen, seed)
        return values[LOSS]

    def _visible(self, client: int, examples: int, time: float) -> int:
        """How many of its examples a client has when the task begins; fewer than all if they arrive as a stream."""
        assert self._blueprint.stream is not None
        first = self._placement.bounds[client]
        times = self._placement.times[first : first + examples]
        return self._blueprint.stream.visible(examples, time, seeds.subkey(self._streams, client), times)

    def _steps(self, client: int, examples: int, asked: int) -> int:
        """The number of steps of a task: as many as the strategy asks for, or the client's own number."""
        return (asked or self._own_steps[client] or self._recipe.task_steps(examples)) if examples else 0

    def _report(self, examples: int, steps: int, lr: float, loss: float) -> tuple[Report, bool]:
        """The report of an update, and whether the server would find it well formed."""
        report = Report(examples, steps, self._recipe.effort(steps, lr), loss)
        return report, well_formed(Update(EMPTY, report), 0) is None

    def evaluate(self, parameters: Vector, start: int, stop: int) -> ScoreSums:
        """The sums over the test examples from start to stop."""
        return self._sums(parameters, self._placement.tests[start:stop], start)

    def evaluate_client(self, parameters: Vector, client: int) -> tuple[int, dict[str, float]]:
        """The number of a client's own test examples, and the metrics and the loss on them."""
        mine = self._placement.tests_of(client)
        found = total([self._sums(parameters, mine[start:stop], start) for start, stop in chunks(len(mine))])
        return len(mine), self._task.scores(found, range(len(found.examples)))

    def personalised(self, parameters: Vector, client: int, version: int, time: float, steps: int) -> Vector:
        """The parameters of a version after local steps of one client, which remembers nothing of its tasks."""
        key = seeds.subkey(seeds.subkey(self._personal, client), version)
        update = np.empty_like(parameters)
        memory = np.zeros(self.remembered, np.float32)
        self.train(Order(key, client, version, time, steps), parameters, update, memory)
        return self._eager.moved(parameters, update)

    def _sums(self, parameters: Vector, chosen: Integers, seed: int) -> ScoreSums:
        targets, classes = self._labels[chosen], self._blueprint.classes
        if self._small is None or self._blueprint.task.metrics:
            values, kept = self._eager.evaluated(parameters, chosen, seed)
            return self._task.sums(values, targets, classes, kept)
        losses, right = self._small.evaluated(parameters, chosen)
        return self._task.sums({LOSS: losses, self._task.metrics[0].name: right}, targets, classes)


def _root_mean(squares: Sequence[float]) -> float:
    return math.sqrt(math.fsum(squares) / len(squares)) if squares else 0.0


def task_key(seed: int, client: int, ordinal: int) -> int:
    """The key of all randomness of a client's task with this ordinal."""
    return seeds.subkey(seeds.subkey(_tasks_key(seed), client), ordinal)


@lru_cache
def _tasks_key(seed: int) -> int:
    return seeds.key(seed, "task")


def keep_memory() -> None:
    """Makes this process's allocator keep the memory of big tensors instead of returning it to the system each time."""
    if sys.platform == "linux":
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # glibc has it, musl does not
        if mallopt is not None:
            for option, size in _ALLOCATOR.items():
                mallopt(option, size)
