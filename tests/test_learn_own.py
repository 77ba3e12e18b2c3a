"""A train function of the user's own: what it is told, what becomes of its work, and what is refused."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from fairlag.core.types import Dispatch, Report
from fairlag.core.vector import Vector
from fairlag.errors import InputError
from fairlag.execute.serial import Serial
from fairlag.learn.learner import Learner, Order
from fairlag.learn.local import Recipe, schedule
from fairlag.learn.own import Batches, Context
from fairlag.rules.local import Feedback, Local
from tests.support.learning import PLACEMENT, batch_normalised, blueprint, data, drawn, first, inputs_of, small_cnn

SGD = Recipe(steps=5, batch=10, lr=schedule("step(0.1, every=2)"))


def own(train: Any, **options: Any) -> Recipe:
    named = f"tests.support.trains:{train}" if isinstance(train, str) else train
    return replace(SGD, train=named, **options)


def trained(
    recipe: Recipe,
    order: Order,
    memory: Vector | None = None,
    model: Any = small_cnn,
    local: Local = Local(),  # noqa: B008 (frozen)
) -> tuple[bytes, Report]:
    plan = blueprint(model, recipe)
    out = np.empty_like(first(plan))
    by = Learner(plan, data().inputs, data().labels, PLACEMENT, local=local)
    report = by.train(order, first(plan), out, memory)
    return out.tobytes(), report


@pytest.mark.parametrize("model", [small_cnn, batch_normalised])
def test_the_steps_of_gradient_descent_written_by_a_user_are_those_of_fairlag(model: Any) -> None:
    """Dropout and statistics included; also a model that is otherwise trained the fast way goes through it."""
    order = Order(7, 1, 2, pace=1.5)
    assert trained(own("plainly"), order, model=model) == trained(SGD, order, model=model)
    assert not blueprint("mlp", own("plainly")).is_batched(Local())


def test_what_a_function_is_told() -> None:
    told: list[Context] = []
    seen: list[torch.Tensor] = []

    def listen(model: torch.nn.Module, batches: Batches, context: Context) -> None:
        assert model.training and not any(each.grad is not None for each in model.parameters())
        told.append(context)
        seen.extend(inputs for inputs, _ in batches)

    recipe = own(listen, memory=2)
    memory = np.arange(2 * first(blueprint()).size, dtype=np.float32)
    out, report = trained(recipe, Order(7, 1, 4, pace=3.0), memory)
    (context,) = told
    assert (context.lr, context.steps, context.version, context.client, context.seed) == (SGD.lr.at(4) * 3, 5, 4, 1, 7)
    assert context.memory is not None and context.memory.flatten().tolist() == memory.tolist()
    expected = [inputs_of(blueprint(), batch) for batch in drawn(7, 1, blueprint(small_cnn, SGD))]
    assert len(seen) == 5 and all(torch.equal(one, other) for one, other in zip(seen, expected, strict=True))
    assert not any(out) and report == Report(33, 5, 5.0, 0.0)


def test_what_it_writes_into_its_memory_is_kept_and_what_it_returns_is_reported() -> None:
    size = first(blueprint()).size
    memory = np.zeros(size, np.float32)
    one, report = trained(own("by_average", memory=1), Order(7, 1, 0), memory, local=Local(losses=True))
    assert report[:3] == (33, 5, 5.0) and report.loss > 1
    before = memory.copy()
    assert before.any()
    two, _ = trained(own("by_average", memory=1), Order(7, 1, 0), memory)
    assert two != one and (memory != before).any()
    # Momentum of 0.9 that begins at 0 and is not kept is the same, up to rounding.
    plain, _ = trained(replace(SGD, momentum=0.9), Order(7, 1, 0))
    assert np.frombuffer(one, np.float32) == pytest.approx(np.frombuffer(plain, np.float32), abs=1e-6)


def test_the_loss_before_training_is_not_the_functions_task() -> None:
    """It returns nothing; and what is computed before it changes nothing that it computes."""
    plain, _ = trained(own("plainly"), Order(7, 1, 0))
    same, report = trained(own("plainly"), Order(7, 1, 0), local=Local(start_loss=True))
    assert same == plain and report.loss > 1


def test_what_it_does_to_the_model_ends_with_its_task() -> None:
    plan = blueprint(small_cnn, own("frozen"))
    by, found = Learner(plan, data().inputs, data().labels, PLACEMENT), []
    for _ in range(2):
        out = np.empty_like(first(plan))
        by.train(Order(7, 1, 0), first(plan), out)
        found.append(out.tobytes())
    assert found[0] == found[1] == trained(SGD, Order(7, 1, 0))[0]


@pytest.mark.parametrize(
    ("train", "local", "words"),
    [
        ("raising", Local(), r"KeyError: 'no\\nweights' \(trains.py, line \d+\)$"),
        ("replacing", Local(), "ValueError: tests.support.trains:replacing replaced the tensor of the parameter '1.w"),
        ("number", Local(), "TypeError: tests.support.trains:number returned int, it must return a dictionary or None"),
        ("wordy", Local(), "returned 'accuracy': 0.5, it may return the numbers 'loss' and 'steps'"),
        ("plainly", Local(losses=True), r"the strategy asks for losses, so .* must return {'loss': …}: the root of"),
    ],
)
def test_a_function_that_fails(train: str, local: Local, words: str) -> None:
    plan = blueprint(small_cnn, own(train))
    serial = Serial(plan, data(), PLACEMENT)
    serial.begin(0, PLACEMENT, local)
    task = Dispatch(3, 1, 0, 0, 0.0)
    serial.submit(task, first(plan), 0.0)
    with pytest.raises(InputError, match=f"^task 3 of client 1 failed: .*{words}"):
        serial.result(task)


@pytest.mark.parametrize(
    ("use", "words"),
    [
        ("tests.support.trains:missing", "^module 'tests.support.trains' has no function 'missing'$"),
        ("no_such_module:train", "^cannot import 'no_such_module' for 'no_such_module:train': "),
    ],
)
def test_a_function_that_cannot_be_found(use: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        trained(replace(SGD, train=use), Order(7, 1, 0))


@pytest.mark.parametrize("local", [Local(prox=0.1), Local(direction=Feedback(0.5))], ids=repr)
def test_what_a_strategy_asks_of_steps_is_refused(local: Local) -> None:
    with pytest.raises(InputError, match=r"'tests.support.trains:plainly' makes its steps by itself, so (prox|direc)"):
        own("plainly").asked(local)
