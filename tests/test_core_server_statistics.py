"""Models with statistics at the server: no rule sees them, and they are mixed as values, or the model is refused."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlag.core.buffer import Buffer
from fairlag.core.server import Server
from fairlag.core.strategy import Strategy
from fairlag.core.types import Arrived, CheckedUpdate, Dispatch, Floats, Update
from fairlag.core.vector import Layout, Matrix, Vector
from fairlag.core.view import View
from fairlag.errors import StrategyError
from fairlag.rules import admit, apply, edit, mixes_statistics, reads_updates
from fairlag.rules.keep import Keeping, averaging, replacing
from fairlag.rules.local import Local, Steps, toward_drift
from fairlag.rules.reduce import trimmed_mean, weighted_sum
from fairlag.rules.select import all_idle
from fairlag.rules.trigger import count
from fairlag.rules.weigh import by_drift, constant, uniform
from tests.support.scenes import Scene, vec

LAYOUT = Layout(("weight", "norm.running_mean", "norm.running_var"), ((2,), (1,), (1,)), statistics=2)
FIRST = vec(0, 0, 10, 1)
ONE = Strategy(all_idle(fresh=False), count(1), uniform)
TWO = replace(ONE, trigger=count(2))


def scene(strategy: Strategy, clients: int = 2) -> Scene:
    return Scene(strategy, clients, parameters=FIRST, layout=LAYOUT, examples=[1] * clients)


def test_values_are_mixed_and_changes_are_added() -> None:
    found = scene(TWO)
    found.arrive(0, 2, 4, 20, 3)
    found.arrive(1, 6, 8, 40, 5)
    assert found.parameters == [4, 6, 30, 4]


def test_a_stale_value_is_a_value_too() -> None:
    """Added up as changes, the late ones would take the variance to 1 − 0.5 · 3 < 0."""
    found = scene(replace(ONE, weigh=constant(0.5)), clients=3)
    for client in range(3):  # all from version 0, so the last is two versions late
        found.arrive(client, 0, 0, 10, 0)
    assert found.parameters == [0, 0, 10, 1 / 8]


@pytest.mark.parametrize(
    "changed",
    [
        {"apply": apply.scale(100.0)},
        {"apply": apply.chain(apply.momentum(0.9), apply.adam(1.0))},
        {"apply": apply.attention("paper")},
        {"edit": edit.clip(1e-3)},
        {"edit": edit.whole_models},
        {"edit": edit.in_turn(edit.clip(0.1), edit.whole_models)},
        {"reduce": replacing()},
        {"reduce": averaging()},
        {"admit": admit.max_drift(1e9)},
        {"local": Local(steps=toward_drift(1.0, gain=1.0, first=1))},
    ],
)
def test_server_rules_edits_and_kept_models_do_not_act_on_statistics(changed: dict[str, Any]) -> None:
    found = scene(replace(ONE, weigh=constant(0.5), **changed))
    for client, mean, variance in ((0, 20, 5), (0, 5, 1), (1, 0, 4), (1, 8, 0)):
        found.arrive(client, 3, -4, mean, variance)
    assert found.parameters[2:] == [((((10 + 20) / 2 + 5) / 2 + 0) / 2 + 8) / 2, ((((1 + 5) / 2 + 1) / 2 + 4) / 2) / 2]


def test_a_trimmed_mean_trims_statistics() -> None:
    found = scene(replace(TWO, trigger=count(4), reduce=trimmed_mean(0.25)), clients=4)
    for client, mean in enumerate((3, 5, 3e38, -3e38)):
        found.arrive(client, 0, 0, mean, 1)
    assert found.parameters == [0, 0, 4, 1]


class Notes(list[tuple[int, ...]]):
    """The shapes of everything that rules are given."""

    def rules(self) -> Strategy:
        @reads_updates
        def weigh(buffer: Buffer, view: View) -> Floats:
            self.extend([buffer.updates.shape[1:], view.parameters(view.version).shape, view.parameters(0).shape])
            return np.full(len(buffer), 0.5)

        def admit_all(update: Update, task: Dispatch, view: View) -> None:
            self.append(update.delta.shape)

        def as_it_is(updates: Matrix, buffer: Buffer, view: View) -> Matrix:
            self.append(updates.shape[1:])
            return updates

        def init(parameters: Vector, layout: Layout) -> tuple[object, ...]:
            self.extend([parameters.shape, (layout.size,)])
            return ()

        def update(step: Vector, state: Any, parameters: Vector) -> tuple[Vector, Any]:
            self.extend([step.shape, parameters.shape])
            return step, state

        rule = apply.Apply("notes", init, update)
        return replace(ONE, weigh=weigh, admit=admit_all, edit=as_it_is, apply=rule, local=Local(steps=self._steps()))

    def _steps(self) -> Steps:
        inner = toward_drift(1.0, gain=1.0, first=1).start()
        merged = inner.merged

        def noted(buffer: Buffer, view: View) -> None:
            self.append(buffer.updates.shape[1:])
            merged(buffer, view)

        inner.merged = noted  # type: ignore[method-assign]
        return Steps("notes", lambda: inner)


def test_no_rule_sees_statistics() -> None:
    notes = Notes()
    found = scene(notes.rules())
    found.arrive(0, 1, 1, 20, 3)
    found.server.state()
    assert len(notes) == 12 and set(notes) == {(2,)}


def test_drift_is_that_of_the_parameters_alone() -> None:
    strategy = replace(ONE, weigh=by_drift(1.0, eps=0.5))
    plain, normalised = Scene(strategy, 2, parameters=vec(0, 0)), scene(strategy)
    for client, delta in ((0, (3, 4)), (1, (0, 1)), (1, (2, 2))):
        plain.arrive(client, *delta)
        normalised.arrive(client, *delta, 1e6, 1e6)
    assert normalised.weights == plain.weights
    assert normalised.parameters[:2] == plain.parameters


@pytest.mark.parametrize("kind", [Update, CheckedUpdate])
def test_a_negative_variance_is_refused(kind: type[Update]) -> None:
    """From whoever it comes: a worker that has checked an update does not know which of its numbers are variances."""
    found = scene(ONE)
    found.send(Arrived(1.0, found.tasks[0].task, kind(vec(0, 0, -7, -1e-9))))
    assert found.server.refusals == {"a running variance is negative": 1}
    assert found.parameters == FIRST.tolist()
    found.send(Arrived(2.0, found.tasks[0].task, kind(vec(-1, -1, -7, 0))))
    assert found.parameters == [-1, -1, -7, 0]


def test_what_waits_in_a_buffer_is_saved_with_its_statistics() -> None:
    whole, before = scene(TWO), scene(TWO)
    after = Server(TWO, clients=2, parameters=FIRST, layout=LAYOUT, examples=np.array([1, 1]))
    for each in (whole, before):
        each.arrive(0, 2, 4, 20, 3)
    after.restore(before.server.state())
    whole.arrive(1, 6, 8, 40, 5)
    after.handle(Arrived(whole.time, before.tasks[1].task, Update(vec(6, 8, 40, 5))))
    assert after.versions.newest.tolist() == whole.parameters == [4, 6, 30, 4]


# Refusals


def median(weights: Floats, updates: Matrix) -> Vector:
    """One's own."""
    middle: Vector = np.median(updates, axis=0)
    return middle


@pytest.mark.parametrize("reduction", [median, Keeping("mine()", replacing().start)])
def test_a_reduction_that_does_not_say_that_it_averages_refuses_statistics(reduction: Any) -> None:
    strategy = replace(TWO, reduce=reduction)
    keeps = isinstance(reduction, Keeping)
    name, hint = (r"mine\(\)", "give it mixes_st") if keeps else ("median", "declare it with @fairlag.rules.mixes_st")
    many = Layout((*LAYOUT.names, "more.running_mean"), (*LAYOUT.shapes, (0,)), statistics=3)
    for layout, more in ((LAYOUT, ""), (many, " and 1 more")):
        sentence = (
            rf"^the reduction {name} does not declare that it can mix the statistics of the model "
            rf"\('norm.running_mean', 'norm.running_var'{more}\): "
            rf"{hint}.* such as one with GroupNorm instead of BatchNorm$"
        )
        with pytest.raises(StrategyError, match=sentence):
            Server(strategy, clients=2, parameters=FIRST, layout=layout)
    Server(strategy, clients=2, parameters=FIRST, layout=Layout(("weight",), ((4,),)))


def test_a_reduction_that_says_so_mixes_statistics() -> None:
    found = scene(replace(TWO, trigger=count(3), reduce=mixes_statistics(median)), clients=3)
    for client, mean in enumerate((1, 5, 900)):
        found.arrive(client, 0, 0, mean, 1)
    assert found.parameters == [0, 0, 5, 1]


def test_one_that_says_so_and_returns_something_else_is_named() -> None:
    @mixes_statistics
    def broad(weights: Floats, updates: Matrix) -> Vector:
        return np.zeros(2, np.float32)

    found = Scene(replace(ONE, reduce=broad), 1, parameters=vec(0, 0, 1), layout=Layout(("w", "s"), ((2,), (1,)), 1))
    with pytest.raises(StrategyError, match=r"reduce broad returned \(2,\), it must return an array of shape \(1,\)"):
        found.arrive(0, 0, 0, 1)


# Whatever the weights, and however late updates are


@given(
    st.lists(
        st.tuples(st.integers(0, 4), st.floats(-3, 3), st.floats(-1e6, 1e6, width=32), st.floats(0, 1e6, width=32)),
        min_size=3,
        max_size=40,
    ),
    st.integers(1, 3),
    st.sampled_from([weighted_sum, trimmed_mean(0.4), replacing(), averaging()]),
)
def test_statistics_never_leave_what_was_ever_held(
    arrivals: list[tuple[int, float, float, float]], needed: int, reduction: Any
) -> None:
    weights = [weight for _, weight, _, _ in arrivals]

    def weigh(buffer: Buffer, view: View) -> Floats:
        found = np.array([weights[task.task % len(weights)] for task in buffer.tasks])
        return found if found.sum() > 0 else 0.25 - found  # those of a version must add up to more than 0

    found = scene(Strategy(all_idle(fresh=False), count(needed), weigh, reduce=reduction), clients=5)
    held = [FIRST[2:]]
    for client, _, mean, variance in arrivals:
        found.arrive(client, 0, 0, mean, variance)
        held.append(vec(mean, variance))
        now = np.array(found.parameters[2:], np.float32)
        assert (np.min(held, axis=0) <= now).all() and (now <= np.max(held, axis=0)).all()
    assert found.parameters[3] >= 0
