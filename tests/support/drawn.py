"""What a seed of the soak trains with: a strategy, a model, and perhaps masks, or noise and budgets."""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from random import Random

import numpy as np

from fairlag.core.mechanism import Mechanism
from fairlag.core.secure import check_hidden, masked_update
from fairlag.core.strategy import Strategy
from fairlag.core.types import Dispatch, Update
from fairlag.core.vector import Layout, Vector
from fairlag.errors import StrategyError
from fairlag.privacy.noise import seeded
from fairlag.privacy.secure.simulated import SimulatedClients
from fairlag.zoo.private import hidden
from tests.support.paying import Paying, any_by_account
from tests.support.private import Guarded, any_private, mechanism
from tests.support.watched import Computes, Watched
from tests.support.worlds import any_strategy

PLAIN = Layout(("weight",), ((3,),))
STATISTICS = Layout(("weight", "norm.running_var", "norm.running_mean"), ((2,), (1,), (1,)), statistics=2)


@dataclass(frozen=True, slots=True)
class Drawn:
    """A strategy and a model, and what protects single clients."""

    strategy: Strategy
    layout: Layout
    bound: float = 1.0
    privacy: Mechanism | None = None
    masked: bool = False
    kind: type[Watched] = Watched

    @property
    def parameters(self) -> Vector:
        """The model to begin with: a variance of 1, and else zeros."""
        shapes = dict(zip(self.layout.names, self.layout.shapes, strict=True))
        return self.layout.flatten({name: np.full(shape, "var" in name) for name, shape in shapes.items()})

    @property
    def name(self) -> str:
        """What is special about it, as a table shows it; empty if nothing is."""
        noise = "noise and budgets" if self.privacy is not None else ""
        return "masked updates" if self.masked else noise or ("statistics" if self.layout.statistics else "")


def any_drawn(chance: Random, driver: str, clients: int, seed: int) -> Drawn:
    """Any strategy that the driver knows. Masks are simulated, so there are none on a network."""
    protected = chance.random()
    if protected < 0.15:
        return _with_noise(chance, driver, clients, seed)
    make = any_by_account if chance.randint(0, 2) == 0 else any_strategy
    while True:
        strategy = make(chance, clients)
        if driver == "link" and strategy.local.direction is not None:
            continue
        kind: type[Watched] = Paying if strategy.account is not None else Watched
        if driver != "link" and protected < 0.25:
            if (found := _masked(chance, strategy, clients)) is not None:
                return found
            continue
        layout = STATISTICS if strategy.averages is not None and chance.random() < 0.3 else PLAIN
        return Drawn(strategy, layout, kind=kind)


def _with_noise(chance: Random, driver: str, clients: int, seed: int) -> Drawn:
    while True:
        try:
            strategy, bound = any_private(chance, clients)
        except StrategyError:  # so few clients cannot meet the bound
            continue
        guard = mechanism(strategy, bound, updates=chance.choice([1.0, 1.5, 3.2, 8.0, inf]), draw=seeded(seed))
        return Drawn(strategy, PLAIN, bound, guard, kind=Guarded)


def _masked(chance: Random, strategy: Strategy, clients: int) -> Drawn | None:
    bound = chance.choice([0.4, 0.6, 0.8])
    try:
        protected = hidden(strategy, bound=bound, clients=clients)
        check_hidden(protected, PLAIN)
    except StrategyError:
        return Drawn(strategy, PLAIN, kind=Paying if strategy.account is not None else Watched)
    return Drawn(protected, PLAIN, bound, masked=True, kind=Paying if protected.account is not None else Watched)


class Masks:
    """Clients that mask their updates; the watcher is told what is behind them."""

    def __init__(self, seed: int, drawn: Drawn) -> None:
        self.clients = SimulatedClients(seed=seed, size=drawn.layout.size, bound=drawn.bound)
        self.unmasked: dict[int, Vector] = {}

    def sent(self, update: Update, task: Dispatch) -> Update:
        """What the client of this task sends; something that is no update is sent as it is."""
        if update.delta.dtype != np.float32 or update.delta.shape != (PLAIN.size,):
            return update
        if not np.isfinite(update.delta).all():
            return masked_update(np.empty(0, np.uint64), update.report)
        self.unmasked[task.task] = update.delta.copy()
        return masked_update(self.clients.sent(update.delta, task), update.report)


class Sends(Computes):
    """Computes updates that are changed before they are sent."""

    def __init__(self, faults: float, sent: Callable[[Update, Dispatch], Update]) -> None:
        super().__init__(faults)
        self._sent = sent

    def result(self, task: Dispatch) -> Update:
        return self._sent(super().result(task), task)
