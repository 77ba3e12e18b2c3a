"""Rows of clients: in memory and in a file they are the same, saved states share them, and too many are refused."""

import gc
import os
import shutil
from collections import namedtuple

import numpy as np
import pytest

from fairlag import zoo
from fairlag.core import rows as module
from fairlag.core.rows import Rows
from fairlag.core.server import Server
from fairlag.core.state import Stack, pack, unpack
from fairlag.errors import InputError, StrategyError

Usage = namedtuple("Usage", "total used free")


@pytest.fixture
def no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_available_memory", lambda: 0)


def test_in_a_file_rows_are_the_same_as_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    here = Rows(5, clients=9, what="the last update")
    monkeypatch.setattr(module, "_available_memory", lambda: 0)
    monkeypatch.setattr(module, "_CHUNK", 3 * 20)  # three rows at a time
    there, random = Rows(5, clients=9, what="the last update"), np.random.default_rng(0)
    for _ in range(200):
        client, vector = int(random.integers(9)), random.normal(size=5).astype(np.float32)
        for rows in (here, there):
            rows.keep(client, vector)
            vector = vector.copy()
    assert here.clients.tolist() == there.clients.tolist()
    assert [row.tobytes() for row in here] == [row.tobytes() for row in there]


@pytest.mark.parametrize("memory", [0, 1 << 40], ids=["file", "memory"])
def test_a_saved_state_shares_rows_and_stays_as_it_was(memory: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_available_memory", lambda: memory)
    rows = Rows(3, clients=4, what="the last update")
    for client in (2, 0):
        rows.keep(client, np.full(3, client + 1, np.float32))
    state = rows.state()
    stack = state["rows"]
    assert isinstance(stack, Stack) and stack.rows[0] is rows.of(2)
    for number in range(50):
        rows.keep(2, np.full(3, 100 + number, np.float32))
    assert stack.matrix.tolist() == [[3, 3, 3], [1, 1, 1]]
    other, read = (Rows(3, clients=4, what="the last update") for _ in range(2))
    other.restore(state)
    read.restore(unpack(*pack(state)))
    for again in (other, read):
        assert again.clients.tolist() == [2, 0] and [row.tolist() for row in again] == [[3, 3, 3], [1, 1, 1]]
    with pytest.raises(ValueError, match="read-only"):
        rows.of(0)[:] = 0  # type: ignore[index]


def test_the_file_grows_with_the_clients_and_not_with_their_updates(
    no_memory: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_CHUNK", 4 * 1000 * 4)
    sizes, allocate = list[int](), os.posix_fallocate

    def noted(file: int, at: int, more: int) -> None:
        sizes.append(at + more)
        allocate(file, at, more)

    monkeypatch.setattr(os, "posix_fallocate", noted)
    rows = Rows(1000, clients=10, what="the last update")
    for number in range(500):
        rows.keep(number % 10, np.full(1000, number, np.float32))
        gc.collect() if number % 100 == 0 else None
    assert [row[0] for row in rows] == list(range(490, 500))
    assert sizes[-1] < 20 * 4000


def test_a_view_of_a_row_keeps_its_place(no_memory: None) -> None:
    rows = Rows(4, clients=2, what="the last update")
    rows.keep(0, np.ones(4, np.float32))
    kept = rows.of(0)
    assert kept is not None
    part = kept[1:]
    del kept
    for number in range(100):
        rows.keep(0, np.full(4, number, np.float32))
    assert part.tolist() == [1, 1, 1]


def test_what_fits_nowhere_is_refused_with_its_size(no_memory: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: Usage(1, 1, 3_000_000_000))
    with pytest.raises(StrategyError) as caught:
        Server(zoo.mifa(), clients=100_000, parameters=np.zeros(1_000_000, np.float32))
    said = str(caught.value)
    assert "keeping the last update of each of 100,000 clients takes 400.0 GB (1,000,000 numbers each)" in said
    assert "0.0 MB of memory and 3.0 GB in" in said and "\n" not in said
    Server(zoo.mifa(), clients=700, parameters=np.zeros(1_000_000, np.float32))


def test_a_full_disk_is_one_sentence(no_memory: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    rows = Rows(4, clients=2, what="the last update")
    with pytest.raises(StrategyError, match=r"cannot grow beyond 0\.0 MB: No space left on device"):
        rows.keep(0, np.ones(4, np.float32))


def test_rows_of_another_size_are_refused() -> None:
    one, other = (Rows(size, clients=2, what="the last update") for size in (3, 4))
    one.keep(0, np.ones(3, np.float32))
    with pytest.raises(InputError, match=r"the saved rows have shape \(1, 3\), they must have shape \(1, 4\)"):
        other.restore(one.state())
