"""Devices: the whole learner on PyTorch's meta device, where a stray CPU tensor is an error; and which there are."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from fairlag.core.vector import Vector, published
from fairlag.errors import InputError
from fairlag.learn import batches, devices, exclusive, transfer
from fairlag.learn.blueprint import Blueprint
from fairlag.learn.flat import Flat
from fairlag.learn.learner import Learner, Order
from fairlag.learn.local import Recipe, schedule
from fairlag.learn.models import Make
from fairlag.learn.optimiser import parse
from fairlag.learn.own import Batches, Context
from fairlag.learn.tasks import TaskUse
from fairlag.learn.within import within
from fairlag.rules.local import Feedback, Local
from tests.support.devices import all_on_meta, cards
from tests.support.learning import CLASSES, PLACEMENT, batch_normalised, blueprint, data, small_cnn

META = torch.device("meta")


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The devices of all tensors that came back."""
    return all_on_meta(monkeypatch)


def own_steps(model: nn.Module, batches: Batches, context: Context) -> dict[str, float]:
    """Momentum in the client's memory, by hand."""
    assert context.memory is not None and context.memory.device == META
    for inputs, targets in batches:
        model.zero_grad()
        context.loss(model(inputs), targets).backward()  # type: ignore[no-untyped-call]
        gradients = [each.grad.flatten() for each in model.parameters() if each.grad is not None]
        context.memory[0].mul_(0.9).add_(torch.cat(gradients))
        with torch.no_grad():
            for each in model.parameters():
                assert each.grad is not None
                each.sub_(each.grad, alpha=context.lr)
    return {"loss": 0.5}


def tried(plan: Blueprint, local: Local = Local()) -> tuple[Vector, Vector]:  # noqa: B008 (frozen)
    """The update and the memory after two tasks and an evaluation on the meta device."""
    examples = data()
    by = Learner(replace(plan, device="meta"), examples.inputs, examples.labels, PLACEMENT, local=local)
    parameters = published(np.ones(Flat(plan.build(0)).layout.size))
    out, memory = np.full_like(parameters, 7), np.zeros(by.remembered, np.float32)
    for key in (1, 2):
        by.train(Order(key, 2, 0), parameters, out, memory)
    by.evaluate(parameters, 0, 40)
    assert not by.batched
    left = {each.device.type for each in tensors(by._eager) if each.ndim}
    assert left == {"meta"}, "some operations in place accept tensors of different devices"
    return out, memory


def tensors(thing: object, seen: set[int] | None = None) -> Iterator[torch.Tensor]:
    """Every tensor that an object of the learner holds."""
    seen = set() if seen is None else seen
    if id(thing) in seen:
        return
    seen.add(id(thing))
    if isinstance(thing, torch.Tensor):
        yield from (each for each in (thing, thing.grad) if each is not None)
    inner: Iterable[object] = ()
    if isinstance(thing, Mapping):
        inner = thing.values()
    elif isinstance(thing, list | tuple):
        inner = thing
    elif type(thing).__module__.startswith(("fairlag.learn", "torch.nn", "torch.optim")):
        inner = vars(thing).values() if hasattr(thing, "__dict__") else ()
    for each in inner:
        yield from tensors(each, seen)


STEPS = Recipe(steps=2, batch=8, lr=schedule(0.1))
RECIPES = {
    "plain": STEPS,
    "epochs": Recipe(epochs=1, batch=8),
    "momentum": replace(STEPS, momentum=0.9, weight_decay=0.01, prox=0.1),
    "losses": replace(STEPS, losses=True),
    "clip_norm": replace(STEPS, clip_norm=0.1, prox=0.1),
    "clip_value": replace(STEPS, clip_value=0.1),
    "accumulate": replace(STEPS, accumulate=3, lr_within_task=within("cosine")),
    "kept momentum": replace(STEPS, momentum=0.9, optimiser_state="kept"),
    "own": replace(STEPS, train=own_steps, memory=1),
}
OPTIMISERS = ("sgd(momentum=0.9)", "adam", "adamw(amsgrad=true)", "rmsprop", "adagrad", "nadam")


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("model", [small_cnn, batch_normalised, "fashion_cnn", "mlp"])
def test_a_whole_task_stays_on_its_device(name: str, model: str | Make, fetched: list[str]) -> None:
    out, memory = tried(blueprint(model, RECIPES[name]))
    assert set(fetched) == {"meta"}
    assert not np.isin(7, out) and np.isfinite(memory).all()


@pytest.mark.parametrize("kept", [None, "kept"])
@pytest.mark.parametrize("text", OPTIMISERS)
def test_every_optimiser_stays_on_the_device(text: str, kept: None, fetched: list[str]) -> None:
    _, memory = tried(blueprint(small_cnn, replace(STEPS, optimiser=parse(text), optimiser_state=kept)))
    counts: set[str] = {"cpu"} if kept and text != "sgd(momentum=0.9)" else set()
    assert set(fetched) == {"meta"} | counts, "only the count of steps may be on the CPU"
    assert bool(memory.size) == bool(kept)


@pytest.mark.parametrize("recipe", [STEPS, replace(STEPS, optimiser=parse("adam"), optimiser_state="kept")])
def test_a_strategys_direction_and_proximal_term_stay_on_the_device(recipe: Recipe, fetched: list[str]) -> None:
    _, memory = tried(blueprint(small_cnn, recipe), Local(prox=0.1, direction=Feedback(0.5), losses=True))
    assert "meta" in fetched and memory.size


@pytest.mark.parametrize("use", ["classification", "regression", "multilabel", "next_token"])
def test_every_task_is_trained_and_scored_on_the_device(use: str, fetched: list[str]) -> None:
    every: dict[str, NDArray[Any]] = {
        "classification": np.arange(120) % CLASSES,
        "regression": np.linspace(0, 1, 120, dtype=np.float32).reshape(-1, 1),
        "multilabel": (np.arange(240) % 2).reshape(-1, 2),
        "next_token": np.arange(120 * 64).reshape(-1, 64) % 5,
    }
    labels, tokens = every[use], use == "next_token"
    inputs = labels if tokens else data().inputs
    classes = {"classification": CLASSES, "regression": 1, "multilabel": 2, "next_token": 5}[use]
    plan = Blueprint(
        (lambda: nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 5))) if tokens else small_cnn,
        {},
        STEPS,
        inputs.shape[1:],
        classes,
        1.0,
        0.0,
        task=TaskUse(use),
        target=labels.shape[1:],
        tokens=tokens,
        device="meta",
    )
    by, parameters = Learner(plan, inputs, labels, PLACEMENT), published(np.ones(Flat(plan.build(0)).layout.size))
    by.train(Order(1, 2, 0), parameters, np.empty_like(parameters))
    assert by.evaluate(parameters, 0, 40).examples.sum() >= 40
    assert set(fetched) == {"meta"}


def test_data_that_does_not_fit_is_sent_batch_by_batch(monkeypatch: pytest.MonkeyPatch, fetched: list[str]) -> None:
    sent: list[int] = []

    def count(array: np.ndarray, device: torch.device) -> torch.Tensor:
        sent.append(len(array))
        return transfer.upload(array, device)

    monkeypatch.setattr(batches, "upload", count)
    tried(blueprint(small_cnn, STEPS))
    assert sent == [120, 120, 8, 8, 8, 8, 40], "all inputs and labels once, then the places of the examples"
    sent.clear()
    monkeypatch.setattr(batches, "_KEPT", 0)
    tried(blueprint(small_cnn, STEPS))
    assert sent == [8, 8] * 4 + [40, 40]


class Stray(nn.Linear):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return super().forward(inputs.flatten(1)) + torch.ones(len(inputs), self.out_features)


def test_a_stray_cpu_tensor_is_an_error_here(fetched: list[str]) -> None:
    with pytest.raises(RuntimeError, match="device"):
        tried(blueprint(lambda shape, classes: Stray(64, classes), STEPS))


def test_modules_that_share_a_buffer_still_do_on_a_device(fetched: list[str]) -> None:
    table = torch.ones(3)
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    for layer in model:
        layer.register_buffer("table", table)
    layout = Flat(model).layout
    flat = Flat(model, META)
    assert flat.layout == layout and flat.parameters.tolist() == [0] * layout.size
    assert model[0].table is model[1].table and model[0].table.device == META


# Which devices there are


def test_devices_are_found_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    cards(monkeypatch, 2)
    assert [device.name for device in devices.available()] == ["cpu", "cuda:0", "cuda:1"]
    assert (devices.resolved("auto"), devices.resolved("cuda"), devices.resolved("cuda:1")) == (
        "cuda:0",
        "cuda",
        "cuda:1",
    )
    with pytest.raises(InputError, match="no device 'cuda:2' on this machine: it has cpu, cuda:0, cuda:1"):
        devices.resolved("cuda:2")
    cards(monkeypatch, 0, apple=True)
    assert devices.resolved("auto") == "mps"
    cards(monkeypatch, 0)
    assert devices.resolved("auto") == "cpu"
    with pytest.raises(InputError, match=r"no device 'mps' on this machine: it has cpu$"):
        devices.resolved("mps")


def test_workers_take_turns_on_devices_unless_one_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    cards(monkeypatch, 2)
    assert [devices.of_worker("cuda", worker) for worker in range(3)] == ["cuda:0", "cuda:1", "cuda:0"]
    assert [devices.of_worker("cuda:1", worker) for worker in range(3)] == ["cuda:1"] * 3


def test_the_cpu_is_used_without_looking_at_accelerators(monkeypatch: pytest.MonkeyPatch) -> None:
    def looked(*_: object) -> None:
        raise AssertionError("this would take memory on the device")

    monkeypatch.setattr(torch.cuda, "device_count", looked)
    assert devices.resolved(None) == devices.of_worker("cpu", 1) == devices.meant("cpu")[0].name == "cpu"


@pytest.mark.parametrize("text", ["tpu", "cuda:", "cuda:-1", "cuda:01", "CUDA", "cpu:0", "", "cuda:1000"])
def test_names_of_devices_are_checked(text: str) -> None:
    with pytest.raises(InputError, match=r"there is no device .*: it must be auto, cpu, cuda, cuda:1"):
        devices.parse(text)


def test_an_accelerator_draws_from_the_seed_and_everything_is_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine that has none: what a device's own module is asked for."""
    asked: list[object] = []
    own = SimpleNamespace(
        get_rng_state=lambda: "before",
        manual_seed=lambda seed: asked.append(seed),
        set_rng_state=lambda state: asked.append(state),
    )
    monkeypatch.setattr(torch, "get_device_module", lambda device: own)
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    with exclusive.exclusive(7, torch.device("mps")):
        assert torch.are_deterministic_algorithms_enabled()
        assert asked == [7]
    assert asked == [7, "before"]
    assert not torch.are_deterministic_algorithms_enabled()
