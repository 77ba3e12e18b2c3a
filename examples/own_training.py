"""Your own local training: sharpness-aware minimisation, whose steps no key of an experiment file describes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import fairlag


def sharpness_aware(model: nn.Module, batches: Iterator[tuple[Tensor, Tensor]], context: Any) -> None:
    """Each step follows the gradient at the worst point nearby: x + 0.05 · g / ‖g‖ (Foret et al., 2021)."""
    weights = list(model.parameters())
    optimiser = torch.optim.AdamW(weights, lr=context.lr)
    for inputs, targets in batches:
        gradients = torch.autograd.grad(context.loss(model(inputs), targets), weights)
        length = torch.cat([each.flatten() for each in gradients]).norm() + 1e-12
        shifts = [0.05 * each / length for each in gradients]
        with torch.no_grad():
            for each, shift in zip(weights, shifts, strict=True):
                each.add_(shift)
        optimiser.zero_grad()
        torch.autograd.backward(context.loss(model(inputs), targets))
        with torch.no_grad():
            for each, shift in zip(weights, shifts, strict=True):
                each.sub_(shift)
        optimiser.step()


def main() -> None:
    run = fairlag.simulate(Path(__file__).with_suffix(".toml"), workers=1)
    print(f"{run.label}: accuracy {run.accuracy():.1%} after {run.version} versions")


if __name__ == "__main__":
    main()
