"""Influence is what a client's updates really are of the model: followed by plain code, and in the parameters."""

from collections import defaultdict
from dataclasses import replace
from itertools import pairwise
from math import ceil
from pathlib import Path

import numpy as np
import pytest

import fairlag
from fairlag import zoo
from fairlag.analyse.trial import Trial, observe
from fairlag.core.buffer import Buffer
from fairlag.core.server import Server
from fairlag.core.state import State
from fairlag.core.strategy import Strategy
from fairlag.core.types import Aggregation, Dispatch, Ended, Floats, Parts, Row, Update
from fairlag.core.vector import EMPTY, Matrix, Vector
from fairlag.core.view import View
from fairlag.execute.nothing import Nothing
from fairlag.fleet.clients import Fleet, Group
from fairlag.fleet.delay import parse
from fairlag.lab import experiment
from fairlag.lab.track.points import Points
from fairlag.rules import apply, keep, replay, select, trigger, weigh
from fairlag.runtime import virtual

FAST, SLOW = 10, 5
CLIENTS = FAST + SLOW
GROUPS = [Group("fast", FAST, parse("uniform(1, 2)")), Group("slow", SLOW, parse("uniform(8, 12)"))]


class Own(Nothing):
    """Every client adds one to a coordinate of its own."""

    def result(self, task: Dispatch) -> Update:
        return Update(np.eye(CLIENTS, dtype=np.float32)[task.client])


class Whole(Nothing):
    """Every client's model is one in a coordinate of its own, and nothing else, whatever it is handed."""

    def __init__(self) -> None:
        super().__init__()
        self._handed: dict[int, Vector] = {}

    def submit(self, task: Dispatch, parameters: Vector, due: float) -> None:
        self._handed[task.task] = parameters

    def result(self, task: Dispatch) -> Update:
        return Update(np.eye(CLIENTS, dtype=np.float32)[task.client] - self._handed.pop(task.task))


def lived(strategy: Strategy, aggregations: int, executor: Nothing | None = None) -> tuple[Server, list[Row], Floats]:
    """The paper's fleet under a strategy: the server, its records, and the sum of the parameters of all versions."""
    records: list[Row] = []
    sums: Floats = np.zeros(CLIENTS if executor else 0)

    def record(row: Row) -> None:
        records.append(row)
        if isinstance(row, Aggregation):
            np.add(sums, server.versions.newest, out=sums)

    parameters = np.zeros(CLIENTS, np.float32) if executor else EMPTY
    server = Server(strategy, clients=CLIENTS, parameters=parameters, aggregations=aggregations, record=record)
    virtual.run(server, Fleet(GROUPS, seed=0), executor or Nothing())
    return server, records, sums


def shares(weights: Floats) -> Floats:
    found: Floats = weights / weights.sum()
    return found


def slow(weights: Floats) -> float:
    return float(shares(weights)[FAST:].sum())


# By plain code, from who was given what when and what became of it


def asofed_by_hand(records: list[Row]) -> Floats:
    """In every version, each client heard of so far has its share: all that ASO-Fed's model consists of."""
    heard, parts = np.zeros(CLIENTS), np.zeros(CLIENTS)
    for row in records:
        if isinstance(row, Aggregation):
            heard[row.tasks[0].client] = 1 / CLIENTS
            parts += heard
    return parts


def safa_by_hand(records: list[Row], running: list[Dispatch], share: float) -> Floats:
    """SAFA's cache, of which only is known whether an entry is its client's own model; a round at a time."""
    rows = [row for row in records if isinstance(row, Aggregation)]
    merged = {task.task for row in rows for task in row.tasks}
    tasks: dict[int, list[Dispatch]] = defaultdict(list)
    ended = [row.task for row in records if isinstance(row, Ended)]
    for task in sorted([*(task for row in rows for task in row.tasks), *ended, *running]):
        tasks[task.client].append(task)
    anew = defaultdict(list)
    for client, given in tasks.items():
        for before, after in pairwise(given):
            if before.task not in merged and before.version != after.version:
                anew[after.version].append(client)
    own, parts, drafted = np.zeros(CLIENTS), np.zeros(CLIENTS), list[int]()
    for row in rows:
        own[anew[row.version - 1]] = 0
        senders = [task.client for task in row.tasks]
        order = [client for client in senders if client not in drafted]
        order += [client for client in senders if client in drafted]
        drafted, others = order[: ceil(share * CLIENTS)], order[ceil(share * CLIENTS) :]
        own[drafted] = 1 / CLIENTS
        parts += own
        own[others] = 1 / CLIENTS
    return parts


def test_under_asofed_every_client_is_its_share_of_every_version_once_it_was_heard_of() -> None:
    server, records, _ = lived(zoo.asofed(), 4000)
    weights = server.view.weight_sums
    assert weights.tolist() == pytest.approx(asofed_by_hand(records).tolist(), rel=1e-12)
    assert slow(weights) == pytest.approx(1 / 3, abs=0.004)
    assert server.view.update_counts[FAST:].sum() / 4000 == pytest.approx(0.07, abs=0.01), "so much was said before"


@pytest.mark.parametrize(
    ("share", "lag", "updates", "influence"),
    [(0.5, 5, 1 / 3, 1 / 3), (0.4, 5, 0.115, 1 / 3), (0.4, 2, 0.113, 0.271), (0.3, 5, 0.028, 0.122), (0.3, 1, 0, 0)],
)
def test_under_safa_what_the_cache_holds_of_a_client_counts(
    share: float, lag: int, updates: float, influence: float
) -> None:
    server, records, _ = lived(zoo.safa(share=share, lag=lag), 500)
    by_hand = safa_by_hand(records, list(server.running.values()), share)
    assert server.view.weight_sums.tolist() == pytest.approx(by_hand.tolist(), rel=1e-9)
    assert slow(server.view.update_counts.astype(float)) == pytest.approx(updates, abs=0.001), "so much was said before"
    assert slow(by_hand) == pytest.approx(influence, abs=0.001), "who begins anew has no part of its own"


# In the parameters


def test_under_asofed_the_versions_consist_of_what_is_told() -> None:
    server, _, sums = lived(zoo.asofed(), 300, Whole())
    assert sums.tolist() == pytest.approx(server.view.weight_sums.tolist(), rel=1e-4)


@pytest.mark.parametrize(
    ("strategy", "aggregations"),
    [
        (zoo.asofed(), 6000),
        (zoo.safa(), 1000),
        (zoo.safa(share=0.4, lag=2), 1500),
        (zoo.safa(share=0.3, lag=5), 1500),
        (zoo.area(buffer=5), 1500),
        (zoo.ca2fl(buffer=5), 500),
        (zoo.ace(), 1500),
        (zoo.mifa(cohort=4), 200),
        (zoo.fedstale(beta=0.3, cohort=4), 200),
        (zoo.fedau(cohort=4), 200),
        (zoo.fedstaleweight(buffer=5), 500),
        (zoo.fedbuff(buffer=5), 500),
        (zoo.fedavg(), 200),
        (zoo.ringleader(), 500),
        (zoo.fedfa(models=8), 3000),
    ],
    ids=[
        *("asofed", "safa", "safa, called off", "safa, often"),
        *("area", "ca2fl", "ace", "mifa", "fedstale", "fedau", "fedstaleweight", "fedbuff", "fedavg"),
        *("ringleader", "fedfa"),
    ],
)
def test_if_everyone_always_adds_the_same_the_model_has_of_each_what_its_influence_is(
    strategy: Strategy, aggregations: int
) -> None:
    server, _, _ = lived(strategy, aggregations, Own())
    grown, told = shares(server.versions.newest.astype(np.float64)), shares(server.view.weight_sums)
    # Of kept models, what was merged last is not yet in all that builds on it. A step is complete at once.
    kept = isinstance(strategy.reduce, keep.Keeping) and not strategy.reduce.of_step
    assert grown.tolist() == pytest.approx(told.tolist(), rel=0.05 if kept else 1e-5)


class Replaying:
    """A second, plain reduction: step = c Σ_j (Δ_j − β h_i) + β/n Σ_i h_i, then h_i ← Δ_j. Units are 1/n."""

    def __init__(self, view: View, beta: float, mean: bool) -> None:
        self._view, self._beta, self._mean = view, beta, mean
        self._last: dict[int, Vector] = {}
        self._before: dict[int, float] = {}
        """The clients of the version before, and by how many units their parts of it differ from those of the next."""

    def _c(self, buffer: Buffer) -> float:
        return 1 / len(buffer) if self._mean else 1 / self._view.n

    def parts(self, weights: Floats, buffer: Buffer) -> Parts:
        changes = defaultdict(float, self._before)
        after: dict[int, float] = defaultdict(float)
        for client in buffer.clients.tolist():  # a stale client may be among them twice
            once = self._c(buffer) * self._view.n * (1 - self._beta * (client in self._last))
            changes[client] += once
            after[client] -= once
        for client in after:
            after[client] += self._beta * (client not in self._last)
        self._before = after
        found = np.fromiter(changes, np.int64), np.fromiter(changes.values(), np.float64)
        return Parts(*found, 1 / self._view.n)

    def reduce(self, weights: Floats, updates: Matrix, buffer: Buffer) -> Vector:
        n, c, beta = self._view.n, self._c(buffer), self._beta
        step = sum(self._last.values(), np.zeros(updates.shape[1])) * beta / n
        for client, update in zip(buffer.clients.tolist(), updates, strict=True):
            step = step + c * (update - beta * self._last.get(client, np.zeros_like(update)))
        self._last |= {client: update.copy() for client, update in zip(buffer.clients.tolist(), updates, strict=True)}
        return np.asarray(step, np.float32)

    def state(self) -> State:
        return {}

    def restore(self, state: State) -> None:
        pass


@pytest.mark.parametrize(("beta", "mean"), [(1.0, False), (1.0, True), (0.5, True), (0.0, True)])
def test_a_reduction_that_replays_updates_can_say_what_each_client_is_of_the_step(beta: float, mean: bool) -> None:
    rule = keep.Keeping("plain", lambda view: Replaying(view, beta, mean))
    weights = weigh.uniform if mean else weigh.equal_share
    strategy = Strategy(select.all_idle(), trigger.count(5), weights, reduce=rule)
    server, _, _ = lived(strategy, 400, Own())
    assert server.view.weight_sums.tolist() == pytest.approx(server.versions.newest.tolist(), rel=1e-4)
    ours, rows, _ = lived(replace(strategy, reduce=replay.replaying(beta)), 400, Own())
    assert ours.view.weight_sums.tolist() == pytest.approx(server.view.weight_sums.tolist(), rel=1e-9)
    assert ours.versions.newest.tolist() == pytest.approx(server.versions.newest.tolist(), rel=1e-5)
    without, _, _ = lived(replace(strategy, reduce=replay.replaying(beta)), 400)
    assert without.view.weight_sums.tolist() == ours.view.weight_sums.tolist(), "an audit has no parameters"
    changes = sum(len(row.parts.clients) for row in rows if isinstance(row, Aggregation) and row.parts)
    assert changes == 2 * CLIENTS or beta < 1 or not mean, "with β = 1, only first updates change anything"
    if not beta:
        plain, _, _ = lived(replace(strategy, reduce=zoo.fedavg().reduce), 400)
        assert server.view.weight_sums.tolist() == pytest.approx(plain.view.weight_sums.tolist(), rel=1e-9)


def test_a_server_step_size_changes_no_share() -> None:
    whole, half = (lived(replace(zoo.safa(), apply=apply.scale(lr)), 50)[0].view.weight_sums for lr in (1.0, 0.5))
    assert whole.tolist() == half.tolist()


# Where it is read

EXPERIMENT = {
    "name": "kept",
    "aggregations": 400,
    "clients": [
        {"group": "fast", "count": FAST, "delay": "uniform(1, 2)"},
        {"group": "slow", "count": SLOW, "delay": "uniform(8, 12)"},
    ],
}


@pytest.mark.parametrize(
    ("use", "options"),
    [
        ("asofed", {}),
        ("safa", {"share": 0.3, "lag": 5}),
        ("ca2fl", {"buffer": 4}),
        ("fedstale", {"cohort": 4}),
        ("ace", {}),
    ],
)
def test_runs_audits_and_trackers_tell_what_the_server_does(
    use: str, options: dict[str, float], tmp_path: Path
) -> None:
    run = fairlag.simulate({**EXPERIMENT, "strategies": [{"use": use, **options}]}, out=tmp_path / "run")
    server, _, _ = lived(zoo.ALGORITHMS[use].make(**options), 400)
    frame = run.influence()
    assert frame["weight"].tolist() == pytest.approx(server.view.weight_sums.tolist(), rel=1e-9)
    groups = run.influence("group").set_index("group")
    assert groups["influence"]["slow"] == pytest.approx(slow(server.view.weight_sums), rel=1e-9)
    known = experiment.parse({**EXPERIMENT, "strategies": [{"use": use, **options}]})
    assert observe(known, Trial(0, 0, 400, None)).weights.tolist() == server.view.weight_sums.tolist()
    points = Points(tmp_path / "run", 150, trains=False)
    told = [*points.new(), *points.new(finished=True)]
    assert [point.version for point in told] == [150, 300, 400]
    for point in told:
        before, _, _ = lived(zoo.ALGORITHMS[use].make(**options), point.version)
        assert point.metrics["influence/group/slow"] == pytest.approx(slow(before.view.weight_sums), rel=1e-9)
