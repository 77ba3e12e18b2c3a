"""What every rule tells about itself: how it is written and made, what history it needs, whether it reads updates."""

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
    """Does it look at single updates (and so cannot be combined with secure aggregation)? None: it does not say."""
    window: int = 0
    """How many recent staleness samples per client the ledger must keep for it."""
    profiles: bool = False
    """Must the ledger keep the sum of all rates, and the slowest running client, ready for it?"""
    mixes_statistics: bool = False
    """Is it a reduction that gives an average of its rows if their weights add up to one?"""
    account: Entitlement | None = None
    """The terms of the accounts that the ledger must keep for it."""


class Provenance(NamedTuple):
    """How a function of ours was made: by which of ours, and with which arguments."""

    make: Callable[..., object]
    arguments: Mapping[str, Any]


# By the function itself and not as its attribute: what `functools.wraps` copies would pass another off as it.
_PROVENANCE: WeakKeyDictionary[FunctionType, Provenance] = WeakKeyDictionary()


def provenance(rule: object) -> Provenance | None:
    """How a function was made; None where that was not noted, and so nobody knows what it does.

    >>> from fairlag.rules.weigh import polynomial
    >>> provenance(polynomial(0.5)).arguments, provenance(len)
    ({'power': 0.5}, None)
    """
    return _PROVENANCE.get(rule) if isinstance(rule, FunctionType) else None


def noted(function: Rule, make: Callable[..., object], /, **arguments: object) -> Rule:
    """The function, of which it is now noted how it was made; another kind of callable stays unknown.

    >>> one = noted(lambda: 1, len, number=1)
    >>> provenance(one).arguments
    {'number': 1}
    """
    if isinstance(function, FunctionType):
        _PROVENANCE[function] = Provenance(make, arguments)
    return function


def traits(rule: object) -> Traits:
    """The traits of a rule; a plain function has a name and says nothing else.

    >>> def mine(buffer, view): ...
    >>> traits(mine)
    Traits(label='mine', reads_updates=None, window=0, profiles=False, mixes_statistics=False, account=None)
    """
    known = getattr(rule, "_traits", None)
    return known if isinstance(known, Traits) else Traits(getattr(rule, "__name__", repr(rule)))


def label_of(rule: object) -> str:
    """How a rule of any slot is written: what it is labelled, or the label among its traits.

    >>> from fairlag.rules.trigger import count
    >>> label_of(count(5)), label_of(len)
    ('count(5)', 'len')
    """
    own: str | None = getattr(rule, "label", None)
    return own or traits(rule).label


def reads_updates(rule: Rule) -> Rule:
    """Declares a function to be a rule that looks at single updates.

    >>> @reads_updates
    ... def by_norm(buffer, view): ...
    >>> traits(by_norm).reads_updates
    True
    """
    return _marked(rule, replace(traits(rule), reads_updates=True))


def sums_only(rule: Rule) -> Rule:
    """Declares a function to be a rule that never looks at single updates, though it may be handed them.

    >>> from fairlag.rules.reduce import weighted_sum
    >>> traits(weighted_sum).reads_updates
    False
    """
    return _marked(rule, replace(traits(rule), reads_updates=False))


def mixes_statistics(rule: Rule) -> Rule:
    """Declares that a reduction can mix a model's statistics: with weights that add up to one it averages its rows.

    The server then gives it the clients' values, besides their changes of the parameters, in a second call.

    >>> import numpy as np
    >>> @mixes_statistics
    ... def median(weights, updates):
    ...     return np.median(updates, axis=0) * weights.sum()
    >>> traits(median).mixes_statistics
    True
    """
    return _marked(rule, replace(traits(rule), mixes_statistics=True))


def reads_window(window: int) -> Callable[[Rule], Rule]:
    """Declares that a rule asks for the mean staleness of a client's last `window` updates.

    >>> @reads_window(5)
    ... def recent(buffer, view):
    ...     return view.mean_staleness(buffer.clients, window=5)
    >>> traits(recent).window
    5
    """
    return lambda rule: _marked(rule, replace(traits(rule), window=window))


def reads_profiles(rule: Rule) -> Rule:
    """Declares that a rule asks for the sum of all clients' rates, or for the slowest client that is running.

    >>> @reads_profiles
    ... def total_rate(buffer, view):
    ...     return [view.rate] * len(buffer)
    >>> traits(total_rate).profiles
    True
    """
    return _marked(rule, replace(traits(rule), profiles=True))


def reads_account(terms: Entitlement = DEFAULT_TERMS) -> Callable[[Rule], Rule]:
    """Declares that a rule asks what clients were entitled to, or have left of it, on these terms.

    >>> @reads_account(Entitlement(limit=10))
    ... def all_of_it(buffer, view):
    ...     return view.balance(buffer.clients)
    >>> traits(all_of_it).account.limit
    10
    """
    return lambda rule: _marked(rule, replace(traits(rule), account=terms))


def factory(make: Callable[Arguments, Rule]) -> Callable[Arguments, Rule]:
    """Gives the rules that a function makes the traits of its arguments, and its call as their label.

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
            noted(rule, made, **given.arguments),
            Traits(
                f"{make.__name__}({', '.join(words)})",
                _combined([each.reads_updates for each in (traits(rule), *inner)]),
                max(each.window for each in (traits(rule), *inner)),
                any(each.profiles for each in (traits(rule), *inner)),
                traits(rule).mixes_statistics,
                common_terms([each.account for each in (traits(rule), *inner)]),
            ),
        )

    return made


def common_terms(accounts: Iterable[Entitlement | None]) -> Entitlement | None:
    """The terms on which accounts are kept for several rules, None if none of them reads accounts.

    >>> common_terms([None, Entitlement(limit=10)]).limit
    10
    """
    found = [each for each in accounts if each is not None]
    for each in found:
        if each != found[0]:
            raise StrategyError(f"rules read accounts on different terms, {found[0]} and {each}: they must agree")
    return found[0] if found else None


def failure(kind: str, rule: object, error: Exception) -> StrategyError:
    """What a user's rule raised, as one sentence that says which rule, what and where; our own sentences stay.

    >>> def mine(buffer, view): ...
    >>> str(failure("weighting", mine, KeyError("gap")))
    "the weighting mine raised KeyError: 'gap'"
    """
    if isinstance(error, FairlagError):
        raise error
    steps = traceback.extract_tb(error.__traceback__)
    where = f" ({PurePath(steps[-1].filename).name}, line {steps[-1].lineno})" if steps else ""
    return StrategyError(f"the {kind} {label_of(rule)} raised {type(error).__name__}: {error}{where}")


class blaming:
    """Around a user's rule: what it raises is one sentence. Where every event passes, a plain `try` costs less.

    >>> with blaming("edit", len):  # doctest: +ELLIPSIS
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
        """The rule is asked from now on."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if isinstance(error, Exception):
            raise failure(self._kind, self._rule, error) from error


def _marked(rule: Rule, known: Traits) -> Rule:
    setattr(rule, "_traits", known)  # noqa: B010 (a function's type has no such attribute)
    return rule


def _combined(readings: list[bool | None]) -> bool | None:
    """One that reads is enough; otherwise what the rule itself, the first, says, if the others do not leave it open."""
    return True if True in readings else readings[0] if None not in readings[1:] else None


def _word(value: object) -> str:
    return traits(value).label if callable(value) else repr(value)
