"""Fleets whose runs are made without training, and runs that are changed by hand."""

from pathlib import Path
from typing import Any

from fairlag.lab.experiment import parse
from fairlag.lab.plan import Plan
from fairlag.lab.run import Run
from fairlag.lab.runs import runs
from fairlag.lab.simulate import execute
from tests.support.sealed import edited

PAPER = [
    {"group": "fast", "count": 10, "delay": "uniform(1, 2)"},
    {"group": "slow", "count": 5, "delay": "uniform(8, 12)"},
]
STALE = {"use": "fedstaleweight", "buffer": 5}


def tables(clients: list[dict[str, Any]], *strategies: dict[str, Any], aggregations: int = 1500) -> dict[str, Any]:
    """An experiment without data."""
    return {"name": "fleet", "aggregations": aggregations, "clients": clients, "strategies": strategies or [STALE]}


def made(folder: Path, experiment: dict[str, Any], *seeds: int) -> list[Run]:
    """Its runs."""
    execute(Plan(parse(experiment), seeds or (0,), folder), new=True, workers=1)
    return runs(folder)


def changed(run: Run, *statements: str) -> Run:
    """The same run, its database changed."""
    with edited(run.folder) as database:
        for statement in statements:
            database.execute(statement)
    return Run(run.folder)


def deployed(run: Run) -> Run:
    """The same run as if a real fleet had made it."""
    return changed(run, "REPLACE INTO meta VALUES ('runtime', '\"flower\"')")
