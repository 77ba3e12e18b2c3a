"""What executors with workers share, with workers that only say that they have started."""

from typing import Any

import pytest

from fairlag.execute.pool import Pool, Request, Worker
from fairlag.learn.placement import Placement
from fairlag.rules.local import Local


class Starting(Pool[Worker[Any]]):
    """Three workers, of whom one starts with each look."""

    def __init__(self, *, hands_early: bool) -> None:
        super().__init__(trained=0)
        self._workers = [Worker() for _ in range(3)]
        self._hands_early = hands_early
        self.looks = 0

    def _check(self, local: Local) -> None:
        raise NotImplementedError

    def _announce(self, placement: Placement) -> None:
        raise NotImplementedError

    def _send_job(self, worker: Worker[Any], number: int, request: Request) -> None:
        raise NotImplementedError

    def _accepts_jobs(self, worker: Worker[Any]) -> bool:
        return self._hands_early or worker.ready

    def _pump(self, patience: float | None) -> None:
        self._workers[self.looks].ready = True
        self.looks += 1


@pytest.mark.parametrize(("hands_early", "looks"), [(True, 3), (False, 1)])
def test_it_is_warm_when_no_task_would_wait_for_a_start(hands_early: bool, looks: int) -> None:
    pool = Starting(hands_early=hands_early)
    pool.warm_up()
    pool.warm_up()
    assert pool.looks == looks
