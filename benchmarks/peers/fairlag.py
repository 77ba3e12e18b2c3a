"""fairlag: FedBuff on the paper's fleet in virtual time, by `fairlag.simulate`, with the store."""

import time
from typing import Any

from benchmarks.peers import work
from fairlag.data.dataset import Dataset
from fairlag.lab.events import Event, Progress
from fairlag.lab.experiment import load
from fairlag.lab.simulate import simulate
from fairlag.runtime.compiled import available

LONG = 100_000
"""Updates of the run with `engine = "compiled"`, which needs the extra `fast`."""
EVALUATIONS = {"fashion_cnn": 4, "logistic": 100}


def fashion_cnn() -> Dataset:
    return _data("fashion_cnn")


def logistic() -> Dataset:
    return _data("logistic")


def _data(name: str) -> Dataset:
    images, labels, train = work.examples(name)
    return Dataset(f"{name}'s", images, labels, 10, train)


def run(
    name: str, aggregations: int, workers: int, every: int, engine: str = "standard"
) -> list[tuple[int, float, float, int]]:
    """Updates, time, processor time and version at every progress report, from the first version to the last but one.

    The last is left out, because the final evaluation comes before its report.
    """
    marks: list[tuple[int, float, float, int]] = []

    def watch(event: Event) -> None:
        if isinstance(event, Progress) and 0 < event.version < aggregations:
            marks.append((event.updates, time.perf_counter(), time.process_time(), event.version))

    changes: dict[str, Any] = {
        "aggregations": aggregations,
        "data": {"use": {"fashion_cnn": fashion_cnn, "logistic": logistic}[name], "holdout": "official"},
        "model": {"use": name},
        "local": {"steps": 1, "batch": work.BATCH, "lr": work.LR, "engine": engine},
        "evaluate": {"every": every},
        "strategies": [{"use": "fedbuff", "buffer": work.BUFFER, "concurrency": work.CLIENTS}],
    }
    simulate(load("paper-fashion-mnist").checked(**changes), workers=workers, watch=watch)
    return marks


def evaluation(name: str, update: float) -> float | None:
    """What one evaluation adds to the time of a run that evaluates every version; None if noise hides it."""
    marks = run(name, 2 + EVALUATIONS[name], 1, 1)
    updates, seconds, _, versions = (end - begin for end, begin in zip(marks[-1], marks[0], strict=True))
    added = seconds - updates * update
    return added / versions if versions and added > 0 else None


def main() -> None:
    options = work.options()
    long = options.variant == "long"
    if long and not available():
        raise SystemExit("the extra `fast` is not installed")
    workers, wanted = (1, LONG) if long else (int(options.variant or 1), options.updates)
    engine = "compiled" if long else "standard"
    marks = run(options.model, (work.WARM + wanted) // work.BUFFER + 1, workers, 10**9, engine)
    marks = [mark for mark in marks if mark[0] >= work.WARM]
    meter = work.Meter(wanted)
    meter.marks = [mark[:3] for mark in (marks[0], marks[-1])]
    updates, seconds, _ = meter.counted
    apart = None if options.variant else evaluation(options.model, seconds / updates)
    work.report(meter, options.model, "fairlag", evaluation=apart, processes=workers)


if __name__ == "__main__":
    main()
