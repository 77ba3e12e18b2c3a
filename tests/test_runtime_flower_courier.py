"""The courier: one request asks for many replies, and who spoils a request is asked alone."""

import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager

import pytest
from flwr.app import Message, RecordDict

from fairlag.runtime.flower.courier import Courier
from tests.support.flower_grid import FakeGrid, FakeNode
from tests.support.patience import wait_until

POLL = 0.1
Delivered = dict[Hashable, "Message | Exception"]


@contextmanager
def courier(grid: FakeGrid, threads: int = 4) -> Iterator[tuple[Callable[[int, int], None], Delivered]]:
    """A function that sends a node a message under a name, and what was delivered."""
    delivered: Delivered = {}
    made = Courier(grid, delivered.__setitem__, threads=threads, poll=POLL)

    def send(name: int, node: int) -> None:
        made.send(name, Message(RecordDict(), dst_node_id=node, message_type="train"))

    try:
        yield send, delivered
    finally:
        grid.stuck.clear()
        made.close()


def echo(message: Message) -> Message:
    return Message(RecordDict(), reply_to=message)


def nodes(count: int, seconds: float) -> FakeGrid:
    return FakeGrid({100 + each: FakeNode({}, echo, seconds) for each in range(count)})


def everything(delivered: Delivered, count: int) -> None:
    wait_until(lambda: len(delivered) == count, f"{count} replies", lambda: str(len(delivered)))


def test_few_requests_bring_many_replies_each_to_its_own_message() -> None:
    grid = nodes(60, seconds=0.5)
    with courier(grid) as (send, delivered):
        for name in range(60):
            send(name, 100 + name)
        everything(delivered, 60)
    for own, reply in delivered.items():
        assert isinstance(reply, Message) and reply.metadata.src_node_id == 100 + int(str(own))
    assert max(map(len, grid.requests)) > 20
    assert grid.waiting == 0


def test_a_few_replies_are_asked_for_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlag.runtime.flower.courier._MAX_PER_SECOND", 4 / POLL)
    grid = nodes(4, seconds=0.3)
    with courier(grid) as (send, delivered):
        for name in range(4):
            send(name, 100 + name)
        everything(delivered, 4)
    assert set(map(len, grid.requests)) == {1}


def test_who_breaks_a_request_is_asked_alone() -> None:
    grid = nodes(10, seconds=0.3)
    grid.broken.add(101)
    with courier(grid) as (send, delivered):
        for turn in range(4):
            for node in range(10):
                send(10 * turn + node, 100 + node)
            everything(delivered, 10 * (turn + 1))
    lost = {int(str(name)) for name, reply in delivered.items() if isinstance(reply, Message) and reply.has_error()}
    assert {1, 11, 21, 31} <= lost
    assert all(name < 10 or name % 10 == 1 for name in lost)  # others only in the request that it broke
    assert any(len(request) > 1 for request in grid.requests[-10:])  # and they are asked together again


def test_who_uploads_slowly_is_asked_alone_until_it_is_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlag.runtime.flower.courier._SLOW", 0.5)
    grid = nodes(10, seconds=0.3)
    grid.stuck.add(101)
    with courier(grid) as (send, delivered):
        for node in range(10):
            send(node, 100 + node)
        wait_until(lambda: any(101 in each for each in grid.requests), "a request")
        time.sleep(0.6)
        grid.stuck.clear()
        everything(delivered, 10)
        slow, *alone = [request for request in grid.requests if 101 in request]
        assert len(slow) > 1 and alone and all(len(request) == 1 for request in alone)
        for node in range(10):
            send(10 + node, 100 + node)
        everything(delivered, 20)
    assert max(map(len, grid.requests[-10:])) > 1
