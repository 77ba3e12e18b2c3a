"""Worker processes give the bytes of the serial executor, whatever is asked in whatever order and whoever dies."""

import os
import pickle
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fairlag.core.server import Server
from fairlag.core.strategy import Strategy
from fairlag.core.types import Dispatch
from fairlag.errors import InputError, Interrupted, ProtocolError, WorkerError
from fairlag.execute import interrupted
from fairlag.execute.processes import Processes
from fairlag.execute.serial import Serial
from fairlag.execute.worker import Evaluation, Training
from fairlag.lab.experiment import parse as parse_experiment
from fairlag.lab.plan import Plan
from fairlag.lab.simulate import execute
from fairlag.learn.learner import Order
from fairlag.learn.local import Recipe
from fairlag.learn.placement import Placement
from fairlag.runtime import threads
from fairlag.zoo import ALGORITHMS, fedbuff, fedstaleweight
from tests.support.executors import (
    BY_ACCOUNT,
    FLEET,
    NOTHING,
    OVER,
    PLACES,
    PLAN,
    TABLES,
    compute_until,
    computed,
    deaths,
    everything,
    expected,
    handed_out,
    is_alive,
    killed,
    left,
    life,
    pids,
    settle,
    task,
    version,
)
from tests.support.learning import PLACEMENT, Fragile, Pools, blueprint, data, first, fragile, plain, unscaled
from tests.support.patience import wait_until


@pytest.fixture(scope="module")
def serial() -> Serial:
    return Serial(PLAN, data(), PLACES)


@pytest.fixture(scope="module")
def pools() -> Iterator[Pools]:
    with closing(Pools(PLAN, PLACES)) as made:
        yield made


@pytest.fixture
def pair(pools: Pools) -> Processes:
    pools[2].begin(0, PLACES)
    return pools[2]


@pytest.fixture
def single(pools: Pools) -> Processes:
    pools[1].begin(0, PLACES)
    return pools[1]


# Whole runs


@pytest.mark.slow
@pytest.mark.parametrize("strategy", [OVER, BY_ACCOUNT, *(each.make() for each in ALGORITHMS.values())], ids=str)
def test_any_number_of_workers(serial: Serial, pools: Pools, strategy: Strategy) -> None:
    expected = life(serial, strategy, 1)
    for workers in (1, 3):
        assert life(pools[workers], strategy, 1) == expected


def test_tasks_that_are_cancelled(serial: Serial, pair: Processes) -> None:
    run = life(pair, OVER, 1)
    assert run["outcomes"] == {"dispatched": 48, "aggregated": 32, "cancelled": 16}
    assert run == life(serial, OVER, 1)


def test_another_seed_is_another_run(serial: Serial, pair: Processes) -> None:
    """Without the seed's own order of the pixels, an integer buffer, the last two could not be equal."""
    runs = [life(pair, fedstaleweight(buffer=3), seed)["digest"] for seed in (1, 2, 1, 7)]
    assert runs[0] == runs[2]
    assert len(set(runs)) == 3
    assert runs[3] == life(serial, fedstaleweight(buffer=3), 7)["digest"]


def test_a_run_in_which_a_worker_is_killed_ends_with_the_same_bytes(serial: Serial, pair: Processes) -> None:
    before, strategy = pids(pair), fedbuff(buffer=3, concurrency=5)
    killed = life(pair, strategy, 5, {3: lambda: os.kill(pids(pair)[0], signal.SIGKILL)})
    assert killed == life(serial, strategy, 5)
    assert pids(pair)[0] != before[0]
    assert pids(pair)[1] == before[1]
    assert not is_alive(before[0])


@pytest.mark.slow
def test_experiments_leave_the_same_runs(tmp_path: Path) -> None:
    made = {}
    for workers in (1, 2):
        plan = Plan(parse_experiment(TABLES), (0, 5), tmp_path / str(workers))
        plan.save()
        made[workers] = execute(plan, workers=workers)
    assert len(made[1]) == 6
    for one, two in zip(made[1], made[2], strict=True):
        tensors = one.tensors()
        assert {name: array.tobytes() for name, array in two.tensors().items()} == {
            name: array.tobytes() for name, array in tensors.items()
        }
        for frame in ("aggregations", "tasks", "evaluations"):
            pd.testing.assert_frame_equal(getattr(one, frame), getattr(two, frame), check_exact=True)
        assert one.evaluations["version"].unique().tolist() == [0, 2, 4, 6]
    assert len({run.tensors()["1.weight"].tobytes() for run in made[2]}) == 6


# Single tasks


def test_results_are_read_in_any_order(serial: Serial, pair: Processes) -> None:
    tasks = [task(number, client=number % 12, version=number % 5) for number in range(20)]
    for each in tasks:
        pair.submit(each, version(each.version), due=float(each.task))
    found = {each.task: pair.result(each) for each in reversed(tasks)}
    assert [found[each.task].delta.tobytes() for each in tasks] == expected(serial, tasks)
    assert {update.report.examples for update in found.values()} == {7}
    assert not any(update.delta.flags.writeable for update in found.values())


def test_what_is_due_first_is_computed_first(pair: Processes) -> None:
    settle(pair)
    for number in range(30):
        pair.submit(task(number), version(0), due=float(-number))
    compute_until(pair, lambda: len(computed(pair)) >= 26)
    # The first four went out at once, and the others by when they are due.
    assert {0, 1, 2, 3} <= computed(pair)
    assert not {4, 5} & computed(pair)
    for number in range(30):
        pair.result(task(number))


def test_work_goes_to_whoever_has_least(pair: Processes) -> None:
    settle(pair)
    for number in range(10):
        pair.submit(task(number), version(0), due=0.0)
    assert handed_out(pair) == [2, 2]
    for number in range(10):
        pair.result(task(number))


def test_discarded_before_while_and_after(serial: Serial, pair: Processes) -> None:
    settle(pair)
    tasks = [task(number) for number in range(12)]
    for each in tasks:
        pair.submit(each, version(0), due=float(each.task))
    pair.discard(0)  # handed to a worker
    pair.discard(11)  # still waits
    result = pair.result(tasks[5])
    pair.discard(4)  # probably computed, as what comes after it is
    rest = [pair.result(each) for each in (tasks[1], tasks[10])]
    compute_until(pair, lambda: computed(pair) == {2, 3, 6, 7, 8, 9})
    pair.discard(9)  # computed
    for number in (0, 4, 9, 11):
        with pytest.raises(ProtocolError, match=f"task {number} of client 1 was never submitted, or its result was"):
            pair.result(task(number))
    found = [each.delta.tobytes() for each in (result, *rest)]
    assert found == expected(serial, [tasks[5], tasks[1], tasks[10]])
    assert computed(pair) == {2, 3, 6, 7, 8}


def test_evaluations_come_in_the_order_in_which_they_were_asked_for(serial: Serial, pair: Processes) -> None:
    for executor in (serial, pair):
        executor.begin(0, PLACES)
        for number in range(10):
            executor.evaluate(number, version(number), due=float(-number), asked=36 - number)
    found: list[tuple[int, list[list[float]]]] = []
    while len(found) < 10:
        found += [(number, plain(score)) for number, score in pair.evaluated(1.0)]
    assert found == [(number, plain(score)) for number, score in serial.evaluated()]
    assert [number for number, _ in found] == list(range(10))
    assert pair.evaluated(1.0) == []


@pytest.mark.parametrize("seed", range(8))
def test_random_orders_of_everything(serial: Serial, pair: Processes, seed: int) -> None:
    everything(serial, pair, seed, deaths={60} if seed == 7 else set())


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 130))
def test_many_random_orders_of_everything_with_deaths(serial: Serial, pools: Pools, seed: int) -> None:
    everything(serial, pools[1 + seed % 3], seed, deaths={seed - 90} if seed % 3 else set())


def test_threads_that_ask_at_once(serial: Serial, pair: Processes) -> None:
    tasks = [task(number, client=number % 12) for number in range(60)]
    for each in tasks:
        pair.submit(each, version(0), due=float(-each.task))
    with ThreadPoolExecutor(8) as several:
        found = [update.delta.tobytes() for update in several.map(pair.result, tasks)]
    assert found == expected(serial, tasks)


def test_a_run_in_real_time(pair: Processes) -> None:
    """One thread for each client asks for results while the server's thread submits and cancels."""
    server = Server(OVER, clients=12, parameters=first(PLAN), aggregations=5)
    assert threads.run(server, FLEET, pair, speed=200).reason == "5 aggregations were made"
    assert server.counts["aggregated"] == 20
    assert server.counts["lost"] == 0


def test_a_new_run_forgets_what_was_under_way(serial: Serial, pair: Processes) -> None:
    for number in range(10):
        pair.submit(task(number), version(0), 0.0)
        pair.evaluate(number // 4, version(0), 0.0, 36)
    pair.begin(8, PLACES)
    assert left(pair) == NOTHING and handed_out(pair) == [0, 0]
    assert pair.evaluated(0.1) == []
    with pytest.raises(ProtocolError, match="task 3 of client 1 was never submitted"):
        pair.result(task(3))
    tasks = [task(number, client=2) for number in range(4)]
    for each in tasks:
        pair.submit(each, version(0), 0.0)
    assert [pair.result(each).delta.tobytes() for each in tasks] == expected(serial, tasks, seed=8)


def test_a_new_run_may_share_out_the_examples_differently(serial: Serial, pair: Processes) -> None:
    other = Placement(PLACES.holdings[::-1].copy(), np.array([*range(12), 84]), PLACES.tests[::-1].copy(), PLACES.steps)
    results = []
    for executor in (serial, pair):
        executor.begin(0, other)
        executor.submit(task(0, client=11), version(0), 0.0)
        executor.evaluate(0, version(0), 0.0, 3)
        update = executor.result(task(0, client=11))
        while not (scores := executor.evaluated(1.0)):
            pass
        results.append((update.delta.tobytes(), update.report.examples, plain(scores[0][1])))
    assert results[0] == results[1]
    assert results[0][1] == 73


def test_nothing_large_goes_over_the_line(pair: Processes, monkeypatch: pytest.MonkeyPatch) -> None:
    settle(pair)
    sizes: list[int] = []
    send, receive = Connection.send, Connection.recv

    def sent(line: Connection, message: Any) -> None:
        sizes.append(len(pickle.dumps(message)))
        send(line, message)

    def received(line: Connection) -> Any:
        message = receive(line)
        sizes.append(len(pickle.dumps(message)))
        return message

    monkeypatch.setattr(Connection, "send", sent)
    monkeypatch.setattr(Connection, "recv", received)
    life(pair, fedbuff(buffer=3, concurrency=5), 1)
    assert len(sizes) > 60
    assert max(sizes) < 600
    assert len(pickle.dumps(Training(10**9, 5, 5, Order(2**64 - 1, 10**6, 10**6, 1e9, 10**6, 0.1)))) < 150
    assert len(pickle.dumps(Evaluation(-(10**9), 5, (10**6, 10**6)))) < 100
    assert first(PLAN).nbytes > 8000


# Deaths


@pytest.mark.slow
def test_what_a_worker_said_before_it_died_is_heard(serial: Serial, pair: Processes) -> None:
    settle(pair)
    tasks = [task(0), task(1)]
    for each in tasks:
        pair.submit(each, version(0), 0.0)
    worker = pair._workers[0]
    assert worker.line.poll(30)
    os.kill(worker.process.pid or 0, signal.SIGKILL)
    worker.process.wait()
    more = [task(2), task(3)]
    for each in more:
        pair.submit(each, version(0), 0.0)
    found = [pair.result(each).delta.tobytes() for each in (*tasks, *more)]
    assert found == expected(serial, [*tasks, *more])
    assert deaths(pair) == {"task 2 of client 1": 1}


@pytest.mark.slow
def test_a_worker_that_dies_idle_is_replaced_once(serial: Serial, single: Processes) -> None:
    pool = single
    settle(pool)
    killed(pool)
    assert pool.evaluated() == []
    compute_until(pool, lambda: deaths(pool))
    assert deaths(pool) == {"waiting for a job": 1}
    pool.submit(task(0), version(0), 0.0)
    assert [pool.result(task(0)).delta.tobytes()] == expected(serial, [task(0)])
    killed(pool)
    with pytest.raises(
        WorkerError, match=r"^a worker process died twice at waiting for a job \(exit code -9\), perhaps"
    ):
        compute_until(pool, lambda: False)
    pool.begin(0, PLACES)
    pool.submit(task(0), version(0), 0.0)
    assert [pool.result(task(0)).delta.tobytes()] == expected(serial, [task(0)])


@pytest.mark.slow
def test_a_worker_that_dies_at_its_start_is_replaced_once(serial: Serial, single: Processes) -> None:
    pool = single
    settle(pool)
    killed(pool)  # idle: the first death
    compute_until(pool, lambda: deaths(pool))
    pool.submit(task(0), version(0), 0.0)
    killed(pool)  # the new one, which imports torch
    assert [pool.result(task(0)).delta.tobytes()] == expected(serial, [task(0)])
    assert deaths(pool) == {"waiting for a job": 1, "its start": 1}


@pytest.fixture(scope="module")
def weak() -> Iterator[Processes]:
    """A pool whose workers end at the examples of client 0 and raise at those of client 1, and at the last test."""
    marks = {0: Fragile.ENDS, 1: Fragile.ENDS, 7: Fragile.RAISES, 119: Fragile.RAISES, 118: Fragile.ENDS}
    plan = unscaled(fragile, Recipe(epochs=1, batch=50))
    pool = Processes(plan, data(marks=marks), PLACEMENT, workers=1)
    yield pool
    pool.close()


def submitted(pool: Processes, seed: int, *tasks: Dispatch) -> None:
    """Begins a run of the fragile model, whose tasks are due in this order."""
    pool.begin(seed, PLACEMENT)
    for place, each in enumerate(tasks):
        pool.submit(each, first(unscaled(fragile)), float(place))


def test_a_task_that_ends_its_worker_twice_fails_the_run(weak: Processes) -> None:
    submitted(weak, 0, task(4, client=2), task(5, client=0))
    assert weak.result(task(4, client=2)).report.examples == 40
    with pytest.raises(
        WorkerError, match=r"^a worker process died twice at task 5 of client 0 \(exit code 3\), perhaps"
    ):
        weak.result(task(5, client=0))


def test_a_pool_goes_on_with_the_next_run_and_an_exception_names_task_and_client(weak: Processes) -> None:
    submitted(weak, 1, task(6, client=1), task(7, client=2))
    assert weak.result(task(7, client=2)).report.examples == 40
    with pytest.raises(
        InputError, match=r"^task 6 of client 1 failed: ValueError: no such layer \(learning\.py, line \d+\)$"
    ):
        weak.result(task(6, client=1))
    assert deaths(weak) in ({}, {"task 5 of client 0": 1})


def test_an_evaluation_that_fails_or_ends_its_worker(weak: Processes) -> None:
    start = first(unscaled(fragile))
    weak.begin(2, Placement(PLACEMENT.holdings, PLACEMENT.bounds, PLACEMENT.tests[::-1].copy(), PLACEMENT.steps))
    weak.evaluate(3, start, 0.0, 1)
    with pytest.raises(
        InputError, match=r"^evaluating version 3 failed: ValueError: no such layer \(learning\.py, line \d+\)$"
    ):
        while not weak.evaluated(1.0):
            pass
    weak.evaluate(4, start, 0.0, 40)
    with pytest.raises(WorkerError, match="died twice at evaluating version 4"):
        while not weak.evaluated(1.0):
            pass


# The beginning and the end


def test_a_function_that_does_not_travel_is_refused_before_a_process_starts() -> None:
    with pytest.raises(
        InputError,
        match=r"^the experiment cannot be sent to other processes \(.*lambda.*\): "
        r"use workers=1, or name your function as 'module:function'$",
    ):
        Processes(blueprint(lambda: None), data(), PLACES, workers=2)  # type: ignore[arg-type, return-value]


def test_no_workers_are_refused() -> None:
    with pytest.raises(InputError, match=r"^workers is 0, it must be at least 1$"):
        Processes(PLAN, data(), PLACES, workers=0)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_close_leaves_no_process_behind() -> None:
    pool = Processes(PLAN, data(), PLACES, workers=2)
    pool.submit(task(0), version(0), 0.0)
    before = pids(pool)
    assert all(map(is_alive, before))
    pool.close()
    assert not any(map(is_alive, before))
    pool.close()


ORPHANS = """
import os, time
from tests.support.executors import pids, settle
from tests.support.learning import PLACEMENT, blueprint, data, first
from fairlag.execute.processes import Processes
from fairlag.learn.local import Recipe
from fairlag.core.types import Dispatch
if __name__ == "__main__":
    plan = blueprint(recipe=Recipe(steps=10**9))
    pool = Processes(plan, data(), PLACEMENT, workers=2)
    pool.submit(Dispatch(0, 0, 0, 0, 0.0), first(plan), 0.0)
    settle(pool)
    print(*pids(pool), flush=True)
    time.sleep(600)
"""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_interrupts_do_not_reach_workers_which_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    """One of them computes for ever, the other has nothing to do. A terminal sends Ctrl-C to all processes."""
    (tmp_path / "orphans.py").write_text(ORPHANS)
    command = [sys.executable, str(tmp_path / "orphans.py")]
    found = [str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    here = {**os.environ, "PYTHONPATH": os.pathsep.join(found)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=here) as parent:
        assert parent.stdout is not None
        workers = [int(word) for word in parent.stdout.readline().split()]
        try:
            assert len(workers) == 2
            for worker in workers:
                (held,) = re.findall(r"SigBlk:\s+(\w+)", Path(f"/proc/{worker}/status").read_text())
                assert int(held, 16) >> (signal.SIGINT - 1) & 1
                os.kill(worker, signal.SIGINT)
            assert all(map(is_alive, workers))
        finally:
            parent.kill()
    wait_until(lambda: not any(map(is_alive, workers)))


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_a_worker_that_is_stopped_is_replaced_and_said(
    serial: Serial, pair: Processes, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("fairlag.execute.processes._CHECK_INTERVAL", 0.01)
    settle(pair)
    before, strategy = pids(pair), fedbuff(buffer=3, concurrency=5)
    stopped = life(pair, strategy, 5, {3: lambda: os.kill(before[0], signal.SIGSTOP)})
    assert stopped == life(serial, strategy, 5)
    assert not is_alive(before[0])
    assert pids(pair)[1] == before[1]
    assert deaths(pair) == {}
    said = capfd.readouterr().err.splitlines()
    assert len(said) == 1
    assert re.fullmatch(rf"worker process {before[0]} is stopped \(SIGSTOP\): another one replaces it .+", said[0])


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_ctrl_c_is_obeyed_while_a_stopped_worker_is_waited_for(serial: Serial, single: Processes) -> None:
    settle(single)
    os.kill(pids(single)[0], signal.SIGSTOP)
    single.submit(task(0), version(0), 0.0)
    pressed = interrupted.set(lambda: True)
    try:
        with pytest.raises(Interrupted, match=r"^interrupted while task 0 of client 1 was running$"):
            single.result(task(0))
    finally:
        interrupted.reset(pressed)
        os.kill(pids(single)[0], signal.SIGCONT)
    assert [single.result(task(0)).delta.tobytes()] == expected(serial, [task(0)])
