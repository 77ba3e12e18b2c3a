"""Your own server rule: it shortens steps that are longer than a bound, in any strategy."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import fairlag
from fairlag.core.vector import Layout, Vector
from fairlag.rules.apply import Apply, chain, momentum
from fairlag.zoo import buffered_fedavg


def clipped(bound: float) -> Apply:
    """step · min(1, bound / ‖step‖). The state counts the steps that were shortened."""

    def init(parameters: Vector, layout: Layout) -> tuple[Any, ...]:
        return (np.zeros(1, np.int64),)

    def update(step: Vector, state: tuple[Any, ...], parameters: Vector) -> tuple[Vector, tuple[Any, ...]]:
        length = float(np.linalg.norm(step))
        if length <= bound:
            return step, state
        return (step * np.float32(bound / length)), (state[0] + 1,)

    return Apply(f"clipped({bound})", init, update)


def careful(*, buffer: int = 4, bound: float = 0.3, beta: float = 0.5) -> fairlag.Strategy:
    """Buffered FedAvg with momentum at the server and no step longer than `bound`."""
    return replace(buffered_fedavg(buffer=buffer), apply=chain(momentum(beta), clipped(bound)))


def main() -> None:
    experiment = fairlag.load(Path(__file__).with_suffix(".toml"))
    for strategy in experiment.strategies:
        run = fairlag.simulate(experiment, strategy=strategy.label, workers=1)
        print(f"{run.label}: accuracy {run.accuracy():.1%}")


if __name__ == "__main__":
    main()
