"""What a rule declares about itself: its label, how it was made, the history it needs, whether it reads updates."""

import inspect
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import PurePath
from types import FunctionType, TracebackType
from typing import Any, NamedTuple, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

from fairlag.core.accounts import Entitlement
from fairlag.errors import FairlagError, StrategyError

Arguments = ParamSpec("Arguments")
Rule = TypeVar("Rule", bound=Callable[..., object])

DEFAULT_TERMS = Entitlement()


@dataclass(frozen=True, slots=True)
class Traits:
    """What is known of a rule without calling it."""

    label: str
    reads_updates: bool | None = None
    """Does it read single updates (and so cannot be used with secure aggregation)? None if it does not declare it."""
    window: int = 0
    """How many recent staleness samples per client the ledger must keep for it."""
    profiles: bool = False
    """Must the ledger keep the sum of all rates, and the slowest running client, up to date for it?"""
    mixes_statistics: bool = False
    """Is it a reduction that averages its rows if their weights add up to one?"""
    account: Entitlement | None = None
    """The terms of the accounts that the ledger must keep for it."""
    intervals: int = 0
    """The longest interval between two of a client's versions, if the ledger must keep intervals for it; else 0."""
    credit: Callable[..., Any] | None = None
    """How much of each update is in the step of a reduction, if that is not its weight: of (weights, updates)."""
    reference: bool = False
    """Does it read the step that the server makes on its own examples?"""


class Provenance(NamedTuple):
    """How one of fairlag's functions was made: by which function, and with which arguments."""

    make: Callable[..., object]
    arguments: Mapping[str, Any]


# Keyed by the function, not stored as its attribute: `functools.wraps` would copy that to other functions.
_PROVENANCE: WeakKeyDictionary[FunctionType, Provenance] = WeakKeyDictionary()


def provenance(rule: object) -> Provenance | None:
    """How a function was made; None if that is not known.

    >>> from fairlag.rules.weigh import polynomial
    >>> provenance(polynomial(0.5)).arguments, provenance(len)
    ({'power': 0.5}, None)
    """
    return _PROVENANCE.get(rule) if isinstance(rule, FunctionType) else None


def with_provenance(function: Rule, make: Callable[..., object], /, **arguments: object) -> Rule:
    """The function, with its provenance recorded; other kinds of callables stay without.

    >>> one = with_provenance(lambda: 1, len, number=1)
    >>> provenance(one).arguments
    {'number': 1}
    """
    if isinstance(function, FunctionType):
        _PROVENANCE[function] = Provenance(make, arguments)
    return function


def made_with(rule: object, part: object) -> bool:
    """Is a rule that part, or was it made with it? Only what fairlag's own functions made of it is known.

    >>> from fairlag.rules.weigh import by_effort, capped, uniform
    >>> made_with(capped(by_effort, 2.0), by_effort), made_with(capped(uniform, 2.0), by_effort)
    (True, False)
    """
    if rule is part:
        return True
    if isinstance(rule, tuple | list):
        return any(made_with(each, part) for each in rule)
    known = provenance(rule)
    return known is not None and made_with(list(known.arguments.values()), part)


def traits(rule: object) -> Traits:
    """The traits of a rule; a plain function has only a name.

    >>> def mine(buffer, view): ...
    >>> traits(mine) == Traits("mine"), traits(mine).reads_updates
    (True, None)
    """
    known = getattr(rule, "_traits", None)
    return known if isinstance(known, Traits) else Traits(getattr(rule, "__name__", repr(rule)))


def label_of(rule: object) -> str:
    """The label of a rule of any slot: its own, or the one among its traits.

    >>> from fairlag.rules.trigger import count
    >>> label_of(count(5)), label_of(len)
    ('count(5)', 'len')
    """
    own: str | None = getattr(rule, "label", None)
    return own or traits(rule).label


def reads_updates(rule: Rule) -> Rule:
    """Declares that a rule reads single updates.

    >>> @reads_updates
    ... def by_norm(buffer, view): ...
    >>> traits(by_norm).reads_updates
    True
    """
    return _marked(rule, replace(traits(rule), reads_updates=True))


def sums_only(rule: Rule) -> Rule:
    """Declares that a rule never reads single updates, although it may receive them.

    >>> from fairlag.rules.reduce import weighted_sum
    >>> traits(weighted_sum).reads_updates
    False
    """
    return _marked(rule, replace(traits(rule), reads_updates=False))


def mixes_statistics(rule: Rule) -> Rule:
    """Declares that a reduction can mix a model's statistics: if the weights add up to one, it averages its rows.

    The server then calls it twice: with the clients' changes of the parameters, and with their statistics.

    >>> import numpy as np
    >>> @mixes_statistics
    ... def median(weights, updates):
    ...     return np.median(updates, axis=0) * weights.sum()
    >>> traits(median).mixes_statistics
    True
    """
    return _marked(rule, replace(traits(rule), mixes_statistics=True))


def credits_by(credit: Callable[..., Any]) -> Callable[[Rule], Rule]:
    """Declares how much of each update is in the step of a reduction, as a function of (weights, updates).

    Influence counts these instead of the weights.

    >>> import numpy as np
    >>> def first_only(weights, updates):
    ...     return weights * (np.arange(len(weights)) == 0)
    >>> @credits_by(first_only)
    ... def first(weights, updates):
    ...     return weights[0] * updates[0]
    >>> traits(first).credit(np.array([0.5, 0.5]), None).tolist()
    [0.5, 0.0]
    """
    return lambda rule: _marked(rule, replace(traits(rule), credit=credit))


def reads_reference(rule: Rule) -> Rule:
    """Declares that a rule reads `view.reference`, the step that the server makes on its own trusted examples.

    >>> @reads_reference
    ... def as_long(update, task, view): ...
    >>> traits(as_long).reference
    True
    """
    return _marked(rule, replace(traits(rule), reference=True))


def reads_window(window: int) -> Callable[[Rule], Rule]:
    """Declares that a rule reads the mean staleness of a client's last `window` updates.

    >>> @reads_window(5)
    ... def recent(buffer, view):
    ...     return view.mean_staleness(buffer.clients, window=5)
    >>> traits(recent).window
    5
    """
    return lambda rule: _marked(rule, replace(traits(rule), window=window))


def reads_profiles(rule: Rule) -> Rule:
    """Declares that a rule reads the sum of all clients' rates, or the slowest running client.

    >>> @reads_profiles
    ... def total_rate(buffer, view):
    ...     return [view.rate] * len(buffer)
    >>> traits(total_rate).profiles
    True
    """
    return _marked(rule, replace(traits(rule), profiles=True))


def reads_account(terms: Entitlement = DEFAULT_TERMS) -> Callable[[Rule], Rule]:
    """Declares that a rule reads what clients were entitled to, or their balances, on these terms.

    >>> @reads_account(Entitlement(limit=10))
    ... def all_of_it(buffer, view):
    ...     return view.balance(buffer.clients)
    >>> traits(all_of_it).account.limit
    10
    """
    return lambda rule: _marked(rule, replace(traits(rule), account=terms))


def reads_intervals(longest: int) -> Callable[[Rule], Rule]:
    """Declares that a rule reads the mean interval between the versions that a client takes part in.

    An interval ends after `longest` versions even if the client has not taken part in the last one.

    >>> @reads_intervals(50)
    ... def rarely(buffer, view):
    ...     return view.mean_rounds(buffer.clients) / view.n
    >>> traits(rarely).intervals
    50
    """
    return lambda rule: _marked(rule, replace(traits(rule), intervals=longest))


def factory(make: Callable[Arguments, Rule]) -> Callable[Arguments, Rule]:
    """Decorates a function that makes rules: they inherit the traits of its arguments, and its call is their label.

    >>> from fairlag.rules.weigh import mean_staleness, normalised
    >>> made = traits(normalised(mean_staleness(scale=5, window=3)))
    >>> made.label, made.window
    ('normalised(mean_staleness(scale=5, window=3))', 3)
    """

    @wraps(make)
    def made(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Rule:
        rule = make(*args, **kwargs)
        inner = [traits(value) for value in (*args, *kwargs.values()) if callable(value)]
        words = [_word(value) for value in args] + [f"{name}={_word(value)}" for name, value in kwargs.items()]
        given = inspect.signature(make).bind(*args, **kwargs)
        given.apply_defaults()
        return _marked(
            with_provenance(rule, made, **given.arguments),
            Traits(
                f"{make.__name__}({', '.join(words)})",
                _combined([each.reads_updates for each in (traits(rule), *inner)]),
                max(each.window for each in (traits(rule), *inner)),
                any(each.profiles for each in (traits(rule), *inner)),
                traits(rule).mixes_statistics,
                common_terms([each.account for each in (traits(rule), *inner)]),
                max(each.intervals for each in (traits(rule), *inner)),
                traits(rule).credit,
                any(each.reference for each in (traits(rule), *inner)),
            ),
        )

    return made


def common_terms(accounts: Iterable[Entitlement | None]) -> Entitlement | None:
    """The terms of the accounts that several rules read; None if no rule reads accounts.

    >>> common_terms([None, Entitlement(limit=10)]).limit
    10
    """
    found = [each for each in accounts if each is not None]
    for each in found:
        if each != found[0]:
            raise StrategyError(f"rules read accounts on different terms, {found[0]} and {each}: they must agree")
    return found[0] if found else None


def failure(kind: str, rule: object, error: Exception) -> StrategyError:
    """A user's rule raised an error: one sentence with the rule, the error and the line. Fairlag's own errors stay.

    >>> def mine(buffer, view): ...
    >>> str(failure("weighting", mine, KeyError("gap")))
    "the weighting mine raised KeyError: 'gap'"
    """
    if isinstance(error, FairlagError):
        raise error
    steps = traceback.extract_tb(error.__traceback__)
    where = f" ({PurePath(steps[-1].filename).name}, line {steps[-1].lineno})" if steps else ""
    return StrategyError(f"the {kind} {label_of(rule)} raised {type(error).__name__}: {error}{where}")


class rule_errors:
    """Turns what a user's rule raises into one sentence. Code that runs per event uses a plain `try`, which costs less.

    >>> with rule_errors("edit", len):  # doctest: +ELLIPSIS
    ...     len(None)
    Traceback (most recent call last):
    fairlag.errors.StrategyError: the edit len raised TypeError: object of type 'NoneType' has no len() (...)
    """

    # A class, because a generator takes three times as long to enter and leave.
    __slots__ = ("_kind", "_rule")

    def __init__(self, kind: str, rule: object) -> None:
        self._kind = kind
        self._rule = rule

    def __enter__(self) -> None:
        """Starts to watch the rule."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if isinstance(error, Exception):
            raise failure(self._kind, self._rule, error) from error


def _marked(rule: Rule, known: Traits) -> Rule:
    setattr(rule, "_traits", known)  # noqa: B010 (a function's type has no such attribute)
    return rule


def _combined(readings: list[bool | None]) -> bool | None:
    """True if any part reads updates; else what the first, the rule itself, declares, if no other part is unknown."""
    return True if True in readings else readings[0] if None not in readings[1:] else None


def _word(value: object) -> str:
    return traits(value).label if callable(value) else repr(value)
