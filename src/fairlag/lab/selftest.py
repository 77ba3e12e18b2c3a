"""A self-test of this machine: a few training steps on each device and by each engine, and worker processes."""

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from torch import nn

from fairlag.core.vector import Vector
from fairlag.data.load import load
from fairlag.lab.executors import cores
from fairlag.lab.folder import MODEL
from fairlag.lab.simulate import simulate
from fairlag.learn import devices
from fairlag.learn.blueprint import Blueprint
from fairlag.learn.failure import reason
from fairlag.learn.flat import Flat
from fairlag.learn.learner import Learner, Order
from fairlag.learn.local import Constant, Recipe
from fairlag.learn.models import Make
from fairlag.learn.placement import Placement
from fairlag.runtime.compiled import available

ACROSS = 1e-2
"""The largest relative difference between a device and the CPU: convolutions on a GPU may round to ten bits (TF32)."""
ALIKE = 1e-4
"""The largest relative difference between two engines on the CPU."""


class Check(NamedTuple):
    """The result of a check."""

    name: str
    passed: bool
    found: str
    """What was found, or the error, in words."""
    seconds: float


class _Failed(Exception):
    """A check found a difference that it must not find."""


def checks() -> Iterator[tuple[str, Callable[[], Check]]]:
    """Each check by its name, to be called one after the other."""
    for device in devices.available():
        yield _named(f"training on {device.name}", partial(_on, device.name))
    yield _named("small models, NumPy", partial(_engine, compiled=False))
    if available():
        yield _named("small models, compiled", partial(_engine, compiled=True))
    yield _named("worker processes", _workers)


def _named(name: str, find: Callable[[], str]) -> tuple[str, Callable[[], Check]]:
    def run() -> Check:
        begun = perf_counter()
        try:
            found, passed = find(), True
        except _Failed as failed:
            found, passed = str(failed), False
        except Exception as error:  # whatever is wrong with this machine
            found, passed = reason(error), False
        return Check(name, passed, found, perf_counter() - begun)

    return name, run


def _on(device: str) -> str:
    """Trains twice on a device, and compares the results with each other and with the CPU's."""
    recipe = Recipe(steps=5, batch=32, lr=Constant(0.05), momentum=0.9)
    one, other = (_update(_convolutional, recipe, device=device) for _ in range(2))
    if one.tobytes() != other.tobytes():
        raise _Failed(f"5 steps of a CNN, made twice, differ by {_apart(one, other):.1e}")
    again = "5 steps of a CNN, twice: same bytes"
    if device == devices.CPU:
        return again
    return f"{again}; {_close(one, _update(_convolutional, recipe), ACROSS, 'the CPU')}"


def _engine(*, compiled: bool) -> str:
    """A step of a small model on all examples, which no order of examples changes, against PyTorch's."""
    recipe = Recipe(steps=1, batch=200, lr=Constant(0.1))
    by_torch = replace(recipe, accumulate=1)  # which only PyTorch implements
    return _close(_update("mlp", recipe, compiled=compiled), _update("mlp", by_torch), ALIKE, "PyTorch")


def _workers() -> str:
    """A short run in two worker processes against the same in this process."""
    tables: dict[str, Any] = {
        "name": "self-test",
        "aggregations": 3,
        "clients": [{"group": "all", "count": 4, "delay": "uniform(1, 2)"}],
        "strategies": [{"use": "fedbuff", "concurrency": 4, "buffer": 2}],
        "data": {"use": "digits"},
        "model": {"use": "fashion_cnn"},
        "evaluate": {"every": 3, "sample": 100},
    }
    workers = min(2, cores())
    with tempfile.TemporaryDirectory(prefix="fairlag-") as folder:
        models = []
        for executor, count in (("serial", 1), ("processes", workers)):
            run = simulate(tables, out=Path(folder, executor), executor=executor, workers=count)
            models.append((run.folder / MODEL).read_bytes())
    if models[0] != models[1]:
        raise _Failed(f"a run gave different bytes in {workers} processes than in this one")
    return f"a run in {workers} of them: same bytes as in this one"


def _convolutional(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Without dropout, whose random numbers differ between devices."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.ReLU(),
        nn.GroupNorm(2, 8),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(128, classes),
    )


def _update(model: str | Make, recipe: Recipe, *, device: str = devices.CPU, compiled: bool = False) -> Vector:
    """The update of one task on 200 of the digits."""
    data = load("digits", {}, None)
    blueprint = Blueprint(
        model,
        {},
        recipe,
        data.shape,
        data.classes,
        data.scale,
        data.offset,
        compiled=compiled,
        device=device,
    )
    placement = Placement(np.arange(200), np.array([0, 200]), np.arange(200, 300), np.zeros(1, np.int64))
    start = Flat(blueprint.build(0)).parameters
    out = np.empty_like(start)
    Learner(blueprint, data.inputs, data.labels, placement).train(Order(key=1, client=0, version=0), start, out)
    return out


def _close(found: Vector, wanted: Vector, most: float, whose: str) -> str:
    apart = _apart(found, wanted)
    words = f"difference from {whose}: {apart:.0e} (at most {most:.0e})"
    if not apart <= most:
        raise _Failed(words)
    return words


def _apart(one: Vector, other: Vector) -> float:
    """The largest difference, relative to the largest number."""
    return float(np.abs(one - other).max() / np.abs(other).max())
