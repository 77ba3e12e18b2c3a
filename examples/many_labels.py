"""Several labels per example: which properties does a handwritten digit have?"""

from pathlib import Path

import numpy as np

import fairlag
from fairlag.data.load import load

PROPERTIES = {"even": (0, 2, 4, 6, 8), "prime": (2, 3, 5, 7), "round": (0, 6, 8, 9), "large": (5, 6, 7, 8, 9)}
"""The digits that have each property. The labels follow from the digit, but no client is told which digit it is."""


def properties() -> fairlag.Dataset:
    """The digits of scikit-learn, with a 0 or 1 for each property."""
    digits = load("digits")
    labels = np.stack([np.isin(digits.labels, having) for having in PROPERTIES.values()], axis=1).astype(np.int64)
    pixels = digits.inputs.astype(np.float32) * digits.scale + digits.offset
    return fairlag.Dataset("properties", pixels, labels, classes=len(PROPERTIES), official=len(labels))


def main() -> None:
    experiment = fairlag.load(Path(__file__).with_suffix(".toml"))
    for strategy in experiment.strategies:
        run = fairlag.simulate(experiment, strategy=strategy.label, workers=1)
        print(f"{run.label}: macro F1 {run.curve()['macro_f1'].iloc[0]:.3f} → {run.score():.3f}")


if __name__ == "__main__":
    main()
