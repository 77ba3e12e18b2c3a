"""Server rules: numbers computed by hand, plain twins, what they may not share, and their state in checkpoints."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from safetensors.numpy import load, save

from fairlag import zoo
from fairlag.core.state import leaves, pack, unpack
from fairlag.core.strategy import Strategy
from fairlag.core.vector import EMPTY, Layout, Vector, published
from fairlag.errors import StrategyError
from fairlag.rules import apply
from fairlag.rules.apply import Apply, example
from fairlag.rules.reduce import weighted_sum
from tests.support.scenes import Scene, vec

LAYOUT = Layout(("weight", "bias"), ((2, 2), (2,)))
FIRST = published([0.5, -1, 2, 0.25, 3, 0])
RULES: dict[str, Apply] = {
    rule.label: rule
    for rule in (
        apply.scale(0.5),
        apply.momentum(0.0),
        apply.momentum(0.9),
        apply.adagrad(0.1),
        apply.adagrad(0.1, beta1=0.5),
        apply.adam(0.1),
        apply.yogi(0.1),
        apply.amsgrad(0.1),
        apply.attention("normalised"),
        apply.attention("paper"),
        apply.chain(apply.momentum(0.9), apply.scale(0.1), apply.attention("normalised")),
        apply.chain(apply.adam(0.1), apply.momentum(0.5), apply.yogi(0.2)),
    )
}


def random_steps(count: int) -> list[Vector]:
    """Read-only: a rule that writes into what it is handed raises."""
    return [published(row) for row in np.random.default_rng(0).normal(size=(count, FIRST.size))]


# By hand


def test_momentum_adds_what_is_left_of_earlier_steps() -> None:
    assert example(apply.momentum(0.5), 8, 0, -2, 0) == [8, 4, 0, 0]


def test_adagrad_divides_by_all_that_came_before() -> None:
    # s = 9 + 16, + 144, + 84²: roots 5, 13, 85
    assert example(apply.adagrad(2.0, eps=3.0), 4, -12, 84) == pytest.approx([8 / 8, -24 / 16, 168 / 88], abs=1e-6)
    # the same s; m = 2, −5, 39.5
    found = example(apply.adagrad(2.0, beta1=0.5, eps=3.0), 4, -12, 84)
    assert found == pytest.approx([4 / 8, -10 / 16, 79 / 88], abs=1e-6)


def test_adam_divides_by_the_recent_size_and_corrects_no_bias() -> None:
    # s = (1 + 49)/2, (25 + 25)/2, (25 + 35²)/2: roots 5, 5, 25; m = 3.5, −0.75, 17.125
    found = example(apply.adam(3.0, beta1=0.5, beta2=0.5, eps=1.0), 7, -5, 35)
    assert found == pytest.approx([10.5 / 6, -2.25 / 6, 51.375 / 26], abs=1e-6)


def test_yogi_grows_shrinks_and_stays_with_the_sign() -> None:
    # s = 1 + 16/2, then 9 = 3² stays, then 9 − 4/2; m = 2, 2.5, 0.25
    found = example(apply.yogi(3.0, beta1=0.5, beta2=0.5, eps=1.0), 4, 3, -2)
    assert found == pytest.approx([6 / 4, 7.5 / 4, 0.75 / (1 + 7**0.5)], abs=1e-6)


def test_the_defaults_are_those_of_the_papers() -> None:
    # One step of 1 with ε = 0.001: s = 1e-6 + 1 (Adagrad), 0.99e-6 + 0.01 (Adam), 1e-6 + 0.01 (Yogi).
    assert example(apply.adagrad(1.0), 1) == pytest.approx([1 / (math.sqrt(1.000001) + 0.001)], abs=1e-6)
    assert example(apply.adam(1.0), 1) == pytest.approx([0.1 / (math.sqrt(0.01000099) + 0.001)], abs=1e-6)
    assert example(apply.yogi(1.0), 1) == pytest.approx([0.1 / (math.sqrt(0.010001) + 0.001)], abs=1e-6)


def softmax(*values: float) -> list[float]:
    powers = [math.exp(value) for value in values]
    return [power / math.fsum(powers) for power in powers]


def attended(kind: Any, first: Vector, step: Vector, layout: Layout) -> list[float]:
    """The parameters after a step of attention alone."""
    rule = apply.attention(kind)
    change, _ = rule.update(step, rule.init(first, layout), first)
    assert change.dtype == np.float32
    after: list[float] = (first + change).tolist()
    return after


@pytest.mark.parametrize(("kind", "length"), [("normalised", 2), ("paper", 1)])
def test_attention_rescales_each_row_of_the_first_array_after_the_step(kind: str, length: int) -> None:
    # The weight becomes ((1, −3), (0, 2)), the bias (4, 0).
    above, below = softmax(1, 3), softmax(0, 2)
    wanted = [1 * above[0], -3 * above[1], 0, 2 * below[1]]
    found = attended(kind, FIRST, vec(0.5, -2, -2, 1.75, 1, 0), LAYOUT)
    assert found == pytest.approx([*(length * value for value in wanted), 4, 0], rel=1e-6)


@pytest.mark.parametrize(("kind", "length"), [("normalised", 4), ("paper", 1)])
def test_a_row_of_a_convolution_is_all_that_makes_one_channel(kind: str, length: int) -> None:
    layout = Layout(("conv", "bias"), ((2, 1, 2, 2), (2,)))
    rows = [[1.0, -2.0, 0.5, 0.0], [3.0, 1.0, 1.0, -1.0]]
    first = published([*rows[0], *rows[1], 5, 6])
    wanted = [length * value * share for row in rows for value, share in zip(row, softmax(*map(abs, row)), strict=True)]
    assert attended(kind, first, np.zeros_like(first), layout) == pytest.approx([*wanted, 5, 6], rel=1e-6)


@pytest.mark.parametrize(("kind", "length"), [("normalised", 3), ("paper", 1)])
def test_a_first_array_of_one_dimension_is_one_row(kind: str, length: int) -> None:
    layout = Layout(("scale", "weight"), ((3,), (1, 2)))
    shares = softmax(1, 2, 0)
    wanted = [length * shares[0], -2 * length * shares[1], 0, 7, 8]
    assert attended(kind, vec(1, -2, 0, 7, 8), np.zeros(5, np.float32), layout) == pytest.approx(wanted, rel=1e-6)


def test_without_a_layout_all_parameters_are_one_row() -> None:
    scene = Scene(replace(zoo.buffered_fedavg(buffer=1), apply=apply.attention("paper")), 1, parameters=vec(1, 0))
    scene.arrive(0, 0, 1)
    assert scene.parameters == [0.5, 0.5]


@pytest.mark.parametrize("shape", [(), (1,), (3, 1)])
@pytest.mark.parametrize("kind", ["normalised", "paper"])
def test_rows_of_one_number_stay_as_they_are(kind: str, shape: tuple[int, ...]) -> None:
    layout = Layout(("first", "rest"), (shape, (4 - math.prod(shape),)))
    assert attended(kind, vec(1, 2, 3, 4), vec(1, 1, 1, 1), layout) == [2, 3, 4, 5]


def test_attention_to_large_weights_does_not_overflow() -> None:
    found = attended("normalised", vec(1e30, -1e3, 1e3, 1e3), vec(0, 0, 0, 0), Layout(("weight",), ((2, 2),)))
    assert found == pytest.approx([2e30, 0, 1e3, 1e3])


@pytest.mark.parametrize("layout", [Layout((), ()), Layout(("parameters",), ((0,),)), Layout(("none",), ((0, 3),))])
def test_a_model_without_parameters_has_nothing_to_rescale(layout: Layout) -> None:
    assert attended("normalised", EMPTY, EMPTY, layout) == []


# Against plain twins


Moment = Callable[[float, float, float], float]


def twin(second: Moment, lr: float, beta1: float, beta2: float, eps: float, steps: list[float]) -> float:
    """The parameter, from 0, after all steps: in Python's floats, one number at a time."""
    w, m, s = 0.0, 0.0, eps * eps
    for d in steps:
        m = beta1 * m + (1 - beta1) * d
        s = second(s, d * d, beta2)
        w = w + lr * m / (math.sqrt(s) + eps)
    return w


def yogi_moment(s: float, square: float, beta2: float) -> float:
    assume(abs(s - square) > 1e-5 * s)  # there, the sign is a matter of the last bit
    return s + (1 - beta2) * square if s < square else s - (1 - beta2) * square


TWINS: dict[str, tuple[Callable[[float, float, float, float], Apply], Moment]] = {
    "adagrad": (lambda lr, beta1, beta2, eps: apply.adagrad(lr, beta1, eps), lambda s, square, beta2: s + square),
    "adam": (apply.adam, lambda s, square, beta2: beta2 * s + (1 - beta2) * square),
    "yogi": (apply.yogi, yogi_moment),
}
STEPS = st.lists(st.tuples(*3 * [st.floats(-10, 10, width=32)]), min_size=1, max_size=6)


@pytest.mark.parametrize("name", TWINS)
@settings(deadline=None)
@given(STEPS, st.sampled_from([0.01, 1.0]), st.sampled_from([0.0, 0.9]), st.sampled_from([0.9, 0.99]), st.data())
def test_a_rule_computes_what_its_plain_twin_does(
    name: str, steps: list[tuple[float, ...]], lr: float, beta1: float, beta2: float, data: st.DataObject
) -> None:
    make, second = TWINS[name]
    eps = data.draw(st.sampled_from([1e-3, 0.1]))
    rule, w = make(lr, beta1, beta2, eps), vec(0, 0, 0)
    state = rule.init(w, Layout(("w",), ((3,),)))
    for step in steps:
        change, state = rule.update(vec(*step), state, w)
        w = w + change
    wanted = [twin(second, lr, beta1, beta2, eps, [step[place] for step in steps]) for place in range(3)]
    assert w.tolist() == pytest.approx(wanted, rel=1e-4, abs=1e-4 * lr)


def test_no_momentum_leaves_the_bits_of_every_step() -> None:
    rule = apply.momentum(0.0)
    state = rule.init(FIRST, LAYOUT)
    for step in (vec(-0.0, 0.0, 1e-45, -3e38, 1, 1), vec(-0.0, -0.0, -1e-45, 1, 0.1, -1), vec(0, 0, 0, 0, 0, -0.0)):
        change, state = rule.update(step, state, FIRST)
        assert change.tobytes() == step.tobytes()


def test_the_rules_of_a_chain_go_in_its_order() -> None:
    # Adagrad's s depends on the size of its step, and what follows it does not change s.
    assert example(apply.chain(apply.scale(4.0), apply.adagrad(8.0, eps=3.0)), 1, 3) == [4, 6]
    assert example(apply.chain(apply.adagrad(8.0, eps=3.0), apply.scale(4.0)), 4, 12) == [16, 24]
    assert example(apply.chain(apply.momentum(0.5), apply.scale(2.0)), 1, 1) == [2, 3]
    # ln 3 more of w gives three times the share: (ln 3, 0) becomes ¾ ln 3, and its half before and after.
    step, first, layout = vec(math.log(3), 0), vec(0, 0), Layout(("w",), ((2,),))
    halved, attention = apply.scale(0.5), apply.attention("paper")
    ends = []
    for rule in (apply.chain(halved, attention), apply.chain(attention, halved)):
        ends.append(rule.update(step, rule.init(first, layout), first)[0].tolist())
    root = 3**0.5
    assert ends[0] == pytest.approx([math.log(3) / 2 * root / (root + 1), 0])
    assert ends[1] == pytest.approx([math.log(3) / 2 * 3 / 4, 0])


def test_rules_of_a_chain_keep_their_own_state() -> None:
    def counting(factor: float) -> Apply:
        def update(step: np.ndarray, state: tuple[object, ...], parameters: object) -> object:
            (count,) = state
            assert isinstance(count, int)
            return step * np.float32(factor) + np.float32(count), (count + 1,)

        return Apply(f"counting({factor})", lambda parameters, layout: (0,), update)  # type: ignore[arg-type]

    rule = apply.chain(counting(2), counting(10), apply.scale(0.5))
    state = rule.init(vec(0), Layout(("w",), ((1,),)))
    steps = []
    for _ in range(3):
        step, state = rule.update(vec(1), state, vec(0))
        steps.append(step.item())
    assert steps == [10.0, 15.5, 21.0]  # ((1·2 + t)·10 + t)·0.5
    assert rule.label == "chain(counting(2), counting(10), scale(0.5))"


# What rules may not share


@pytest.mark.parametrize("name", RULES)
def test_a_rule_writes_into_nothing_that_others_have(name: str) -> None:
    rule, parameters = RULES[name], FIRST
    given_away: list[tuple[Vector, bytes]] = []
    state = rule.init(parameters, LAYOUT)
    for step in random_steps(4):
        arrays = each_array(state)
        given_away += [(array, array.tobytes()) for array in arrays]
        change, state = rule.update(step, state, parameters)
        for array in each_array(state):
            assert array.dtype == np.float32 and array.flags.owndata
            assert not any(np.shares_memory(array, other) for other in (step, change, parameters, *arrays))
        assert change.dtype == np.float32 and change.flags.owndata and change.flags.writeable
        assert not np.shares_memory(change, step) and not np.shares_memory(change, parameters)
        given_away.append((change, change.tobytes()))
        parameters = published(parameters + change)
    assert all(array.tobytes() == before for array, before in given_away)


def each_array(state: Any) -> list[Vector]:
    """The arrays of a state themselves, where `leaves` would copy them."""
    if isinstance(state, tuple):
        return [array for part in state for array in each_array(part)]
    return [state] if isinstance(state, np.ndarray) else []


@pytest.mark.parametrize("name", RULES)
def test_a_rule_that_changes_its_step_in_place_harms_none_before_it(name: str) -> None:
    def in_place(step: Vector, state: Any, parameters: Vector) -> tuple[Vector, Any]:
        step *= 3
        return step, state

    tripled = apply.chain(RULES[name], Apply("in_place", lambda parameters, layout: (), in_place))
    plain, other = RULES[name].init(FIRST, LAYOUT), tripled.init(FIRST, LAYOUT)
    for step in random_steps(4):
        wanted, plain = RULES[name].update(step, plain, FIRST)
        change, other = tripled.update(step, other, FIRST)
        assert change.tobytes() == (3 * wanted).tobytes()


@pytest.mark.parametrize(
    "make",
    [
        *(apply.scale, apply.momentum, apply.adagrad, apply.adam, apply.yogi, apply.amsgrad),
        *(lambda x: apply.adam(0.1, x, x, x), lambda x: apply.amsgrad(0.1, x, x, x)),
        lambda x: apply.by_staleness(x, limit=1),
    ],
)
def test_options_of_numpys_double_precision_do_not_double_the_state(make: Callable[[Any], Apply]) -> None:
    rule = make(np.float64(0.5))
    change, state = rule.update(vec(1, 2), rule.init(vec(0, 0), Layout(("w",), ((2,),))), vec(0, 0))
    assert {array.dtype.name for array in (change, *each_array(state))} == {"float32"}


# In strategies


def turns(strategy: Strategy, count: int, scene: Scene | None = None, begin: int = 0) -> Scene:
    """So many arrivals, always of the task that has run longest; each update depends on its number alone."""
    scene = scene or Scene(strategy, 3, parameters=FIRST, layout=LAYOUT)
    deltas = np.random.default_rng(1).normal(size=(begin + count, FIRST.size)).astype(np.float32)
    for place in range(begin, begin + count):
        client = next(iter(scene.server.running.values())).client
        scene.arrive(client, *deltas[place].tolist(), examples=1 + place)
    return scene


def made(name: str) -> Strategy:
    algorithm = zoo.ALGORITHMS[name]
    return algorithm.make(**{"buffer" if "buffer" in algorithm.parameters else "cohort": 2})


SIZED = [name for name, each in zoo.ALGORITHMS.items() if {"buffer", "cohort"} & set(each.parameters)]


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize(
    "algorithm", [name for name in SIZED if made(name).reduce is weighted_sum and made(name).admit is None]
)
def test_every_rule_goes_with_every_weighting(algorithm: str, name: str) -> None:
    strategy, rule = made(algorithm), RULES[name]
    scene, plain = turns(replace(strategy, apply=rule), 12), turns(strategy, 12)
    assert len(scene.merged) >= 5
    assert scene.weights == plain.weights
    deltas = np.random.default_rng(1).normal(size=(12, FIRST.size)).astype(np.float32)
    parameters, state, begin = FIRST, rule.init(FIRST, LAYOUT), 0
    for record in scene.merged:
        updates = deltas[begin : begin + len(record.tasks)]
        begin += len(record.tasks)
        change, state = rule.update(weighted_sum(record.weights, updates), state, parameters)
        parameters = parameters + change
    assert scene.server.versions.newest[: FIRST.size].tobytes() == parameters.tobytes()


def test_fedstaleweight_with_adam_is_one_replace() -> None:
    strategy = replace(zoo.fedstaleweight(buffer=2), apply=apply.adam(3.0, 0.5, 0.5, 1.0))
    scene = Scene(strategy, 3, parameters=vec(0))
    for client, delta in ((0, 14), (1, 0), (0, -10), (1, 0)):
        scene.arrive(client, delta)
    # Equal weights make the steps 7 and −5, of the test of Adam by hand.
    assert scene.weights == [[0.5, 0.5]] * 2 and scene.parameters == pytest.approx([(10.5 - 2.25) / 6])


def test_any_weighting_of_a_users_own_goes_with_any_rule() -> None:
    strategy = zoo.buffered(lambda buffer, view: np.array([1.0, 0.5]), buffer=2)
    scene = Scene(replace(strategy, apply=apply.momentum(0.5)), 2, parameters=vec(0))
    for client in (0, 1, 0, 1):
        scene.arrive(client, 2)
    assert scene.parameters == [3 + 1.5 + 3]


# In checkpoints


@pytest.mark.parametrize("after", [1, 4, 7])
@pytest.mark.parametrize("name", RULES)
def test_a_restored_server_goes_on_to_the_same_bytes(name: str, after: int) -> None:
    strategy = replace(zoo.fairshare(buffer=2), apply=RULES[name])
    whole = turns(strategy, 12)
    broken = turns(strategy, after)
    arrays, text = pack(broken.server.state())
    other = Scene(strategy, 3, parameters=FIRST, layout=LAYOUT, join=False)
    other.server.restore(unpack(load(save(arrays)), text))
    other.time, other.tasks = broken.time, broken.tasks
    turns(strategy, 12 - after, other, after)
    assert other.server.versions.newest.tobytes() == whole.server.versions.newest.tobytes()
    ends = [pack(scene.server.state()) for scene in (other, whole)]
    assert ends[0][1] == ends[1][1] and ends[0][0].keys() == ends[1][0].keys()
    assert all(ends[0][0][path].tobytes() == ends[1][0][path].tobytes() for path in ends[0][0])


@pytest.mark.parametrize(
    ("rule", "count"),
    [(apply.scale(0.5), 0), (apply.momentum(0.9), 1), (apply.adam(0.1), 2), (apply.attention("paper"), 2)],
    ids=lambda value: getattr(value, "label", ""),
)
def test_all_that_a_rule_remembers_is_saved(rule: Apply, count: int) -> None:
    scene = turns(replace(zoo.buffered_fedavg(buffer=2), apply=rule), 6)
    merger: Any = scene.server.state()["merger"]
    assert len(merger["remembered"]) == count == len(leaves(rule.init(FIRST, LAYOUT)))


def test_the_checkpoint_says_where_the_first_array_is() -> None:
    strategy = replace(zoo.buffered_fedavg(buffer=2), apply=apply.attention("paper"))
    whole, broken = turns(strategy, 8), turns(strategy, 4)
    other = Scene(strategy, 3, parameters=FIRST, join=False)  # without the layout
    other.server.restore(broken.server.state())
    other.time, other.tasks = broken.time, broken.tasks
    turns(strategy, 4, other, 4)
    assert other.server.versions.newest.tobytes() == whole.server.versions.newest.tobytes()


# Bad arguments


@pytest.mark.parametrize("make", [apply.scale, apply.adagrad, apply.adam, apply.yogi])
@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_the_server_learning_rate_is_positive(make: Callable[[float], Apply], value: float) -> None:
    with pytest.raises(StrategyError, match=f"learning rate is {value}, it must be a positive number"):
        make(value)


@pytest.mark.parametrize("value", [-0.1, 1.0, 2.0, math.nan, math.inf])
def test_what_is_kept_is_a_share_below_one(value: float) -> None:
    makers: list[tuple[str, Callable[[], Apply]]] = [
        ("beta", lambda: apply.momentum(value)),
        ("beta1", lambda: apply.adagrad(0.1, beta1=value)),
        ("beta1", lambda: apply.adam(0.1, beta1=value)),
        ("beta2", lambda: apply.adam(0.1, beta2=value)),
        ("beta1", lambda: apply.yogi(0.1, beta1=value)),
        ("beta2", lambda: apply.yogi(0.1, beta2=value)),
    ]
    for name, make in makers:
        with pytest.raises(StrategyError, match=f"^{name} is {value}, it must be at least 0 and below 1$"):
            make()


@pytest.mark.parametrize("value", [0.0, -1e-3, 1e-16, 1e16, math.nan, math.inf])
@pytest.mark.parametrize("make", [apply.adagrad, apply.adam, apply.yogi])
def test_eps_has_a_square(make: Callable[..., Apply], value: float) -> None:
    with pytest.raises(StrategyError) as caught:
        make(0.1, eps=value)
    assert str(caught.value) == f"eps is {value}, it must be a number from 1e-15 to 1e15"


@pytest.mark.parametrize("value", [1e-15, 1e15])
def test_the_square_of_any_eps_is_a_float32(value: float) -> None:
    _, size = apply.adam(0.1, eps=value).init(vec(0), Layout(("w",), ((1,),)))
    assert size.tolist() == pytest.approx([value**2], rel=1e-6)


@pytest.mark.parametrize("kind", ["papier", "", None])
def test_other_kinds_of_attention_are_refused(kind: Any) -> None:
    with pytest.raises(StrategyError, match=f"^the attention is {kind!r}, it must be one of normalised, paper$"):
        apply.attention(kind)
