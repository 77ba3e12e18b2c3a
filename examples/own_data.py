"""Your own data set: noisy waves of three shapes, divided unevenly among clients."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import fairlag


def waves(*, examples: int = 1500, noise: float = 0.5, seed: int = 0) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Sine, square and saw-tooth waves of 32 samples, each with a random phase: one example per row, and its shape."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, examples)
    phase = (np.linspace(0, 2, 32) + rng.random((examples, 1))) % 1
    shapes = np.stack([np.sin(2 * np.pi * phase), np.sign(phase - 0.5), 2 * phase - 1])
    inputs = shapes[labels, np.arange(examples)] + noise * rng.standard_normal((examples, 32))
    return inputs.astype(np.float32), labels


def main() -> None:
    experiment = fairlag.load(Path(__file__).with_suffix(".toml"))
    for strategy in experiment.strategies:
        run = fairlag.simulate(experiment, strategy=strategy.label, workers=1)
        print(f"{run.label}: accuracy {run.accuracy():.1%} on waves that no client has")


if __name__ == "__main__":
    main()
