"""Secure aggregation with real processes on loopback: SuperLink, SuperNodes and a mask keeper, killed and restarted."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pandas as pd
import pytest

from fairlag.lab.run import Run
from tests.support.ports import free_ports
from tests.test_deployment import settled, until, version

HOME = Path(__file__).parent.parent / "examples" / "flower"
sys.path.append(str(HOME))

from federation import Federation  # noqa: E402

pytestmark = pytest.mark.slow

AGGREGATIONS = 14
ALONE = "no weights are within the bound of 0.6 per client; clients in the buffer: 1"
"""Why a buffer is refused if one client sent all of its updates. Who sends when depends on the machine."""


@pytest.fixture
def federation(tmp_path: Path) -> Iterator[Federation]:
    made = Federation(tmp_path / "federation", port=free_ports(6), secure=True)
    try:
        yield made
    finally:
        made.close()


def without_step(out: Path) -> pd.Series:
    """Why each aggregation made no step; empty if it made one."""
    return Run(out).aggregations["refused"]


def test_a_masked_fleet_survives_a_killed_server_a_killed_node_and_a_killed_keeper(
    federation: Federation, tmp_path: Path
) -> None:
    out, log = tmp_path / "run", federation.folder / "logs" / "superlink.log"
    config = f"by-key=true strategy='buffered_fedavg' out='{out}' aggregations={AGGREGATIONS} sleep=0.1"
    config += f" keeper='{federation.keeper}' keys='{federation.mask_keys}'"
    start = ["run", ".", "fleet", "--run-config", config]
    federation.start()

    def wait(done: Callable[[], bool], what: str) -> None:
        until(done, what, log)

    federation.flwr(*start)
    wait(lambda: version(out) >= 2, "version 2")
    federation.stop("superlink", kill=True)
    wait(lambda: Run(out).status == "interrupted", "the end of the ServerApp")
    kept = version(out)
    federation.start_superlink()
    federation.flwr(*start)
    wait(lambda: version(out) >= kept + 3, "training after the restart of the server")
    federation.stop("node-1", kill=True)
    federation.stop("keeper", kill=True)
    wait(lambda: bool((~without_step(out).isin(["", ALONE])).any()), "a buffer that is lost without a keeper")
    federation.start_keeper()
    wait(lambda: settled(out), "the end")

    run = Run(out)
    refused, lost = without_step(out), run.tasks[run.tasks["outcome"] == "lost"]
    senders = run.tasks.groupby("aggregation")["client"].nunique()
    assert run.version == AGGREGATIONS and ((senders == 1) == (refused == ALONE).to_numpy()).all()
    unkept = refused[~refused.isin(["", ALONE])]
    assert unkept.str.contains("the keeper").all() and unkept.index.min() >= kept + 3, unkept.tolist()
    # Each restart costs buffers or tasks, which are counted with their reason, and nothing else.
    assert "the server was restarted" in set(lost["reason"]) and run.refusals.empty
    assert run.curve()["accuracy"].max() > 0.3
    weights = run.tasks.groupby("aggregation")["weight"].sum()
    assert ((weights == 0) == (refused != "").to_numpy()).all()
