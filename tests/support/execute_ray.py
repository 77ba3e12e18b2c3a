"""What other tests share with test_execute_ray.py."""

import os

from fairlag.execute.ray import Actors
from tests.support.patience import wait_until


def pids(pool: Actors) -> list[int]:
    """The processes of the actors, once these have done what they were handed."""
    asked = [worker.actor.__ray_call__.remote(lambda actor: os.getpid()) for worker in pool._workers]
    found: list[int] = pool._ray.get(asked)
    return found


def settle(pool: Actors) -> None:
    """Waits until every actor has started."""
    ready = lambda: all(worker.ready for worker in pool._workers)  # noqa: E731
    wait_until(ready, "the start of every actor", meanwhile=lambda: pool._pump(0.05))
