"""How many client steps a second a whole run makes, beside a bare one-thread PyTorch loop in the same run.

The bare loop is what somebody would write by hand to train one model: take a batch, zero the gradients, forward,
backward, `optimizer.step()`. It hands out no versions, computes no updates, merges nothing and keeps no record. The run
is all of fairlag: the paper's fleet in virtual time, FedStaleWeight with a buffer of 5, one local step on 32 examples a
task, the store on. Both train the same model on the same random images; evaluation is left out of both, by counting
the steps from the first version to the last. `serial` computes in one process, `workers` in so many. Loop and runs take
turns, and each row gives the median of the ratios over the rounds.

What is neither training nor evaluation: for `serial` the share of wall time outside of both, by the clock; with workers
the share of their time in which they wait for work (Linux counts the processor time of each).

    python benchmarks/engine.py [--models fashion_cnn cifar_cnn] [--aggregations 60] [--rounds 3] [--workers 2]
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from multiprocessing import active_children, get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fairlag.data.dataset import Dataset
from fairlag.lab.events import Event, Progress
from fairlag.lab.experiment import Experiment, load
from fairlag.lab.simulate import simulate
from fairlag.learn import models
from fairlag.learn.learner import Learner

SHAPES = {"fashion_cnn": (1, 28, 28), "cifar_cnn": (3, 32, 32)}
EXAMPLES, BATCH, WARM = 3000, 32, 5


def images(shape: tuple[int, ...]) -> Dataset:
    """Random images: what they show does not change how long a step takes."""
    generator = np.random.default_rng(0)
    inputs = generator.integers(0, 256, (EXAMPLES, *shape), dtype=np.uint8)
    return Dataset("random", inputs, np.arange(EXAMPLES) % 10, 10, EXAMPLES, 1 / 127.5, -1.0)


def fashion() -> Dataset:
    return images(SHAPES["fashion_cnn"])


def cifar() -> Dataset:
    return images(SHAPES["cifar_cnn"])


DATA: dict[str, Callable[[], Dataset]] = {"fashion_cnn": fashion, "cifar_cnn": cifar}


def bare(model_name: str, steps: int) -> dict[str, float]:
    """Steps a second of the loop that somebody would write by hand."""
    torch.set_num_threads(1)
    data = DATA[model_name]()
    inputs = torch.from_numpy(data.inputs.copy()).float().mul_(data.scale).add_(data.offset)
    labels = torch.from_numpy(data.labels.copy())
    model = models.build(model_name, {}, shape=data.shape, classes=10, seed=0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    criterion = torch.nn.CrossEntropyLoss()
    for step in range(-WARM, steps):
        if step == 0:
            begin = time.perf_counter()
        chosen = torch.randperm(EXAMPLES)[:BATCH]
        optimizer.zero_grad()
        criterion(model(inputs[chosen]), labels[chosen]).backward()
        optimizer.step()
    return {"steps": steps / (time.perf_counter() - begin)}


def experiment(model_name: str, aggregations: int) -> Experiment:
    return load("paper-fashion-mnist").checked(
        aggregations=aggregations,
        data={"use": DATA[model_name]},
        model={"use": model_name},
        evaluate={"every": 10**9, "sample": 10},
    )


def whole(model_name: str, aggregations: int, workers: int) -> dict[str, float]:
    """Steps a second of a run, and the share of it that is neither training nor evaluation."""
    marks: list[tuple[float, int, float]] = []
    computing = _timed(Learner, "train", "evaluate")

    def watch(event: Event) -> None:
        if isinstance(event, Progress) and event.version >= WARM:
            marks.append((time.perf_counter(), event.updates, computing[0] if workers == 1 else _busy()))

    with tempfile.TemporaryDirectory() as folder:
        simulate(
            experiment(model_name, aggregations),
            strategy="FedStaleWeight",
            out=Path(folder) / "run",
            workers=workers,
            watch=watch,
        )
    last = next(mark for mark in marks if mark[1] == marks[-1][1])  # what follows is the evaluation at the end
    seconds, updates, computed = (end - begin for end, begin in zip(last, marks[0], strict=True))
    return {"steps": updates / seconds, "outside": 1 - computed / (workers * seconds)}


def _busy() -> float:
    """Seconds of processor time that the workers have had."""
    ticks = 0
    for process in active_children():
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def _timed(owner: type, *names: str) -> list[float]:
    """Counts the seconds that these methods take."""
    total = [0.0]
    for name in names:
        setattr(owner, name, _counted(getattr(owner, name), total))
    return total


def _counted(method: Callable[..., Any], total: list[float]) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        begin = time.perf_counter()
        try:
            return method(*arguments)
        finally:
            total[0] += time.perf_counter() - begin

    return call


def _answer(line: Connection, ask: Callable[..., dict[str, float]], arguments: tuple[Any, ...]) -> None:
    line.send(ask(*arguments))


def apart(ask: Callable[..., dict[str, float]], *arguments: Any) -> dict[str, float]:
    """The answer of a process of its own: the allocator's settings are those of a whole process."""
    context = get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_answer, args=(there, ask, arguments))
    process.start()
    there.close()
    answer: dict[str, float] = here.recv()
    process.join()
    return answer


def main() -> None:
    parser = argparse.ArgumentParser(description="A whole run beside a bare PyTorch loop.")
    parser.add_argument("--models", nargs="+", default=list(SHAPES), choices=list(SHAPES))
    parser.add_argument("--aggregations", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    print(f"{'model':12} {'who':10} {'steps/s':>8} {'÷ bare':>7} {'neither training nor evaluation':>32}")
    for name in options.models:
        rounds: dict[str, list[dict[str, float]]] = {"bare": [], "serial": [], f"{options.workers} workers": []}
        for _ in range(options.rounds):
            rounds["bare"].append(apart(bare, name, 4 * options.aggregations))
            rounds["serial"].append(apart(whole, name, options.aggregations, 1))
            rounds[f"{options.workers} workers"].append(apart(whole, name, options.aggregations, options.workers))
        for who, answers in rounds.items():
            speed = statistics.median(answer["steps"] for answer in answers)
            ratio = statistics.median(
                answer["steps"] / one["steps"] for answer, one in zip(answers, rounds["bare"], strict=True)
            )
            outside = statistics.median(answer.get("outside", 0.0) for answer in answers)
            print(
                f"{name:12} {who:10} {speed:8.1f} {ratio:7.2f} {f'{outside:.1%}' if who != 'bare' else '':>32}",
                flush=True,
            )


if __name__ == "__main__":
    main()
