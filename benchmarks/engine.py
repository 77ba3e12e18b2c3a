"""Training steps per second of a whole run, compared with a bare one-thread PyTorch loop in the same benchmark.

The bare loop is what one would write by hand to train one model: take a batch, zero the gradients, forward, backward,
`optimizer.step()`. It hands out no versions, computes no updates, merges nothing and keeps no record. `tasks` is the
same loop with what turns steps into tasks: parameters are loaded before each step and subtracted after it. The run is
all of fairlag: the paper's fleet in virtual time, FedStaleWeight with a buffer of 5, one local step on 32 examples per
task, with the store. All train the same model on the same data: random images, and for `logistic` the digits. `serial`
computes in one process, `workers` in several. Small models are trained together in one process, so they have no such
row. Loops and runs take turns, and each row gives the median of the ratios over the rounds: by wall clock, and by the
processor time of all processes, which is more reliable on a busy machine.

With the extra `fast`, `logistic` and `mlp` are trained with `engine = "compiled"`. Compiled loops are loaded, or
compiled once, before counting starts.

Evaluation is left out by counting the steps from the first version to the last. For small models, which write most
rows, what the store writes at the end is counted too, with the last evaluation.

The share of time that is neither training nor evaluation: for `serial`, the share of wall time outside of both; with
workers, the share of their time in which they wait for work (Linux counts the processor time of each).

    python benchmarks/engine.py [--models logistic mlp fashion_cnn cifar_cnn] [--rounds 3] [--workers 2]
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from multiprocessing import active_children, get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from fairlag.data.dataset import Dataset
from fairlag.data.load import load as load_data
from fairlag.lab.events import Event, Progress
from fairlag.lab.experiment import Experiment, load
from fairlag.lab.simulate import simulate
from fairlag.learn import models
from fairlag.learn.learner import Learner
from fairlag.runtime.compiled import available

AGGREGATIONS = {"logistic": 20000, "mlp": 4000, "fashion_cnn": 60, "cifar_cnn": 60}
SMALL = ("logistic", "mlp")
EXAMPLES, BATCH, WARM = 3000, 32, 5
CLOCKS = ("busy", "clock")


def images(shape: tuple[int, ...]) -> Dataset:
    """Random images: what they show does not change how long a step takes."""
    generator = np.random.default_rng(0)
    inputs = generator.integers(0, 256, (EXAMPLES, *shape), dtype=np.uint8)
    return Dataset("random", inputs, np.arange(EXAMPLES) % 10, 10, EXAMPLES, 1 / 127.5, -1.0)


def grey() -> Dataset:
    return images((1, 28, 28))


def coloured() -> Dataset:
    return images((3, 32, 32))


def digits() -> Dataset:
    return load_data("digits", {}, None)


DATA: dict[str, Callable[[], Dataset]] = {"logistic": digits, "mlp": grey, "fashion_cnn": grey, "cifar_cnn": coloured}


def bare(model_name: str, steps: int, tasks: bool) -> dict[str, float]:
    """Steps per second of a hand-written loop; or tasks, each from parameters to an update."""
    torch.set_num_threads(1)
    data = DATA[model_name]()
    inputs = torch.from_numpy(data.inputs.copy()).float().mul_(data.scale).add_(data.offset)
    labels = torch.from_numpy(data.labels.copy())
    model = models.build(model_name, {}, shape=data.shape, classes=10, seed=0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    criterion = torch.nn.CrossEntropyLoss()
    version = parameters_to_vector(model.parameters()).detach()
    for step in range(-WARM, steps):
        if step == 0:
            begin, busy = time.perf_counter(), time.process_time()
        if tasks:
            vector_to_parameters(version, model.parameters())
        chosen = torch.randperm(len(data))[:BATCH]
        optimizer.zero_grad()
        criterion(model(inputs[chosen]), labels[chosen]).backward()
        optimizer.step()
        if tasks:
            parameters_to_vector(model.parameters()).detach() - version
    return {"clock": steps / (time.perf_counter() - begin), "busy": steps / (time.process_time() - busy)}


def experiment(model_name: str) -> Experiment:
    paper = load("paper-fashion-mnist")
    engine = "compiled" if model_name in SMALL and available() else None
    return paper.checked(
        local=paper.local.model_copy(update={"engine": engine}),
        aggregations=AGGREGATIONS[model_name],
        data={"use": DATA[model_name]},
        model={"use": model_name},
        evaluate={"every": 10**9, "sample": 10},
    )


def whole(model_name: str, workers: int) -> dict[str, float]:
    """Steps per second of a run, and the share of its time that is neither training nor evaluation."""
    marks: list[tuple[float, int, float, float]] = []
    computing = [0.0]
    _time(computing, Learner, "train_all" if model_name in SMALL else "train", "evaluate")
    if available():
        _time(computing, import_module("fairlag.learn.trainer").CompiledTrainer, "train")

    def watch(event: Event) -> None:
        over = isinstance(event, Progress) and event.version == AGGREGATIONS[model_name]
        if isinstance(event, Progress) and (over or (event.version >= WARM and not marks)):
            others = 0.0 if workers == 1 else _busy()
            busy = time.process_time() + others
            marks.append((time.perf_counter(), event.updates, computing[0] if workers == 1 else others, busy))

    with tempfile.TemporaryDirectory() as folder:
        simulate(
            experiment(model_name),
            strategy="FedStaleWeight",
            out=Path(folder) / "run",
            workers=workers,
            watch=watch,
        )
    ends = [mark for mark in marks if mark[1] == marks[-1][1]]
    last = ends[-1 if model_name in SMALL else 0]  # what follows is the evaluation at the end
    seconds, updates, computed, busy = (end - begin for end, begin in zip(last, marks[0], strict=True))
    return {"clock": updates / seconds, "busy": updates / busy, "outside": 1 - computed / (workers * seconds)}


def _busy() -> float:
    """Seconds of processor time that the workers have used."""
    ticks = 0
    for process in active_children():
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def _time(total: list[float], owner: type, *names: str) -> None:
    """Counts the seconds that these methods take; nested calls count once."""
    for name in names:
        setattr(owner, name, _counted(getattr(owner, name), total))


def _counted(method: Callable[..., Any], total: list[float]) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        begin, before = time.perf_counter(), total[0]
        try:
            return method(*arguments)
        finally:
            total[0] = before + time.perf_counter() - begin

    return call


def _answer(line: Connection, ask: Callable[..., dict[str, float]], arguments: tuple[Any, ...]) -> None:
    line.send(ask(*arguments))


def apart(ask: Callable[..., dict[str, float]], *arguments: Any) -> dict[str, float]:
    """The answer of a separate process: the allocator's settings apply to a whole process."""
    context = get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_answer, args=(there, ask, arguments))
    process.start()
    there.close()
    answer: dict[str, float] = here.recv()
    process.join()
    return answer


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--models", nargs="+", default=list(AGGREGATIONS), choices=list(AGGREGATIONS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    print(f"{'':23} {'by processor time':>25} {'by wall clock':>25}")
    columns = " ".join(f"{'steps/s':>8} {'÷ bare':>7} {'÷ tasks':>8}" for _ in CLOCKS)
    print(f"{'model':12} {'who':10} {columns} {'neither training nor evaluation':>32}")
    for name in options.models:
        rounds: dict[str, list[dict[str, float]]] = {"bare": [], "tasks": [], "serial": []}
        if name not in SMALL:
            rounds[f"{options.workers} workers"] = []
        for _ in range(options.rounds):
            for who, answers in rounds.items():
                if who in ("bare", "tasks"):
                    answers.append(apart(bare, name, min(16_000, 4 * AGGREGATIONS[name]), who == "tasks"))
                else:
                    answers.append(apart(whole, name, 1 if who == "serial" else options.workers))
        for who, answers in rounds.items():
            cells = " ".join(_cells(rounds, who, clock) for clock in CLOCKS)
            outside = statistics.median(answer.get("outside", 0.0) for answer in answers)
            shown = "" if who in ("bare", "tasks") else f"{outside:.1%}"
            print(f"{name:12} {who:10} {cells} {shown:>32}", flush=True)


def _cells(rounds: dict[str, list[dict[str, float]]], who: str, clock: str) -> str:
    speeds = {name: [answer[clock] for answer in answers] for name, answers in rounds.items()}
    bare, tasks = (
        statistics.median(one / other for one, other in zip(speeds[who], speeds[loop], strict=True))
        for loop in ("bare", "tasks")
    )
    speed = statistics.median(speeds[who])
    return f"{speed:8.{0 if speed >= 100 else 1}f} {bare:7.2f} {tasks:8.2f}"


if __name__ == "__main__":
    main()
