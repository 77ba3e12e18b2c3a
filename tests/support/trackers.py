"""A run that is tracked, observed at every event."""

from typing import Any

import pytest

from fairlag.lab import loop
from fairlag.lab.experiment import Experiment, parse


def look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets the run look and commit at every event."""
    monkeypatch.setattr(loop, "CHECKPOINT", 0.0)
    monkeypatch.setattr(loop, "_COSTLY", 0)
    monkeypatch.setattr(loop, "_LOOK", 0.0)


def training(track: Any = "mlflow", aggregations: int = 17, sample: Any = 100) -> Experiment:
    """An experiment on digits, evaluated at every fifth version; the last version is not one of them."""
    return parse(
        {
            "name": "tracked",
            "aggregations": aggregations,
            "clients": [
                {"group": "fast", "count": 4, "delay": "uniform(1, 2)", "labels": [4, 5, 6, 7, 8, 9]},
                {"group": "slow 50%", "count": 2, "delay": "uniform(4, 6)", "labels": [0, 1, 2, 3]},
            ],
            "strategies": [{"use": "fedstaleweight", "buffer": 2}],
            "data": {"use": "digits"},
            "model": {"use": "logistic"},
            "evaluate": {"every": 5, "sample": sample},
            "track": track,
        }
    )
