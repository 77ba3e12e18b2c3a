"""What tests of learning share: small models, a small data set, and local training in plain PyTorch."""

import os
from collections.abc import Iterable, Iterator
from itertools import count

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from fairlag.core import seeds
from fairlag.core.types import Integers
from fairlag.core.vector import Vector, published
from fairlag.data.dataset import Dataset
from fairlag.execute.processes import Processes
from fairlag.learn.blueprint import Blueprint
from fairlag.learn.evaluation import Found
from fairlag.learn.flat import Flat
from fairlag.learn.learner import Learner, Order, keep_memory
from fairlag.learn.local import Recipe, schedule
from fairlag.learn.models import Make
from fairlag.learn.placement import Placement
from fairlag.learn.task import ScoreSums
from fairlag.rules.local import Local

torch.set_num_threads(1)  # as in a worker: several threads on busy cores wait for each other
keep_memory()

CLASSES = 5
ONE_STEP = Recipe(steps=1, batch=8, lr=schedule(0.1))


class Shuffled(nn.Module):
    """Reorders pixels. The order is drawn with the first weights, and kept in an integer buffer."""

    order: torch.Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        self.register_buffer("order", torch.randperm(size))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs.flatten(1)[:, self.order].view(inputs.shape)


def small_cnn(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Everything that could make a result depend on where it is computed: convolution, groups, dropout, a shuffle."""
    return nn.Sequential(
        Shuffled(64),
        nn.Conv2d(1, 8, 3, padding=1),
        nn.ReLU(),
        nn.GroupNorm(2, 8),
        nn.MaxPool2d(2),
        nn.Dropout2d(0.3),
        nn.Flatten(),
        nn.Linear(128, 16),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(16, classes),
    )


def dropping(shape: tuple[int, ...], classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, classes))


def batch_normalised(shape: tuple[int, ...], classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, classes))


class Fragile(nn.Module):
    """Ends its process, or raises an error, at an example whose first pixel says so."""

    ENDS, RAISES = 1.0, 2.0

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.last = nn.Linear(64, classes)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        marks = inputs[:, 0, 0, 0]
        if (marks == self.ENDS).any():
            os._exit(3)
        if (marks == self.RAISES).any():
            raise ValueError("no such\nlayer")
        output: torch.Tensor = self.last(inputs.flatten(1))
        return output


def fragile(shape: tuple[int, ...], classes: int) -> nn.Module:
    return Fragile(classes)


def data(*, marks: dict[int, float] | None = None) -> Dataset:
    """120 examples of 8×8 bytes; the first pixel is the mark for the marked examples, and 0 for the others."""
    inputs = np.random.default_rng(0).integers(3, 256, (120, 1, 8, 8)).astype(np.uint8)
    inputs[:, 0, 0, 0] = 0
    for example, mark in (marks or {}).items():
        inputs[example, 0, 0, 0] = mark
    return Dataset("small", inputs, np.arange(120) % CLASSES, CLASSES, official=120)


PLACEMENT = Placement(np.arange(80), np.array([0, 7, 40, 80]), np.arange(80, 120), np.zeros(3, np.int64))
"""Client 0 holds the examples 0 to 6, client 1 those up to 39, client 2 those up to 79; the others are for testing."""


def blueprint(model: str | Make = small_cnn, recipe: Recipe = ONE_STEP) -> Blueprint:
    """A blueprint of a model on the small data set, whose bytes are scaled to [−1, 1]."""
    return Blueprint(model, {}, recipe, (1, 8, 8), CLASSES, 2 / 255, -1.0)


def unscaled(model: str | Make, recipe: Recipe = ONE_STEP) -> Blueprint:
    return Blueprint(model, {}, recipe, (1, 8, 8), CLASSES, 1.0, 0.0)


def learner(plan: Blueprint, examples: Dataset | None = None, seed: int = 0) -> Learner:
    given = data() if examples is None else examples
    return Learner(plan, given.inputs, given.labels, PLACEMENT, seed)


def first(plan: Blueprint, seed: int = 0) -> Vector:
    """The initial parameters of a run with this seed."""
    return Flat(plan.build(seed)).parameters


def update(by: Learner, parameters: Vector, *, key: int = 1, client: int = 1, version: int = 0) -> Vector:
    """The update of a task."""
    out = np.empty_like(parameters)
    by.train(Order(key, client, version), parameters, out)
    return out


class Pools(dict[int, Processes]):
    """Pools by their number of workers. Each starts when first needed, because that takes seconds."""

    def __init__(self, plan: Blueprint, places: Placement) -> None:
        super().__init__()
        self._given = plan, data(), places

    def __missing__(self, workers: int) -> Processes:
        self[workers] = Processes(*self._given, workers=workers, vectors=2, shares=True)
        return self[workers]

    def close(self) -> None:
        for pool in self.values():
            pool.close()


def plain(score: Found) -> list[list[float]]:
    assert isinstance(score, ScoreSums)
    return [column.tolist() for column in (score.examples, score.sums["accuracy"], score.sums["loss"])]


def inputs_of(plan: Blueprint, examples: Integers) -> torch.Tensor:
    chosen = torch.from_numpy(data().inputs[examples]).float()
    return chosen * plan.scale + plan.offset


def drawn(key: int, client: int, plan: Blueprint, local: Local = Local()) -> list[Integers]:  # noqa: B008 (frozen)
    """The batches of a task: a new order of the client's examples for each epoch, cut into batches."""
    mine, recipe, batches = PLACEMENT.of(client), plan.recipe, list[Integers]()
    orders = hashed(key, mine) if plan.is_batched(local) else permuted(key, mine)
    wanted = recipe.steps or (recipe.epochs or 0) * -(-len(mine) // recipe.batch)
    while len(batches) < wanted:
        order = next(orders)
        batches += [order[start : start + recipe.batch] for start in range(0, len(order), recipe.batch)]
    return batches[:wanted]


def permuted(key: int, examples: Integers) -> Iterator[Integers]:
    """The orders of the epochs if PyTorch trains."""
    generator = np.random.Generator(np.random.PCG64(key))
    while True:
        yield generator.permutation(examples)


def hashed(key: int, examples: Integers) -> Iterator[Integers]:
    """The orders of the epochs of small models: sorted by the upper half of key × an odd number per place."""
    parent, size = seeds.key("batches"), len(examples)
    for epoch in count():
        factors = [seeds.subkey(parent, epoch * size + place) | 1 for place in range(size)]
        yield examples[sorted(range(size), key=lambda place: (key * factors[place] % 2**64 >> 32, place))]


def trained_plainly(plan: Blueprint, batches: Iterable[Integers], lr: float, key: int, seed: int = 0) -> Vector:
    """The parameters after the batches, by torch's own SGD, with the pull as a term of the loss."""
    model, recipe = plan.build(seed).train(), plan.recipe
    start = [each.detach().clone() for each in model.parameters()]
    descent = torch.optim.SGD(model.parameters(), lr=lr, momentum=recipe.momentum, weight_decay=recipe.weight_decay)
    torch.manual_seed(key)
    for batch in batches:
        descent.zero_grad()
        loss = functional.cross_entropy(model(inputs_of(plan, batch)), torch.from_numpy(data().labels[batch]))
        for now, then in zip(model.parameters(), start, strict=True):
            loss = loss + recipe.prox / 2 * (now - then).square().sum()
        loss.backward()  # type: ignore[no-untyped-call]
        descent.step()
    return published(torch.cat([each.detach().flatten() for each in model.parameters()]).numpy())
