"""What a strategy needs of the server and its clients, read from its parts, for tables of algorithms."""

from typing import NamedTuple

import numpy as np

from fairlag.core.buffer import Buffer
from fairlag.core.strategy import Strategy
from fairlag.core.types import Integers, Report
from fairlag.errors import StrategyError
from fairlag.rules.keep import Keeping
from fairlag.rules.weigh import Weigh, example


class Needs(NamedTuple):
    """What a strategy needs."""

    rounds: bool
    """Does the server wait for certain clients, such as a cohort, a group or everyone?"""
    memory: str
    """What is kept of updates from one version to the next: at the server by a reduction, or at clients."""
    identities: bool
    """Does the server keep a history of each client, or treat updates of the same client together?"""
    reads: tuple[str, ...]
    """The slots whose rules read single updates."""


def needs(strategy: Strategy) -> Needs:
    """What a strategy needs, from its rules.

    >>> from fairlag.zoo import fedavg, fedstaleweight
    >>> needs(fedavg())
    Needs(rounds=True, memory='', identities=False, reads=())
    >>> needs(fedstaleweight())
    Needs(rounds=False, memory='', identities=True, reads=())
    """
    select, local, reduce = strategy.select, strategy.local, strategy.reduce
    kept = [f"server: {reduce.label}"] if isinstance(reduce, Keeping) else []
    kept += [f"clients: {local.vectors} vector{'s' * (local.vectors > 1)}"] if local.vectors else []
    history = strategy.window or strategy.profiles or strategy.awaits or strategy.account or select.lag or select.plans
    per_client = isinstance(reduce, Keeping) and reduce.per_client
    return Needs(
        rounds=select.rounds or select.holds or strategy.awaits,
        memory=", ".join(kept),
        identities=bool(history or per_client or local.steps or local.pace or _asks_who(strategy.weigh)),
        reads=strategy.readers,
    )


class _Probe(Buffer):
    """A buffer that notes whether a rule asks for the senders."""

    __slots__ = ("asked",)

    @property
    def clients(self) -> Integers:
        self.asked = True
        return super().clients


def _asks_who(rule: Weigh) -> bool:
    buffer, view = example()
    probe = _Probe(buffer.tasks, [0, 0], [Report(), Report()], np.empty((2, 0), np.float32))
    probe.asked = False
    try:
        rule(probe, view)
    except StrategyError:  # it reads a history of clients that the example does not keep, such as accounts
        return True
    return probe.asked
