"""What other tests share with test_lab_plan.py."""

from pathlib import Path
from typing import Any

from fairlag.lab.experiment import Experiment, parse

FLEET: dict[str, Any] = {
    "name": "idle",
    "aggregations": 5,
    "clients": [{"group": "all", "count": 8, "delay": "uniform(1, 2)"}],
}


def idle(*strategies: Any, folder: Path | None = None, **tables: Any) -> Experiment:
    """An experiment that trains nothing."""
    uses = [dict(each) if isinstance(each, dict) else {"use": each} for each in strategies or ("fedbuff",)]
    return parse({**FLEET, "strategies": uses, **tables}, folder)
