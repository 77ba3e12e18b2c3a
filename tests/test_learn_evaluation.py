"""Evaluations on clients' own test examples: what a client trains and is tested on, by hand and by plain PyTorch."""

import copy
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional

from fairlag.core.vector import Vector
from fairlag.data.stream import Recorded
from fairlag.execute.processes import Processes
from fairlag.execute.serial import Serial
from fairlag.learn.blueprint import Blueprint
from fairlag.learn.evaluation import ClientScore, ClientTests, joined, parts, scored
from fairlag.learn.learner import Learner, Order
from fairlag.learn.local import Recipe, schedule
from fairlag.learn.placement import Placement
from fairlag.rules.local import Local
from tests.support.learning import batch_normalised, blueprint, data, dropping, first, inputs_of, small_cnn

NO_STEPS = np.zeros(3, np.int64)
RESERVED = np.array([2, 8, 0])
PLACES = Placement(np.arange(80), np.array([0, 7, 40, 80]), np.arange(80, 120), NO_STEPS, reserved=RESERVED)
"""Client 0 trains on 0 to 4 and is tested on 5 and 6; client 1 trains on 7 to 31; client 2 is not tested."""
COMPACT = Placement(
    np.concatenate([np.arange(5), np.arange(7, 32), np.arange(40, 80)]),
    np.array([0, 5, 30, 70]),
    np.arange(80, 120),
    NO_STEPS,
)
"""The same without the test examples."""
WHOLE = Recipe(steps=1, batch=100, lr=schedule("step(0.1, every=5)"), momentum=0.5)
"""Each step is on all examples of a client, so it does not matter how batches are drawn."""


def learner(plan: Blueprint, places: Placement = PLACES, seed: int = 0) -> Learner:
    return Learner(plan, data().inputs, data().labels, places, seed)


def test_a_client_trains_on_what_it_does_not_hold_back() -> None:
    assert PLACES.of(0).tolist() == [0, 1, 2, 3, 4] and PLACES.tests_of(0).tolist() == [5, 6]
    assert PLACES.of(2).tolist() == [*range(40, 80)] and PLACES.tests_of(2).size == 0
    assert PLACES.sizes.tolist() == COMPACT.sizes.tolist() == [5, 25, 40]


@pytest.mark.parametrize("model", [small_cnn, dropping, "mlp"])
def test_tasks_are_the_same_as_if_the_test_examples_did_not_exist(model: str) -> None:
    plan = blueprint(model, Recipe(epochs=2, batch=8, lr=schedule(0.1)))
    start = first(plan)
    for client in range(3):
        updates = []
        for places in (PLACES, COMPACT):
            out = np.empty_like(start)
            report = learner(plan, places).train(Order(9, client, 0), start, out)
            updates.append((out.tobytes(), report))
        assert updates[0] == updates[1]


@pytest.mark.parametrize("model", [dropping, "mlp"])
def test_examples_that_arrive_do_so_as_if_the_test_examples_did_not_exist(model: str) -> None:
    plan = replace(blueprint(model, Recipe(epochs=1, batch=8, lr=schedule(0.1))), stream=Recorded())
    late = np.concatenate([np.arange(7.0), np.arange(33.0), np.arange(40.0)])
    late[PLACES.bounds[1] + 25 : PLACES.bounds[2]] = 0.0  # the test examples of client 1 would be there at once
    start, updates = first(plan), []
    for places, times in ((PLACES, late), (COMPACT, late[COMPACT.holdings])):
        out = np.empty_like(start)
        report = learner(plan, places._replace(times=times)).train(Order(9, 1, 0, time=10.0), start, out)
        assert report.examples == 11
        updates.append(out.tobytes())
    assert updates[0] == updates[1]


def plain_scores(plan: Blueprint, model: torch.nn.Module, client: int) -> tuple[int, float, float]:
    """The number of a client's test examples, the accuracy and the loss, by PyTorch alone."""
    stop = int(PLACES.bounds[client + 1])
    mine = np.arange(stop - RESERVED[client], stop)
    labels = torch.from_numpy(data().labels[mine])
    with torch.no_grad():
        output = model.eval()(inputs_of(plan, mine))
    right = (output.argmax(1) == labels).double().mean()
    return len(mine), float(right), float(functional.cross_entropy(output, labels))


def trained(plan: Blueprint, client: int, steps: int, lr: float) -> torch.nn.Module:
    """The first model after steps of gradient descent with momentum on all training examples of a client."""
    model = copy.deepcopy(plan.build(0)).train()
    start = int(PLACES.bounds[client])
    mine = np.arange(start, int(PLACES.bounds[client + 1]) - RESERVED[client])
    inputs, labels = inputs_of(plan, mine), torch.from_numpy(data().labels[mine])
    optimiser = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.5)
    for _ in range(steps):
        optimiser.zero_grad()
        functional.cross_entropy(model(inputs), labels).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return model


def convolution(shape: tuple[int, ...], classes: int) -> torch.nn.Module:
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(144, classes)
    )


@pytest.mark.parametrize("model", [convolution, batch_normalised, "mlp"])
@pytest.mark.parametrize("steps", [0, 3])
def test_scores_are_those_of_a_plain_loop_over_clients(model: str, steps: int) -> None:
    plan = blueprint(model, WHOLE)
    asked = ClientTests((0, 1), version=7, time=0.0, steps=steps)
    found = scored(learner(plan), first(plan), asked)
    assert isinstance(found, tuple) and len(found) == 2
    for client, score in enumerate(found):
        assert isinstance(score, ClientScore)
        twin = trained(plan, client, steps, lr=0.01)  # at version 7, a tenth of 0.1
        examples, right, loss = plain_scores(plan, twin, client)
        assert (score.client, score.examples) == (client, examples)
        assert math.isclose(score.values["accuracy"], right)
        assert math.isclose(score.values["loss"], loss, rel_tol=1e-5)


def test_the_batches_of_own_steps_follow_from_the_seed_the_client_and_the_version() -> None:
    plan = blueprint(dropping, Recipe(steps=1, batch=4, lr=schedule(0.1)))
    start = first(plan)

    def after(seed: int = 0, version: int = 3, steps: int = 2) -> bytes:
        return learner(plan, seed=seed).personalised(start, 1, version, 0.0, steps).tobytes()

    assert after() == after()
    assert len({after(), after(seed=1), after(version=4), after(steps=3), start.tobytes()}) == 5


def test_own_steps_change_nothing_for_tasks_that_come_after() -> None:
    plan = blueprint(dropping, Recipe(steps=2, batch=4, lr=schedule(0.1)))
    start, fresh, used = first(plan), learner(plan), learner(plan)
    before = start.tobytes()
    scored(used, start, ClientTests((0, 1), 3, 0.0, steps=5))
    updates = [np.empty_like(start), np.empty_like(start)]
    for by, out in zip((fresh, used), updates, strict=True):
        by.train(Order(4, 1, 0), start, out)
    assert updates[0].tobytes() == updates[1].tobytes() and start.tobytes() == before


def _asked(executor: Serial | Processes, start: Vector) -> list[object]:
    executor.begin(5, PLACES, Local())
    for steps in (0, 2):
        executor.evaluate(4, start, 0.0, ClientTests((0, 1), 4, 0.0, steps))
    found: list[object] = []
    while len(found) < 2:
        found += executor.evaluated(1.0)
    return found


def test_worker_processes_find_the_same() -> None:
    plan = blueprint(dropping, Recipe(steps=1, batch=4, lr=schedule(0.1)))
    start = first(plan)
    pool = Processes(plan, data(), PLACES, workers=2)
    try:
        several = _asked(pool, start)
    finally:
        pool.close()
    assert several == _asked(Serial(plan, data(), PLACES), start)


def test_parts_together_are_the_whole() -> None:
    plan = blueprint("mlp")
    by, start, asked = learner(plan), first(plan), ClientTests((0, 1), 0, 0.0)
    alone = [scored(by, start, asked._replace(clients=(client,))) for client in (0, 1)]
    assert joined(alone) == scored(by, start, asked) == joined([scored(by, start, part) for part in parts(asked)])
