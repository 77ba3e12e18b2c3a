"""The preset of a million clients: a smaller fleet of its kind from end to end, and, slow, all of it within 4 GB."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fairlag.lab.experiment import load
from fairlag.lab.run import Run
from fairlag.lab.runs import runs
from tests.support.command import Call

SMALLER = [
    f"--set={key}={value}"
    for key, value in {
        "clients.phones.count": 14_000,
        "clients.old phones.count": 4_000,
        "clients.desktops.count": 2_000,
        "data.examples": 90_000,
        "data.holdout": 0.05,
        "evaluate.every": 20,
    }.items()
]
MEGABYTES = 4096


def test_it_is_what_it_says() -> None:
    experiment = load("million")
    assert experiment.population == 1_000_000
    assert [use.label for use in experiment.strategies] == ["FedStaleWeight", "FairShare", "FedBuff"]
    for use in experiment.strategies:
        assert experiment.strategy(use).select.places == 1000


def test_a_smaller_one_runs_from_end_to_end(call: Call, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = call("run", "million", "--out", str(out), "--aggregations", "80", *SMALLER)
    assert done.code == 0 and "Comparison of million" in done.out
    assert done.err.count(" updates/s, accuracy ") >= 3
    found = runs(out)
    for run in found:
        counts = run.meta["counts"]
        assert run.version == 80 and counts["aggregated"] == 8000 and len(run.clients) == 20_000
        assert counts["dispatched"] == 8000 + sum(counts[outcome] for outcome in ("lost", "running", "buffered"))
        assert counts["lost"] > 0  # whoever goes home leaves its task
        assert run.accuracy() > 0.3
    slow = {run.label: run.influence("group").set_index("group").loc["old phones"] for run in found}
    # Places are given at random, so nobody is heard more rarely for being slow: FedBuff discounts them for being late,
    # FedStaleWeight makes up for a silence that was none, and FairShare lies between.
    assert np.ptp([row["share"] for row in slow.values()]) < 0.02
    assert slow["FedBuff"]["influence"] < 0.8 * slow["FedBuff"]["share"]
    assert slow["FairShare"]["influence"] == pytest.approx(slow["FairShare"]["share"], rel=0.5)
    assert slow["FedStaleWeight"]["influence"] > 1.5 * slow["FedStaleWeight"]["share"]
    page = tmp_path / "page.html"
    assert call("report", str(out), "--out", str(page)).code == 0
    assert page.stat().st_size < 15e6


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "wait4"), reason="needs wait4 to see the memory that a process took")
def test_a_million_clients_fit_into_four_gigabytes_also_through_a_checkpoint(tmp_path: Path) -> None:
    out = tmp_path / "out"
    begin = ["run", "million", "--out", str(out), "--strategy", "FairShare", "--aggregations", "400"]
    code, peak = _command(*begin, interrupt=" of 400 aggregations")
    folder = out / "fairshare-seed0"
    assert code == 130 and peak < MEGABYTES
    assert Run(folder).status == "interrupted" and 100 <= Run(folder).version < 400
    assert list(folder.glob("checkpoint-*.safetensors"))
    code, peak = _command("resume", str(out))
    assert code == 0 and peak < MEGABYTES
    assert Run(folder).version == 400 and len(Run(folder).clients) == 1_000_000


def _command(*words: str, interrupt: str = "") -> tuple[int, float]:
    """How a process of its own ends, and how many megabytes it took at most; interrupted once it says that."""
    process = subprocess.Popen([sys.executable, "-m", "fairlag", *words], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    with process.stderr as told:
        for line in told:
            if interrupt and interrupt in line:
                process.send_signal(signal.SIGINT)
                interrupt = ""
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, usage.ru_maxrss / 1024
