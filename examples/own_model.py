"""Your own model: a small convolutional network for digits, with any number of channels."""

from pathlib import Path

from torch import nn

import fairlag


def small_cnn(shape: tuple[int, ...], classes: int, *, channels: int = 8) -> nn.Module:
    """Two convolutions and a linear layer; `shape` and `classes` are those of the data."""
    colours, height, width = shape
    return nn.Sequential(
        nn.Conv2d(colours, channels, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(channels, 2 * channels, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(2 * channels * (height // 2) * (width // 2), classes),
    )


def main() -> None:
    run = fairlag.simulate(Path(__file__).with_suffix(".toml"), workers=1)
    size = sum(each.numel() for each in run.model().parameters())
    print(f"{run.label}: accuracy {run.accuracy():.1%} with {size:,} parameters")


if __name__ == "__main__":
    main()
