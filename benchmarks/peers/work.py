"""The work that all peers get, in plain PyTorch: two models, their data, who holds what, delays, and the meter.

Peers run this file in their own environments, so it imports only numpy, torch and scikit-learn.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator
from functools import cache
from importlib.metadata import version

import numpy as np
import torch
from torch import Tensor, nn

FAST, SLOW = 10, 5
CLIENTS = FAST + SLOW
BUFFER, BATCH, LR = 5, 32, 0.01
WARM = 3 * BUFFER
"""Updates before the meter starts."""
IMAGES, TESTS = 16_000, 1_000
"""The number of random images, and how many of them are kept for evaluation."""


def delay(client: int, uniform: Callable[[float, float], float]) -> float:
    """The duration of a client's next task in the paper's fleet, in seconds."""
    return uniform(1, 2) if client < FAST else uniform(8, 12)


def fashion_cnn() -> nn.Module:
    """The CNN of the paper's bench for Fashion-MNIST."""
    return nn.Sequential(
        *_block(1, 32, 8, 0.3),
        *_block(32, 64, 16, 0.5),
        *(nn.Flatten(), nn.Linear(64 * 7 * 7, 128), nn.ReLU(), nn.GroupNorm(32, 128)),
        *(nn.Dropout(0.5), nn.Linear(128, 10)),
    )


def _block(channels: int, wide: int, groups: int, dropout: float) -> Iterator[nn.Module]:
    for narrow in (channels, wide):
        yield from (nn.Conv2d(narrow, wide, 3, padding=1), nn.ReLU(), nn.GroupNorm(groups, wide))
    yield from (nn.MaxPool2d(2), nn.Dropout2d(dropout))


def logistic() -> nn.Module:
    """Softmax regression on 8×8 images."""
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))


MODELS: dict[str, Callable[[], nn.Module]] = {"fashion_cnn": fashion_cnn, "logistic": logistic}


def build(name: str) -> nn.Module:
    torch.manual_seed(0)
    return MODELS[name]()


@cache
def examples(name: str) -> tuple[np.ndarray, np.ndarray, int]:
    """Images, labels, and how many of them, from the first on, are for training.

    The content of images does not change the duration of a step: those of the CNN are random, of Fashion-MNIST's shape.
    """
    if name == "fashion_cnn":
        images = np.random.default_rng(0).normal(size=(IMAGES, 1, 28, 28)).astype(np.float32)
        return images, np.arange(IMAGES) % 10, IMAGES - TESTS
    from sklearn.datasets import load_digits  # type: ignore[import-untyped]

    data = load_digits()
    images = (data.images[:, None] / 16).astype(np.float32)
    return images, data.target.astype(np.int64), round(0.8 * len(images))


@cache
def shares(name: str) -> list[np.ndarray]:
    """The examples of each client: fast ones share the labels 4 to 9, slow ones 0 to 3."""
    _, labels, train = examples(name)
    of_slow = labels[:train] < 4
    return [*np.array_split(np.flatnonzero(~of_slow), FAST), *np.array_split(np.flatnonzero(of_slow), SLOW)]


@cache
def held(name: str, client: int) -> tuple[Tensor, Tensor]:
    """The inputs and labels of one client."""
    images, labels, _ = examples(name)
    return torch.from_numpy(images[shares(name)[client]]), torch.from_numpy(labels[shares(name)[client]])


@cache
def tests(name: str) -> tuple[Tensor, Tensor]:
    images, labels, train = examples(name)
    return torch.from_numpy(images[train:]), torch.from_numpy(labels[train:])


def batch(name: str, client: int) -> tuple[Tensor, Tensor]:
    """Examples of one client, drawn without replacement."""
    inputs, labels = held(name, client)
    chosen = torch.randperm(len(labels))[:BATCH]
    return inputs[chosen], labels[chosen]


def train_step(model: nn.Module, optimizer: torch.optim.Optimizer, inputs: Tensor, labels: Tensor) -> None:
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(inputs), labels).backward()  # type: ignore[no-untyped-call]
    optimizer.step()


@torch.no_grad()
def accuracy(model: nn.Module, name: str, at_once: int = 500) -> float:
    """The accuracy on all test examples."""
    model.eval()
    inputs, labels = tests(name)
    parts = zip(torch.split(inputs, at_once), torch.split(labels, at_once), strict=True)
    return sum(int((model(some).argmax(1) == right).sum()) for some, right in parts) / len(labels)


class Meter:
    """Counts client updates and their time, without the first ones and without evaluation."""

    def __init__(self, updates: int, patience: float = 60.0) -> None:
        self.target, self.patience = WARM + updates, patience
        self.marks: list[tuple[int, float, float]] = []

    def seen(self, updates: int) -> None:
        """Tells the meter how many updates were made until now."""
        if updates >= WARM and (not self.marks or updates > self.marks[-1][0]):
            self.marks = [*self.marks[:1], (updates, time.perf_counter(), time.process_time())]

    @property
    def enough(self) -> bool:
        """Were all updates made, or is the time over?"""
        return bool(self.marks) and (
            self.marks[-1][0] >= self.target or self.marks[-1][1] - self.marks[0][1] > self.patience
        )

    @property
    def counted(self) -> tuple[int, float, float]:
        """Updates, the seconds that they took, and the processor time of this process in that time."""
        (before, *begin), (after, *end) = self.marks
        return after - before, end[0] - begin[0], end[1] - begin[1]


def timed(action: Callable[[], object]) -> float:
    """The seconds of the second call: the first may load and compile what it needs."""
    action()
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=list(MODELS), default="fashion_cnn")
    parser.add_argument("--updates", type=int, default=200)
    parser.add_argument("--variant", default="")
    torch.set_num_threads(1)
    return parser.parse_args()


def report(meter: Meter, name: str, *packages: str, evaluation: float | None = None, processes: int = 1) -> None:
    """Prints one JSON line: the counts, the seconds of one evaluation of all test examples, and package versions."""
    updates, seconds, processor = meter.counted
    answer = {
        "updates": updates,
        "seconds": seconds,
        "processor_seconds": processor if processes == 1 else None,
        "evaluation_seconds": evaluation,
        "evaluation_examples": len(tests(name)[1]),
        "processes": processes,
        "versions": {package: version(package) for package in (*packages, "torch", "numpy")},
    }
    print(json.dumps(answer), flush=True)
