"""The algorithms, each a short function that returns a composition of rules, and their registry.

fair.py has the paper's algorithm and its baselines, rounds.py the methods that work in rounds, arrivals.py those that
merge updates as they arrive, memory.py those that remember what their clients sent, timing.py newer ones that decide
when an update counts.

>>> import fairlag
>>> fairlag.zoo.fedbuff(buffer=5, concurrency=10).select.label
'concurrency(10)'
"""

# Not sorted by name: this is the order in which algorithms are listed.
from fairlag.zoo.registry import ALGORITHMS, Algorithm, algorithm  # isort: skip
from fairlag.zoo.fair import buffered, fedstaleweight, fairshare, buffered_fedavg, exponential, rate_tracking  # isort: skip
from fairlag.zoo.rounds import fedavg, fedprox, fednova, fedavgm, fedadagrad, fedadam, fedyogi, safa  # isort: skip
from fairlag.zoo.defences import defended  # isort: skip
from fairlag.zoo.arrivals import fedasync, async_fedavg, fedbuff, fedfix, asyncfeded, asofed, pisces  # isort: skip
from fairlag.zoo.memory import fedau, mifa, fedvarp, fedstale, ca2fl, ace, area, scaffold, buffered_scaffold  # isort: skip
from fairlag.zoo.timing import (
    delay_adaptive,
    fadas,
    fedcompass,
    fedfa,
    malenia,
    qfedavg,
    rennala,
    ringleader,
    ringmaster,
)  # isort: skip

__all__ = [
    "ALGORITHMS",
    "Algorithm",
    "ace",
    "algorithm",
    "area",
    "asofed",
    "async_fedavg",
    "asyncfeded",
    "buffered",
    "buffered_fedavg",
    "buffered_scaffold",
    "ca2fl",
    "defended",
    "delay_adaptive",
    "exponential",
    "fadas",
    "fairshare",
    "fedadagrad",
    "fedadam",
    "fedasync",
    "fedau",
    "fedavg",
    "fedavgm",
    "fedbuff",
    "fedcompass",
    "fedfa",
    "fedfix",
    "fednova",
    "fedprox",
    "fedstale",
    "fedstaleweight",
    "fedvarp",
    "fedyogi",
    "malenia",
    "mifa",
    "pisces",
    "qfedavg",
    "rate_tracking",
    "rennala",
    "ringleader",
    "ringmaster",
    "safa",
    "scaffold",
]
