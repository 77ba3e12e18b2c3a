"""The Ray cluster at an address may lose nodes, and is left as it was; what cannot be had is said."""

import os
import signal
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from fairlag.execute import cluster
from fairlag.execute import ray as executor
from fairlag.execute.ray import Actors
from fairlag.execute.serial import Serial
from fairlag.lab.run import Run
from fairlag.lab.simulate import execute, simulate
from fairlag.zoo import fedbuff
from tests.support.clusters import pids, several
from tests.support.command import Call
from tests.support.executors import PLACES, PLAN, TABLES, handed_out, is_alive, life, settle
from tests.support.learning import data
from tests.support.patience import PATIENCE, wait_until
from tests.support.resuming import begun, contents, planned, under_way


@pytest.mark.slow
def test_an_actor_and_a_node_that_die_in_the_middle() -> None:
    strategy, serial = fedbuff(buffer=3, concurrency=5), Serial(PLAN, data(), PLACES)
    with several(2) as made:
        with closing(Actors(PLAN, data(), PLACES, address=made.address)) as pool:
            assert len(handed_out(pool)) == 2, "as many as there are CPUs"
            ray = pool._ray
            settle(pool)
            one, two = (worker.node for worker in pool._workers)
            assert one != two, "each on its node"
            lost = next(node for node in made.worker_nodes if node.node_id == two)
            before = pids(pool)
            happens = {
                2: lambda: os.kill(before[0], signal.SIGKILL),
                5: lambda: made.remove_node(lost, allow_graceful=False),
            }
            assert life(pool, strategy, 5, happens) == life(serial, strategy, 5)
            assert not any(map(is_alive, before))
            assert {kind for kind, _, _ in pool._deaths} <= {"a Ray actor", executor._NODE}
            wait_until(lambda: [node["Alive"] for node in ray.nodes()].count(True) == 2)
            # A node that comes takes the place of the one that went.
            made.add_node(num_cpus=1, node_ip_address="127.0.0.1")
            settle(pool)
            assert life(pool, strategy, 6) == life(serial, strategy, 6)
            last = pids(pool)
        assert not pool._ray.is_initialized()
        wait_until(lambda: not any(map(is_alive, last)))
        assert all(node.any_processes_alive() for node in made.list_all_nodes()), "left as it was"


KILLED = """
import sys, time
from tests.test_execute_cluster import PLACES, PLAN, Actors, data, pids, settle
pool = Actors(PLAN, data(), PLACES, address=sys.argv[1], workers=2)
settle(pool)
print(*pids(pool), flush=True)
time.sleep(600)
"""


@pytest.mark.slow
def test_an_experiment_on_a_cluster_that_is_there(
    ray_address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", ray_address)
    before = signal.getsignal(signal.SIGTERM)
    one, two = (
        simulate(TABLES, strategy="fedbuff", seed=5, out=tmp_path / name, executor=name, address=at, workers=1)
        for name, at in (("serial", None), ("ray", "auto"))
    )
    assert {name: array.tobytes() for name, array in one.tensors().items()} == {
        name: array.tobytes() for name, array in two.tensors().items()
    }
    assert signal.getsignal(signal.SIGTERM) is before
    killed = [sys.executable, "-c", KILLED, ray_address]
    with subprocess.Popen(killed, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        actors = [int(word) for word in process.stdout.readline().split()]
        assert len(actors) == 2 and all(map(is_alive, actors))
        process.kill()
    wait_until(lambda: not any(map(is_alive, actors)))
    wait_until_free(ray_address)


# What is not there


def test_ray_is_imported_only_where_it_is_used() -> None:
    """The module of the executor itself included; also, nothing is missing without it."""
    code = "import sys, fairlag, fairlag.execute.ray, fairlag.cli.run; sys.exit('ray' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_without_ray_a_sentence_says_how_to_get_it(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    done = call("run", "demo", "--executor", "ray", "--address", "auto", "--out", str(tmp_path / "runs"))
    assert done.code == 2
    assert done.err == "fairlag: the executor ray needs the extra `ray`: pip install 'fairlag[ray]'\n"
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--executor", "rays"], "unknown executor 'rays': did you mean 'ray'?"),
        (["--executor", "x"], "unknown executor 'x': choose from processes, ray, serial"),
        (["--address", "auto"], "the address 'auto' is only for the executor ray"),
        (
            ["--executor", "ray"],
            "needs the address of a Ray cluster: run `ray start --head`, then give `--address auto`",
        ),
        (
            ["--executor", "serial", "--workers", "2"],
            "workers is 2, but the executor serial has only one: use processes or",
        ),
        (["--executor", "ray", "--workers", "0"], "--workers is 0, it must be at least 1"),
        (["--executor", "ray", "--address", "there"], "the address of a Ray cluster is HOST:PORT or auto, not 'there'"),
        (["--executor", "ray", "--address", "ray://a:1"], "is HOST:PORT or auto, not 'ray://a:1'"),
        (["--executor", "ray", "--address", "a:99999"], "is HOST:PORT or auto, not 'a:99999'"),
    ],
    ids=" ".join,
)
def test_options_that_do_not_fit(call: Call, tmp_path: Path, words: list[str], sentence: str) -> None:
    done = call("run", "demo", *words, "--out", str(tmp_path / "runs"))
    assert done.code == 2
    assert done.err.count("\n") == 1 and sentence in done.err
    assert not (tmp_path / "runs").exists()


def test_an_address_at_which_nobody_listens(call: Call, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
    done = call("run", "demo", "--executor", "ray", "--address", address, "--out", str(tmp_path / "runs"))
    assert done.code == 2
    assert f"no Ray cluster answers at the address '{address}' ([Errno 111] Connection refused)" in done.err
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_an_address_at_which_somebody_else_listens(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "_JOIN_TIMEOUT", 8.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        done = call("run", "demo", "--executor", "ray", "--address", address, "--out", str(tmp_path / "runs"))
    assert done.code == 2
    assert f"no Ray cluster answers at the address '{address}' (no answer within 8 seconds)" in done.err


# Processes


def wait_until_free(address: str) -> None:
    """Nobody uses a CPU of the cluster any more: all actors have ended, and it lives."""
    with closing(cluster.Cluster(address)) as joined:
        ray = joined.ray
        wait_until(lambda: ray.available_resources().get("CPU") == joined.cpus, "the end of all actors")


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL], ids=["Ctrl-C", "kill -9"])
def test_no_actor_is_left_and_the_run_goes_on(ray_address: str, tmp_path: Path, how: signal.Signals) -> None:
    """A terminal sends Ctrl-C to the whole group of processes."""
    use = {"use": "fedbuff", "buffer": 3, "concurrency": 5}
    whole, stopped = planned(tmp_path / "whole", use, 60), planned(tmp_path / "stopped", use, 60)
    process = begun(stopped.folder, 2, "ray", ray_address)
    try:
        under_way(process)
        os.killpg(process.pid, how) if how == signal.SIGINT else process.kill()
        process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
        process.communicate()
    (one,), (other,) = whole, stopped
    assert Run(other.folder).status == "interrupted"
    wait_until_free(ray_address)
    execute(whole, workers=1)
    execute(stopped, executor="ray", workers=2, address=ray_address)
    assert contents(one.folder) == contents(other.folder)
