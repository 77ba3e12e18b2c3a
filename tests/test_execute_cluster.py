"""A cluster of our own is on loopback and leaves nothing behind; one that was there may lose nodes, and is left."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from fairlag.execute import cluster
from fairlag.execute import ray as executor
from fairlag.execute.ray import Actors
from fairlag.execute.serial import Serial
from fairlag.lab.run import Run
from fairlag.lab.simulate import execute, simulate
from fairlag.zoo import fedbuff
from tests.command import Call
from tests.learning import data
from tests.patience import PATIENCE, wait_until
from tests.test_execute_processes import PLACES, PLAN, TABLES, is_alive, life
from tests.test_execute_ray import pids, settle
from tests.test_lab_resume import begun, contents, planned, under_way

# Several nodes


@contextmanager
def nodes(folder: Path, count: int) -> Iterator[Any]:
    """A cluster of so many nodes, each with one CPU, on loopback; the head, where we are, has none."""
    cluster.library()
    from ray.cluster_utils import Cluster  # not before the settings of cluster.library()

    how = {"node_ip_address": "127.0.0.1", "include_dashboard": False, "num_cpus": 0}
    with ExitStack() as left:
        settings = {**cluster._QUIET, **cluster._PROMPT, "RAY_TMPDIR": str(folder / "last")}
        for each in (cluster._on_loopback(), cluster._environment(settings), cluster._untidiness()):
            left.enter_context(each)
        # Where Ray notes the address of its last cluster; a cluster with a place of its own does not make this one.
        Path(os.environ["RAY_TMPDIR"], "ray").mkdir(parents=True, exist_ok=True)
        place = left.enter_context(cluster._temporary(folder / "nodes"))
        made: Any = Cluster(initialize_head=True, head_node_args={**how, "temp_dir": place})
        left.callback(made.shutdown)
        for _ in range(count):
            made.add_node(num_cpus=1, node_ip_address="127.0.0.1")
        yield made


@pytest.mark.slow
def test_an_actor_and_a_node_that_die_in_the_middle(tmp_path: Path) -> None:
    strategy, serial = fedbuff(buffer=3, concurrency=5), Serial(PLAN, data(), PLACES)
    with nodes(tmp_path, 2) as made:
        with closing(Actors(PLAN, data(), PLACES, folder=tmp_path, address=made.address)) as pool:
            assert len(pool._workers) == 2, "as many as there are CPUs"
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
from pathlib import Path
from tests.test_execute_cluster import PLACES, PLAN, Actors, data, pids, settle
pool = Actors(PLAN, data(), PLACES, folder=Path(), address=sys.argv[1])
settle(pool)
print(*pids(pool), flush=True)
time.sleep(600)
"""


@pytest.mark.slow
def test_an_experiment_on_a_cluster_that_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with nodes(tmp_path, 1) as made:
        monkeypatch.setenv("RAY_ADDRESS", made.address)
        before = signal.getsignal(signal.SIGTERM)
        one, two = (
            simulate(TABLES, strategy="fedbuff", seed=5, out=tmp_path / name, executor=name, address=address)
            for name, address in (("serial", None), ("ray", "auto"))
        )
        assert {name: array.tobytes() for name, array in one.tensors().items()} == {
            name: array.tobytes() for name, array in two.tensors().items()
        }
        assert signal.getsignal(signal.SIGTERM) is before
        assert not (tmp_path / "ray" / ".ray").exists()
        killed = [sys.executable, "-c", KILLED, made.address]
        with subprocess.Popen(killed, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            (actor,) = map(int, process.stdout.readline().split())
            assert is_alive(actor)
            process.kill()
        wait_until(lambda: not is_alive(actor))
        assert all(node.any_processes_alive() for node in made.list_all_nodes()), "left as it was"


# What is not there


def test_ray_is_imported_only_where_it_is_used() -> None:
    """The module of the executor itself included; also, nothing is missing without it."""
    code = "import sys, fairlag, fairlag.execute.ray, fairlag.cli.run; sys.exit('ray' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_without_ray_a_sentence_says_how_to_get_it(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    done = call("run", "demo", "--executor", "ray", "--out", str(tmp_path / "runs"))
    assert done.code == 2
    assert done.err.startswith("fairlag: the executor ray needs Ray (")
    assert done.err.endswith("): pip install 'fairlag[ray]'\n")
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--executor", "rays"], "unknown executor 'rays': did you mean 'ray'?"),
        (["--executor", "x"], "unknown executor 'x': known are: processes, ray, serial"),
        (["--address", "auto"], "the address 'auto' is that of a Ray cluster: it needs the executor ray"),
        (["--executor", "serial", "--workers", "2"], "workers is 2, but the serial executor is one: take processes or"),
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
    monkeypatch.setattr(cluster, "_SILENT", 8.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        done = call("run", "demo", "--executor", "ray", "--address", address, "--out", str(tmp_path / "runs"))
    assert done.code == 2
    assert f"no Ray cluster answers at the address '{address}' (no answer within 8 seconds)" in done.err


# The folder


@pytest.mark.parametrize("long", [False, True], ids=["short", "long"])
def test_the_path_is_short_and_its_files_are_in_the_folder(tmp_path: Path, long: bool) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as short:
        folder = tmp_path / ("x" * 80) if long else Path(short)
        with cluster._temporary(folder / ".ray") as place:
            Path(place).mkdir(exist_ok=True)
            assert len(place) <= 43
            Path(place, "log").write_text("there")
            assert (folder / ".ray" / "t" / "log").read_text() == "there"
            assert (folder / ".ray").stat().st_mode & 0o777 == 0o700
        assert list(folder.iterdir()) == []
        assert not Path(place).exists()
        # Of a run that was killed, the next one removes what is left.
        killed = cluster._temporary(folder / ".ray")
        place = killed.__enter__()
        Path(place).mkdir(exist_ok=True)
        Path(place, "log").write_text("stale")
        with cluster._temporary(folder / ".ray"):
            assert not Path(place, "log").exists()
            assert Path(place).parent.exists() != long


# Processes


def family(pid: int) -> list[int]:
    """A process and all that it, and they, started."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (FileNotFoundError, ProcessLookupError):
                continue
            children.setdefault(parent, []).append(int(entry.name))
    found = [pid]
    for each in found:
        found += children.get(each, [])
    return found


def listening(members: list[int]) -> set[str]:
    """The addresses at which these processes listen, as Linux writes them."""
    sockets = set()
    for pid in members:
        with suppress(FileNotFoundError):  # it has ended
            for link in Path(f"/proc/{pid}/fd").iterdir():
                with suppress(FileNotFoundError):  # it was closed
                    sockets.add(str(link.readlink()))
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and f"socket:[{words[9]}]" in sockets:
                found.add(words[1].partition(":")[0])
    return found


LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F"}


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL], ids=["Ctrl-C", "kill -9"])
def test_nothing_is_left_running_and_the_run_goes_on(tmp_path: Path, how: signal.Signals) -> None:
    """A terminal sends Ctrl-C to the whole group of processes."""
    use = {"use": "fedbuff", "buffer": 3, "concurrency": 5}
    whole, stopped = planned(tmp_path / "whole", use, 60), planned(tmp_path / "stopped", use, 60)
    process = begun(stopped.folder, 2, "ray")
    members = [process.pid]
    try:
        under_way(process)
        members = family(process.pid)
        assert len(members) > 5
        assert listening(members) <= LOOPBACK != set()
        assert (stopped.folder / ".ray").is_dir()
        os.killpg(process.pid, how) if how == signal.SIGINT else process.kill()
        process.communicate(timeout=PATIENCE)
        wait_until(lambda: not any(map(is_alive, members)))
    finally:
        for each in filter(is_alive, members):
            os.kill(each, signal.SIGKILL)
        process.communicate()
    (one,), (other,) = whole, stopped
    assert Run(other.folder).status == "interrupted"
    execute(whole, workers=1)
    execute(stopped, executor="ray", workers=2)
    assert contents(one.folder) == contents(other.folder)
    assert not (stopped.folder / ".ray").exists()
