"""The faults of a deployment's soak, drawn from one seed: what happens when, to which node, and for how long."""

import random
from typing import NamedTuple

HOURLY = {
    "node killed": 20,
    "node ended": 10,
    "node frozen": 12,
    "quarantine": 5,
    "ServerApp killed": 20,
    "SuperLink killed": 9,
}
"""How often each fault happens per hour in which it may happen."""
SERVER = ("ServerApp killed", "SuperLink killed")
CALM = (0.36, 0.70)
"""The part of the time in which the server is left alone."""


class Fault(NamedTuple):
    """Something that happens at a random moment, to a random node that is well, for a random time."""

    at: float
    kind: str
    pick: float
    lasts: float


def drawn(seed: int, seconds: float) -> list[Fault]:
    """All faults, in the order of time; none while nodes start, or in the last three minutes."""
    chance, faults = random.Random(seed), list[Fault]()
    start, end = 0.05 * seconds, max(0.6 * seconds, seconds - 180)
    for kind, hourly in HOURLY.items():
        spans = [(start, CALM[0] * seconds), (CALM[1] * seconds, end)] if kind in SERVER else [(start, end)]
        length = sum(last - first for first, last in spans)
        for _ in range(max(1, round(hourly * length / 3600))):
            at = chance.uniform(0, length)
            for first, last in spans:
                if at < last - first:
                    at += first
                    break
                at -= last - first
            lasts = {"node frozen": (20, 150), "quarantine": (60, 180), "ServerApp killed": (0, 20)}.get(kind, (2, 90))
            faults.append(Fault(at, kind, chance.random(), chance.uniform(*lasts)))
    return sorted(faults)
