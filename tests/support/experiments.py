"""Small experiments, as tables and parsed."""

from pathlib import Path
from typing import Any

from fairlag.lab.experiment import Experiment, parse
from fairlag.zoo import ALGORITHMS


def small(name: str, size: int = 2, **options: Any) -> dict[str, Any]:
    """An algorithm of the zoo as an experiment names it. Only its sizes differ: they fit a small fleet."""
    known = ALGORITHMS[name].parameters
    sizes = {each: size for each in ("buffer", "cohort", "concurrency") if each in known and known[each].default}
    return {"use": name, **sizes, **options}


def fast_and_slow(fast: int, slow: int) -> list[dict[str, Any]]:
    """Clients with the delays of the paper's two groups."""
    return [
        {"group": "fast", "count": fast, "delay": "uniform(1, 2)"},
        {"group": "slow", "count": slow, "delay": "uniform(8, 12)"},
    ]


PAPER = fast_and_slow(10, 5)
STALE = {"use": "fedstaleweight", "buffer": 5}


def tables(clients: list[dict[str, Any]], *strategies: dict[str, Any], aggregations: int = 1500) -> dict[str, Any]:
    """An experiment without data."""
    return {"name": "fleet", "aggregations": aggregations, "clients": clients, "strategies": strategies or [STALE]}


LEAN = {
    "name": "lean",
    "aggregations": 300,
    "clients": fast_and_slow(4, 2),
    "strategies": [{"use": "fedbuff", "concurrency": 3, "buffer": 2}],
}
"""An experiment without data, in which some clients wait for their turn."""

SMALL = {
    "name": "small",
    "aggregations": 20,
    "clients": fast_and_slow(3, 2),
    "strategies": [{"use": "fairshare", "buffer": 2}],
}
"""A short experiment without data."""


def three_on_digits(name: str, *, slow: str, model: str, lr: float) -> dict[str, Any]:
    """Two fast clients and a slow one with equal shares of the digits; only the last version is tested, on all."""
    return {
        "name": name,
        "clients": [
            {"group": "fast", "count": 2, "delay": "uniform(2, 3)"},
            {"group": "slow", "count": 1, "delay": slow},
        ],
        "data": {"use": "digits", "partition": "iid"},
        "model": {"use": model},
        "local": {"steps": 10, "batch": 32, "lr": lr},
        "evaluate": {"every": 1_000_000, "sample": "all"},
    }


IDLE: dict[str, Any] = {
    "name": "idle",
    "aggregations": 5,
    "clients": [{"group": "all", "count": 8, "delay": "uniform(1, 2)"}],
}


def idle(*strategies: Any, folder: Path | None = None, **tables: Any) -> Experiment:
    """An experiment that trains nothing."""
    uses = [dict(each) if isinstance(each, dict) else {"use": each} for each in strategies or ("fedbuff",)]
    return parse({**IDLE, "strategies": uses, **tables}, folder)


DROPPING: dict[str, Any] = {
    "name": "threads",
    "aggregations": 12,
    "data": {"use": "digits"},
    "model": {"use": "tests.support.learning:dropping"},
    "local": {"steps": 2, "batch": 16, "lr": 0.1},
    "evaluate": {"every": 4, "sample": 100},
    "clients": fast_and_slow(4, 2),
    "strategies": [{"use": "fedstaleweight", "buffer": 3}],
}
"""An experiment on digits, with dropout in the model."""
