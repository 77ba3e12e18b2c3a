"""What the server does not let rules, recorders and clients do to it."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fairlag import zoo
from fairlag.core.buffer import Buffer
from fairlag.core.server import Server
from fairlag.core.types import NOTHING, Aggregation, Arrived, Floats, Joined, Row, Update
from fairlag.core.vector import Matrix, Vector, published
from fairlag.core.view import View
from fairlag.errors import DivergedError
from fairlag.rules import reads_updates
from fairlag.rules.apply import Apply, State
from tests.support.scenes import vec


@pytest.mark.parametrize("update", [None, vec(1, 2), (vec(1, 2), 1), "update"])
def test_what_is_no_update_at_all_ends_its_task_as_refused(update: Any) -> None:
    server = Server(zoo.buffered_fedavg(buffer=2), clients=2, parameters=vec(0, 0))
    server.handle(Joined(0.0, [0, 1]))
    server.handle(Arrived(1.0, 0, update))
    assert server.refusals == {"not an update": 1}
    assert (server.counts["refused"], server.counts["running"]) == (1, 2)


def test_a_model_that_overflows_is_named() -> None:
    server = Server(zoo.buffered_fedavg(buffer=1, lr=2.0), clients=1, parameters=vec(0, 0))
    server.handle(Joined(0.0, [0]))
    with pytest.raises(DivergedError, match="version 1 is not finite: the model diverged"):
        server.handle(Arrived(1.0, 0, Update(vec(3e38, 0))))


def test_a_model_that_overflows_when_it_is_rounded_is_named_too() -> None:
    def doubled(step: Any, state: State, parameters: Vector) -> tuple[Any, State]:
        return 2 * step.astype(np.float64), state

    strategy = replace(zoo.buffered_fedavg(buffer=1), apply=Apply("doubled", lambda start, layout: (), doubled))
    server = Server(strategy, clients=1, parameters=vec(0, 0))
    server.handle(Joined(0.0, [0]))
    with pytest.raises(DivergedError, match="version 1 is not finite"):
        server.handle(Arrived(1.0, 0, Update(vec(3e38, 0))))


def test_only_while_a_step_is_applied_numbers_may_overflow_unnoticed() -> None:
    noticed: list[object] = []

    def weigh(buffer: Buffer, view: View) -> Floats:
        noticed.append(np.geterr())
        return np.ones(len(buffer))

    def noting(step: Vector, state: State, parameters: Vector) -> tuple[Vector, State]:
        noticed.append(np.geterr())
        return step, state

    strategy = replace(
        zoo.buffered_fedavg(buffer=1), weigh=weigh, apply=Apply("noting", lambda start, layout: (), noting)
    )
    before = np.geterr()
    server = Server(strategy, clients=1, parameters=vec(0, 0))
    server.handle(Joined(0.0, [0]))
    server.handle(Arrived(1.0, 0, Update(vec(1, 2))))
    assert noticed == [before, before | {"over": "ignore", "invalid": "ignore"}] and np.geterr() == before
    assert before["over"] == before["invalid"] == "warn"


def test_a_step_that_a_rule_may_not_give_away_is_copied() -> None:
    """An array of the rule's own that is read-only, or another's: no server rule can change it."""
    always = published([1, 2])

    def in_place(step: Vector, state: State, parameters: Vector) -> tuple[Vector, State]:
        step *= 3
        return step, state

    strategy = replace(
        zoo.buffered_fedavg(buffer=1),
        reduce=lambda weights, updates: always,
        apply=Apply("in_place", lambda start, layout: (), in_place),
    )
    server = Server(strategy, clients=1, parameters=vec(0, 0))
    server.handle(Joined(0.0, [0]))
    for task in range(2):
        server.handle(Arrived(1.0, task, Update(vec(5, 5))))
    assert always.tolist() == [1, 2] and server.versions.newest.tolist() == [6, 12]


def test_what_rules_and_recorders_get_cannot_be_written() -> None:
    rows: list[Row] = []

    def meddling(buffer: Buffer, view: View) -> Floats:
        with pytest.raises(ValueError, match="read-only"):
            buffer.clients[:] = 0
        return np.ones(len(buffer))

    def greedy(weights: Floats, updates: Matrix) -> Vector:
        with pytest.raises(ValueError, match="read-only"):
            weights *= 9
        first: Vector = updates[0]
        return first

    kept: list[Vector] = []

    def keep(step: Vector, state: State, parameters: Vector) -> tuple[Vector, State]:
        kept.append(step)
        return step, state

    strategy = replace(
        zoo.buffered(meddling, buffer=1), reduce=greedy, apply=Apply("keep", lambda start, layout: (), keep)
    )
    server = Server(strategy, clients=1, parameters=vec(0, 0), record=rows.append)
    server.handle(Joined(0.0, [0]))
    server.handle(Arrived(1.0, 0, Update(vec(5, 5))))
    server.handle(Arrived(2.0, 1, Update(vec(9, 9))))
    assert [step.tolist() for step in kept] == [[5, 5], [9, 9]]
    assert server.view.weight_sums.tolist() == [2.0]
    assert isinstance(rows[1], Aggregation) and not rows[1].weights.flags.writeable


def test_a_weighting_may_read_the_updates_of_an_audit_too() -> None:
    @reads_updates
    def reader(buffer: Buffer, view: View) -> Floats:
        assert buffer.updates.shape == (len(buffer), 0)
        return np.ones(len(buffer))

    server = Server(replace(zoo.fedavg(cohort=5), weigh=reader), clients=5)
    server.handle(Joined(0.0, range(5)))
    for task in range(5):
        server.handle(Arrived(1.0, task, NOTHING))
    assert server.view.version == 1


def test_rules_can_see_the_parameters_that_an_update_was_trained_from() -> None:
    seen: list[list[float]] = []

    def look(buffer: Buffer, view: View) -> Floats:
        seen.append([float(view.parameters(task.version)[0]) for task in buffer.tasks])
        return np.ones(len(buffer))

    server = Server(zoo.buffered(look, buffer=1, fresh=False), clients=2, parameters=vec(7))
    server.handle(Joined(0.0, [0, 1]))
    server.handle(Arrived(1.0, 0, Update(vec(1))))
    server.handle(Arrived(2.0, 2, Update(vec(1))))
    server.handle(Arrived(3.0, 1, Update(vec(1))))
    assert seen == [[7.0], [8.0], [7.0]]
