"""Ray actors give the bytes of the serial executor, on one node or several, whoever dies; and leave nothing behind."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fairlag.errors import InputError, WorkerError
from fairlag.execute import cluster
from fairlag.execute import ray as executor
from fairlag.execute.ray import Actors
from fairlag.execute.serial import Serial
from fairlag.lab.run import Run
from fairlag.lab.simulate import execute, simulate
from fairlag.learn.learner import Blueprint
from fairlag.learn.local import Recipe
from fairlag.rules.local import Local
from fairlag.strategy import Strategy
from fairlag.zoo import asofed, fedbuff, fedstaleweight
from tests.command import Call
from tests.learning import PLACEMENT, Fragile, blueprint, data, first, fragile, plain, unscaled
from tests.test_execute_memories import ASO, rounds, saved
from tests.test_execute_memories import PLACES as FEW
from tests.test_execute_memories import PLAN as REMEMBERING
from tests.test_execute_processes import OVER, PLACES, PLAN, TABLES, everything, expected, is_alive, life, task, version
from tests.test_lab_resume import begun, contents, planned, under_way

BATCHED = blueprint("mlp", Recipe(steps=2, batch=8))
CPUS = 6
"""Of the local cluster: more than any test has actors at once."""


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[cluster.Cluster]:
    """A cluster of our own, in whose process every executor is on it."""
    folder = tmp_path_factory.mktemp("local")
    with closing(cluster.Cluster(None, CPUS, folder)) as made:
        yield made
    assert list(folder.iterdir()) == []


Make = Callable[..., Actors]


@pytest.fixture
def make(local: cluster.Cluster, tmp_path: Path) -> Iterator[Make]:
    """Makes executors on the local cluster, which are closed afterwards."""
    with ExitStack() as left:

        def made(plan: Blueprint = PLAN, places: Any = PLACES, workers: int = 2, **how: Any) -> Actors:
            given = how.pop("given", None) or data()
            return left.enter_context(closing(Actors(plan, given, places, folder=tmp_path, workers=workers, **how)))

        yield made


@pytest.fixture(scope="module")
def serial() -> Serial:
    return Serial(PLAN, data(), PLACES)


def pids(pool: Actors) -> list[int]:
    """The processes of the actors, once these have done what they were handed."""
    asked = [worker.actor.__ray_call__.remote(lambda actor: os.getpid()) for worker in pool._workers]
    found: list[int] = pool._ray.get(asked)
    return found


def kill(pool: Actors, place: int = 0) -> None:
    os.kill(pids(pool)[place], signal.SIGKILL)


def wait_until(met: Callable[[], object], seconds: float = 30.0) -> None:
    until = time.monotonic() + seconds
    while not met():
        assert time.monotonic() < until, "in vain"
        time.sleep(0.05)


def settle(pool: Actors, seconds: float = 60.0) -> None:
    """Waits until every actor has started."""

    def ready() -> bool:
        pool._pump(0.05)
        return all(worker.ready for worker in pool._workers)

    wait_until(ready, seconds)


# The same bytes


@pytest.mark.slow
@pytest.mark.parametrize("strategy", [OVER, fedstaleweight(buffer=3), asofed()], ids=str)
def test_a_run_is_that_of_the_serial_executor(serial: Serial, make: Make, strategy: Strategy) -> None:
    """A CNN with dropout; tasks that are cancelled, old versions, and clients who remember."""
    assert life(make(), strategy, 1) == life(serial, strategy, 1)


@pytest.mark.slow
def test_small_models_that_are_trained_together_elsewhere(make: Make) -> None:
    with closing(Serial(BATCHED, data(), PLACES)) as alone:
        assert alone._learner.batched
        found = []
        for each in (alone, make(BATCHED)):
            each.begin(3, PLACES, Local())
            tasks = [task(number, client=number % 12, version=number % 3) for number in range(30)]
            starts = [first(BATCHED, seed) for seed in range(3)]
            for one in tasks:
                each.submit(one, starts[one.version], float(one.task))
            each.evaluate(0, starts[0], 0.0, 36)
            updates = [each.result(one) for one in tasks]
            while not (scores := each.evaluated(1.0)):
                pass
            found.append(([(one.delta.tobytes(), one.report) for one in updates], plain(scores[0][1])))
    assert found[0] == found[1]


@pytest.mark.slow
@pytest.mark.parametrize("deadly", [False, True], ids=["alive", "killed"])
def test_actors_remember_the_same_bytes(make: Make, deadly: bool) -> None:
    results = []
    for each in (Serial(REMEMBERING, data(), FEW), pool := make(REMEMBERING, FEW)):
        each.begin(4, FEW, ASO)
        found = rounds(each, 0, 1)
        found += rounds(each, 2, kill=(lambda: kill(pool)) if deadly and each is pool else None)
        found += rounds(each, 3)
        results.append((found, saved(each)))
    assert results[0] == results[1]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [7, 100, 101])
def test_random_orders_of_everything_with_deaths(serial: Serial, make: Make, seed: int) -> None:
    everything(serial, make(), seed, {60} if seed % 2 else set(), pids)


@pytest.mark.slow
def test_an_experiment_leaves_the_same_run(local: cluster.Cluster, tmp_path: Path) -> None:
    one, two = (
        simulate(TABLES, strategy="fedbuff", seed=5, out=tmp_path / name, executor=name, workers=workers)
        for name, workers in (("serial", 1), ("ray", 2))
    )
    assert {name: array.tobytes() for name, array in one.tensors().items()} == {
        name: array.tobytes() for name, array in two.tensors().items()
    }
    for frame in ("aggregations", "tasks", "evaluations"):
        assert getattr(one, frame).equals(getattr(two, frame))


@pytest.mark.slow
def test_a_new_run_forgets_what_was_under_way(serial: Serial, make: Make) -> None:
    pool = make()
    for number in range(10):
        pool.submit(task(number), version(0), 0.0)
        pool.evaluate(number // 4, version(0), 0.0, 36)
    other = type(PLACES)(PLACES.holdings[::-1].copy(), PLACES.bounds, PLACES.tests, PLACES.steps)
    pool.begin(8, other)
    assert (pool._orders, pool._done, pool._scores) == ({}, {}, {})
    assert not any(worker.jobs for worker in pool._workers)
    found = []
    for each in (pool, serial):
        each.begin(8, other)
        each.submit(task(3), version(0), 0.0)
        found.append(each.result(task(3)).delta.tobytes())
    assert found[0] == found[1] != expected(serial, [task(3)], 8)[0]


# The object store


@pytest.mark.slow
def test_versions_are_put_once_and_freed(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    pool = make()
    put: list[Any] = []
    once = pool._ray.put

    def counted(value: Any) -> Any:
        put.append(value if isinstance(value, np.ndarray) else None)
        return once(value)

    held: list[int] = []
    core = pool._ray._private.worker.global_worker.core_worker

    def look() -> None:
        assert all(len(worker.jobs) <= 2 for worker in pool._workers)
        held.append(len(core.get_all_reference_counts()))

    monkeypatch.setattr(pool._ray, "put", counted)
    strategy = fedstaleweight(buffer=3)
    run = life(pool, strategy, 2, dict.fromkeys(range(1, 9), look))
    sizes = [vector.nbytes for vector in put if vector is not None and vector.size == first(PLAN).size]
    assert len(sizes) == 9, "the versions 0 to 8, each once"
    assert run["outcomes"]["dispatched"] > 20
    assert len(pool._stored) < 9
    # Whatever the length of a run: the data, the placement, what is at work, and the few versions that tasks hold.
    before = len(core.get_all_reference_counts())
    for number in range(200):
        parameters = version(number)
        pool.submit(task(number, version=number), parameters, 0.0)
        del parameters
        pool.result(task(number, version=number))
    assert len(pool._stored) == 1
    assert len(core.get_all_reference_counts()) <= before
    assert max(held) < 40


@pytest.mark.slow
def test_data_are_stored_once_for_all_actors(make: Make) -> None:
    pool = make(workers=3)
    shared = pool._ray.get(
        [worker.actor.__ray_call__.remote(lambda actor: actor._given[1].flags.writeable) for worker in pool._workers]
    )
    assert shared == [False] * 3, "views of the store, which nobody may write"


# Failures and deaths


@pytest.fixture
def weak(make: Make) -> Actors:
    """Its actors end at the examples of client 0 and raise at those of client 1, and at the last test."""
    marks = {0: Fragile.ENDS, 1: Fragile.ENDS, 7: Fragile.RAISES, 80: Fragile.RAISES}
    return make(unscaled(fragile, Recipe(epochs=1, batch=50)), PLACEMENT, 1, given=data(marks=marks))


@pytest.mark.slow
def test_failures_are_worded_as_in_the_other_executors(weak: Actors) -> None:
    start = first(unscaled(fragile))
    weak.submit(task(6, client=1), start, 0.0)
    with pytest.raises(InputError, match=r"^task 6 of client 1 failed: ValueError: no such layer$"):
        weak.result(task(6, client=1))
    weak.evaluate(3, start, 0.0, 1)
    with pytest.raises(InputError, match=r"^evaluating version 3 failed: ValueError: no such layer$"):
        while not weak.evaluated(1.0):
            pass
    weak.submit(task(4, client=2), start, 0.0)
    weak.submit(task(5, client=0), start, 1.0)
    assert weak.result(task(4, client=2)).report.examples == 40
    with pytest.raises(WorkerError, match=r"^a Ray actor died twice at task 5 of client 0 \(The actor is dead because"):
        weak.result(task(5, client=0))
    weak.begin(1, PLACEMENT)
    weak.submit(task(7, client=2), start, 1.0)
    assert weak.result(task(7, client=2)).report.examples == 40


def sometimes(shape: tuple[int, ...], classes: int) -> Any:
    """A model that can be built here, but not by an actor."""
    if "RAY_RAYLET_PID" in os.environ:
        raise ValueError("not here")
    return fragile(shape, classes)


@pytest.mark.slow
def test_a_model_that_an_actor_cannot_build(make: Make) -> None:
    pool = make(unscaled(sometimes))
    pool.submit(task(0), first(unscaled(sometimes)), 0.0)
    with pytest.raises(InputError, match=r"^a worker cannot build the model: .*ValueError: not here"):
        pool.result(task(0))


@pytest.mark.slow
def test_no_room_for_an_actor_is_said_after_a_while(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor, "_NOBODY", 3.0)
    make(workers=CPUS)
    pool = make(workers=1)
    pool.submit(task(0), version(0), 0.0)
    with pytest.raises(WorkerError, match=r"^no Ray actor could start within 3 seconds: each needs a free CPU"):
        pool.result(task(0))


@pytest.mark.slow
def test_a_process_is_in_one_cluster_only(make: Make) -> None:
    with pytest.raises(InputError, match=r"in a Ray cluster already: leave out the address '127.0.0.1:6379'$"):
        make(address="127.0.0.1:6379")


# Several nodes


@contextmanager
def nodes(folder: Path, count: int) -> Iterator[Any]:
    """A cluster of so many nodes, each with one CPU, on loopback; the head, where we are, has none."""
    cluster.library()
    from ray.cluster_utils import Cluster  # not before the settings of cluster.library()

    how = {"node_ip_address": "127.0.0.1", "include_dashboard": False, "num_cpus": 0}
    with ExitStack() as left:
        for each in (cluster._on_loopback(), cluster._environment(cluster._QUIET), cluster._untidiness()):
            left.enter_context(each)
        place = left.enter_context(cluster._temporary(folder / "nodes"))
        made: Any = Cluster(initialize_head=True, head_node_args={**how, "temp_dir": place})
        left.callback(made.shutdown)
        for _ in range(count):
            made.add_node(num_cpus=1, node_ip_address="127.0.0.1")
        yield made


@pytest.mark.slow
def test_an_actor_and_a_node_that_die_in_the_middle(serial: Serial, tmp_path: Path) -> None:
    strategy = fedbuff(buffer=3, concurrency=5)
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
            assert [node["Alive"] for node in ray.nodes()].count(True) == 2
            # A node that comes takes the place of the one that went.
            made.add_node(num_cpus=1, node_ip_address="127.0.0.1")
            settle(pool)
            assert life(pool, strategy, 6) == life(serial, strategy, 6)
            last = pids(pool)
        assert not pool._ray.is_initialized()
        wait_until(lambda: not any(map(is_alive, last)))
        assert all(node.any_processes_alive() for node in made.list_all_nodes()), "left as it was"


@pytest.mark.slow
def test_a_job_whose_nodes_are_lost_is_tried_more_often_than_one_that_kills(make: Make) -> None:
    pool = make(workers=1)
    unseen = pool._ray.exceptions.ActorUnavailableError("out of sight", None)

    def lose() -> None:
        settle(pool)
        pool.submit(task(0), version(0), 0.0)
        assert pool._workers[0].jobs
        pool._replace(pool._workers[0], unseen)

    for _ in range(executor._LOST):
        lose()
    with pytest.raises(
        WorkerError, match=r"^the node of a Ray actor died 4 times at task 0 of client 1 \(.*out of sig"
    ):
        lose()


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
        (["--executor", "x"], "unknown executor 'x': known are: serial, processes, ray"),
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
        began = time.monotonic()
        done = call("run", "demo", "--executor", "ray", "--address", address, "--out", str(tmp_path / "runs"))
        assert time.monotonic() - began < 20
    assert done.code == 2
    assert f"no Ray cluster answers at the address '{address}' (no answer within 8 seconds)" in done.err


# The folder


@pytest.mark.parametrize("long", [False, True], ids=["short", "long"])
def test_the_path_is_short_and_its_files_are_in_the_folder(tmp_path: Path, long: bool) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as short:
        folder = tmp_path / ("x" * 80) if long else Path(short)
        for _ in range(2):
            with cluster._temporary(folder / ".ray") as place:
                Path(place).mkdir(exist_ok=True)
                assert len(place) <= 43
                Path(place, "log").write_text("there")
                assert (folder / ".ray" / "t" / "log").read_text() == "there"
                assert (folder / ".ray").stat().st_mode & 0o777 == 0o700
            assert list(folder.iterdir()) == []
            assert not Path(place).exists()
            (folder / ".ray").mkdir()
            (folder / ".ray" / "stale").write_text("left by a run that was killed")


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
    sockets = {str(link.readlink()) for pid in members for link in Path(f"/proc/{pid}/fd").iterdir()}
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
    whole, stopped = planned(tmp_path / "whole", use, 300), planned(tmp_path / "stopped", use, 300)
    process = begun(stopped.folder, 2, "ray")
    members = [process.pid]
    try:
        under_way(process)
        members = family(process.pid)
        assert len(members) > 5
        assert listening(members) <= LOOPBACK != set()
        assert (stopped.folder / ".ray").is_dir()
        os.killpg(process.pid, how) if how == signal.SIGINT else process.kill()
        process.communicate(timeout=60)
        wait_until(lambda: not any(map(is_alive, members)), 60)
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
