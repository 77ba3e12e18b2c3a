"""Load in memory: `fairlag.deploy` with many nodes that only wait, and the time that each part of the server takes.

    python -m benchmarks.load.memory FOLDER [--nodes 200] [--seconds 3600] [--unit 1] [--parameters 650]

Three of four nodes are fast: their tasks take U(5, 10) units, those of slow ones U(40, 60); a unit is in seconds. The
folder gets `run`, `samples.csv` and `summary.json`.
"""

import argparse
import itertools
import json
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from flwr.app import Message

import fairlag
from benchmarks.load.sampled import grown, read, sampled, spread
from fairlag.core.server import Server
from fairlag.core.types import Arrived, Event
from fairlag.execute.background import BackgroundEvaluator
from fairlag.lab.loop import RunLoop
from fairlag.lab.run import Run
from fairlag.lab.store import Store
from fairlag.runtime.flower.wire import GREETING, Wire
from tests.support.flower_grid import FakeGrid, FakeNode, trained

EVERY = 5.0
"""Seconds between two samples."""
CHANGE = 0.01
"""How much a task adds to all parameters, or takes from them."""
FAST, SLOW = (5.0, 10.0), (40.0, 60.0)

Asked = tuple[float, int, Message]
"""When a reply is ready, from which node, and what it replies to."""


class PacedGrid(FakeGrid):
    """A Flower grid in memory whose nodes reply after drawn delays; a reply is made only when it is fetched."""

    def __init__(self, delays: dict[int, tuple[float, float]], seed: int = 0) -> None:
        super().__init__({number: FakeNode({"partition-id": number}) for number in delays})
        self._delays = delays
        self._draws = np.random.default_rng(seed)
        self._under_way: dict[str, Asked] = {}
        self._count = itertools.count()
        self.ready: dict[int, float] = {}
        """Per node: when its last reply was ready."""
        self.pulls = 0

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        names = []
        for message in messages:
            number, name = message.metadata.dst_node_id, f"message {next(self._count)}"
            message.metadata.__dict__["_message_id"] = name
            with self._lock:
                low, high = (0.0, 0.0) if message.metadata.message_type == GREETING else self._delays[number]
                due = time.monotonic() + low + (high - low) * self._draws.random()
                self._under_way[name] = due, number, message
            names.append(name)
        return names

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        now, replies = time.monotonic(), []
        self.pulls += 1
        for name in message_ids:
            due, number, message = self._under_way[name]
            if due <= now:
                del self._under_way[name]
                self.ready[number] = due
                replies.append(self.reply(number, message))
        return replies

    def reply(self, number: int, message: Message) -> Message:
        if message.metadata.message_type == GREETING:
            return self.nodes[number].introduce(message)
        return trained(message, CHANGE if self._draws.random() < 0.5 else -CHANGE)


class Phases:
    """How long the parts of a server took, call by call."""

    def __init__(self) -> None:
        self.took: dict[str, list[float]] = {}
        self.processor: dict[str, float] = {}
        """Per part: the seconds of processor time of its thread."""
        self.late: list[float] = []
        """Per update: the seconds from when it was ready until the server handled it."""

    def timed(self, call: Callable[..., Any], phase: str) -> Callable[..., Any]:
        """The same function, every call of which is timed."""
        took = self.took.setdefault(phase, [])
        self.processor[phase] = 0.0

        @wraps(call)
        def measured(*arguments: Any, **named: Any) -> Any:
            began, busy = time.perf_counter(), time.thread_time()
            try:
                return call(*arguments, **named)
            finally:
                took.append(time.perf_counter() - began)
                self.processor[phase] += time.thread_time() - busy

        return measured

    @contextmanager
    def observed(self, grid: PacedGrid) -> Iterator[None]:
        """Inside, every server of this process is timed."""
        parts: list[tuple[Any, str, str]] = [
            (Wire, "task", "pack"),
            (Wire, "update", "unpack"),
            (RunLoop, "_commit", "commit"),
            (Store, "commit", "commit: rows, checkpoint, syncs"),
            (Server, "handle", "handle"),
            (grid, "pull_messages", "ask, in other threads"),
            (grid, "reply", "ask: the nodes themselves"),
        ]
        began = BackgroundEvaluator.__init__
        merging = self.took.setdefault("handle: with a version", [])

        def begun(evaluator: BackgroundEvaluator, score: Callable[..., Any]) -> None:
            began(evaluator, self.timed(score, "evaluate, in another thread"))

        def handled(server: Server, event: Event) -> Any:
            if isinstance(event, Arrived):
                self.late.append(time.monotonic() - grid.ready[server.running[event.task].client])
            version, start = server.view.version, time.perf_counter()
            commands = handle(server, event)
            if server.view.version > version:
                merging.append(time.perf_counter() - start)
            return commands

        with ExitStack() as held:
            for owner, name, phase in parts:
                held.enter_context(patch.object(owner, name, self.timed(getattr(owner, name), phase)))
            handle = Server.handle
            held.enter_context(patch.object(Server, "handle", handled))
            held.enter_context(patch.object(BackgroundEvaluator, "__init__", begun))
            yield


def experiment(nodes: int, seconds: float, unit: float, parameters: int, buffer: int) -> dict[str, Any]:
    """The fleet, with a model of about this many parameters."""
    slow = nodes // 4
    logistic = parameters <= 650
    return {
        "name": "load",
        "aggregations": 10_000_000,
        "until_time": seconds,
        "data": {"use": "digits", "holdout": 0.2},
        "model": {"use": "logistic"} if logistic else {"use": "mlp", "hidden": (parameters - 10) // 75},
        "local": {"steps": 1, "batch": 32, "lr": 0.1},
        "evaluate": {"every": 10},
        "clients": [
            {"group": "fast", "count": nodes - slow, "delay": 7.5 * unit},
            {"group": "slow", "count": slow, "delay": 50.0 * unit},
        ],
        "strategies": [{"use": "fedstaleweight", "buffer": buffer}],
    }


def measure(folder: Path, *, nodes: int, seconds: float, unit: float, parameters: int, buffer: int) -> dict[str, Any]:
    """Runs a deployment for this long, and says how it went."""
    slow = nodes // 4
    spans = [FAST] * (nodes - slow) + [SLOW] * slow
    grid = PacedGrid({number: (low * unit, high * unit) for number, (low, high) in enumerate(spans)})
    phases = Phases()
    folder.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    with sampled(folder / "samples.csv", EVERY), phases.observed(grid):
        plan = experiment(nodes, seconds, unit, parameters, buffer)
        run = fairlag.deploy(grid, plan, out=folder / "run", at_least=nodes, insecure=True)
    took = time.monotonic() - began
    summary = {"nodes": nodes, "unit": unit, "parameters": parameters, "buffer": buffer, "seconds": took}
    return {**summary, **seen(run, phases, took), **grown(read(folder / "samples.csv")["tool"])}


def seen(run: Run, phases: Phases, took: float) -> dict[str, Any]:
    """What a run did, and where its time went; durations are in milliseconds."""
    times = run.aggregations["time"].to_numpy()
    files = sum(file.stat().st_size for file in run.folder.rglob("*") if file.is_file())
    parts = {
        name: {
            "calls": len(each),
            "share of the time": sum(each) / took,
            "cores": phases.processor.get(name, 0.0) / took,
            **spread([1000 * one for one in each]),
        }
        for name, each in phases.took.items()
    }
    return {
        "updates": len(phases.late),
        "updates/s": len(phases.late) / run.meta["virtual_time"],
        "versions": run.version,
        "versions/s": run.version / run.meta["virtual_time"],
        "refused": run.meta["counts"]["refused"],
        "between versions": spread(1000 * np.diff(times)),
        "late": spread([1000 * each for each in phases.late]),
        "run directory, MB": files / 1e6,
        "parts": parts,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="A deployment with many nodes in memory, measured.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--nodes", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--unit", type=float, default=1.0, help="seconds per unit of the delays")
    parser.add_argument("--parameters", type=int, default=650, help="about how many parameters the model has")
    parser.add_argument("--buffer", type=int, default=10, help="how many updates make a version")
    options = vars(parser.parse_args())
    folder = options.pop("folder")
    summary = measure(folder, **options)
    (folder / "summary.json").write_text(json.dumps(summary, indent=1))
    print(json.dumps(summary, indent=1))


if __name__ == "__main__":
    main()
