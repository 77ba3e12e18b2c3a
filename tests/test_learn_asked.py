"""What is asked of single tasks, against plain PyTorch: steps, pace, a direction with a memory, losses, and streams."""

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from fairlag.core import seeds
from fairlag.core.types import Dispatch, Integers, Report
from fairlag.core.vector import Vector
from fairlag.data.stream import Linear, Poisson, Stream
from fairlag.learn.blueprint import Blueprint
from fairlag.learn.learner import Learner, Order
from fairlag.learn.local import Recipe, schedule
from fairlag.learn.placement import Placement
from fairlag.rules.local import Feedback, Local
from tests.support.learning import (
    PLACEMENT,
    batch_normalised,
    blueprint,
    data,
    drawn,
    dropping,
    first,
    inputs_of,
    small_cnn,
    trained_plainly,
)

RECIPE = Recipe(steps=2, batch=10, lr=schedule(0.1))
OWN = PLACEMENT._replace(steps=np.array([0, 4, 7]))
"""Clients 1 and 2 make four and seven steps by themselves."""


def asked(plan: Blueprint, local: Local = Local(), places: Placement = PLACEMENT) -> Learner:  # noqa: B008 (frozen)
    return Learner(plan, data().inputs, data().labels, places, local=local)


def train(by: Learner, start: Vector, order: Order, memory: Vector | None = None) -> tuple[Vector, Report]:
    out = np.empty_like(start)
    return out, by.train(order, start, out, memory)


def close(expected: Vector) -> Any:
    return pytest.approx(expected, rel=1e-4, abs=1e-6)


# Steps and pace


@pytest.mark.parametrize(
    ("client", "steps", "made"), [(0, 0, 2), (1, 0, 4), (2, 0, 7), (0, 5, 5), (1, 1, 1), (2, 9, 9)]
)
def test_the_steps_are_those_asked_for_or_the_clients_own_or_the_recipes(client: int, steps: int, made: int) -> None:
    plan = blueprint(small_cnn, RECIPE)
    found, report = train(asked(plan, places=OWN), first(plan), Order(7, client, 0, steps=steps))
    expected = trained_plainly(
        plan, drawn(7, client, blueprint(small_cnn, replace(RECIPE, steps=made))), 0.1, key=7
    ) - first(plan)
    assert found == close(expected)
    assert report == Report(len(PLACEMENT.of(client)), steps=made, effort=float(made))


def test_steps_that_are_asked_for_replace_epochs() -> None:
    plan = blueprint("mlp", Recipe(epochs=2, batch=10, lr=schedule(0.1)))
    found, report = train(asked(plan), first(plan), Order(7, 1, 0, steps=3))
    expected = trained_plainly(plan, drawn(7, 1, blueprint("mlp", replace(RECIPE, steps=3))), 0.1, key=7) - first(plan)
    assert found == close(expected)
    assert report.steps == 3
    assert train(asked(plan), first(plan), Order(7, 1, 0))[1].steps == 8


@pytest.mark.parametrize("options", [{}, {"momentum": 0.9, "prox": 0.5, "weight_decay": 0.05}], ids=["plain", "all"])
@pytest.mark.parametrize(("version", "pace", "lr"), [(0, 3.0, 0.3), (0, 0.5, 0.05), (10, 3.0, 0.15)])
def test_the_pace_is_a_factor_on_the_step_size(version: int, pace: float, lr: float, options: dict[str, float]) -> None:
    rule = schedule("step(0.1, every=10, factor=0.5)")
    recipe = Recipe(steps=5, batch=10, lr=rule, **options)  # type: ignore[arg-type]
    plan = blueprint(dropping, recipe)
    found, _ = train(asked(plan), first(plan), Order(7, 1, version, pace=pace))
    assert found == close(trained_plainly(plan, drawn(7, 1, plan), lr, key=7) - first(plan))


def test_an_order_is_made_of_all_that_a_task_asks_for() -> None:
    task = Dispatch(task=9, client=2, version=4, ordinal=1, time=6.5, steps=3, pace=1.5)
    assert Order.of(task, seed=8)[1:] == (2, 4, 6.5, 3, 1.5)
    assert Order.of(task, 8).key == Order.of(task._replace(task=10, version=5, time=7.0, steps=1), 8).key
    assert len({Order.of(task._replace(ordinal=each), seed).key for each in range(5) for seed in range(5)}) == 25


# The pull


@pytest.mark.parametrize(("own", "wanted", "used"), [(0.5, None, 0.5), (0.5, 0.2, 0.2), (0.0, 0.2, 0.2), (0.5, 0.0, 0)])
def test_a_pull_that_the_strategy_asks_for_replaces_the_recipes(own: float, wanted: float | None, used: float) -> None:
    recipe = Recipe(steps=6, batch=10, lr=schedule(0.1), prox=own)
    found, _ = train(asked(blueprint("mlp", recipe), Local(prox=wanted)), first(blueprint("mlp")), Order(7, 1, 0))
    plan = blueprint("mlp", replace(recipe, prox=used))
    assert found == close(trained_plainly(plan, drawn(7, 1, plan), 0.1, key=7) - first(plan))


def test_no_pull_asked_for_gives_the_bytes_of_none() -> None:
    plan = blueprint(small_cnn, replace(RECIPE, steps=6, momentum=0.5))
    none, zero, some = (
        train(asked(plan, Local(prox=prox)), first(plan), Order(7, 1, 0))[0].tobytes() for prox in (None, 0.0, 0.1)
    )
    assert zero == none != some


# ASO-Fed's direction


def one_by_one(
    plan: Blueprint, start: Vector, batches: Iterable[Integers], rate: float, beta: float, memory: list[torch.Tensor]
) -> Vector:
    """A task of ASO-Fed, written down from its paper: the memory is (the gradient before, h)."""
    model = plan.build(0).train()
    torch.nn.utils.vector_to_parameters(torch.from_numpy(start.copy()), model.parameters())
    handed = [each.detach().clone() for each in model.parameters()]
    for batch in batches:
        model.zero_grad()
        loss = functional.cross_entropy(model(inputs_of(plan, batch)), torch.from_numpy(data().labels[batch]))
        pull = sum((now - then).square().sum() for now, then in zip(model.parameters(), handed, strict=True))
        (loss + plan.recipe.prox / 2 * pull).backward()  # type: ignore[no-untyped-call]
        gradient = torch.cat([each.grad.flatten() for each in model.parameters() if each.grad is not None])
        before, average = memory
        turned = gradient - before + average
        memory[:] = gradient, beta * average + (1 - beta) * before
        with torch.no_grad():
            flat = torch.nn.utils.parameters_to_vector(model.parameters())
            torch.nn.utils.vector_to_parameters(flat - rate * turned, model.parameters())
    now: Vector = torch.nn.utils.parameters_to_vector(model.parameters()).detach().numpy()
    return now - start


@pytest.mark.parametrize("beta", [0.0, 0.001, 0.6])
def test_a_client_remembers_over_steps_and_tasks_as_in_the_paper(beta: float) -> None:
    recipe = Recipe(steps=3, batch=10, lr=schedule(0.05), prox=0.4)
    plan = blueprint("mlp", recipe)
    local = Local(prox=0.4, direction=Feedback(beta))
    by = asked(plan, local)
    start = first(plan)
    assert by.remembered == 2 * start.size
    memory, twin = np.zeros(by.remembered, np.float32), [torch.zeros(start.size), torch.zeros(start.size)]
    for key, pace in ((1, 1.0), (2, 2.5), (3, 1.2)):
        found, report = train(by, start, Order(key, 1, 0, pace=pace), memory)
        expected = one_by_one(plan, start, drawn(key, 1, plan, local), 0.05 * pace, beta, twin)
        assert found == close(expected), key
        assert memory == close(np.concatenate([each.numpy() for each in twin])), key
        assert report.steps == 3
        # From what it now remembers, another way than from nothing.
        assert key == 1 or found != close(train(by, start, Order(key, 1, 0, pace=pace), 0 * memory)[0])
        start = start + found


def test_without_a_direction_nothing_is_remembered() -> None:
    plan = blueprint("mlp", RECIPE)
    assert asked(plan, Local(prox=0.1, losses=True)).remembered == 0


# Effort


@pytest.mark.parametrize("steps", [1, 2, 9])
@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
def test_the_effort_is_how_often_gradients_count(steps: int, momentum: float) -> None:
    """FedNova's closed forms: q, and (q − ρ(1−ρ^q)/(1−ρ))/(1−ρ) with momentum ρ."""
    plan = blueprint("logistic", replace(RECIPE, steps=steps, momentum=momentum))
    _, report = train(asked(plan), first(plan), Order(7, 1, 0))
    closed = (steps - momentum * (1 - momentum**steps) / (1 - momentum)) / (1 - momentum)
    assert report.effort == (steps if momentum == 0 else pytest.approx(closed, rel=1e-12))


def test_the_effort_under_a_pull_fades_with_the_step_size() -> None:
    """(1 − (1 − ημ)^q) / (ημ) in FedNova's paper; the pace is a part of η."""
    plan = blueprint("logistic", replace(RECIPE, steps=6))
    _, report = train(asked(plan, Local(prox=0.4)), first(plan), Order(7, 1, 0, pace=2.0))
    assert report.effort == pytest.approx((1 - (1 - 0.2 * 0.4) ** 6) / (0.2 * 0.4), rel=1e-12)


@pytest.mark.parametrize("lr", [0.02, 0.1])
@pytest.mark.parametrize("prox", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
def test_the_effort_is_how_far_equal_gradients_take_a_model(momentum: float, prox: float, lr: float) -> None:
    """Plain PyTorch: the loss is the sum of all parameters, so every gradient is 1, whatever the model."""
    for steps in (1, 10, 20):
        weight = torch.zeros(1, dtype=torch.float64, requires_grad=True)
        descent = torch.optim.SGD([weight], lr=lr, momentum=momentum)
        for _ in range(steps):
            descent.zero_grad()
            torch.autograd.backward(weight.sum() + prox / 2 * weight.square().sum())
            descent.step()
        recipe = Recipe(steps=steps, momentum=momentum, prox=prox)
        assert recipe.effort(steps, lr) == pytest.approx(-weight.item() / lr, rel=1e-12)


# Losses


def test_losses_are_the_root_of_the_mean_of_the_squares_of_every_examples() -> None:
    recipe = Recipe(steps=5, batch=10, lr=schedule(0.1))  # 10, 10, 10, 3 and again 10 examples
    plan = blueprint("mlp", recipe)
    model, squares = plan.build(0).train(), list[float]()
    descent = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in drawn(7, 1, plan):
        descent.zero_grad()
        labels = torch.from_numpy(data().labels[batch])
        losses = functional.cross_entropy(model(inputs_of(plan, batch)), labels, reduction="none")
        squares += losses.detach().square().tolist()
        losses.mean().backward()  # type: ignore[no-untyped-call]
        descent.step()
    assert len(squares) == 43
    _, report = train(asked(plan, Local(losses=True)), first(plan), Order(7, 1, 0))
    assert report.loss == pytest.approx(math.sqrt(sum(squares) / len(squares)), rel=1e-5)
    assert report[:3] == (33, 5, 5.0)


@pytest.mark.parametrize("model", ["mlp", dropping, small_cnn, batch_normalised])
@pytest.mark.parametrize("client", [0, 1, 2])
def test_the_loss_before_training_is_the_mean_over_all_examples_at_the_model_received(client: int, model: Any) -> None:
    plan = blueprint(model, replace(RECIPE, weight_decay=0.3))
    mine, given = PLACEMENT.of(client), plan.build(0).eval()
    expected = functional.cross_entropy(given(inputs_of(plan, mine)), torch.from_numpy(data().labels[mine]))
    _, report = train(asked(plan, Local(start_loss=True)), first(plan), Order(7, client, 0))
    assert report.loss == pytest.approx(expected.item(), rel=1e-5)


def test_the_loss_before_training_is_of_more_examples_than_are_evaluated_at_once() -> None:
    """Nine times the same 80: the mean is that of the 80."""
    again = Placement(np.tile(np.arange(80), 10), np.array([0, 80, 800]), np.arange(80, 120), np.zeros(2, np.int64))
    for model in ("mlp", small_cnn):
        plan = blueprint(model, RECIPE)
        by = asked(plan, Local(start_loss=True), again)
        once, often = (train(by, first(plan), Order(7, client, 0))[1].loss for client in (0, 1))
        assert often == pytest.approx(once, rel=1e-6)


@pytest.mark.parametrize("model", ["mlp", dropping, small_cnn, batch_normalised])
@pytest.mark.parametrize("local", [Local(losses=True), Local(start_loss=True)], ids=repr)
def test_noting_losses_changes_no_byte_of_the_update(model: Any, local: Local) -> None:
    plan = blueprint(model, replace(RECIPE, steps=5, momentum=0.5))
    silent, noted = (train(asked(plan, each), first(plan), Order(7, 1, 0)) for each in (Local(), local))
    assert noted[0].tobytes() == silent[0].tobytes()
    assert silent[1].loss == 0.0 < noted[1].loss


@pytest.mark.parametrize("local", [Local(losses=True), Local(start_loss=True)], ids=repr)
@pytest.mark.parametrize("model", ["mlp", small_cnn])
def test_the_loss_of_a_client_without_examples_is_none(model: Any, local: Local) -> None:
    plan = blueprint(model, RECIPE)
    nobody = PLACEMENT._replace(bounds=np.array([0, 0, 40, 80]))
    assert train(asked(plan, local, nobody), first(plan), Order(7, 0, 0))[1] == Report(0, 0, 0.0, 0.0)


# Streams


class Numbered(torch.nn.Module):
    """Notes which examples it sees; each carries its number in its only pixel."""

    def __init__(self) -> None:
        super().__init__()
        self.last = torch.nn.Linear(1, 2)
        self.seen: set[int] = set()

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.seen |= set(inputs[:, 0].int().tolist())
        output: torch.Tensor = self.last(inputs)
        return output


HELD = np.random.default_rng(3).permutation(100)
STREAMED = Placement(HELD, np.array([0, 40, 100]), np.arange(3), np.zeros(2, np.int64))


@pytest.mark.parametrize("stream", [Linear(0.1, 0.05), Poisson(0.1, 0.05)], ids=str)
def test_a_task_uses_the_examples_that_are_there_when_it_begins_and_no_other(stream: Stream) -> None:
    model = Numbered()
    plan = Blueprint(lambda: model, {}, Recipe(epochs=1, batch=7), (1,), 2, 1.0, 0.0, stream)
    by = Learner(plan, np.arange(100, dtype=np.float32)[:, None], np.arange(100) % 2, STREAMED, seed=5)
    counts = []
    for client, time in ((0, 0.0), (0, 3.3), (0, 9.0), (0, 1e4), (1, 3.3)):
        there = stream.visible(len(STREAMED.of(client)), time, seeds.subkey(seeds.key(5, "stream"), client))
        model.seen.clear()
        _, report = train(by, np.zeros(4, np.float32), Order(1, client, 0, time))
        assert model.seen == set(STREAMED.of(client)[:there].tolist())
        assert report == Report(there, steps=-(-there // 7), effort=float(-(-there // 7)))
        counts.append(there)
    assert counts[0] == 4 < counts[1] < counts[2] < counts[3] == 40


def test_what_is_there_is_a_matter_of_the_runs_seed() -> None:
    plan = replace(blueprint("logistic", RECIPE), stream=Poisson(0.1, 0.05))
    found = {
        Learner(plan, data().inputs, data().labels, PLACEMENT, seed).train(
            Order(1, 2, 0, 6.0), first(plan), np.empty_like(first(plan))
        )
        for seed in range(8)
    }
    assert len({report.examples for report in found}) > 2
