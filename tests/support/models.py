"""Users' own models and data, as tests name them: "tests.support.models:…"."""

import torch
from torch import nn


def dropout_mlp(shape: tuple[int, ...], classes: int) -> nn.Module:
    """A small model that is random in training."""
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, classes))


def normalised_mlp(shape: tuple[int, ...], classes: int) -> nn.Module:
    """A small model with statistics."""
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, classes))


def normalised_cnn(shape: tuple[int, ...], classes: int) -> nn.Module:
    """A model with statistics that is random in training; it accepts batches of a single example."""
    return nn.Sequential(
        nn.Conv2d(1, 4, 4, stride=4),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Flatten(),
        nn.Dropout(0.3),
        nn.Linear(16, classes),
    )


class Successor(nn.Module):
    """The next token by the last one alone."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.table = nn.Embedding(classes, classes)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.table(tokens)
        return logits


def successor(classes: int) -> nn.Module:
    """A model of token ids."""
    return Successor(classes)
