"""How time and memory grow with the number of clients: the preset `million`, with 1,000 to 1,000,000 clients.

Each row is the preset with that number of clients, its groups and data in proportion: FedStaleWeight, FairShare or
FedBuff train a logistic model on synthetic data, 1,000 clients at a time, with heavy-tailed delays and daily hours,
with store, evaluation and checkpoints. With the extra `fast`, it is trained with `engine = "compiled"`. The cost of an
update is the processor time from the first 2,000 updates to the last, including evaluations and clients that come and
go. Checkpoints are reported separately, because a run makes the next one only after 100 times what the last one took.
"begin" is everything before: imports, data, partition, and the first hours of all clients. Every size and strategy runs
in a separate process, so the peak memory is its own. The minimum over several rounds counts.

    python benchmarks/scale.py [--sizes 1000 10000 …] [--updates 100000] [--rounds 2] [--strategies FairShare …]
"""

import argparse
import multiprocessing
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from fairlag.lab.events import Event, Progress
from fairlag.lab.experiment import Experiment, load
from fairlag.lab.loop import RunLoop
from fairlag.lab.simulate import simulate
from fairlag.runtime.compiled import available

WARM = 2_000
MILLION = 1_000_000


class Cost(NamedTuple):
    """The cost of a run."""

    begin: float
    """Seconds of processor time until the first updates."""
    update: float
    """Seconds of processor time per update."""
    checkpoint: float
    """Seconds of processor time per checkpoint, 0 if none was made."""
    speed: float
    """Updates per second, by wall clock."""
    megabytes: float
    """Peak memory."""


def experiment(clients: int, updates: int) -> Experiment:
    """The preset with this many clients instead of a million."""
    whole = load("million")
    buffer = whole.strategies[0].parameters["buffer"]
    assert isinstance(buffer, int) and whole.data is not None
    examples, held_out = whole.data.parameters["examples"], whole.data.holdout
    assert isinstance(examples, int)
    return whole.checked(
        aggregations=updates // buffer,
        local=whole.local.model_copy(update={"engine": "compiled" if available() else None}),
        clients=tuple(group.model_copy(update={"count": group.count * clients // MILLION}) for group in whole.clients),
        data={**whole.data.model_dump(), "examples": max(examples * clients // MILLION, int(2_000 / held_out))},
    )


def cost(clients: int, updates: int, strategy: str) -> Cost:
    """One run, in this process."""
    commits = _counted(RunLoop, "_commit")
    marks: list[tuple[float, float, int]] = []

    def watch(event: Event) -> None:
        if isinstance(event, Progress) and event.updates >= WARM:
            marks.append((time.process_time() - commits[0], time.perf_counter(), event.updates))

    with tempfile.TemporaryDirectory() as folder:
        simulate(experiment(clients, updates), strategy=strategy, out=Path(folder) / "run", workers=1, watch=watch)
    first, last = marks[0], next(mark for mark in marks if mark[2] == marks[-1][2])  # then comes the last evaluation
    made = last[2] - first[2]
    return Cost(
        first[0],
        (last[0] - first[0]) / made,
        commits[0] / max(commits[1], 1),
        made / (last[1] - first[1]),
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    )


def _counted(owner: type, name: str) -> list[float]:
    """Counts the seconds of processor time that a method takes, and how often it is called."""
    total, method = [0.0, 0], getattr(owner, name)

    def call(*arguments: Any) -> Any:
        begin = time.process_time()
        try:
            return method(*arguments)
        finally:
            total[0] += time.process_time() - begin
            total[1] += 1

    setattr(owner, name, call)
    return total


def apart(ask: Callable[..., Cost], *arguments: Any) -> Cost:
    """The answer of a separate process."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(ask, arguments)


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    options.add_argument("--sizes", type=int, nargs="+", default=[1_000, 10_000, 100_000, MILLION])
    options.add_argument("--updates", type=int, default=100_000)
    options.add_argument("--rounds", type=int, default=2)
    options.add_argument("--strategies", nargs="+", default=["FedStaleWeight", "FairShare", "FedBuff"])
    chosen = options.parse_args()
    print(
        f"{chosen.updates:,} updates each, one process; µs and s of processor time, minimum of {chosen.rounds} rounds"
    )
    print(
        f"{'strategy':15} {'clients':>10} {'µs/update':>10} {'÷ smallest':>11} {'updates/s':>10} "
        f"{'begin s':>8} {'checkpoint s':>13} {'peak MB':>8}"
    )
    for strategy in chosen.strategies:
        rounds = [[apart(cost, size, chosen.updates, strategy) for size in chosen.sizes] for _ in range(chosen.rounds)]
        least = min(answers[0].update for answers in rounds)
        for size, answers in zip(chosen.sizes, zip(*rounds, strict=True), strict=True):
            update = min(answer.update for answer in answers)
            print(
                f"{strategy:15} {size:>10,} {1e6 * update:>10.1f} {update / least:>11.2f} "
                f"{max(answer.speed for answer in answers):>10,.0f} {min(answer.begin for answer in answers):>8.1f} "
                f"{min(answer.checkpoint for answer in answers):>13.2f} "
                f"{max(answer.megabytes for answer in answers):>8,.0f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
