"""Local steps by torch.optim, bit for bit as plain PyTorch makes them on the same batches; and what is refused."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional
from torch.nn.utils import clip_grad_norm_, clip_grad_value_

from fairlag.core.types import Report
from fairlag.core.vector import Vector
from fairlag.errors import InputError
from fairlag.learn.learner import Learner, Order
from fairlag.learn.local import Recipe, schedule
from fairlag.learn.optimiser import Optimiser, parse
from fairlag.learn.within import within
from fairlag.rules.local import Feedback, Local
from tests.support.learning import PLACEMENT, blueprint, data, drawn, dropping, first, inputs_of, small_cnn

LR = 0.02
Make = Callable[[Any], torch.optim.Optimizer]


def recipe(**options: Any) -> Recipe:
    return Recipe(**{"steps": 5, "batch": 10, "lr": schedule(LR), **options})


def fairly(
    options: Recipe,
    model: Any = small_cnn,
    local: Local = Local(),  # noqa: B008 (frozen)
    keys: tuple[int, ...] = (7,),
) -> list[Vector]:
    """The parameters after each of client 1's tasks, every one from where the one before ended."""
    plan = blueprint(model, options)
    by = Learner(plan, data().inputs, data().labels, PLACEMENT, local=local)
    memory, now, found = np.zeros(by.remembered, np.float32), first(plan), []
    for key in keys:
        out = np.empty_like(now)
        by.train(Order(key, 1, 0), now, out, memory)
        now = now + out
        found.append(now)
    return found


class Twin:
    """The same in plain PyTorch, written down without fairlag's steps."""

    def __init__(self, options: Recipe, make: Make, model: Any = small_cnn, together: int = 1) -> None:
        self.plan, self.make, self.together = blueprint(model, options), make, together
        self.model = self.plan.build(0).train()
        self.before_step: Callable[[torch.nn.Module], object] = lambda model: None
        self.rates: list[float] | None = None
        self.precision: Any = nullcontext()

    def trained(self, *keys: int, kept: bool = False) -> list[Vector]:
        found, optimiser = [], self.make(self.model.parameters())
        for key in keys:
            optimiser = optimiser if kept else self.make(self.model.parameters())
            start = self.flat()
            torch.manual_seed(key)
            counted = self.plan.recipe.batches(1, self.plan.recipe.steps or 0)
            whole = blueprint(self.plan.model, Recipe(steps=counted, batch=self.plan.recipe.batch))
            batches = drawn(key, 1, whole, Local(direction=Feedback(0.5)))  # as where PyTorch trains
            for step in range(0, len(batches), self.together):
                optimiser.zero_grad()
                some = batches[step : step + self.together]
                for batch in some:
                    with self.precision:
                        output = self.model(inputs_of(self.plan, batch))
                        loss = functional.cross_entropy(output, torch.from_numpy(data().labels[batch]))
                    torch.autograd.backward(loss / len(some))
                self.before_step(self.model)
                if self.rates is not None:
                    optimiser.param_groups[0]["lr"] = self.rates[step // self.together]
                optimiser.step()
            # An update is the rounded difference, so the server's next version differs in its last bits.
            now = start + (self.flat() - start)
            torch.nn.utils.vector_to_parameters(torch.from_numpy(now), self.model.parameters())
            found.append(now.copy())
        return found

    def flat(self) -> Vector:
        every: Vector = torch.nn.utils.parameters_to_vector(self.model.parameters()).detach().numpy().copy()
        return every


def adamw(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=LR)


def same(one: list[Vector], other: list[Vector]) -> bool:
    return [each.tobytes() for each in one] == [each.tobytes() for each in other]


# Every optimiser

WRITTEN: dict[str, Make] = {
    "sgd(momentum=0.9, nesterov=true)": lambda each: torch.optim.SGD(each, LR, 0.9, nesterov=True),
    "adam": lambda each: torch.optim.Adam(each, LR),
    "adam(amsgrad=true)": lambda each: torch.optim.Adam(each, LR, amsgrad=True),
    "AdamW(betas=[0.8, 0.95], weight_decay=0.1)": lambda each: torch.optim.AdamW(
        each, LR, (0.8, 0.95), weight_decay=0.1
    ),
    "adamax": lambda each: torch.optim.Adamax(each, LR),
    "nadam": lambda each: torch.optim.NAdam(each, LR),
    "radam": lambda each: torch.optim.RAdam(each, LR),
    "rmsprop(alpha=0.9, momentum=0.5, centered=true)": lambda each: torch.optim.RMSprop(
        each, LR, 0.9, momentum=0.5, centered=True
    ),
    "adagrad(initial_accumulator_value=0.1)": lambda each: torch.optim.Adagrad(each, LR, initial_accumulator_value=0.1),
    "adadelta": lambda each: torch.optim.Adadelta(each, LR),
    "adafactor": lambda each: torch.optim.Adafactor(each, LR),
    "asgd(t0=2)": lambda each: torch.optim.ASGD(each, LR, t0=2),
    "rprop": lambda each: torch.optim.Rprop(each, LR),
}


@pytest.mark.parametrize("kept", [False, True], ids=["fresh", "kept"])
@pytest.mark.parametrize("text", WRITTEN)
def test_every_optimiser_makes_the_steps_of_plain_pytorch(text: str, kept: bool) -> None:
    options = recipe(optimiser=parse(text), optimiser_state="kept" if kept else None)
    expected = Twin(options, WRITTEN[text]).trained(7, 8, 9, kept=kept)
    assert same(fairly(options, keys=(7, 8, 9)), expected)


def test_a_kept_state_makes_another_second_task_and_the_same_first() -> None:
    fresh, kept = (
        fairly(recipe(optimiser=parse("adamw"), optimiser_state=state), keys=(7, 8)) for state in (None, "kept")
    )
    assert same(fresh[:1], kept[:1]) and not np.allclose(fresh[1], kept[1], atol=1e-4)


def test_tasks_of_a_client_that_keeps_its_state_are_one_long_run() -> None:
    """Plain PyTorch makes all 15 steps without a break; updates round, so it is not the same to the bit."""
    options = recipe(optimiser=parse("adamw"), optimiser_state="kept")
    model = blueprint(dropping, options).build(0).train()
    optimiser = adamw(model.parameters())
    for key in (7, 8, 9):
        torch.manual_seed(key)
        for batch in drawn(key, 1, blueprint(small_cnn, options)):
            optimiser.zero_grad()
            output = model(inputs_of(blueprint(), batch))
            functional.cross_entropy(output, torch.from_numpy(data().labels[batch])).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
    long = torch.nn.utils.parameters_to_vector(model.parameters()).detach().numpy()
    found = fairly(options, dropping, keys=(7, 8, 9))[-1]
    assert found == pytest.approx(long, abs=2e-5)
    assert fairly(recipe(optimiser=parse("adamw")), dropping, keys=(7, 8, 9))[-1] != pytest.approx(long, abs=1e-3)


def test_gradient_descent_written_as_an_optimiser_is_the_same() -> None:
    for own in ({}, {"momentum": 0.5}, {"momentum": 0.5, "weight_decay": 0.1}):
        assert same(fairly(recipe(**own)), fairly(recipe(optimiser=Optimiser("sgd", tuple(own.items())))))


def test_momentum_is_kept_if_asked_for() -> None:
    options = recipe(momentum=0.9, optimiser_state="kept")
    expected = Twin(options, lambda each: torch.optim.SGD(each, LR, 0.9)).trained(7, 8, kept=True)
    assert same(fairly(options, keys=(7, 8)), expected)


def test_a_client_without_examples_keeps_no_state() -> None:
    plan = blueprint(small_cnn, recipe(optimiser=parse("adam"), optimiser_state="kept"))
    nobody = PLACEMENT._replace(bounds=np.array([0, 0, 40, 80]))
    by = Learner(plan, data().inputs, data().labels, nobody)
    memory, out = np.zeros(by.remembered, np.float32), np.empty_like(first(plan))
    assert by.train(Order(7, 0, 0), first(plan), out, memory) == Report(0, 0, 0.0, 0.0)
    assert not out.any() and not memory.any()


# Clipping, accumulation, schedules within a task, precision


@pytest.mark.parametrize("text", [None, "adamw"])
def test_clipping_is_that_of_pytorch(text: str | None) -> None:
    make: Make = adamw if text else lambda each: torch.optim.SGD(each, LR)
    optimiser = parse(text) if text else None
    for name, clip in (("clip_norm", clip_grad_norm_), ("clip_value", clip_grad_value_)):
        options = recipe(optimiser=optimiser, **{name: 0.05})
        twin = Twin(options, make)
        twin.before_step = lambda model, clip=clip: clip(model.parameters(), 0.05)  # type: ignore[misc]
        assert same(fairly(options), twin.trained(7))
        assert not same(fairly(options), fairly(recipe(optimiser=optimiser)))
        assert same(fairly(recipe(optimiser=optimiser, **{name: 1e30})), fairly(recipe(optimiser=optimiser)))


@pytest.mark.parametrize("text", [None, "adamw"])
def test_a_step_takes_the_mean_gradient_of_its_batches(text: str | None) -> None:
    make: Make = adamw if text else lambda each: torch.optim.SGD(each, LR)
    optimiser = parse(text) if text else None
    options = recipe(optimiser=optimiser, accumulate=3)
    assert same(fairly(options), Twin(options, make, together=3).trained(7))
    assert same(fairly(recipe(optimiser=optimiser, accumulate=1)), fairly(recipe(optimiser=optimiser)))


def test_the_last_step_of_an_epoch_takes_what_is_left() -> None:
    """33 examples are 4 batches: a step of three and one of one."""
    plan = blueprint(small_cnn, Recipe(epochs=1, batch=10, accumulate=3, lr=schedule(LR)))
    by, out = Learner(plan, data().inputs, data().labels, PLACEMENT), np.empty_like(first(plan))
    assert by.train(Order(7, 1, 0), first(plan), out) == Report(33, 2, 2.0, 0.0)
    expected = Twin(recipe(steps=4), lambda each: torch.optim.SGD(each, LR), together=3).trained(7)
    assert same([first(plan) + out], expected)


@pytest.mark.parametrize(
    ("text", "factors"),
    [
        ("warmup(4)", [0.25, 0.5, 0.75, 1.0, 1.0]),
        ("linear", [1.0, 0.8, 0.6, 0.4, 0.2]),
        ("linear(0.5)", [1.0, 0.9, 0.8, 0.7, 0.6]),
        ("cosine", [(1 + np.cos(np.pi * step / 5)) / 2 for step in range(5)]),
    ],
)
def test_the_step_size_changes_within_a_task(text: str, factors: list[float]) -> None:
    options = recipe(optimiser=parse("adamw"), lr_within_task=within(text))
    assert [options.factor(step, 5) for step in range(5)] == pytest.approx(factors, rel=1e-15)
    twin = Twin(options, adamw)
    twin.rates = [LR * options.factor(step, 5) for step in range(5)]
    assert same(fairly(options), twin.trained(7))
    assert within(str(within(text))) == within(text)


def test_the_effort_counts_the_step_sizes_within_a_task() -> None:
    """All gradients are 1, as a loss that is the sum of the parameters has them."""
    options = recipe(momentum=0.5, lr_within_task=within("warmup(3)"))
    weight = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    descent = torch.optim.SGD([weight], lr=LR, momentum=0.5)
    for step in range(5):
        descent.zero_grad()
        torch.autograd.backward(weight.sum())
        descent.param_groups[0]["lr"] = LR * min(1, (step + 1) / 3)
        descent.step()
    assert options.effort(5, LR) == pytest.approx(-weight.item() / LR, rel=1e-12)


def test_bfloat16_is_autocast() -> None:
    options = recipe(precision="bfloat16")
    twin = Twin(options, lambda each: torch.optim.SGD(each, LR))
    twin.precision = torch.autocast("cpu", torch.bfloat16)
    (found,) = fairly(options)
    assert found.dtype == np.float32 and same([found], twin.trained(7))
    (exact,) = fairly(recipe())
    error, length = np.linalg.norm(found - exact), np.linalg.norm(exact - first(blueprint()))
    assert 0 < error < 0.2 * length


# With what strategies ask for


@pytest.mark.parametrize("clip", [None, 0.05])
def test_the_proximal_term_is_part_of_the_gradient(clip: float | None) -> None:
    options = recipe(optimiser=parse("adamw"), clip_norm=clip)
    twin = Twin(options, adamw)
    start = [each.detach().clone() for each in twin.model.parameters()]

    def pull(model: torch.nn.Module) -> None:
        for each, then in zip(model.parameters(), start, strict=True):
            assert each.grad is not None
            each.grad.add_(each.detach() - then, alpha=3.0)
        if clip is not None:
            clip_grad_norm_(model.parameters(), clip)

    twin.before_step = pull
    found = fairly(options, local=Local(prox=3.0))
    assert same(found, twin.trained(7)) and not same(found, fairly(options))


def test_a_direction_turns_the_gradient_that_the_optimiser_sees() -> None:
    """ASO-Fed's memory and the optimiser's state lie beside each other."""
    options = recipe(optimiser=parse("adamw"), optimiser_state="kept")
    twin = Twin(options, adamw)
    memory = np.zeros((2, twin.flat().size), np.float32)

    def turn(model: torch.nn.Module) -> None:
        grads = [each.grad for each in model.parameters() if each.grad is not None]
        gradient = torch.cat([each.flatten() for each in grads])
        Feedback(0.3).turn(gradient.numpy(), memory)
        for each, part in zip(grads, torch.split(gradient, [each.numel() for each in grads]), strict=True):
            each.copy_(part.view_as(each))

    twin.before_step = turn
    found = fairly(options, local=Local(direction=Feedback(0.3)), keys=(7, 8, 9))
    assert same(found, twin.trained(7, 8, 9, kept=True)) and not same(found, fairly(options, keys=(7, 8, 9)))


def test_losses_are_recorded_with_any_optimiser() -> None:
    plan = blueprint(small_cnn, recipe(optimiser=parse("adamw"), accumulate=2, precision="bfloat16"))
    by = Learner(plan, data().inputs, data().labels, PLACEMENT, local=Local(losses=True))
    assert by.train(Order(7, 1, 0), first(plan), np.empty_like(first(plan))).loss > 0.5


# What is refused


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("adamww", r"^there is no optimiser 'adamww': did you mean 'adamw'\?$"),
        ("xyz", "^there is no optimiser 'xyz': choose from adadelta, .*, sgd$"),
        ("lbfgs", r"^the optimiser lbfgs cannot be used, because it computes the loss several times per step: choose"),
        ("SparseAdam", "^the optimiser sparseadam cannot be used, because it needs sparse gradients: choose from"),
        ("optimizer", "^there is no optimiser 'optimizer'"),
        ("adam(beta=0.9)", r"^the optimiser adam has no parameter 'beta': did you mean 'betas'\?$"),
        ("adam(fused=true)", "^the optimiser adam has no parameter 'fused': "),
        ("adam(lr=0.1)", r"^the step size of adam\(lr=0.1\) is the key lr of \[local\]: write it there$"),
        ("adam(0.1)", r"^adam\(0.1\) has a parameter without a name; write for example adamw\("),
        ("adam(betas=[0.9, 1.5])", r"^the optimiser adam\(betas=\[0.9, 1.5\]\) cannot be used: Invalid beta"),
        ("adam(betas=0.9)", r"^the optimiser adam\(betas=0.9\) cannot be used: "),
        ("adam(eps=uniform(1, 2))", r"^uniform\(1, 2\) cannot be a parameter of an optimiser, write a number, true or"),
        ("sgd(nesterov=true)", r"^the optimiser sgd\(nesterov=true\) cannot be used: Nesterov momentum requires"),
        ("0.1", "^the optimiser '0.1' is not a name; write for example adamw"),
        ("adam w", "^the optimiser 'adam w' cannot be read; write for example adamw"),
    ],
)
def test_an_optimiser_that_is_refused(text: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        parse(text)


@pytest.mark.parametrize("text", WRITTEN)
def test_what_is_written_is_read_back(text: str) -> None:
    assert str(parse(text)) == text.lower() and parse(str(parse(text))) == parse(text)


def test_an_optimiser_that_does_not_take_the_model() -> None:
    with pytest.raises(InputError, match=r"^the optimiser muon cannot be used: Muon only supports 2D parameters"):
        fairly(recipe(optimiser=parse("muon")))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"optimiser": Optimiser("adam"), "momentum": 0.9}, r"^momentum of \[local\] is for gradient descent, but the"),
        ({"optimiser": Optimiser("adam"), "weight_decay": 0.9}, r"^weight_decay of \[local\] is for gradient descent"),
        ({"clip_norm": 0.0}, "^clip_norm is 0.0, but must be a finite number above 0$"),
        ({"clip_norm": 1.0, "clip_value": 2.0}, "^clip_norm is 1 and clip_value is 2: give one of them$"),
        ({"accumulate": 0}, "^accumulate is 0, it must be at least 1$"),
        ({"memory": 2}, "^memory is 2, but only a function of your own keeps one: give train$"),
        (
            {"train": "own:train", "clip_norm": 1.0},
            "^train = 'own:train' makes its steps by itself, so clip_norm would",
        ),
    ],
)
def test_settings_that_do_not_fit(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        recipe(**options)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("3", "^lr_within_task is '3', but must be a schedule such as warmup"),
        ("warmup", r"^warmup does not fit \(missing a required argument: 'steps'\)"),
        ("warmup(0)", "^steps of warmup is 0, but must be a finite number above 0"),
        ("warmup(cosine)", "^cosine cannot be part of a schedule, write a number"),
        ("warmip(3)", r"^there is no schedule within a task 'warmip': did you mean 'warmup'\?"),
    ],
)
def test_a_schedule_within_a_task_that_is_refused(text: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        within(text)
