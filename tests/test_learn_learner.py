"""The learner: local training against plain PyTorch, evaluation against a plain loop, and nothing that remembers."""

from itertools import chain
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from fairlag.core.types import Integers, Report
from fairlag.learn.blueprint import Blueprint
from fairlag.learn.learner import Learner, Order, chunks, task_key
from fairlag.learn.local import Recipe, schedule
from fairlag.learn.models import Make
from fairlag.learn.placement import Placement
from fairlag.learn.task import ScoreSums, total
from tests.support.learning import (
    CLASSES,
    PLACEMENT,
    batch_normalised,
    blueprint,
    data,
    drawn,
    dropping,
    first,
    inputs_of,
    learner,
    plain,
    small_cnn,
    trained_plainly,
    update,
)

# Recipe training


@pytest.mark.parametrize("model", ["mlp", "logistic", dropping, small_cnn])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"momentum": 0.9},
        {"weight_decay": 0.1},
        {"prox": 0.5},
        {"momentum": 0.5, "weight_decay": 0.05, "prox": 0.2},
    ],
    ids=lambda options: "-".join(options) or "plain",
)
def test_every_step_is_that_of_plain_pytorch(model: Any, options: dict[str, float]) -> None:
    """Tasks of one step, two, three … are the beginnings of one task: so each step is compared, over two epochs."""
    for steps in range(1, 10):
        recipe = Recipe(steps=steps, batch=10, lr=schedule(0.1), **options)  # type: ignore[arg-type]
        plan = blueprint(model, recipe)
        start = first(plan)
        expected = trained_plainly(plan, drawn(7, 1, plan), 0.1, key=7) - start
        found = update(learner(plan), start, key=7)
        assert found == pytest.approx(expected, rel=1e-4, abs=1e-6), steps
        assert np.abs(found).max() > 1e-3


@pytest.mark.parametrize(
    ("client", "batch", "sizes"), [(1, 10, [10, 10, 10, 3] * 2), (0, 32, [7, 7]), (2, 40, [40, 40])]
)
def test_epochs_with_a_short_last_batch_and_batches_larger_than_the_data(
    client: int, batch: int, sizes: list[int]
) -> None:
    recipe = Recipe(epochs=2, batch=batch, lr=schedule(0.1), momentum=0.9)
    plan = blueprint("mlp", recipe)
    batches = drawn(3, client, plan)
    assert [len(each) for each in batches] == sizes
    expected = trained_plainly(plan, batches, 0.1, key=3) - first(plan)
    assert update(learner(plan), first(plan), key=3, client=client) == pytest.approx(expected, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize(("version", "lr"), [(0, 0.5), (9, 0.5), (10, 0.25), (25, 0.125)])
def test_the_step_size_is_that_of_the_version(version: int, lr: float) -> None:
    recipe = Recipe(steps=3, batch=10, lr=schedule("step(0.5, every=10, factor=0.5)"))
    plan = blueprint("mlp", recipe)
    expected = trained_plainly(plan, drawn(1, 1, plan), lr, key=1) - first(plan)
    assert update(learner(plan), first(plan), version=version) == pytest.approx(expected, rel=1e-4, abs=1e-6)


class Watching(nn.Module):
    """Notes which examples it sees; each carries its number in its only pixel."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(1, 2)
        self.seen: list[list[int]] = []

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.seen.append(inputs[:, 0].int().tolist())
        output: torch.Tensor = self.last(inputs)
        return output


def watched(recipe: Recipe, placement: Placement) -> tuple[Learner, Watching]:
    model = Watching()
    plan = Blueprint(lambda: model, {}, recipe, (1,), 2, 1.0, 0.0)
    inputs = np.arange(100, dtype=np.float32)[:, None]
    made = Learner(plan, inputs, np.arange(100) % 2, placement)
    model.seen.clear()  # without the examples of the check that the output fits
    return made, model


HOLDING = Placement(np.arange(99, -1, -1), np.array([0, 5, 30, 30, 100]), np.arange(20, 30), np.zeros(4, np.int64))
"""Client 1 holds the examples 70 to 94; client 2 none."""


def test_batches_are_drawn_without_replacement_within_an_epoch() -> None:
    by, model = watched(Recipe(epochs=3, batch=10), HOLDING)
    out = np.empty(4, np.float32)
    assert by.train(Order(1, 1, 0), np.zeros(4, np.float32), out) == Report(25, steps=9, effort=9.0)
    assert [len(batch) for batch in model.seen] == [10, 10, 5] * 3
    epochs = [list(chain(*model.seen[place : place + 3])) for place in (0, 3, 6)]
    assert [sorted(epoch) for epoch in epochs] == [list(range(70, 95))] * 3
    assert epochs[0] != epochs[1] != epochs[2] != epochs[0]


def test_steps_go_on_into_the_next_epoch() -> None:
    by, model = watched(Recipe(steps=5, batch=10), HOLDING)
    by.train(Order(1, 1, 0), np.zeros(4, np.float32), np.empty(4, np.float32))
    assert [len(batch) for batch in model.seen] == [10, 10, 5, 10, 10]
    assert sorted(chain(*model.seen[:3])) == list(range(70, 95))
    assert len(set(chain(*model.seen[3:]))) == 20


def test_batches_are_a_function_of_the_key() -> None:
    by, model = watched(Recipe(steps=2, batch=10), HOLDING)
    for key in (1, 1, 2):
        by.train(Order(key, 1, 0), np.zeros(4, np.float32), np.empty(4, np.float32))
    assert model.seen[:2] == model.seen[2:4] != model.seen[4:]


@pytest.mark.parametrize("recipe", [Recipe(steps=1), Recipe(epochs=1)])
def test_a_client_without_examples_changes_nothing(recipe: Recipe) -> None:
    by, model = watched(recipe, HOLDING)
    out = np.ones(4, np.float32)
    assert by.train(Order(1, 2, 0), np.ones(4, np.float32), out) == Report(0, steps=0, effort=0.0)
    assert (out.tolist(), model.seen) == ([0, 0, 0, 0], [])


def test_a_key_for_every_task() -> None:
    keys = {task_key(seed, client, ordinal) for seed in range(5) for client in range(20) for ordinal in range(20)}
    assert len(keys) == 5 * 20 * 20
    assert task_key(1, 2, 3) == task_key(1, 2, 3)


# Nothing is remembered


class Keeping(nn.Module):
    """Keeps a tensor that it made at its first example, and a mean that it replaces."""

    mean: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(64, CLASSES)
        self.register_buffer("mean", torch.zeros(64))
        self.ones: torch.Tensor | None = None

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if self.ones is None or not self.training:
            self.ones = torch.ones(64)
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * inputs.flatten(1).mean(0)
        output: torch.Tensor = self.last((inputs.flatten(1) - self.mean) * self.last.weight.sum() * self.ones)
        return output


MODELS: dict[str, str | Make] = {
    "dropout": dropping,
    "cnn": small_cnn,
    "batch norm": batch_normalised,
    "keeping": Keeping,
    "mlp": "mlp",
}


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_a_result_depends_on_nothing_that_was_computed_before(model: str, momentum: float) -> None:
    plan = blueprint(MODELS[model], Recipe(steps=5, batch=9, lr=schedule(0.05), momentum=momentum, prox=0.1))
    start = first(plan)
    fresh = update(learner(plan), start, key=5, client=2, version=3)
    score = plain(learner(plan).evaluate(start, 0, 40))
    used = learner(plan)
    for key, client in ((1, 0), (2, 1), (3, 2)):
        other = update(used, start, key=key, client=client)
        used.evaluate(start + other, 0, 10)
        torch.rand(key)
        assert update(used, start, key=5, client=2, version=3).tobytes() == fresh.tobytes()
        assert plain(used.evaluate(start, 0, 40)) == score
    assert other.tobytes() != fresh.tobytes()


def test_a_result_depends_on_each_of_its_arguments() -> None:
    plan = blueprint("mlp", Recipe(steps=2, batch=4, lr=schedule("step(0.1, every=1)")))
    start, by = first(plan), learner(plan)
    results = [
        update(by, start),
        update(by, start, key=2),
        update(by, start, client=2),
        update(by, start, version=1),
        update(by, first(plan, seed=1)),
    ]
    assert len({result.tobytes() for result in results}) == len(results)


def test_dropout_is_a_function_of_the_key() -> None:
    """One batch with all examples of the client: only dropout can differ."""
    plan = blueprint(dropping, Recipe(steps=1, batch=100))
    start, by = first(plan), learner(plan)
    results = [update(by, start, key=key).tobytes() for key in (1, 1, 2)]
    assert results[0] == results[1] != results[2]


def strided(array: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """The same array with other strides: those of axes of length 1 and those of all."""
    apart = np.zeros((*array.shape[:-1], 2 * array.shape[-1]), array.dtype)
    apart[..., ::2] = array
    odd = np.lib.stride_tricks.as_strided(array, array.shape, (array.strides[0], 1, *array.strides[2:]))
    return {
        "reversed": np.ascontiguousarray(array.transpose(3, 2, 1, 0)).transpose(3, 2, 1, 0),
        "every second": apart[..., ::2],
        "odd": odd,
    }


@pytest.mark.parametrize("kind", ["reversed", "every second", "odd"])
@pytest.mark.parametrize("scale", [2 / 255, 1.0])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_strides_of_the_data_do_not_matter(kind: str, scale: float, dtype: type) -> None:
    inputs: NDArray[Any] = data().inputs.astype(dtype)
    labels = data().labels
    plan = Blueprint("fashion_cnn", {}, Recipe(steps=2, batch=8), (1, 8, 8), CLASSES, scale, 0.0)
    start, same = first(plan), strided(inputs)[kind]
    assert same.strides != inputs.strides
    assert np.array_equal(same, inputs)
    one, other = (Learner(plan, given, labels, PLACEMENT) for given in (inputs, same))
    assert update(one, start).tobytes() == update(other, start).tobytes()
    assert plain(one.evaluate(start, 0, 40)) == plain(other.evaluate(start, 0, 40))


def test_the_seed_of_a_run_gives_what_does_not_travel() -> None:
    """The order of the pixels is an integer buffer, drawn with the first weights."""
    recipe = Recipe(steps=3, batch=8, lr=schedule(0.1))
    plan = blueprint(small_cnn, recipe)
    start = first(plan, seed=5)
    expected = trained_plainly(plan, drawn(1, 1, plan), 0.1, key=1, seed=5) - start
    assert update(learner(plan, seed=5), start) == pytest.approx(expected, rel=1e-4, abs=1e-6)
    assert update(learner(plan, seed=0), start) != pytest.approx(expected, rel=1e-1, abs=1e-3)


def test_buffers_of_batch_norm_are_part_of_the_update() -> None:
    plan = blueprint(batch_normalised, Recipe(steps=1, batch=100, lr=schedule(0.1)))
    model = plan.build(0).train()
    model(inputs_of(plan, drawn(1, 1, plan)[0]))
    norm = model.get_submodule("2")
    assert isinstance(norm, nn.BatchNorm1d)
    assert norm.running_mean is not None and norm.running_var is not None
    values = [*norm.running_mean.tolist(), *norm.running_var.tolist()]
    assert update(learner(plan), first(plan))[-16:] == pytest.approx(values, rel=1e-4, abs=1e-6)


# Evaluation


def counted(plan: Blueprint, tests: Integers) -> list[list[float]]:
    """Example by example."""
    model = plan.build(0).eval()
    sums = [[0.0] * CLASSES for _ in range(3)]
    for example in tests:
        label = int(data().labels[example])
        output = model(inputs_of(plan, np.array([example])))
        sums[0][label] += 1
        sums[1][label] += int(output.argmax()) == label
        sums[2][label] += functional.cross_entropy(output, torch.tensor([label])).item()
    return sums


@pytest.mark.parametrize("model", MODELS)
def test_sums_per_class_are_those_of_a_plain_loop(model: str) -> None:
    plan = blueprint(MODELS[model])
    found = plain(learner(plan).evaluate(first(plan), 0, 40))
    expected = counted(plan, PLACEMENT.tests)
    assert found[:2] == expected[:2]
    assert found[2] == pytest.approx(expected[2], rel=1e-5)


def test_a_part_is_counted_by_its_own_examples() -> None:
    plan = blueprint("mlp")
    found = learner(plan).evaluate(first(plan), 3, 5)
    assert found.examples.tolist() == [0, 0, 0, 1, 1]
    assert plain(found)[:2] == counted(plan, PLACEMENT.tests[3:5])[:2]


def test_parts_add_up() -> None:
    plan = blueprint(small_cnn)
    by, start = learner(plan), first(plan)
    parts = [by.evaluate(start, *part) for part in ((0, 15), (15, 16), (16, 40))]
    whole = by.evaluate(start, 0, 40)
    together = total(parts)
    assert together.examples.tolist() == whole.examples.tolist() == [8] * 5
    assert together.sums["accuracy"].tolist() == whole.sums["accuracy"].tolist()
    assert together.sums["loss"] == pytest.approx(whole.sums["loss"], rel=1e-6)


def test_parts_are_added_in_their_order() -> None:
    sums = [
        ScoreSums(np.array([n]), {"accuracy": np.array([float(n)]), "loss": np.array([loss])})
        for n, loss in ((1, 1e16), (2, 1.0), (3, -1e16))
    ]
    assert plain(total(sums)) == [[6], [6], [0.0]]
    assert plain(total(sums[::-1])) == [[6], [6], [0.0]]
    assert plain(total([sums[0], sums[2], sums[1]])) == [[6], [6], [1.0]]
    assert plain(total(sums[:1])) == [[1], [1], [1e16]]


@pytest.mark.parametrize(
    ("stop", "expected"),
    [(1, [(0, 1)]), (250, [(0, 250)]), (251, [(0, 250), (250, 251)]), (500, [(0, 250), (250, 500)])],
)
def test_chunks_cover_the_examples(stop: int, expected: list[tuple[int, int]]) -> None:
    assert chunks(stop) == expected


class Modes(nn.Sequential):
    """Notes in which mode it was asked."""

    asked: list[bool]

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.asked.append(self.training and all(module.training for module in self.modules()))
        output: torch.Tensor = super().forward(inputs)  # type: ignore[no-untyped-call]
        return output


def test_training_and_evaluation_set_their_own_mode_and_no_gradient_is_made() -> None:
    model = Modes(nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, CLASSES))
    model.asked = []
    plan = blueprint(lambda: model)
    start, by = first(plan), learner(plan)
    model.asked.clear()
    update(by, start)
    by.evaluate(start, 0, 40)
    update(by, start)
    assert model.asked == [True, False, True]
    by.evaluate(start, 0, 40)
    assert not any(module.training for module in model.modules())


def test_evaluation_does_not_move_batch_norm() -> None:
    model = batch_normalised((1, 8, 8), CLASSES)
    plan = blueprint(lambda: model)
    start = first(plan)
    by = learner(plan)
    by.evaluate(start, 0, 40)
    norm = model.get_submodule("2")
    assert isinstance(norm, nn.BatchNorm1d)
    assert norm.running_mean is not None and norm.num_batches_tracked is not None
    assert (norm.running_mean.tolist(), norm.num_batches_tracked.item()) == ([0] * 8, 0)
    assert all(each.grad is None or not each.grad.any() for each in model.parameters())
