"""Your own data set, model, optimiser, loss and metric: how far will diabetes go in nine of ten cases?"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from sklearn.datasets import load_diabetes  # type: ignore[import-untyped]
from torch import Tensor, nn

from fairlag import Better, Metric, Targets, Task, load, simulate


def patients() -> tuple[Any, Any]:
    """Ten measurements of each of 442 patients, and how far their diabetes went within a year (from 25 to 346)."""
    inputs, progress = load_diabetes(return_X_y=True)
    return inputs / inputs.std(axis=0), progress / 100


def bilinear(shape: tuple[int, ...], classes: int, *, rank: int = 4) -> nn.Module:
    """A linear model of `rank` products, each of a linear model and the sigmoid of another."""
    return nn.Sequential(nn.Linear(shape[0], 2 * rank), nn.GLU(), nn.Linear(rank, classes))


def lion(model: nn.Module, batches: Iterator[tuple[Tensor, Tensor]], context: Any) -> None:
    """The optimiser Lion (Chen et al., 2023), which torch does not have: each step follows the sign of an average."""
    weights = list(model.parameters())
    averages = [torch.zeros_like(each) for each in weights]
    for inputs, targets in batches:
        gradients = torch.autograd.grad(context.loss(model(inputs), targets), weights)
        with torch.no_grad():
            for each, average, gradient in zip(weights, averages, gradients, strict=True):
                each.sub_(context.lr * torch.sign(0.9 * average + 0.1 * gradient))
                average.mul_(0.99).add_(0.01 * gradient)


def quantile(share: float = 0.9) -> Task:
    """A number that targets stay below with this probability: max(share · e, (share − 1) · e) of the error e."""

    def pinball(output: Tensor, target: Tensor) -> Tensor:
        return torch.maximum(share * (target - output), (share - 1) * (target - output)).mean(1)

    coverage = Metric(
        name="coverage_error",
        better=Better.LOWER,
        adds=lambda output, target: (target <= output).all(1),
        of=lambda sums, examples: abs(float(sums.sum() / examples.sum()) - share),
    )
    metrics = (Metric(name="pinball", better=Better.LOWER, adds=pinball), coverage)
    return Task(loss=pinball, metrics=metrics, targets=Targets.NUMBERS)


if __name__ == "__main__":
    experiment = load(Path(__file__).with_suffix(".toml"))
    for strategy in experiment.strategies:
        run = simulate(experiment, strategy=strategy.label, workers=1)
        before, after = run.curve().iloc[0], run.score("coverage_error")
        print(
            f"{run.label}: loss {before.pinball:.3f} → {run.score():.3f}, {before.coverage_error:.0%} → {after:.0%} off"
        )
