"""Admission: which updates may enter the buffer. A refusal is a reason in words."""

import sys
from collections.abc import Callable, Iterable, Sequence
from statistics import median_low
from typing import Protocol

import numpy as np
from numpy.typing import DTypeLike

from fairlag.core.state import Savable, State, rows, table, take
from fairlag.core.types import Dispatch, Report, Update
from fairlag.core.vector import finite, length
from fairlag.core.view import View
from fairlag.errors import StrategyError
from fairlag.rules import check
from fairlag.rules.drift import drift
from fairlag.rules.growth import size_of
from fairlag.rules.rule import factory, reads_updates, sums_only

_MAX_EXAMPLES = 2**53
"""The largest whole number up to which floats are exact."""

_MIN_FLOAT, _MAX_FLOAT = sys.float_info.min, sys.float_info.max

NOT_FINITE = "not finite"
"""The reason that, if repeated, means that training diverged."""

Admit = Callable[[Update, Dispatch, View], str | None]

_MIN_CLIENTS = 3
"""The number of clients from which a median is taken: one client alone must not decide it."""
_MAX_CLIENTS = 101
"""The number of clients whose last accepted length is remembered."""


class Admitter(Savable, Protocol):
    """The stateful half of an admission rule that remembers: one per server."""

    def __call__(self, update: Update, task: Dispatch, view: View) -> str | None:
        """Admits the update, remembers it and returns None; or returns why not."""


class Remembering:
    """An admission rule that remembers what it admitted; `start` makes a new one for each server.

    Calling the rule itself judges an update as if it were the first.
    """

    def __init__(self, start: Callable[[View], Admitter]) -> None:
        self.start = start

    def __call__(self, update: Update, task: Dispatch, view: View) -> str | None:
        """Judges an update as if it were the first."""
        return self.start(view)(update, task, view)


def well_formed(update: Update, size: int, dtype: DTypeLike = np.float32) -> str | None:
    """None for finite values of this type and the model's size with a plausible report, else the reason.

    The server checks every update with this before any other rule sees it. Masked updates are uint64.

    >>> well_formed(Update(np.zeros(3, np.float32)), 3)
    >>> well_formed(Update(np.zeros(2, np.float32)), 3)
    'the shape is not (3,)'
    >>> well_formed(Update(np.array([1, np.nan, 0], np.float32)), 3)
    'not finite'
    """
    if type(update) is not Update:
        return "not an update"
    delta, report = update
    # Reasons contain no text from a client: they are counted, and clients could invent new ones for ever.
    if type(delta) is not np.ndarray:
        return "not an array"
    if delta.dtype != dtype:
        return f"the dtype is not {np.dtype(dtype)}"
    if delta.shape != (size,):
        return f"the shape is not ({size},)"
    if type(report) is not Report:
        return "not a report"
    examples, steps, effort, loss = report
    if type(examples) is not int or not 1 <= examples <= _MAX_EXAMPLES:
        return f"the number of examples is not an int between 1 and {_MAX_EXAMPLES}"
    if type(steps) is not int or not 1 <= steps <= _MAX_EXAMPLES:
        return f"the number of steps is not an int between 1 and {_MAX_EXAMPLES}"
    if size and not finite(delta):  # checked before the report: if training diverged, the loss is not finite either
        return NOT_FINITE
    if type(effort) is not float or not _MIN_FLOAT <= effort <= _MAX_FLOAT:
        return f"the effort is not a finite float of at least {_MIN_FLOAT}"
    if type(loss) is not float or not 0.0 <= loss <= _MAX_FLOAT:
        return "the loss is not a finite float of at least 0.0"
    return None


def no_negative_variance(update: Update, variances: Iterable[slice]) -> str | None:
    """None if no variance of the update is negative, else the reason.

    >>> no_negative_variance(Update(np.array([-1, 0], np.float32)), [slice(1, 2)])
    >>> no_negative_variance(Update(np.array([-1, 0], np.float32)), [slice(0, 1)])
    'a running variance is negative'
    """
    return "a running variance is negative" if any((update.delta[place] < 0).any() for place in variances) else None


@factory
def max_staleness(limit: int) -> Admit:
    """Refuses updates with staleness τ > limit.

    >>> from fairlag.core.ledger import Ledger
    >>> ledger = Ledger()
    >>> ledger.version = 9
    >>> task = Dispatch(task=0, client=0, version=2, ordinal=0, time=0.0)
    >>> rule = max_staleness(5)
    >>> rule(Update(np.zeros(0, np.float32)), task, View(ledger))
    'staler than 5'
    """
    if not limit >= 0:
        raise StrategyError(f"the largest admitted staleness is {limit}, it must be at least 0")
    reason = f"staler than {limit}"
    return sums_only(lambda update, task, view: reason if view.version - task.version > limit else None)


@factory
def max_drift(limit: float) -> Admit:
    """Refuses an update if the model has moved too far since the update's version: γ = ‖w_v − w_u‖ / ‖Δ‖ > limit.

    >>> from fairlag.core.ledger import Ledger
    >>> task = Dispatch(task=0, client=0, version=0, ordinal=0, time=0.0)
    >>> max_drift(2.0)(Update(np.zeros(0, np.float32)), task, View(Ledger()))
    """
    if not limit > 0:
        raise StrategyError(f"the largest admitted drift is {limit}, it must be positive")
    reason = f"drift above {limit}"
    return lambda update, task, view: reason if drift(update.delta, task.version, view) > limit else None


@factory
def max_norm(factor: float) -> Admit:
    """Refuses updates that are much longer than usual: ‖Δ‖ > factor · (the largest median length so far).

    The median is over the last accepted length of each of the last 101 clients. So a client that sends often counts
    once, and fewer than half of the clients cannot raise the median. It never falls, because a client that starts late
    may still send updates as long as everyone's first ones. An update with more effort than the median may be longer
    in proportion. Until three clients are known, the size of the model replaces the median.

    >>> from fairlag.core.ledger import Ledger
    >>> from fairlag.core.vector import published
    >>> from fairlag.core.versions import Versions
    >>> view = View(Ledger(), Versions(published([3, 4])))
    >>> rule = max_norm(2.0).start(view)
    >>> tasks = [Dispatch(task=each, client=each, version=0, ordinal=0, time=0.0) for each in range(4)]
    >>> [rule(Update(published([0, size])), task, view) for task, size in zip(tasks, [1, 1, 10, 3])]
    [None, None, None, 'longer than 2 times the usual update']
    """
    check.positive("the factor on the usual length of an update", factor)
    return reads_updates(Remembering(lambda view: _MaxNorm(factor)))


class _MaxNorm:
    def __init__(self, factor: float) -> None:
        self._factor = factor
        self._reason = f"longer than {factor:g} times the usual update"
        self._accepted: dict[int, tuple[float, float]] = {}
        """Per client, the latest last: the length of its last update, and its effort."""
        self._usual = 0.0

    def __call__(self, update: Update, task: Dispatch, view: View) -> str | None:
        size, effort = length(update.delta), update.report.effort * task.pace
        if size > self._factor * self._expected(effort, view):
            return self._reason
        if size:  # an update of length 0 says nothing about the usual length
            self._accepted.pop(task.client, None)
            self._accepted[task.client] = size, effort
            if len(self._accepted) > _MAX_CLIENTS:
                del self._accepted[next(iter(self._accepted))]
            if len(self._accepted) >= _MIN_CLIENTS:
                self._usual = max(self._usual, median_low(size for size, _ in self._accepted.values()))
        return None

    def _expected(self, effort: float, view: View) -> float:
        if len(self._accepted) < _MIN_CLIENTS:
            return size_of(view.parameters(view.version))
        return self._usual * max(1.0, effort / median_low(effort for _, effort in self._accepted.values()))

    def state(self) -> State:
        accepted = [(client, *facts) for client, facts in self._accepted.items()]
        return {"usual": self._usual, "accepted": table(accepted, client=int, length=float, effort=float)}

    def restore(self, state: State) -> None:
        self._usual = take(state, "usual", float)
        found = rows(take(state, "accepted", dict), "client", "length", "effort")
        self._accepted = {client: (size, effort) for client, size, effort in found}


@factory
def all_of(*rules: Admit) -> Admit:
    """Admits an update if every rule does. The first refusal counts; later rules do not see the update.

    >>> from fairlag.core.ledger import Ledger
    >>> ledger = Ledger()
    >>> ledger.version = 4
    >>> task = Dispatch(task=0, client=0, version=0, ordinal=0, time=0.0)
    >>> all_of(max_staleness(5), max_staleness(3))(Update(np.zeros(0, np.float32)), task, View(ledger))
    'staler than 3'
    """
    return Remembering(lambda view: _AllOf(rules, view))


class _AllOf:
    def __init__(self, rules: Sequence[Admit], view: View) -> None:
        remembering = {str(place): rule for place, rule in enumerate(rules) if isinstance(rule, Remembering)}
        self._parts = {place: rule.start(view) for place, rule in remembering.items()}
        self._rules = [self._parts.get(str(place), rule) for place, rule in enumerate(rules)]

    def __call__(self, update: Update, task: Dispatch, view: View) -> str | None:
        return next((reason for rule in self._rules if (reason := rule(update, task, view)) is not None), None)

    def state(self) -> State:
        return {name: part.state() for name, part in self._parts.items()}

    def restore(self, state: State) -> None:
        for name, part in self._parts.items():
            part.restore(take(state, name, dict))
