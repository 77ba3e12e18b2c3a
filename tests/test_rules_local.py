"""What strategies ask of clients: ASO-Fed's direction, paces, numbers of steps, and drift, which sets these."""

import math
import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fairlag.core.buffer import Buffer
from fairlag.core.ledger import Ledger
from fairlag.core.state import State
from fairlag.core.types import Dispatch, Report
from fairlag.core.vector import published
from fairlag.core.versions import Versions
from fairlag.core.view import View
from fairlag.errors import StrategyError
from fairlag.rules.drift import drift, drifts
from fairlag.rules.local import Feedback, Local, Stepper, Steps, log_delay, toward_drift
from fairlag.zoo import buffered_fedavg
from tests.support.scenes import Scene, vec

# Feedback


def test_feedback_follows_its_definition_from_step_to_step() -> None:
    random = np.random.default_rng(0)
    memory = np.zeros((2, 3), np.float32)
    before, average = np.zeros(3), np.zeros(3)
    for _ in range(20):
        gradient = random.normal(size=3)
        turned = gradient.astype(np.float32)
        Feedback(0.3).turn(turned, memory)
        wanted = gradient - before + average
        average = 0.3 * average + 0.7 * before
        before = gradient
        assert np.allclose(turned, wanted, atol=1e-5) and np.allclose(memory, [before, average], atol=1e-5)


def test_the_first_direction_is_the_gradient() -> None:
    gradient, memory = vec(2, -3), np.zeros((2, 2), np.float32)
    Feedback(0.001).turn(gradient, memory)
    assert gradient.tolist() == [2, -3] and memory.tolist() == [[2, -3], [0, 0]]


def test_a_constant_gradient_with_beta_0_is_followed_from_the_third_step_on() -> None:
    # ζ = 4, then 4 − 4 + 0, then 4 − 4 + 4
    found, memory = [], np.zeros((2, 1), np.float32)
    for _ in range(4):
        gradient = vec(4)
        Feedback(0.0).turn(gradient, memory)
        found += gradient.tolist()
    assert found == [4, 0, 4, 4]


def test_a_direction_travels_to_other_processes() -> None:
    assert pickle.loads(pickle.dumps(Feedback(0.25))) == Feedback(0.25)
    assert Local(direction=Feedback(0.25)).vectors == Feedback(0.25).vectors == 2 and Local().vectors == 0


@pytest.mark.parametrize("beta", [-0.1, 1.5, math.nan])
def test_a_decay_out_of_range_is_refused(beta: float) -> None:
    with pytest.raises(StrategyError, match=f"beta is {beta}, it must be between 0 and 1"):
        Feedback(beta)


# Local


@pytest.mark.parametrize("prox", [-0.1, math.nan, math.inf])
def test_a_proximal_factor_out_of_range_is_refused(prox: float) -> None:
    with pytest.raises(StrategyError, match=f"proximal factor is {prox}, it must be"):
        Local(prox=prox)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"prox": "much"}, "proximal factor is 'much', it must be a number"),
        ({"steps": 5}, "steps of Local is 5, it must be a rule such as toward_drift"),
        ({"pace": 2.0}, "pace of Local is 2.0, it must be a function"),
        ({"direction": len}, "it must have `vectors` and `turn"),
    ],
)
def test_what_is_of_the_wrong_kind_is_refused_at_construction(given: dict[str, Any], words: str) -> None:
    with pytest.raises(StrategyError, match=words):
        Local(**given)


class Few:
    def of(self, client: int) -> int:
        return 0

    def merged(self, buffer: Buffer, view: View) -> None: ...

    def state(self) -> State:
        return {}

    def restore(self, state: State) -> None: ...


@pytest.mark.parametrize(
    ("local", "words"),
    [
        (Local(pace=lambda view, client: math.nan), "the pace <lambda> is nan, it must be a positive number"),
        (Local(pace=lambda view, client: -1.0), "the pace <lambda> is -1.0, it must be a positive number"),
        (Local(pace=lambda view, client: "fast"), r"the rule of Local\(pace=<lambda>\) raised ValueError"),  # type: ignore
        (Local(steps=Steps("few", Few)), "few asks for 0 steps, it must ask for at least 1"),
    ],
)
def test_what_a_users_rule_asks_of_clients_is_checked(local: Local, words: str) -> None:
    with pytest.raises(StrategyError, match=words):
        Scene(replace(buffered_fedavg(buffer=1), local=local), 1)


def test_steps_and_losses_tell_of_single_updates_and_the_rest_does_not() -> None:
    telling = Local(steps=toward_drift(1.0, gain=1.0, first=1)), Local(losses=True), Local(start_loss=True)
    assert all(each.reads_updates for each in telling)
    assert not Local(prox=0.1, pace=log_delay, direction=Feedback(0.5)).reads_updates


def test_a_client_reports_one_loss() -> None:
    with pytest.raises(StrategyError, match=r"^Local has both losses and start_loss, but a client reports one loss"):
        Local(losses=True, start_loss=True)


def test_what_is_asked_is_written_down() -> None:
    assert repr(Local()) == "Local()" and repr(Local(prox=0.0)) == "Local(prox=0.0)"
    asked = Local(steps=toward_drift(1.0, gain=2.0, first=3), losses=True)
    assert repr(asked) == "Local(steps=toward_drift(1.0, gain=2.0, first=3), losses=True)"


# Pace


@pytest.mark.parametrize(
    ("busy", "updates", "pace"),
    [(0.0, 0, 1.0), (2.0, 1, 1.0), (2 * math.e, 2, 1.0), (3 * math.e**2, 3, 2.0), (0.0, 5, 1.0), (1e-3, 1, 1.0)],
)
def test_the_pace_is_the_logarithm_of_the_mean_duration_and_at_least_1(busy: float, updates: int, pace: float) -> None:
    ledger = Ledger(clients=2)
    ledger.reals["busy"][1], ledger.integers["updates"][1] = busy, updates
    assert log_delay(View(ledger), 1) == pytest.approx(pace, rel=1e-12) and log_delay(View(ledger), 0) == 1.0


# Drift and steps


def moved(*versions: list[float]) -> View:
    """A server whose versions were these."""
    ledger, kept = Ledger(), Versions(published(versions[0]), before=9)
    for version in versions[1:]:
        ledger.renew()
        kept.publish(published(version))
    return View(ledger, kept)


def test_drift_is_how_far_the_model_moved_in_lengths_of_the_update() -> None:
    view = moved([0, 0], [3, 4], [3, 0])
    assert drift(vec(0, 2), 0, view) == 1.5 and drift(vec(0, 2), 1, view) == 2.0 and drift(vec(0, 2), 2, view) == 0.0


def test_drift_where_nothing_moved_is_0_even_of_an_update_of_no_length_and_infinite_where_something_did() -> None:
    view = moved([1, 1], [2, 1], [1, 1])
    assert (
        drift(vec(0, 0), 2, view) == 0.0 and drift(vec(0, 0), 0, view) == 0.0 and drift(vec(0, 0), 1, view) == math.inf
    )


def test_drift_does_not_overflow() -> None:
    assert drift(vec(1e30, 0), 0, moved([0, 0], [3e30, 0])) == pytest.approx(3, rel=1e-6)


def merged(stepper: Stepper, view: View, *sent: tuple[int, int, float]) -> None:
    """The (client, version, length) of updates are merged."""
    tasks = tuple(Dispatch(place, client, version, 0, 0.0) for place, (client, version, _) in enumerate(sent))
    rows = np.array([[length, 0] for _, _, length in sent], np.float32)
    buffer = Buffer(tasks, [0] * len(sent), [Report()] * len(sent), rows)
    assert drifts(buffer, view).shape == (len(sent),)
    stepper.merged(buffer, view)


def test_steps_grow_below_the_target_and_shrink_above_it_to_1_at_the_least() -> None:
    view = moved([0, 0], [6, 0])
    stepper = toward_drift(3.0, gain=2.0, first=10).start()
    assert stepper.of(0) == stepper.of(1) == 10
    merged(stepper, view, (0, 1, 1.0), (1, 0, 1.0), (2, 0, 2.0), (3, 0, 0.0))
    # γ = 0, 6, 3, ∞
    assert [stepper.of(client) for client in range(5)] == [16, 4, 10, 1, 10]
    merged(stepper, view, (1, 0, 1.0), (3, 1, 1.0))
    assert [stepper.of(client) for client in range(5)] == [16, 1, 10, 7, 10]


def test_a_restored_stepper_knows_every_clients_steps() -> None:
    view, rule = moved([0, 0], [6, 0]), toward_drift(3.0, gain=2.0, first=10)
    one, other = rule.start(), rule.start()
    merged(one, view, (4, 1, 1.0), (2, 0, 1.5))
    other.restore(one.state())
    assert (
        [other.of(client) for client in range(6)] == [one.of(client) for client in range(6)] == [10, 10, 8, 10, 16, 10]
    )


@pytest.mark.parametrize(
    ("target", "gain", "first"), [(0.0, 1.0, 1), (math.nan, 1.0, 1), (1.0, -1.0, 1), (1.0, math.inf, 1), (1.0, 1.0, 0)]
)
def test_steps_that_make_no_sense_are_refused(target: float, gain: float, first: int) -> None:
    with pytest.raises(StrategyError, match="it must be a"):
        toward_drift(target, gain=gain, first=first)
