"""Answers of hostile nodes: updates that are none, reports that must not be believed, and names that are forged."""

from collections.abc import Callable
from math import inf, nan
from random import Random
from typing import Any

import numpy as np
from flwr.app import Message

from fairlag.runtime.flower.wire import NAME, PARTITION
from tests.support.flower_grid import failing, replied

FORGED: list[dict[str, Any]] = [{NAME: "x" * 999}, {NAME: nan}, {PARTITION: -1}, {PARTITION: 1e300}, {}]
"""What a node may say about itself instead of the truth."""


def _not_finite(message: Message, arrays: dict[str, Any], chance: Random) -> Message:
    bad = np.float32(chance.choice([nan, inf]))
    return replied(message, {name: each + bad for name, each in arrays.items()})


BROKEN: list[tuple[str, Callable[[Message, dict[str, Any], Random], Message]]] = [
    ("update not finite", _not_finite),
    ("update of the wrong shape", lambda message, arrays, _: replied(message, {n: e[1:] for n, e in arrays.items()})),
    (
        "update of the wrong type",
        lambda message, arrays, _: replied(message, {n: e.astype(np.float64) for n, e in arrays.items()}),
    ),
    ("update of the wrong names", lambda message, arrays, _: replied(message, {f"x{n}": e for n, e in arrays.items()})),
    ("report not plausible", lambda message, arrays, _: replied(message, arrays, None)),
    (
        "report not plausible",
        lambda message, arrays, chance: replied(message, arrays, chance.choice([0, -3, 0.5, nan])),
    ),
    ("report not plausible", lambda message, arrays, _: replied(message, arrays, 5, loss=nan)),
    (
        "report exaggerated",
        lambda message, arrays, _: replied(message, arrays, 10**12, **{"num-steps": 10**9, "loss": 1e300}),
    ),
    ("client raised an error", lambda message, _, chance: failing(message, chance.randint(1, 9))),
]
"""Answers that are no updates, and one whose report must not be believed."""
