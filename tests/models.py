"""Models and data of users' own, as tests name them: "tests.models:…"."""

from torch import nn


def dropout_mlp(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Small, and random in training."""
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, classes))
