"""Server rules with exact numbers."""

import math

import numpy as np
import pytest

from fairlag.errors import StrategyError
from fairlag.rules import apply
from fairlag.vector import Layout
from tests.helpers import vec

WHOLE = Layout(("parameters",), ((1,),))


def test_rules_of_a_chain_keep_their_own_state() -> None:
    def counting(factor: float) -> apply.Apply:
        def update(step: np.ndarray, state: tuple[object, ...], parameters: object) -> object:
            (count,) = state
            assert isinstance(count, int)
            return step * np.float32(factor) + np.float32(count), (count + 1,)

        return apply.Apply(f"counting({factor})", lambda parameters, layout: (0,), update)  # type: ignore[arg-type]

    rule = apply.chain(counting(2), counting(10), apply.scale(0.5))
    state = rule.init(vec(0), WHOLE)
    steps = []
    for _ in range(3):
        step, state = rule.update(vec(1), state, vec(0))
        steps.append(step.item())
    assert steps == [10.0, 15.5, 21.0]  # ((1·2 + t)·10 + t)·0.5
    assert rule.label == "chain(counting(2), counting(10), scale(0.5))"


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_the_server_learning_rate_is_positive(value: float) -> None:
    with pytest.raises(StrategyError, match=f"learning rate is {value}, it must be a positive number"):
        apply.scale(value)
