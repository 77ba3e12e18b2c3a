"""Weightings: exact weights of small buffers, combinations, scale invariance, and a user's own that misbehaves."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlag import zoo
from fairlag.core.buffer import Buffer
from fairlag.core.types import Floats
from fairlag.core.view import View
from fairlag.errors import StrategyError
from fairlag.rules import reads_updates, weigh
from tests.support.scenes import Scene, vec

STALENESS = st.lists(st.integers(0, 10_000), min_size=2, max_size=2)


def fed(rule: weigh.Weigh, *deltas: tuple[float, ...]) -> Scene:
    """A server with that weighting after as many clients have sent their updates."""
    scene = Scene(zoo.buffered(rule, buffer=len(deltas)), len(deltas), parameters=vec(*([0] * len(deltas[0]))))
    for client, delta in enumerate(deltas):
        scene.arrive(client, *delta)
    return scene


def test_polynomial_and_exponential_are_their_formulas() -> None:
    buffer, view = weigh.example(staleness=[0, 8])
    assert weigh.polynomial(0.5)(buffer, view).tolist() == pytest.approx([1, 1 / 3], rel=1e-15)
    assert weigh.polynomial(0.0)(buffer, view).tolist() == [1, 1]
    assert weigh.polynomial(2.0)(buffer, view).tolist() == pytest.approx([1, 1 / 81], rel=1e-15)
    assert weigh.exponential(0.9)(buffer, view).tolist() == pytest.approx([1, 0.9**8], rel=1e-14)
    assert weigh.exponential(1.0)(buffer, view).tolist() == [1, 1]
    assert weigh.exponential(1.1)(buffer, view).tolist() == pytest.approx([1.1**-8, 1], rel=1e-14)


@given(STALENESS, st.floats(1e-3, 1e3))
def test_exponential_weights_never_overflow(staleness: list[int], gamma: float) -> None:
    weights = weigh.normalised(weigh.exponential(gamma))(*weigh.example(staleness=staleness))
    assert math.fsum(weights) == pytest.approx(1, rel=1e-14) and (weights >= 0).all()


@given(STALENESS, st.floats(0.01, 100))
def test_mean_staleness_is_its_formula(staleness: list[int], scale: float) -> None:
    weights = weigh.mean_staleness(scale=scale)(*weigh.example(staleness=staleness))
    assert weights.tolist() == pytest.approx([(late * scale + 1) / 2 for late in staleness], rel=1e-14)


@given(st.lists(st.floats(1e-6, 1e6), min_size=2, max_size=2), st.floats(1e-3, 1e3))
def test_a_common_factor_disappears_when_normalised(values: list[float], factor: float) -> None:
    def rule(buffer: Buffer, view: View) -> Floats:
        return np.array(values)

    plain = weigh.normalised(rule)(*weigh.example())
    assert weigh.normalised(weigh.divided(rule, factor))(*weigh.example()) == pytest.approx(plain, rel=1e-14)
    assert plain.tolist() == pytest.approx([value / sum(values) for value in values], rel=1e-14)


@given(st.lists(st.floats(1e-3, 10), min_size=2, max_size=2), st.floats(1e-3, 30))
def test_a_cap_bounds_the_total_and_keeps_the_proportions(values: list[float], cap: float) -> None:
    weights = weigh.capped(lambda buffer, view: np.array(values), cap)(*weigh.example())
    if sum(values) <= cap:
        assert weights.tolist() == values
    else:
        assert weights.sum() == pytest.approx(cap, rel=1e-14)
        assert weights[0] * values[1] == pytest.approx(weights[1] * values[0], rel=1e-14)


def test_products_and_examples() -> None:
    buffer, view = weigh.example(staleness=[3, 0], examples=[30, 10])
    assert weigh.by_examples(buffer, view).tolist() == [0.75, 0.25]
    both = weigh.times(weigh.by_examples, weigh.polynomial(0.5), weigh.uniform)
    assert both(buffer, view).tolist() == [0.1875, 0.125]


def test_intervals_of_no_length_weigh_the_same() -> None:
    """Two clients whose updates come in the moment they were asked for them are equally fast."""
    scene = Scene(zoo.rate_tracking(buffer=2), 2, parameters=vec(0, 0))
    scene.arrive(0, 2, 0, at=0.0)
    scene.arrive(1, 0, 2, at=0.0)
    assert scene.weights == [[0.5, 0.5]] and scene.parameters == [1.0, 1.0]


def test_a_users_weighting_is_a_plain_function() -> None:
    def newest_first(buffer: Buffer, view: View) -> Floats:
        return np.array([0.25, 0.75]) if view.version == 0 else np.array([1.0, 0.0])

    scene = fed(newest_first, (4, 0), (0, 4))
    assert scene.weights == [[0.25, 0.75]] and scene.parameters == [1.0, 3.0]


def test_a_users_weighting_may_return_a_list() -> None:
    assert fed(lambda buffer, view: [1, 2], (4, 0), (0, 4)).parameters == [4.0, 8.0]  # type: ignore[arg-type, return-value]


@pytest.mark.parametrize(
    "returned",
    [
        [1.0],
        [1.0, 2.0, 3.0],
        [[1.0, 2.0]],
        1.0,
        [],
        [1.0, math.nan],
        [math.inf, 1.0],
        [math.inf, -math.inf],
        ["heavy", "light"],
        None,
    ],
)
def test_a_users_weighting_that_returns_something_else_is_named(returned: object) -> None:
    def careless(buffer: Buffer, view: View) -> Floats:
        return returned  # type: ignore[return-value]

    with pytest.raises(StrategyError, match=r"the weighting careless returned .* one finite number per update"):
        fed(careless, (4, 0), (0, 4))


@pytest.mark.parametrize("returned", [[0.0, 0.0], [-1.0, 0.5], [1.0, -1.0], [-1.0, -1.0]])
def test_weights_that_do_not_add_up_to_more_than_nothing_are_refused(returned: list[float]) -> None:
    def careless(buffer: Buffer, view: View) -> Floats:
        return np.array(returned)

    with pytest.raises(
        StrategyError, match=r"^the weighting careless returned .*: weights must add up to more than 0; to refuse"
    ):
        fed(careless, (4, 0), (0, 4))


def test_a_single_weight_may_be_negative_and_one_that_reads_updates_may_find_nothing() -> None:
    assert fed(lambda buffer, view: np.array([2.0, -0.5]), (4, 0), (0, 4)).parameters == [8.0, -2.0]
    assert fed(reads_updates(lambda buffer, view: np.zeros(2)), (4, 0), (0, 4)).parameters == [0.0, 0.0]


def test_weights_that_add_up_to_nothing_cannot_be_normalised() -> None:
    with pytest.raises(StrategyError):
        fed(weigh.normalised(lambda buffer, view: np.array([1.0, -1.0])), (4, 0), (0, 4))


def test_a_record_keeps_its_weights_whatever_the_rule_does_with_its_array_later() -> None:
    mine = np.zeros(1)

    def reuses(buffer: Buffer, view: View) -> Floats:
        mine[0] += 1
        return mine

    scene = Scene(zoo.buffered(reuses, buffer=1), 1)
    scene.arrive(0)
    scene.arrive(0)
    assert scene.weights == [[1.0], [2.0]]


def test_a_weighting_that_returns_part_of_the_view_is_applied_as_it_was_returned() -> None:
    @reads_updates
    def account(buffer: Buffer, view: View) -> Floats:
        return view.weight_sums if view.version else np.array([1.0])

    scene = Scene(zoo.buffered(account, buffer=1), 1, parameters=vec(0))
    for _ in range(3):
        scene.arrive(0, 1)
    assert scene.weights == [[1.0], [1.0], [2.0]] and scene.parameters == [4.0]


def test_an_undeclared_look_at_single_updates_is_refused() -> None:
    def by_norm(buffer: Buffer, view: View) -> Floats:
        return np.asarray(np.linalg.norm(buffer.updates, axis=1), np.float64)

    with pytest.raises(StrategyError, match="reads_updates"):
        fed(by_norm, (3, 4), (0, 1))
    assert fed(reads_updates(by_norm), (3, 4), (0, 1)).weights == [[5.0, 1.0]]


def test_a_declaration_goes_through_combinations() -> None:
    @reads_updates
    def by_size(buffer: Buffer, view: View) -> Floats:
        return np.asarray(np.abs(buffer.updates).sum(axis=1), np.float64)

    rule = weigh.capped(weigh.normalised(weigh.times(weigh.uniform, by_size)), 9.0)
    assert fed(rule, (3, 0), (0, 1)).weights == [[0.75, 0.25]]
    assert zoo.buffered(rule).readers == ("weigh",) and zoo.buffered(weigh.uniform).readers == ()


def test_updates_that_a_rule_may_see_are_read_only() -> None:
    @reads_updates
    def meddles(buffer: Buffer, view: View) -> Floats:
        buffer.updates[:] = 0
        return np.ones(len(buffer))

    with pytest.raises(StrategyError, match=r"meddles raised ValueError: .* read-only \(test_rules_weigh"):
        fed(meddles, (3, 4), (0, 1))


def test_a_window_that_the_ledger_does_not_keep_is_refused_in_a_sentence() -> None:
    with pytest.raises(StrategyError, match="window"):
        fed(lambda buffer, view: view.mean_staleness(buffer.clients, 3), (3, 4), (0, 1))


def test_windows_go_through_combinations() -> None:
    rule = weigh.times(weigh.mean_staleness(window=4), weigh.normalised(weigh.mean_staleness(window=7)))
    assert zoo.buffered(rule).window == 7


@pytest.mark.parametrize(
    ("make", "value"),
    [
        (weigh.polynomial, -0.1),
        (weigh.polynomial, math.nan),
        (weigh.exponential, 0.0),
        (weigh.exponential, math.inf),
        (weigh.exponential, math.nan),
        (lambda value: weigh.mean_staleness(scale=value), -1.0),
        (lambda value: weigh.mean_staleness(scale=value), math.nan),
        (lambda value: weigh.mean_staleness(window=value), 0),
        (lambda value: weigh.capped(weigh.uniform, value), -1.0),
        (lambda value: weigh.times(*([weigh.uniform] * value)), 0),
    ],
)
def test_a_weighting_out_of_range_is_refused(make: type, value: float) -> None:
    with pytest.raises(StrategyError) as caught:
        make(value)
    assert str(value) in str(caught.value) or "at least one" in str(caught.value)
