"""Small models are trained together: each task to the bit as it would be alone, and as PyTorch trains it to 1e-5."""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from fairlag.core import seeds
from fairlag.core.types import CheckedUpdate, Dispatch, Report, Update
from fairlag.core.vector import Vector, published
from fairlag.errors import ProtocolError
from fairlag.learn import small
from fairlag.learn.blas import ONE_THREAD, _libraries
from fairlag.learn.blueprint import Blueprint
from fairlag.learn.flat import Flat
from fairlag.learn.learner import Learner, Order
from fairlag.learn.local import Recipe, schedule
from fairlag.learn.models import build
from fairlag.learn.placement import Placement
from fairlag.learn.small import orders
from fairlag.learn.stack import LARGEST, recognised
from fairlag.rules.admit import well_formed
from fairlag.rules.local import Feedback, Local
from tests.support.learning import PLACEMENT, blueprint, data, drawn, first, learner, small_cnn, trained_plainly

LINEAR: dict[str, Callable[[], nn.Module]] = {
    "logistic": partial(build, "logistic", {}, shape=(1, 8, 8), classes=5, seed=0),
    "mlp": partial(build, "mlp", {"layers": 3, "hidden": 9}, shape=(1, 8, 8), classes=5, seed=0),
    "a user's own": lambda: nn.Sequential(
        nn.Flatten(), nn.Sequential(nn.Linear(64, 7, bias=False), nn.ReLU(inplace=True)), nn.Linear(7, 5)
    ),
}


def shared_relu() -> nn.Module:
    relu = nn.ReLU()
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 7), relu, nn.Linear(7, 5), relu)


def shared_layer() -> nn.Module:
    layer = nn.Linear(64, 64)
    return nn.Sequential(nn.Flatten(), layer, nn.ReLU(), layer)


def hooked() -> nn.Module:
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 5))
    model[1].register_forward_hook(lambda module, inputs, output: 2 * output)
    return model


def frozen() -> nn.Module:
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 7), nn.ReLU(), nn.Linear(7, 5))
    model[1].requires_grad_(False)
    return model


def carrying() -> nn.Module:
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 5))
    model.register_buffer("mean", torch.zeros(3))
    return model


class Doubled(nn.Linear):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return 2 * super().forward(inputs)


OTHER: dict[str, Callable[[], nn.Module]] = {
    "cnn": lambda: small_cnn((1, 8, 8), 5),
    "dropout": lambda: nn.Sequential(nn.Flatten(), nn.Dropout(), nn.Linear(64, 5)),
    "other activation": lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 7), nn.Tanh(), nn.Linear(7, 5)),
    "no activation between": lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 7), nn.Linear(7, 5)),
    "activation at the end": lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 5), nn.ReLU()),
    "activation at the end, shared": shared_relu,
    "a layer that is used twice": shared_layer,
    "a subclass": lambda: nn.Sequential(nn.Flatten(), Doubled(64, 5)),
    "a hook": hooked,
    "frozen": frozen,
    "a buffer": carrying,
    "flattened otherwise": lambda: nn.Sequential(nn.Flatten(2), nn.Linear(64, 5), nn.Flatten()),
    "never flattened": lambda: nn.Sequential(nn.Linear(8, 5)),
    "flattened too late": lambda: nn.Sequential(nn.Linear(8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(24, 5)),
    "nothing linear": lambda: nn.Sequential(nn.Flatten(), nn.ReLU()),
    "empty": lambda: nn.Sequential(),
    "large": lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, LARGEST // 64)),
}


@pytest.mark.parametrize("name", LINEAR)
def test_stacks_of_linear_layers_are_recognised(name: str) -> None:
    model = LINEAR[name]()
    stack = recognised(model, (1, 8, 8))
    assert stack is not None and stack.size == Flat(model).trained


@pytest.mark.parametrize("name", OTHER)
def test_anything_else_is_not(name: str) -> None:
    assert recognised(OTHER[name](), (1, 8, 8)) is None


def test_without_axes_to_flatten_nothing_need_be() -> None:
    assert recognised(nn.Linear(8, 5), (8,)) is not None


def test_a_direction_is_left_to_pytorch() -> None:
    plan = blueprint("mlp")
    assert plan.is_batched(Local(prox=0.5, losses=True)) and not plan.is_batched(Local(direction=Feedback(0.5)))
    with pytest.raises(ProtocolError, match="only models of linear layers"):
        learner(blueprint(small_cnn)).train_all([given_out(0)], [first(blueprint(small_cnn))])


# Together as alone

CLASSES = 4
HOLDINGS = [40, 3, 17, 16, 1, 0, 33]


Lot = tuple[Callable[[bool], Learner], list[Dispatch], list[Vector]]


@st.composite
def lots(draw: st.DrawFn, lr: float = 0.3) -> Lot:
    """A model, a recipe, and tasks of clients with many and few examples, from several versions.

    The learner is made with compiled loops, or without.
    """
    hidden = draw(st.sampled_from([None, 1, 6, 33]))
    features = draw(st.sampled_from([1, 5, 64, 300]))
    steps = draw(st.one_of(st.none(), st.integers(1, 5)))
    recipe = Recipe(
        steps=steps,
        epochs=None if steps else draw(st.integers(1, 2)),
        batch=draw(st.sampled_from([1, 2, 8, 16, 32])),
        lr=schedule(lr),
        momentum=draw(st.sampled_from([0.0, 0.9])),
        weight_decay=draw(st.sampled_from([0.0, 0.1])),
    )
    told = draw(st.sampled_from([Local(), Local(losses=True), Local(start_loss=True)]))
    local = replace(told, prox=draw(st.sampled_from([0.0, 0.5])))
    made: dict[str, Any] = {} if hidden is None else {"hidden": hidden}
    plan = Blueprint("mlp" if hidden else "logistic", made, recipe, (features,), CLASSES, 1 / 37, -0.7)
    random = np.random.default_rng(draw(st.integers(0, 5)))
    bounds = np.cumsum([0, *HOLDINGS])
    placement = Placement(random.permutation(150)[: bounds[-1]], bounds, np.arange(9), np.array([0, 2, 0, 0, 0, 0, 3]))
    inputs = random.integers(0, 256, (150, features)).astype(np.uint8)
    labels = np.arange(150) % CLASSES
    versions = [first(plan, seed) for seed in range(3)]
    asked = st.builds(
        Dispatch,
        st.just(0),
        st.integers(0, len(HOLDINGS) - 1),
        st.integers(0, 2),
        st.integers(0, 2**40),
        st.just(0.0),
        steps=st.sampled_from([0, 0, 0, 1, 4]),
        pace=st.sampled_from([1.0, 1.0, 2.5]),
    )
    tasks = draw(st.lists(asked, min_size=1, max_size=12))
    return (
        lambda compiled: Learner(replace(plan, compiled=compiled), inputs, labels, placement, 0, local),
        tasks,
        [versions[task.version] for task in tasks],
    )


def given_out(client: int, ordinal: int = 0, version: int = 0) -> Dispatch:
    return Dispatch(0, client, version, ordinal, 0.0)


def same(one: Update, other: Update) -> bool:
    return one.delta.tobytes() == other.delta.tobytes() and one.report == other.report


@settings(max_examples=60, deadline=None)
@given(lots(), st.booleans(), st.randoms(use_true_random=False))
def test_a_task_is_trained_to_the_bit_as_it_would_be_alone(lot: Lot, compiled: bool, random: Any) -> None:
    make, tasks, starts = lot
    by = make(compiled)
    together = by.train_all(tasks, starts)
    places = random.sample(range(len(tasks)), random.randint(1, len(tasks)))
    some = by.train_all([tasks[place] for place in places], [starts[place] for place in places])
    assert all(same(together[place], update) for place, update in zip(places, some, strict=True))
    for task, start, update in zip(tasks, starts, together, strict=True):
        out = np.empty_like(start)
        report = by.train(Order.of(task, 0), start, out)
        assert same(update, Update(out, report))
        assert not update.delta.flags.writeable
        # Only of what is well formed nobody need ask whether it is.
        assert (type(update) is CheckedUpdate) == (well_formed(Update(*update), len(start)) is None)
        if HOLDINGS[task.client] == 0:
            assert report == Report(0, 0, 0.0, 0.0) and not out.any()
        else:
            assert np.abs(out).max() > 0


@settings(max_examples=100, deadline=None, derandomize=True)
@given(lots(lr=0.01))
def test_compiled_loops_train_as_numpy_does_to_one_in_a_hundred_thousand(lot: Lot) -> None:
    """Of the largest change of a step, as sums are in another order; further steps multiply that.

    Where a model is nearly certain, what is left of a change is the rounding of its probability. The lots are always
    the same ones, as one value in ten million is so near 0 that rounding decides whether it passes a ReLU.
    """
    make, tasks, starts = lot
    for one, other in zip(make(True).train_all(tasks, starts), make(False).train_all(tasks, starts), strict=True):
        assert one.report == other.report and type(one) is type(other)
        part, least = (1e-5, 1e-7) if other.report.steps == 1 else (1e-3, 1e-6)
        assert np.abs(one.delta - other.delta).max() <= part * np.abs(other.delta).max() + least


@pytest.mark.slow
def test_compiled_loops_scale_what_is_too_large_to_be_kept_scaled(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = replace(blueprint("mlp"), compiled=True)
    kept = learner(plan).train_all([given_out(1)], [first(plan)])
    monkeypatch.setattr(small, "_KEPT", 0)
    assert same(*learner(plan).train_all([given_out(1)], [first(plan)]), *kept)


def test_a_large_lot_is_trained_in_parts() -> None:
    """Models that share a start, models that do not, and more of them than are trained at once."""
    plan = Blueprint("mlp", {"hidden": 300}, Recipe(steps=2, batch=4), (1, 8, 8), 5, 1.0, 0.0)
    by, versions = learner(plan), [first(plan, seed) for seed in range(2)]
    tasks = [given_out(number % 3, number, number % 2) for number in range(30)]
    starts = [versions[task.version] for task in tasks]
    for task, start, update in zip(tasks, starts, by.train_all(tasks, starts), strict=True):
        (alone,) = by.train_all([task], [start.copy()])
        assert same(alone, update)


@pytest.mark.parametrize("compiled", [False, True])
def test_what_diverges_warns_nobody(compiled: bool) -> None:
    plan = replace(blueprint("mlp", Recipe(steps=30, batch=8, lr=schedule(1e30))), compiled=compiled)
    (found,) = learner(plan).train_all([given_out(1)], [first(plan)])
    assert not np.isfinite(found.delta).all()
    assert type(found) is Update  # so the server looks, and refuses it


# As PyTorch


@pytest.mark.parametrize("model", ["logistic", "mlp"])
@pytest.mark.parametrize("options", [{}, {"momentum": 0.9, "weight_decay": 0.05, "prox": 0.3}], ids=["plain", "all"])
def test_tasks_are_those_of_pytorch_to_one_in_a_hundred_thousand(model: str, options: dict[str, float]) -> None:
    """Of the largest change: PyTorch rounds at the scale of the parameters, small models at that of the update."""
    for steps in (1, 2, 9):
        plan = blueprint(model, Recipe(steps=steps, batch=10, lr=schedule(0.1), **options))  # type: ignore[arg-type]
        start, by = first(plan), learner(plan)
        tasks = [given_out(number % 3, number) for number in range(6)]
        for task, found in zip(tasks, by.train_all(tasks, [start] * 6), strict=True):
            order = Order.of(task, 0)
            expected = trained_plainly(plan, drawn(order.key, order.client, plan), 0.1, order.key) - start
            assert np.abs(found.delta - expected).max() < 1e-5 * np.abs(expected).max()


@pytest.mark.parametrize("model", ["logistic", "mlp"])
def test_an_evaluation_is_that_of_pytorch(model: str) -> None:
    plan = blueprint(model)
    torchs = Learner(plan, data().inputs, data().labels, PLACEMENT, local=Local(direction=Feedback(0.5)))
    assert learner(plan).batched and not torchs.batched
    for seed in range(3):
        one, other = (by.evaluate(first(plan, seed), 3, 37) for by in (learner(plan), torchs))
        assert (
            one.examples.tolist() == other.examples.tolist()
            and one.sums["accuracy"].tolist() == other.sums["accuracy"].tolist()
        )
        assert one.sums["loss"] == pytest.approx(other.sums["loss"], rel=1e-5)


# Draws


def test_every_example_and_every_pair_is_drawn_equally_often() -> None:
    """Of 12 examples, 4 a batch: with 3,000 tasks each stands at each place about 250 times, σ = 15."""
    places, pairs = Counter[tuple[int, int]](), Counter[tuple[int, int]]()
    keys = seeds.subkeys(1, 3000)
    for row in next(orders(keys, [12] * len(keys), 4, 1)).tolist():
        assert len(set(row)) == 4
        places.update(enumerate(row))
        pairs.update((one, other) for one in row for other in row if one < other)
    assert len(places) == 48 and all(abs(count - 250) < 5 * 15.2 for count in places.values())
    expected = 3000 * (4 * 3) / (12 * 11)
    assert len(pairs) == 66 and all(abs(count - expected) < 5 * expected**0.5 for count in pairs.values())


# Threads


def digest(compiled: bool = False) -> str:
    """Of updates, and unless trained by compiled loops losses, of a model with products for several threads."""
    random = np.random.default_rng(0)
    plan = Blueprint("mlp", {"hidden": 100}, Recipe(steps=2, batch=64), (784,), 10, 1 / 255, -0.5)
    inputs, labels = random.integers(0, 256, (300, 784)).astype(np.uint8), np.arange(300) % 10
    placement = Placement(np.arange(300), np.array([0, 150, 300]), np.arange(250), np.zeros(2, np.int64))
    by = Learner(replace(plan, compiled=compiled), inputs, labels, placement)
    start = published(random.standard_normal(79510) / 28)
    updates = by.train_all([given_out(0), given_out(1)], [start] * 2)
    losses = [] if compiled else [by.evaluate(start, 0, 250).sums["loss"]]
    parts = [update.delta for update in updates] + losses
    return sha256(b"".join(part.tobytes() for part in parts)).hexdigest()


def test_bytes_do_not_depend_on_the_threads_of_linear_algebra() -> None:
    before = [(library, library.get_num_threads()) for library in _libraries()]
    found = set()
    try:
        for threads in (1, 2, 4):
            for library, _ in before:
                library.set_num_threads(threads)
            found.add(digest())
    finally:
        for library, threads in before:
            library.set_num_threads(threads)
    assert len(found) == 1


def digest_elsewhere(environment: dict[str, str], compiled: bool) -> str:
    """What another process gets, in that environment."""
    script = f"from tests.test_learn_small import digest; print(digest({compiled}))"
    command, where = [sys.executable, "-c", script], {**os.environ, **environment}
    return subprocess.run(command, env=where, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.slow
def test_bytes_do_not_depend_on_the_environment() -> None:
    chosen = [{"OPENBLAS_NUM_THREADS": threads, "OMP_NUM_THREADS": threads} for threads in ("1", "2")]
    assert {digest_elsewhere(each, compiled=False) for each in chosen} == {digest()}


@pytest.mark.slow
def test_bytes_of_compiled_loops_do_not_depend_on_the_processor(tmp_path: Path) -> None:
    """Without its wide registers and fused products, which are then computed by a library."""
    plain = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": "", "NUMBA_CACHE_DIR": str(tmp_path)}
    assert digest_elsewhere(plain, compiled=True) == digest(compiled=True)


def test_the_number_of_threads_is_given_back() -> None:
    def threads() -> list[int]:
        return [library.get_num_threads() for library in _libraries()]

    before = threads()
    with ONE_THREAD:
        with ONE_THREAD:
            assert set(threads()) <= {1}
        assert set(threads()) <= {1}
    assert threads() == before
