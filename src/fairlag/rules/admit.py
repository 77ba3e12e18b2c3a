"""Admission: which arrivals are let into the buffer; a refusal is a reason in words."""

import sys
from collections.abc import Callable, Iterable

import numpy as np

from fairlag.errors import StrategyError
from fairlag.rules.drift import drift
from fairlag.rules.rule import factory, sums_only
from fairlag.types import Dispatch, Report, Update
from fairlag.vector import finite
from fairlag.view import View

_MOST_EXAMPLES = 2**53
"""What a float still counts exactly."""

_LEAST, _MOST = sys.float_info.min, sys.float_info.max

NOT_FINITE = "not finite"
"""The reason that, given again and again, says that training diverged."""

Admit = Callable[[Update, Dispatch, View], str | None]


def well_formed(update: Update, size: int) -> str | None:
    """None for finite float32 values of the model's size, with a report that can be true, else why not.

    The server asks this of every arrival before any other rule sees it.

    >>> well_formed(Update(np.zeros(3, np.float32)), 3)
    >>> well_formed(Update(np.zeros(2, np.float32)), 3)
    'the shape is not (3,)'
    >>> well_formed(Update(np.array([1, np.nan, 0], np.float32)), 3)
    'not finite'
    """
    if type(update) is not Update:
        return "not an update"
    delta, report = update
    # No word of a client's own is in a reason: reasons are counted, and clients could make up new ones for ever.
    if type(delta) is not np.ndarray:
        return "not an array"
    if delta.dtype != np.float32:
        return "the dtype is not float32"
    if delta.shape != (size,):
        return f"the shape is not ({size},)"
    if type(report) is not Report:
        return "not a report"
    examples, steps, effort, loss = report
    if type(examples) is not int or not 1 <= examples <= _MOST_EXAMPLES:
        return f"the number of examples is not an int between 1 and {_MOST_EXAMPLES}"
    if type(steps) is not int or not 1 <= steps <= _MOST_EXAMPLES:
        return f"the number of steps is not an int between 1 and {_MOST_EXAMPLES}"
    if size and not finite(delta):  # before what is said of it: where training diverged, its loss is not finite either
        return NOT_FINITE
    if type(effort) is not float or not _LEAST <= effort <= _MOST:
        return f"the effort is not a finite float of at least {_LEAST}"
    if type(loss) is not float or not 0.0 <= loss <= _MOST:
        return "the loss is not a finite float of at least 0.0"
    return None


def no_negative_variance(update: Update, variances: Iterable[slice]) -> str | None:
    """None if none of the statistics there, which are variances, is negative, else what is wrong.

    >>> no_negative_variance(Update(np.array([-1, 0], np.float32)), [slice(1, 2)])
    >>> no_negative_variance(Update(np.array([-1, 0], np.float32)), [slice(0, 1)])
    'a running variance is negative'
    """
    return "a running variance is negative" if any((update.delta[place] < 0).any() for place in variances) else None


@factory
def max_staleness(limit: int) -> Admit:
    """Refuses updates with staleness τ > limit.

    >>> from fairlag.ledger import Ledger
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
    """Refuses updates from whose version the model has moved away too far: γ = ‖w_v − w_u‖ / ‖Δ‖ > limit.

    >>> from fairlag.ledger import Ledger
    >>> task = Dispatch(task=0, client=0, version=0, ordinal=0, time=0.0)
    >>> max_drift(2.0)(Update(np.zeros(0, np.float32)), task, View(Ledger()))
    """
    if not limit > 0:
        raise StrategyError(f"the largest admitted drift is {limit}, it must be positive")
    reason = f"drift above {limit}"
    return lambda update, task, view: reason if drift(update.delta, task.version, view) > limit else None


@factory
def all_of(*rules: Admit) -> Admit:
    """Admits what every rule admits; the first refusal counts.

    >>> from fairlag.ledger import Ledger
    >>> ledger = Ledger()
    >>> ledger.version = 4
    >>> task = Dispatch(task=0, client=0, version=0, ordinal=0, time=0.0)
    >>> all_of(max_staleness(5), max_staleness(3))(Update(np.zeros(0, np.float32)), task, View(ledger))
    'staler than 3'
    """

    def admit(update: Update, task: Dispatch, view: View) -> str | None:
        return next((reason for rule in rules if (reason := rule(update, task, view)) is not None), None)

    return admit
