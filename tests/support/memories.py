"""Rounds of tasks whose clients remember something, on any executor."""

from collections.abc import Callable

import numpy as np

from fairlag.core.state import pack
from fairlag.core.types import Dispatch
from fairlag.execute import Learning
from fairlag.learn.local import Recipe, schedule
from fairlag.learn.placement import Placement
from fairlag.rules.local import Feedback, Local
from tests.support.learning import blueprint, first

PLAN = blueprint(recipe=Recipe(steps=3, batch=4, lr=schedule(0.05), momentum=0.5))
START = first(PLAN)
ASO = Local(prox=0.5, direction=Feedback(0.3))
CLIENTS = 6
PLACES = Placement(np.arange(84), np.arange(0, 85, 14), np.arange(84, 120), np.zeros(CLIENTS, np.int64))


def task(number: int, client: int) -> Dispatch:
    return Dispatch(number, client, 0, number // CLIENTS, 0.0, pace=1.0 + 0.1 * client)


def rounds(
    executor: Learning, *numbers: int, kill: Callable[[], object] | None = None, discard: tuple[int, ...] = ()
) -> list[bytes]:
    """Gives every client one task per round, and reads all results, the last submitted first."""
    found = []
    for number in numbers:
        tasks = [task(number * CLIENTS + client, client) for client in range(CLIENTS)]
        for each in tasks:
            executor.submit(each, START, due=float(-each.task))
        if kill is not None:
            kill()
        for each in reversed(tasks):
            if each.task in discard:
                executor.discard(each.task)
            else:
                found.append(executor.result(each).delta.tobytes())
    return found


def saved(executor: Learning) -> tuple[dict[str, bytes], str]:
    arrays, text = pack(executor.state())
    return {name: array.tobytes() for name, array in arrays.items()}, text
