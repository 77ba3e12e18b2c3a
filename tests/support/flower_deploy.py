"""Experiments to deploy on a Flower grid in memory, and its clients."""

from typing import Any

import numpy as np
import torch
from flwr.app import Message
from torch import nn

import fairlag
from fairlag.lab.resources import Resources
from fairlag.runtime.flower.wire import unpacked
from tests.support.flower_grid import FakeGrid, FakeNode, replied

FLEET: dict[str, Any] = {
    "name": "deployed",
    "aggregations": 30,
    "data": {"use": "digits", "holdout": 0.2},
    "model": {"use": "logistic"},
    "local": {"steps": 3, "batch": 16, "lr": 0.2},
    "evaluate": {"every": 5},
    "clients": [
        {"group": "fast", "count": 2, "delay": 1, "labels": [4, 5, 6, 7, 8, 9]},
        {"group": "slow", "count": 2, "delay": 5, "labels": [0, 1, 2, 3]},
    ],
    "strategies": [{"use": "fedstaleweight", "buffer": 2}],
}
OWN = {key: table for key, table in FLEET.items() if key not in ("data", "model")}
QUICK: dict[str, Any] = {
    "insecure": True,
    "poll": 0.005,
    "look": 0.01,
    "backoff": 0.05,
    "at_least": 4,
    "max_examples": 1000,
}


def values_of(message: Message) -> dict[str, Any]:
    """The values of the arrays of a message."""
    return {name: unpacked(each) for name, each in message.content.array_records["arrays"].items()}


class Trained:
    """A client that really trains softmax regression on its share of the digits."""

    def __init__(self, client: int, resources: Resources | None = None) -> None:
        inputs, labels = (resources or Resources(fairlag.lab.experiment.parse(FLEET))).held(client)
        self._inputs, self._labels = torch.from_numpy(inputs), torch.from_numpy(labels)

    def __call__(self, message: Message) -> Message:
        config: dict[str, Any] = dict(message.content.config_records["config"])
        model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
        model.load_state_dict({name: torch.from_numpy(each) for name, each in values_of(message).items()})
        optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"])
        for _ in range(config["local-steps"]):
            batch = torch.randperm(len(self._labels))[: config["batch-size"]]
            optimizer.zero_grad()
            torch.autograd.backward(nn.functional.cross_entropy(model(self._inputs[batch]), self._labels[batch]))
            optimizer.step()
        after = {name: each.numpy() for name, each in model.state_dict().items()}
        return replied(message, after, len(self._labels))


def adding(message: Message) -> Message:
    arrays = values_of(message)
    return replied(message, {**arrays, "weight": arrays["weight"] + np.float32(1)}, 5)


def counted() -> FakeGrid:
    return FakeGrid({each: FakeNode({"partition-id": each}, adding) for each in range(4)})


class Crash(Exception):
    """Leaves what a killed process would leave, without killing one."""
