"""A real deployment on loopback: a SuperLink and SuperNodes with TLS and keys, killed and started again; all slow."""

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fairlag.analyse.fit.fleet import fit_fleet
from fairlag.core.server import Server
from fairlag.errors import UnreadableError
from fairlag.lab.experiment import Experiment
from fairlag.lab.run import Run
from fairlag.runtime.virtual import run as live
from tests.support.command import Call
from tests.support.patience import PATIENCE, wait_until
from tests.support.ports import free_ports
from tests.support.states import books

HOME = Path(__file__).parent.parent / "examples" / "flower"
sys.path.append(str(HOME))

from federation import OFFLINE, Federation, make_key  # noqa: E402

pytestmark = pytest.mark.slow

AGGREGATIONS = 30


@contextmanager
def federated(folder: Path, **how: Any) -> Iterator[Federation]:
    made = Federation(folder, port=free_ports(6), **how)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def federation(tmp_path: Path) -> Iterator[Federation]:
    with federated(tmp_path / "federation") as made:
        yield made


def until(done: Callable[[], bool], what: str, log: Path, meanwhile: Callable[[], None] = lambda: None) -> None:
    """Looks twice a second, for every look opens a database."""

    def pause() -> None:
        meanwhile()
        time.sleep(0.5)

    wait_until(done, what, lambda: log.read_text(errors="replace")[-3000:], pause)


def version(out: Path) -> int:
    with suppress(UnreadableError):
        return Run(out).version
    return -1


def updates(out: Path, client: int) -> int:
    return int(Run(out).influence()["updates"].iloc[client])


def settled(out: Path) -> bool:
    with suppress(UnreadableError):
        return Run(out).status == "finished"
    return False


def replicated(experiment: Experiment, aggregations: int, group: str) -> np.ndarray:
    """What a group's influence is in as many runs as it takes to know how much it varies by chance."""
    (use,) = experiment.strategies
    found = []
    for seed in range(60):
        fleet = experiment.fleet(seed)
        server = Server(experiment.strategy(use), clients=fleet.clients, seed=seed, aggregations=aggregations)
        live(server, fleet)
        weights = server.view.weight_sums
        mine = [fleet.groups[each].name == group for each in fleet.group_of]
        found.append(weights[mine].sum() / weights.sum())
    return np.array(found)


def test_a_fleet_with_tls_and_keys_survives_a_killed_node_and_a_killed_server(
    federation: Federation, tmp_path: Path, call: Call
) -> None:
    out, log = tmp_path / "run", federation.folder / "logs" / "superlink.log"
    config = f"by-key=true strategy='fairshare' out='{out}' aggregations={AGGREGATIONS}"
    start = ["run", ".", "fleet", "--run-config", config]
    federation.start()

    # A node with a key that nobody registered is turned away.
    make_key(federation.folder / "keys" / "node-4")
    federation.nodes[4] = "fast:0"
    federation.start_node(4)
    stranger = federation.folder / "logs" / "node-4.log"

    def wait(done: Callable[[], bool], what: str) -> None:
        until(done, what, log, federation.supervise)

    federation.flwr(*start)
    wait(lambda: version(out) >= 6, "version 6")
    federation.stop("node-1", kill=True)
    before = updates(out, 1)
    at = version(out)
    wait(lambda: version(out) >= at + 2, "training without the killed node")
    federation.start_node(1)
    wait(lambda: updates(out, 1) > before, "its return")
    wait(lambda: version(out) >= 18, "version 18")

    # The SuperLink is killed, and with it the ServerApp: the app, run again, goes on.
    federation.stop("superlink", kill=True)
    wait(lambda: Run(out).status == "interrupted", "the end of the ServerApp")
    kept, accounts = Run(out).version, books(out)
    federation.start_superlink()
    number = re.findall(r"run (\d+)", federation.flwr(*start))[0]
    wait(lambda: settled(out), "the end")

    run = Run(out)
    assert kept >= 18 and run.version == AGGREGATIONS and run.meta["runtime"] == "flower"
    assert f"continues from version {kept}" in federation.flwr("log", number, "fleet", "--show")
    assert "SuperNode ID" not in stranger.read_text(errors="replace")

    # Four clients, whatever was killed: history was kept, and the counts add up.
    assert run.clients["client"].to_list() == [0, 1, 2, 3]
    assert run.clients["group"].to_list() == ["fast", "fast", "slow", "slow"]
    heard = run.influence().set_index("client")
    assert updates(out, 1) > before > 0
    assert (heard["updates"] > 0).all() and heard["examples"].min() > 0
    counts = run.meta["counts"]
    assert counts["dispatched"] == sum(count for name, count in counts.items() if name != "dispatched")
    assert counts["aggregated"] == run.aggregations["updates"].sum() == 2 * AGGREGATIONS and not counts["refused"]
    tasks = run.tasks
    assert counts["lost"] == (tasks["outcome"] == "lost").sum() > 0
    reasons = tasks[tasks["outcome"] == "lost"].groupby("reason")["client"].agg(set).to_dict()
    mishaps = {"its node went offline", "its node was restarted"}
    assert set(reasons) <= {*mishaps, "the server was restarted"} and set().union(
        *(clients for reason, clients in reasons.items() if reason in mishaps)
    ) == {1}

    # Four accounts, too: what each had earned is still there, and all of it adds up to the versions.
    after = books(out)
    assert len(after.spent) == 4 and (after.earned >= accounts.earned).all()
    assert accounts.earned.sum() + accounts.accounts.kept == pytest.approx(kept)
    assert after.earned.sum() + after.accounts.kept == pytest.approx(AGGREGATIONS)
    assert after.accounts.balances.min() >= -1e-9

    # It learns, and slow nodes are as slow as they are.
    accuracy = run.curve()["accuracy"]  # it goes up and down with whose updates came in last
    assert accuracy.iloc[-6:].mean() > 0.5 and accuracy.iloc[-6:].mean() > accuracy.iloc[:6].mean() + 0.1
    durations = (tasks["ended"] - tasks["dispatched"])[tasks["outcome"] == "aggregated"]
    assert durations[tasks["client"] >= 2].min() > 8

    # Who it listened to is what an audit of the delays that were seen says, within what chance does to so short a run.
    predicted = replicated(fit_fleet(run, split=False).experiment, AGGREGATIONS, "slow")
    measured = run.influence("group").set_index("group").loc["slow", "influence"]
    assert abs(measured - predicted.mean()) < 4 * predicted.std(), (measured, predicted.mean(), predicted.std())

    # And it is a run like any other.
    assert call("compare", str(out)).code == 0
    assert call("report", str(out), "--out", str(tmp_path / "page.html")).code == 0
    assert call("fit-fleet", str(out), "--out", str(tmp_path / "fleet.toml")).code == 0
    assert call("audit", str(tmp_path / "fleet.toml"), "--seeds", "1", "--aggregations", "200").code == 0


def test_an_attacker_is_refused_by_the_servers_own_step(tmp_path: Path) -> None:
    """One of five nodes flips the sign of its updates; the server holds some examples."""
    out, nodes = tmp_path / "run", ("honest:0", "honest:1", "honest:2", "honest:3", "attacker:4")

    def sent() -> dict[str, set[int]]:
        """The clients by what became of their updates."""
        with suppress(UnreadableError):
            return {str(outcome): set(rows["client"]) for outcome, rows in Run(out).tasks.groupby("outcome")}
        return {}

    def heard() -> bool:
        return {0, 1, 2, 3} <= sent().get("aggregated", set()) and 4 in sent().get("refused", set())

    with federated(tmp_path / "federation", nodes=nodes, fleet="attacked") as federation:
        federation.start()
        config = f"fleet='attacked' strategy='aflguard' at-least=5 out='{out}' aggregations=100"
        config += f" allow='{federation.allowed}'"
        federation.flwr("run", ".", "fleet", "--run-config", config)
        log = federation.folder / "logs" / "superlink.log"
        until(heard, "an update of each node", log, federation.supervise)
    refused = Run(out).tasks.query("outcome == 'refused'")
    assert set(refused["reason"]) == {"far from the server's own step"} and 4 not in sent()["aggregated"]


@pytest.fixture
def short() -> Iterator[str]:
    """A folder with a short name: Ray's sockets must have paths of at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="fl-", ignore_cleanup_errors=True) as folder:
        yield folder


def test_the_same_app_runs_in_flowers_simulation(tmp_path: Path, short: str) -> None:
    out, home = tmp_path / "run", tmp_path / "flwr"
    home.mkdir()
    port = free_ports(2)
    (home / "config.toml").write_text(
        f'[superlink]\ndefault = "here"\n\n[superlink.here]\naddress = "127.0.0.1:{port}"\ninsecure = true\n'
    )
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, **OFFLINE, "FLWR_HOME": str(home), "PATH": path, "RAY_TMPDIR": short}
    environment["RAY_worker_niceness"] = "0"  # or tests beside this one would starve its workers
    log = tmp_path / "superlink.log"
    command = f"flower-superlink --insecure --simulation --host 127.0.0.1 --port {port}"
    with log.open("wb") as written:
        link = subprocess.Popen(
            [*command.split(), "--disable-runtime-dependency-installation"],
            env=environment,
            stdout=written,
            stderr=written,
            start_new_session=True,
        )
    fleet = "num-supernodes=4 client-resources-num-cpus=1 init-args-num-cpus=4"
    words = ["run", ".", "here", "--federation-config", fleet]
    words += ["--run-config", f"out='{out}' aggregations=12 sleep=0.2"]
    try:
        until(lambda: "Uvicorn running" in log.read_text(errors="replace"), "the SuperLink", log)
        done = subprocess.run(["flwr", *words], env=environment, cwd=HOME, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        until(lambda: settled(out), "the end", log)
    finally:
        link.terminate()
        link.wait(timeout=PATIENCE)
    run = Run(out)
    assert run.version == 12 and run.clients["group"].to_list() == ["fast", "fast", "slow", "slow"]
    updates = run.influence()["updates"]
    assert (updates > 0).all() and updates[0] + updates[1] > updates[2] + updates[3]
    assert run.curve()["accuracy"].max() > 0.4
