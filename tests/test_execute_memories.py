"""What clients remember between tasks: the same bytes in one process and in several, through deaths and discards."""

import os
import signal
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pytest

from fairlag.core.state import Stack, State, pack, unpack
from fairlag.core.vector import Matrix, Vector
from fairlag.errors import InputError, ProtocolError
from fairlag.execute import Learning
from fairlag.execute.memories import Memories
from fairlag.execute.processes import Processes
from fairlag.execute.serial import Serial
from fairlag.learn.learner import Learner, Order
from fairlag.learn.local import Recipe
from fairlag.learn.optimiser import parse
from fairlag.rules.local import Local, toward_drift
from tests.support.executors import compute_until, computed, pids
from tests.support.learning import Pools, data
from tests.support.memories import ASO, CLIENTS, PLACES, PLAN, START, rounds, saved, task


@pytest.fixture(scope="module")
def pools() -> Iterator[Pools]:
    with closing(Pools(PLAN, PLACES)) as made:
        yield made


@pytest.fixture(scope="module")
def serial() -> Serial:
    return Serial(PLAN, data(), PLACES)


def remembered(executor: Learning) -> dict[int, bytes]:
    state = executor.state()
    clients, kept = state["clients"], state["kept"]
    assert isinstance(clients, np.ndarray) and isinstance(kept, Stack)
    return {client: row.tobytes() for client, row in zip(clients.tolist(), kept, strict=True)}


def test_the_serial_executor_hands_a_clients_memory_from_task_to_task(serial: Serial) -> None:
    serial.begin(4, PLACES, ASO)
    found = rounds(serial, 0, 1, 2)
    by = Learner(PLAN, data().inputs, data().labels, PLACES, 4, ASO)
    memories: dict[int, Vector] = {client: np.zeros(by.remembered, np.float32) for client in range(CLIENTS)}
    expected, out = [], np.empty_like(START)
    for number in range(3):
        for client in reversed(range(CLIENTS)):
            order = Order.of(task(number * CLIENTS + client, client), 4)
            by.train(order, START, out, memories[client])
            expected.append(out.tobytes())
    assert found == expected
    assert remembered(serial) == {client: memory.tobytes() for client, memory in memories.items()}
    assert all(memory.any() for memory in memories.values())


@pytest.mark.parametrize("workers", [1, 2, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kill", [False, True], ids=["alive", "killed"])
def test_workers_remember_the_same_bytes(serial: Serial, pools: Pools, workers: int, kill: bool) -> None:
    """Also where a worker is killed that may have written half of a memory."""
    pool = pools[workers]
    results = []
    for executor in (serial, pool):
        executor.begin(4, PLACES, ASO)
        found = rounds(executor, 0, 1)
        before = pids(pool)
        deadly = partial(os.kill, before[0], signal.SIGKILL) if kill and executor is pool else None
        found += rounds(executor, 2, kill=deadly)
        found += rounds(executor, 3)
        results.append((found, saved(executor)))
    assert results[0] == results[1]
    assert len(set(results[0][0])) == 4 * CLIENTS
    assert (pids(pool) != before) == kill


KEPT = {
    "optimiser": Recipe(
        steps=3, batch=4, optimiser=parse("adamw"), optimiser_state="kept", clip_norm=0.5, accumulate=2
    ),
    "own": Recipe(steps=3, batch=4, train="tests.support.trains:by_average", memory=1),
}


@pytest.mark.parametrize("name", KEPT)
def test_so_do_they_what_the_experiment_lets_clients_keep(name: str) -> None:
    """An optimiser's state, beside the memory of a strategy; and the memory of a user's own function."""
    plan, local = replace(PLAN, recipe=KEPT[name]), ASO if name == "optimiser" else Local()
    with closing(Processes(plan, data(), PLACES, workers=2, vectors=local.vectors)) as pool:
        serial = Serial(plan, data(), PLACES)
        results = []
        for executor in (serial, pool):
            executor.begin(4, PLACES, local)
            found = rounds(executor, 0, 1)
            state: State = unpack(*pack(executor.state()))
            found += rounds(executor, 2)
            results.append((found, saved(executor)))
            executor.begin(4, PLACES, local)
            fresh = rounds(executor, 2)
            executor.restore(state)
            assert rounds(executor, 2) == found[2 * CLIENTS :] != fresh
        assert results[0] == results[1]
        assert all(np.frombuffer(row, np.float32).any() for row in remembered(serial).values())


def test_a_discarded_task_changes_no_memory(serial: Serial, pools: Pools) -> None:
    gone = (CLIENTS + 1, CLIENTS + 4)
    late = task(2 * CLIENTS, 0)
    for executor in (serial, pools[2]):
        executor.begin(4, PLACES, ASO)
        rounds(executor, 0)
        before = remembered(executor)
        rounds(executor, 1, discard=gone)
        after = remembered(executor)
        assert [client for client in range(CLIENTS) if after[client] == before[client]] == [1, 4]
        # Computed already, and only then discarded.
        executor.submit(late, START, 0.0)
        if executor is pools[2]:
            compute_until(pools[2], lambda: late.task in computed(pools[2]))
        executor.discard(late.task)
        assert remembered(executor) == after
    assert remembered(serial) == remembered(pools[2])


def test_a_new_run_forgets(serial: Serial, pools: Pools) -> None:
    for executor in (serial, pools[2]):
        executor.begin(4, PLACES, ASO)
        one = rounds(executor, 0, 1)
        executor.begin(4, PLACES, ASO)
        assert remembered(executor) == {}
        assert rounds(executor, 0, 1) == one
        # A strategy that remembers nothing, between two that do.
        executor.begin(4, PLACES, Local(prox=0.5))
        assert rounds(executor, 0) != one[:CLIENTS] and remembered(executor) == {}
        executor.begin(4, PLACES, ASO)
        assert rounds(executor, 0, 1) == one


def test_a_saved_memory_goes_on_in_any_executor(serial: Serial, pools: Pools) -> None:
    serial.begin(4, PLACES, ASO)
    rounds(serial, 0, 1)
    state: State = unpack(*pack(serial.state()))
    text = saved(serial)
    expected = rounds(serial, 2)
    for executor in (pools[2], serial):
        executor.begin(4, PLACES, ASO)
        unlike = rounds(executor, 2)
        executor.begin(4, PLACES, ASO)
        executor.restore(state)
        assert saved(executor) == text
        assert rounds(executor, 2) == expected != unlike
    # What was restored is a copy: training has not changed the state.
    serial.restore(state)
    assert saved(serial) == text


def test_a_memory_of_another_size_is_refused() -> None:
    one, other = Memories(4, 6), Memories(6, 6)
    one.keep(3, np.ones(4, np.float32))
    with pytest.raises(InputError, match=r"^the saved rows have shape \(1, 4\), they must have shape \(1, 6\)$"):
        other.restore(one.state())


# What does not fit, and what does not travel


@dataclass(frozen=True)
class Three:
    """A direction with a memory of three vectors."""

    vectors: int = 3

    def turn(self, gradient: Vector, memory: Matrix) -> None:
        memory[2] += gradient


def test_too_many_vectors_for_the_room_are_refused(pools: Pools) -> None:
    pool = pools[2]
    pool.begin(4, PLACES, ASO)
    found = rounds(pool, 0)
    with pytest.raises(
        ProtocolError, match=r"^clients are to remember 3 vectors, the workers have no memory for them$"
    ):
        pool.begin(4, PLACES, Local(direction=Three()))
    pool.begin(4, PLACES, ASO)
    assert rounds(pool, 0) == found


def test_what_only_the_server_reads_need_not_travel(serial: Serial, pools: Pools) -> None:
    asked = replace(ASO, steps=toward_drift(3.0, gain=1.0, first=2), pace=lambda view, client: 2.0)
    found = []
    for executor in (serial, pools[2]):
        executor.begin(4, PLACES, asked)
        found.append(rounds(executor, 0))
    assert found[0] == found[1]


def test_a_direction_that_does_not_travel_is_refused_in_words(pools: Pools) -> None:
    class Own(Three):
        pass

    room = Local(direction=Own(vectors=2))
    with pytest.raises(InputError, match=r"cannot be sent to other processes \(.*Own.*\): use workers=1"):
        pools[2].begin(4, PLACES, room)
