"""Which algorithms believe what clients say of themselves, as the Markdown table of docs/siege.md."""

import inspect

from fairlag.analyse.claims import CLAIMS, believed
from fairlag.zoo import ALGORITHMS
from fairlag.zoo.registry import Algorithm

_SMALL = ("buffer", "cohort", "concurrency")
"""The parameters that must fit a small fleet."""


def claims_table() -> str:
    """One row per algorithm that believes anything, found by trying each lie.

    >>> claims_table().splitlines()[0]
    '| algorithm | examples | steps | effort | loss |'
    """
    lines = [("algorithm", *CLAIMS), ("---",) * (1 + len(CLAIMS))]
    for each in ALGORITHMS.values():
        found = believed(each.make(**_sizes(each)))
        if found:
            lines.append((each.title, *("believed" if name in found else "" for name in CLAIMS)))
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _sizes(algorithm: Algorithm) -> dict[str, int]:
    known = algorithm.parameters
    return {name: 3 for name in _SMALL if name in known and known[name].default not in (None, inspect.Parameter.empty)}
