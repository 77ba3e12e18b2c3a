"""Plain twins of the methods with a memory, written from their formulas, live the same random lives as the code."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest

from fairlag import zoo
from fairlag.core.server import Server
from fairlag.core.strategy import Strategy
from fairlag.core.types import Aggregation, Event, Floats, Left, Row
from fairlag.core.vector import Matrix, Vector
from fairlag.errors import FairlagError
from fairlag.execute.serial import Serial
from fairlag.fleet.clients import Fleet, Group
from fairlag.fleet.delay import parse
from fairlag.lab.experiment import parse as parse_experiment
from fairlag.learn.blueprint import Blueprint
from fairlag.learn.local import Recipe, schedule
from fairlag.learn.placement import Placement
from fairlag.rules import select, trigger, weigh
from fairlag.rules.control import Control
from fairlag.rules.local import Local
from fairlag.runtime import virtual
from tests.support.experiments import three_on_digits
from tests.support.learning import CLASSES, blueprint, data, first
from tests.support.scenes import Scene, vec
from tests.test_twins import FIRST, Came, Twin, lives


class Remembers(Twin):
    """step = c Σ_j (Δ_j − β h_i) + β/n Σ_i h_i with the h before this buffer, then h_i ← Δ_j, in order of arrival.

    Its parts are the coefficients of all updates in the step, added up by client.
    """

    def __init__(self, size: int, beta: float, c: Callable[[int, int], float], lr: float) -> None:
        super().__init__()
        self.size, self.beta, self.c, self.lr = size, beta, c, lr
        self.h: dict[int, Floats] = {}

    def ready(self) -> bool:
        return len(self.buffer) >= self.size

    def step(self) -> Floats:
        n, before = len(self.examples), dict(self.h)
        c, total = self.c(len(self.buffer), n), np.zeros(len(FIRST))
        for client, h in before.items():
            total += self.beta / n * h
            self.parts[client] += self.beta / n
        for came in self.buffer:
            total += c * (came.delta - self.beta * before.get(came.client, 0.0))
            self.parts[came.client] += c - (c * self.beta if came.client in before else 0.0)
            self.h[came.client] = came.delta
        return self.lr * total


class Ace(Remembers):
    """Everyone fills its h at the first model; then every arrival makes a step."""

    def __init__(self) -> None:
        super().__init__(1, 1.0, lambda b, n: 1 / n, 0.7)
        self.waiting: list[int] = []

    def ready(self) -> bool:
        return self.version > 0 or not self.running

    def frees(self, client: int) -> None:
        waits = self.version == 0 and any(came.client == client for came in self.buffer)
        (self.waiting if waits else self.idle).append(client)

    def handle(self, event: Event) -> None:
        if isinstance(event, Left) and event.client in self.waiting:
            self.waiting.remove(event.client)
        super().handle(event)

    def merge(self) -> None:
        super().merge()
        self.idle += self.waiting
        self.waiting = []


class Area(Twin):
    """Clients send x − y_i and set y_i ← x; w ← w + 1/n Σ_j (x_j − y_i)."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size
        self.y: dict[int, Floats] = {}
        self.coefficients: list[tuple[int, float]] = []
        """Of all models that were sent: what each adds to the version, and what is taken away when it is replaced."""

    def ready(self) -> bool:
        return len(self.buffer) >= self.size

    def step(self) -> Floats:
        total = np.zeros(len(FIRST))
        for came in self.buffer:
            x, y = self.model(came), self.y.get(came.client, FIRST.astype(np.float64))
            total += (x - y) / len(self.examples)
            self.coefficients.append((came.client, 1 / len(self.examples)))
            if came.client in self.y:
                self.coefficients.append((came.client, -1 / len(self.examples)))
            self.y[came.client] = x
        for client, coefficient in self.coefficients:
            self.parts[client] += coefficient
        return total

    def model(self, came: Came) -> Floats:
        found: Floats = self.models[came.version] + came.delta
        return found


LIVES: dict[str, tuple[Callable[[], Strategy], Callable[[], Twin]]] = {
    "ca2fl": (lambda: zoo.ca2fl(buffer=3, fresh=False, lr=0.7), lambda: Remembers(3, 1.0, lambda b, n: 1 / b, 0.7)),
    "ca2fl, one by one": (lambda: zoo.ca2fl(buffer=1, fresh=False), lambda: Remembers(1, 1.0, lambda b, n: 1 / b, 1.0)),
    "mifa": (
        lambda: buffers_of(zoo.mifa(lr=0.7), 2),
        lambda: Remembers(2, 1.0, lambda b, n: 1 / n, 0.7),
    ),
    "fedstale": (
        lambda: buffers_of(zoo.fedstale(beta=0.3), 2),
        lambda: Remembers(2, 0.3, lambda b, n: 1 / b, 1.0),
    ),
    "ace": (lambda: zoo.ace(lr=0.7), Ace),
    "area": (lambda: zoo.area(buffer=2, fresh=False), lambda: Area(2)),
}


def buffers_of(strategy: Strategy, size: int) -> Strategy:
    return replace(strategy, select=select.all_idle(fresh=False), trigger=trigger.count(size))


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("name", LIVES)
def test_it_lives_as_its_twin(name: str, seed: int) -> None:
    make, twin = LIVES[name]
    server = lives(make(), twin(), seed)
    assert server.view.weight_sums.sum() > 0


@pytest.mark.parametrize("beta", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("cohort", [1, 3, 5])
def test_fedstale_is_the_unbiased_sum_over_active_and_inactive_clients(cohort: int, beta: float) -> None:
    """Its authors' form: inactive clients by β/n h, active ones by Δ/(n p) and β (1/n − 1/(n p)) h, p their chance."""
    random, n, p = np.random.default_rng(1), 5, cohort / 5
    scene = Scene(zoo.fedstale(beta=beta, cohort=cohort, lr=0.7), n, parameters=vec(1, -2))
    h, w = np.zeros((n, 2)), np.array([1.0, -2.0])
    for _ in range(30):
        active = sorted(task.client for task in scene.server.running.values())
        sent = random.normal(size=(n, 2)).astype(np.float32)
        step = beta / n * h[[client for client in range(n) if client not in active]].sum(axis=0)
        for client in active:
            scene.arrive(client, *sent[client].tolist())
            step += sent[client] / (n * p) + beta * (1 / n - 1 / (n * p)) * h[client]
            h[client] = sent[client]
        w = w + 0.7 * step
        assert scene.parameters == pytest.approx(w.tolist(), rel=1e-5, abs=1e-5)


def test_ace_always_makes_a_step_of_the_mean_of_everybodys_last_update() -> None:
    random, n = np.random.default_rng(1), 4
    scene, last, w = Scene(zoo.ace(lr=0.7), n, parameters=vec(1, -2)), np.zeros((n, 2)), np.array([1.0, -2.0])
    for number, client in enumerate([2, 0, 3, 1, *random.integers(0, n, 60).tolist()]):
        last[client] = random.normal(size=2).astype(np.float32)
        scene.arrive(client, *last[client].tolist())
        if number >= n - 1:  # everyone has sent one
            w = w + 0.7 * last.mean(axis=0)
        assert scene.parameters == pytest.approx(w.tolist(), rel=1e-5, abs=1e-5)


# SCAFFOLD: every batch is the whole of a client's data, so that its gradients need no random numbers

STEPS, LR = 3, 0.2
PLACES = Placement(np.arange(80), np.array([0, 7, 40, 80]), np.arange(80, 120), np.zeros(3, np.int64))
PLAN = blueprint("logistic", Recipe(steps=STEPS, batch=100, lr=schedule(LR)))


def cross_entropy(weights: Floats, client: int) -> tuple[float, Floats]:
    """The mean over a client's examples under a linear model, and its gradient: of the matrix, then of the biases."""
    mine = PLACES.of(client)
    inputs = data().inputs[mine].reshape(len(mine), -1) * PLAN.scale + PLAN.offset
    scores = inputs @ weights[: 64 * CLASSES].reshape(CLASSES, 64).T + weights[64 * CLASSES :]
    chances = np.exp(scores - scores.max(axis=1, keepdims=True))
    chances /= chances.sum(axis=1, keepdims=True)
    right = np.arange(len(mine)), data().labels[mine]
    mean = -float(np.log(chances[right]).mean())
    chances[right] -= 1
    return mean, np.concatenate([(chances.T @ inputs).ravel(), chances.sum(axis=0)]) / len(mine)


def scaffold_by_hand(rows: list[Aggregation], start: Vector, lr: float, *, control: bool = True) -> list[Floats]:
    """The versions: x ← x − η (g − c_i + c), c_i ← c_i − c − Δ/(Kη), c ← c + 1/n Σ (c_i_new − c_i)."""
    versions, means = [start.astype(np.float64)], [np.zeros(len(start))]
    own = [np.zeros(len(start)) for _ in range(3)]
    for row in rows:
        step, grown = np.zeros(len(start)), np.zeros(len(start))
        for task in row.tasks:
            x, c, mine = versions[task.version], means[task.version], own[task.client]
            for _ in range(STEPS):
                x = x - LR * (cross_entropy(x, task.client)[1] - mine + c)
            delta = x - versions[task.version]
            new = mine - c - delta / (STEPS * LR) if control else mine
            step += delta / len(row.tasks)
            grown += (new - mine) / 3
            own[task.client] = new
        versions.append(versions[-1] + lr * step)
        means.append(means[-1] + grown)
    return versions


@pytest.mark.parametrize(
    "strategy",
    [zoo.scaffold(cohort=3, lr=0.9), zoo.scaffold(cohort=2), zoo.buffered_scaffold(buffer=2, lr=0.9)],
    ids=["everyone", "rounds", "buffered"],
)
def test_scaffold_trains_as_its_twin(strategy: Strategy) -> None:
    fleet = Fleet([Group("fast", 2, parse("uniform(1, 2)")), Group("slow", 1, parse("uniform(3, 5)"))], seed=0)
    executor, records, start = Serial(PLAN, data(), PLACES), list[Row](), first(PLAN)
    executor.begin(0, PLACES, strategy.local)
    found: list[Vector] = []
    server = Server(
        strategy,
        clients=3,
        parameters=start,
        aggregations=15,
        record=records.append,
        on_version=lambda version, time, parameters: found.append(parameters[: len(start)]),
    )
    virtual.run(server, fleet, executor)
    rows = [row for row in records if isinstance(row, Aggregation)]
    lr = 0.9 if "0.9" in strategy.apply.label else 1.0
    expected = scaffold_by_hand(rows, start, lr)
    for ours, theirs in zip(found, expected[1:], strict=True):
        assert np.allclose(ours, theirs, rtol=1e-4, atol=1e-5)
    plain = scaffold_by_hand(rows, start, lr, control=False)
    assert not np.allclose(found[-1], plain[-1], rtol=1e-2, atol=1e-3), "the control variates matter here"
    assert math.isclose(server.view.weight_sums.sum(), 15)


def trained(strategy: Strategy, plan: Blueprint, aggregations: int) -> Vector:
    """The last model of a run of three equally fast clients."""
    executor, start = Serial(plan, data(), PLACES), first(plan)
    executor.begin(0, PLACES, strategy.local)
    server = Server(strategy, clients=3, parameters=start, aggregations=aggregations)
    virtual.run(server, Fleet([Group("all", 3, parse("uniform(1, 2)"))], seed=0), executor)
    return server.versions.newest[: len(start)]


def test_scaffold_without_control_variates_is_uniform_fedavg_bit_for_bit() -> None:
    """In the first round they are all 0; later they are not."""
    plan = blueprint(recipe=Recipe(steps=3, batch=4, lr=schedule(0.05), momentum=0.5))
    plain = replace(zoo.fedavg(cohort=3), weigh=weigh.uniform)
    for ours in (zoo.scaffold(cohort=3), zoo.buffered_scaffold(buffer=3)):
        assert trained(ours, plan, 1).tobytes() == trained(plain, plan, 1).tobytes()
        assert trained(ours, plan, 2).tobytes() != trained(plain, plan, 2).tobytes()


def test_a_shared_vector_that_stays_0_changes_no_bit() -> None:
    plan = blueprint(recipe=Recipe(steps=3, batch=4, lr=schedule(0.05)))
    plain = replace(zoo.fedavg(cohort=2), weigh=weigh.uniform)
    silent = replace(plain, local=Local(direction=Silent()))
    assert trained(silent, plan, 6).tobytes() == trained(plain, plan, 6).tobytes()


@dataclass(frozen=True)
class Silent(Control):
    """Control variates that stay 0."""

    def share(self, change: Vector, reach: float, memory: Matrix, shared: Vector) -> Vector:
        return np.zeros_like(change)


def test_with_momentum_what_a_client_remembers_is_the_mean_of_its_gradients() -> None:
    """If all gradients are equal: a linear loss. Δ = −η · effort · g, so c_i = g, whatever the momentum."""
    recipe = Recipe(steps=5, batch=100, lr=schedule(0.1), momentum=0.9)
    reach = 0.1 * recipe.effort(5, 0.1)
    memory, mean = np.zeros((1, 2), np.float32), np.zeros(2, np.float32)
    velocity = x = 0.0
    for _ in range(5):
        velocity = 0.9 * velocity + 3.0
        x -= 0.1 * velocity
    Control().share(np.array([x, 0], np.float32), reach, memory, mean)
    assert memory[0].tolist() == pytest.approx([3.0, 0.0], rel=1e-6)


@pytest.mark.parametrize("local", [{"optimiser": "adam"}, {"train": "own:train"}])
def test_scaffold_needs_gradients_that_are_counted(local: dict[str, str]) -> None:
    tables = three_on_digits("scaffold", slow="uniform(4, 5)", model="logistic", lr=0.1)
    with pytest.raises(FairlagError, match=r"which is not known with|makes its steps by itself"):
        parse_experiment(
            {
                **tables,
                "aggregations": 2,
                "local": {"steps": 2, **local},
                "strategies": [{"use": "scaffold", "cohort": 2}],
            }
        )
