"""Whatever extras are installed, an experiment gives the same bytes."""

import subprocess
import sys
from pathlib import Path
from typing import Any

from fairlag.lab.folder import MODEL
from fairlag.lab.simulate import simulate
from fairlag.runtime.compiled import available

RUNS: dict[str, dict[str, Any]] = {
    "logistic": {"model": {"use": "logistic"}, "aggregations": 4000},
    "mlp": {"model": {"use": "mlp", "hidden": 8}, "aggregations": 4000},
    "cnn": {"model": {"use": "fashion_cnn"}, "aggregations": 4},
}
"""Small models for 20,000 updates: so many that compiling would pay."""

HIDE = "import sys; sys.modules['numba'] = None\n"
"""From then on, importing numba fails as if it were not installed."""


def models(folder: Path) -> dict[str, bytes]:
    """The final model of each run, made in a folder of its own."""
    tables: dict[str, Any] = {
        "name": "extras",
        "clients": [
            {"group": "fast", "count": 6, "delay": "uniform(1, 2)"},
            {"group": "slow", "count": 3, "delay": "exponential(9)"},
        ],
        "strategies": [{"use": "fedstaleweight", "buffer": 5}],
        "data": {"use": "digits"},
        "local": {"lr": 0.05, "batch": 8},
        "evaluate": {"every": 10**6, "sample": 10},
    }
    made = {name: simulate({**tables, **run}, out=folder / name, workers=1) for name, run in RUNS.items()}
    return {name: (run.folder / MODEL).read_bytes() for name, run in made.items()}


def test_numba_changes_no_byte(tmp_path: Path) -> None:
    assert available()
    here, elsewhere = models(tmp_path / "with"), tmp_path / "without"
    script = f"{HIDE}from pathlib import Path; from {__name__} import available, models\nassert not available()\n"
    script += f"models(Path({str(elsewhere)!r}))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
    assert {name: (elsewhere / name / MODEL).read_bytes() for name in RUNS} == here
