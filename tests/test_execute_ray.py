"""Ray actors give the bytes of the serial executor, whatever is asked in whatever order and whoever dies."""

import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from fairlag.core.strategy import Strategy
from fairlag.errors import InputError, WorkerError
from fairlag.execute import cluster
from fairlag.execute import ray as executor
from fairlag.execute.ray import Actors
from fairlag.execute.serial import Serial
from fairlag.lab.plan import Plan
from fairlag.lab.run import Run
from fairlag.lab.simulate import execute, simulate
from fairlag.learn.blueprint import Blueprint
from fairlag.learn.local import Recipe
from fairlag.rules.local import Local
from fairlag.zoo import asofed, fedstaleweight
from tests.support.clusters import CPUS, pids
from tests.support.executors import (
    BY_ACCOUNT,
    NOTHING,
    OVER,
    PLACES,
    PLAN,
    TABLES,
    everything,
    expected,
    handed_out,
    left,
    life,
    settle,
    task,
    version,
)
from tests.support.experiments import fast_and_slow
from tests.support.learning import PLACEMENT, Fragile, blueprint, data, first, fragile, plain, unscaled
from tests.support.memories import ASO, rounds, saved
from tests.support.memories import PLACES as FEW
from tests.support.memories import PLAN as REMEMBERING
from tests.support.resuming import contents
from tests.test_execute_misbehaving import CNN, EVERY_KIND, attacked

BATCHED = blueprint("mlp", Recipe(steps=2, batch=8))


@pytest.fixture(scope="module")
def local(ray_address: str) -> Iterator[cluster.Cluster]:
    """A cluster that this process is in, as every executor then is."""
    with closing(cluster.Cluster(ray_address)) as joined:
        yield joined


Make = Callable[..., Actors]


@pytest.fixture
def make(local: cluster.Cluster) -> Iterator[Make]:
    """Makes executors on the local cluster, which are closed afterwards."""
    with ExitStack() as left:

        def made(plan: Blueprint = PLAN, places: Any = PLACES, workers: int = 2, **how: Any) -> Actors:
            given = how.pop("given", None) or data()
            address = how.pop("address", local.address)
            return left.enter_context(closing(Actors(plan, given, places, address=address, workers=workers, **how)))

        yield made


@pytest.fixture(scope="module")
def serial() -> Serial:
    return Serial(PLAN, data(), PLACES)


def kill(pool: Actors, place: int = 0) -> None:
    os.kill(pids(pool)[place], signal.SIGKILL)


# The same bytes


@pytest.mark.slow
@pytest.mark.parametrize("strategy", [OVER, fedstaleweight(buffer=3), BY_ACCOUNT, asofed()], ids=str)
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
        simulate(TABLES, strategy="fedbuff", seed=5, out=tmp_path / name, executor=name, workers=workers, address=at)
        for name, workers, at in (("serial", 1, None), ("ray", 2, local.address))
    )
    assert {name: array.tobytes() for name, array in one.tensors().items()} == {
        name: array.tobytes() for name, array in two.tensors().items()
    }
    for frame in ("aggregations", "tasks", "evaluations"):
        assert getattr(one, frame).equals(getattr(two, frame))
    for personalised in (False, True):
        found = one.client_scores("loss", personalised=personalised)
        assert len(found) == 12 and found.equals(two.client_scores("loss", personalised=personalised))


@pytest.mark.slow
def test_attackers_and_defences_leave_the_same_run(local: cluster.Cluster, tmp_path: Path) -> None:
    """Every behaviour at once; defences that read updates, and steps on the server's own examples."""
    defences = [
        {"use": "fedstaleweight", "buffer": 5, "defence": each} for each in ("zeno", "aflguard(2)", "kardam(2)")
    ]
    data = {"use": "digits", "partition": "iid", "trusted": 60}
    whole = attacked(None, CNN, clients=[*fast_and_slow(3, 2), *EVERY_KIND], strategies=defences, data=data)
    plans = {name: Plan(whole, (3,), tmp_path / name) for name in ("serial", "ray")}
    execute(plans["serial"], new=True, workers=1, executor="serial")
    execute(plans["ray"], new=True, workers=2, executor="ray", address=local.address)
    for one, two in zip(*plans.values(), strict=True):
        assert contents(one.folder) == contents(two.folder), one.use.label
        tasks = Run(one.folder).tasks.groupby("outcome")["client"].agg(set)
        attackers = set(range(5, 5 + len(EVERY_KIND)))
        assert tasks["refused"] & attackers and tasks["aggregated"] & attackers, one.use.label


@pytest.mark.slow
def test_a_new_run_forgets_what_was_under_way(serial: Serial, make: Make) -> None:
    pool = make()
    for number in range(10):
        pool.submit(task(number), version(0), 0.0)
        pool.evaluate(number // 4, version(0), 0.0, 36)
    other = type(PLACES)(PLACES.holdings[::-1].copy(), PLACES.bounds, PLACES.tests, PLACES.steps)
    pool.begin(8, other)
    assert left(pool) == NOTHING and not any(handed_out(pool))
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

    def noted(value: Any) -> Any:
        put.append(once(value))
        return put[-1]

    def held() -> int:
        """How many of the stored versions anybody but this test refers to."""
        (unheld,) = (sys.getrefcount(each) for each in [object()])
        return sum(sys.getrefcount(each) > unheld for each in put)

    def look() -> None:
        assert max(handed_out(pool)) <= 2
        assert held() > 0

    monkeypatch.setattr(pool._ray, "put", noted)
    run = life(pool, fedstaleweight(buffer=3), 2, dict.fromkeys(range(1, 9), look))
    assert len(put) == 1 + 9, "the placement, and the versions 0 to 8, each once"
    assert run["outcomes"]["dispatched"] > 20
    del run, put[0]
    gc.collect()  # the server of that run, which is in a cycle of references, holds its last versions
    for number in range(1000, 1200):  # other numbers than the run's, whose last tasks may still be at work
        one = task(number, version=number)
        pool.submit(one, version(number), 0.0)
        pool.result(one)
    assert len(put) == 9 + 200
    assert held() == len(pool._stored) == 1, "the newest"


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
    with pytest.raises(
        InputError, match=r"^task 6 of client 1 failed: ValueError: no such layer \(learning\.py, line \d+\)$"
    ):
        weak.result(task(6, client=1))
    weak.evaluate(3, start, 0.0, 1)
    with pytest.raises(
        InputError, match=r"^evaluating version 3 failed: ValueError: no such layer \(learning\.py, line \d+\)$"
    ):
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


MODEL = """
from tests.support.learning import dropping
def model(shape, classes):
    return dropping(shape, classes)
"""


@pytest.mark.slow
@pytest.mark.parametrize("there", [True, False], ids=["found", "not found"])
def test_a_function_of_a_module_that_python_finds_only_here(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    (tmp_path / "own_model.py").write_text(MODEL)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "own_model", raising=False)
    own = import_module("own_model")
    if not there:
        (tmp_path / "own_model.py").unlink()
    pool = make(blueprint(own.model))
    pool.submit(task(0), first(blueprint(own.model)), 0.0)
    if there:
        assert pool.result(task(0)).report.examples == 7
    else:
        with pytest.raises(WorkerError, match=r"^a Ray actor cannot be made: .*No module named 'own_model'"):
            pool.result(task(0))


@pytest.mark.slow
def test_no_room_for_an_actor_is_said_after_a_while(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor, "_START_TIMEOUT", 3.0)
    make(workers=CPUS)
    pool = make(workers=1)
    pool.submit(task(0), version(0), 0.0)
    with pytest.raises(WorkerError, match=r"^no Ray actor could start within 3 seconds: each needs a free CPU"):
        pool.result(task(0))


@pytest.mark.slow
def test_a_process_is_in_one_cluster_only(make: Make) -> None:
    with pytest.raises(
        InputError, match=r"is already in the Ray cluster at 127\.0\.0\.1:\d+: it cannot join .* '127\.0\.0\.1:1'$"
    ):
        make(address="127.0.0.1:1")


@pytest.mark.slow
def test_a_job_whose_nodes_are_lost_is_tried_more_often_than_one_that_kills(make: Make) -> None:
    pool = make(workers=1)
    unseen = pool._ray.exceptions.ActorUnavailableError("out of sight", None)

    def lose() -> None:
        settle(pool)
        pool.submit(task(0), version(0), 0.0)
        assert any(handed_out(pool))
        pool._replace(pool._workers[0], unseen)

    for _ in range(executor._MAX_NODE_LOSSES):
        lose()
    with pytest.raises(
        WorkerError, match=r"^the node of a Ray actor died 4 times at task 0 of client 1 \(.*out of sig"
    ):
        lose()


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_an_actor_that_is_stopped_is_replaced_and_said(
    serial: Serial, make: Make, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(executor, "_CHECK_INTERVAL", 0.05)
    pool = make(workers=1)
    settle(pool)
    (before,) = pids(pool)
    os.kill(before, signal.SIGSTOP)
    pool.submit(task(0), version(0), 0.0)
    assert [pool.result(task(0)).delta.tobytes()] == expected(serial, [task(0)])
    assert pids(pool) != [before]
    assert f"worker process {before} is stopped (SIGSTOP): another one replaces it" in capfd.readouterr().err


@pytest.mark.slow
def test_the_first_to_leave_a_shared_cluster_does_not_end_it(local: cluster.Cluster) -> None:
    """As threads do that simulate at once."""
    with closing(cluster.Cluster("auto")) as second:
        assert second.cpus == local.cpus == CPUS
    assert local.ray.is_initialized()
