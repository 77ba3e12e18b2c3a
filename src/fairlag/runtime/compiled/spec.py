"""Which strategies and fleets the compiled loop implements: recognised by how rules were made, never by name."""

from dataclasses import dataclass, replace
from math import isfinite
from sys import maxsize
from typing import NamedTuple

from fairlag.core.accounts import Entitlement
from fairlag.core.strategy import Strategy
from fairlag.fastpath import other_field
from fairlag.fleet.clients import Fleet, Group
from fairlag.fleet.delay import Constant, Delay, Scaled, Uniform
from fairlag.rules import admit, local, select, trigger, weigh
from fairlag.rules.keep import Keeping, replacing
from fairlag.rules.recent import last_models
from fairlag.rules.replay import replaying
from fairlag.rules.rule import Provenance, label_of, provenance, traits
from fairlag.runtime.compiled import available
from fairlag.runtime.compiled.layout import COUNT, EVERYONE, EVERYONE_FIRST

STRATEGY = frozenset(("select", "trigger", "weigh", "local", "admit", "edit", "reduce", "apply"))
"""The fields of a strategy that are checked here, or that do not change the timeline, such as `edit` and `apply`."""
LOCAL = frozenset(("prox", "pace", "direction", "losses", "start_loss"))
"""The fields of Local that are checked here, or that do not change the timeline."""
GROUP = frozenset(
    ("name", "count", "delay", "away", "download", "upload", "overhead", "steps", "per", "timing", "capacity")
)
"""The fields of a client group that the loop implements for clients that are always present."""
TERMS = frozenset(("entitled", "importance", "limit", "reward"))
"""The terms of accounts that the loop implements for clients that are always present."""

_PLAIN = (
    weigh.uniform,
    weigh.by_examples,
    weigh.by_share,
    weigh.equal_share,
    weigh.per_client,
    weigh.delay_adaptive,
    weigh.by_slowness,
    weigh.mean_gap,
    weigh.mean_interval,
)
_MADE = frozenset((weigh.constant, weigh.hinge, weigh.polynomial, weigh.exponential, weigh.by_ticks, weigh.mean_rounds))
_AROUND_ONE = frozenset((weigh.divided, weigh.normalised, weigh.capped))
_TRIGGERS = {trigger.count: COUNT, trigger.everyone_first: EVERYONE_FIRST, trigger.everyone: EVERYONE}
_MAKERS = (
    select.all_idle,
    select.concurrency,
    select.cohort,
    trigger.cohort_done,
    *_TRIGGERS,
    replaying,
    last_models,
)


class Spending(NamedTuple):
    """A weighting by account, as the loop implements it."""

    terms: Entitlement
    most: float | None
    """The largest weight of an update."""
    cap: float | None
    """The largest total weight of a version."""


@dataclass(frozen=True, slots=True)
class LoopSpec:
    """What the loop needs to know about a strategy."""

    trigger: int
    """When a version is made: COUNT, EVERYONE_FIRST or EVERYONE, as in layout.py."""
    buffer: int
    """How many updates make a version, unless it waits for everyone."""
    fresh: bool
    """Does a client that has trained from the newest version wait for a newer one?"""
    places: int
    """How many clients train at once, drawn from the idle ones; 0 for all of them."""
    rounds: bool
    """Are places filled only when a round is over?"""
    limit: int
    """The largest admitted staleness."""
    delay: int
    """The number of versions behind the newest at which a task is called off; 0 for never."""
    weigh: weigh.Weigh
    profiles: bool
    """Must the sum of all rates be kept?"""
    window: int
    """Over how many of a client's last updates the sum of staleness must be kept; 0 for only the sum over all."""
    keeps: Provenance | None
    """How the reduction was made, if it keeps updates: then its clients have parts of later versions too."""
    spending: Spending | None
    """The weighting by account, if it is one."""


def loop_spec(strategy: Strategy, fleet: Fleet) -> LoopSpec | str:
    """The strategy as a loop specification, or a sentence that says what the loop does not implement.

    >>> from fairlag.fleet.delay import parse
    >>> from fairlag.zoo import fedbuff, fedfix
    >>> fleet = Fleet([Group("all", 20, parse("uniform(1, 2)"))], seed=0)
    >>> known = loop_spec(fedbuff(buffer=5, concurrency=8), fleet)
    >>> known.buffer, known.places
    (5, 8)
    >>> loop_spec(fedfix(), fleet)
    'the loop does not implement every(5.0)'
    """
    if not fleet.steady:
        return "clients join, leave or vanish"
    if other := next(filter(None, (other_field(group, GROUP) for group in fleet.groups)), None):
        return f"the loop does not implement {other!r} of a client group"
    if other_field(strategy.local, LOCAL) or strategy.local.pace not in (None, local.log_delay):
        return f"the loop does not implement {strategy.local}"
    if other := other_field(strategy, STRATEGY):
        return f"the loop does not implement {other!r} of a strategy"
    keeps = _keeps(strategy.reduce) if isinstance(strategy.reduce, Keeping) else None
    if isinstance(strategy.reduce, Keeping) and keeps is None:
        return f"the loop does not implement {strategy.reduce.label}"
    limit = _limit(strategy.admit)
    if limit is None:
        return f"the loop does not implement {label_of(strategy.admit)}"
    window = traits(strategy.weigh).window
    spent = spending(strategy.weigh)
    if spent is None and not knows(strategy.weigh, window):
        return f"the loop does not implement {label_of(strategy.weigh)}"
    loop = _loop(strategy)
    if isinstance(loop, str):
        return loop
    when, buffer, fresh, places, rounds = loop
    places, delay = min(places, fleet.clients), min(strategy.select.delay or 0, maxsize)
    kept = strategy.weigh, strategy.profiles, window, keeps, spent
    return LoopSpec(when, buffer, fresh, places, rounds, limit, delay, *kept)


def plan_if_available(strategy: Strategy, fleet: Fleet) -> LoopSpec | None:
    """The specification, if the loop implements this strategy and fleet, and the extra `fast` is installed."""
    known = loop_spec(strategy, fleet)
    return known if isinstance(known, LoopSpec) and available() else None


def spending(rule: weigh.Weigh) -> Spending | None:
    """The terms of a weighting by account, bounded per update, per version, or not at all; None for any other.

    >>> spending(weigh.capped(weigh.by_balance(limit=3.0), 2.0))[1:]
    (None, 2.0)
    """
    made, cap, most = provenance(rule), None, None
    if made is not None and made.make is weigh.capped:
        cap, made = made.arguments["cap"], provenance(made.arguments["rule"])
    if made is not None and made.make is weigh.at_most:
        most, made = made.arguments["most"], provenance(made.arguments["rule"])
    if made is None or made.make is not weigh.by_balance:
        return None
    terms = Entitlement(**made.arguments)
    return None if other_field(terms, TERMS) else Spending(terms, most, cap)


def knows(rule: weigh.Weigh, window: int = 0) -> bool:
    """Can the weights of many buffers be computed at once, with staleness summed over all updates and one window?

    >>> knows(weigh.normalised(weigh.mean_staleness(scale=5))), knows(lambda buffer, view: [1.0] * len(buffer))
    (True, False)
    """
    made = provenance(rule)
    if made is None:
        return any(rule is plain for plain in _PLAIN)
    if made.make is weigh.mean_staleness:
        return made.arguments["window"] in (None, window)
    if made.make is weigh.times:
        return all(knows(each, window) for each in made.arguments["rules"])
    return made.make in _MADE or (made.make in _AROUND_ONE and knows(made.arguments["rule"], window))


def _keeps(rule: Keeping) -> Provenance | None:
    return Provenance(replacing, {}) if rule == replacing() else as_made(rule, "start")


def _limit(rule: admit.Admit | None) -> int | None:
    if rule is None:
        return maxsize
    made = provenance(rule)
    limit = made.arguments["limit"] if made is not None and made.make is admit.max_staleness else None
    return min(limit, maxsize) if isinstance(limit, int) else None


def _loop(strategy: Strategy) -> tuple[int, int, bool, int, bool] | str:
    """The trigger and its buffer size, whether updates must be fresh, the number of places, and if there are rounds."""
    rule, chosen = strategy.trigger, as_made(replace(strategy.select, delay=None), "start")
    when = as_made(rule, "ready") if rule.wake is None else as_made(rule, "ready", "wake")
    if when is None:
        return f"the loop does not implement {rule.label}"
    if when.make is trigger.cohort_done:
        if chosen is not None and chosen.make is select.cohort:
            size, whole = chosen.arguments["m"], {"over": 0.0, "deadline": None}
            if chosen.arguments == {"m": size, **whole}:
                return COUNT, size, False, size, True
    elif chosen is not None and chosen.make in (select.all_idle, select.concurrency):
        buffer, fresh, places = when.arguments.get("k", 1), chosen.arguments["fresh"], chosen.arguments.get("m", 0)
        return _TRIGGERS[when.make], buffer, fresh, places, False
    return f"the loop does not implement {strategy.select.label}"


def as_made(rule: select.Select | trigger.Trigger | Keeping, *functions: str) -> Provenance | None:
    """How a rule was made, from its functions; None if that is not known, or another field was changed since.

    >>> as_made(select.all_idle(), "start").arguments, as_made(replace(select.all_idle(), lag=1), "start")
    ({'fresh': True}, None)
    """
    parts = {name: getattr(rule, name) for name in functions}
    made, *others = map(provenance, parts.values())
    if made is None or any(other != made for other in others) or made.make not in _MAKERS:
        return None
    again: object = made.make(**made.arguments)
    return made if isinstance(again, type(rule)) and replace(again, label=rule.label, **parts) == rule else None


def straight(group: Group, steps: int) -> tuple[float, float, float] | None:
    """(low, width, factor) if a task takes factor · (low + width · u), computed in this order; None if it does not.

    >>> from fairlag.fleet.delay import parse
    >>> straight(Group("a", 1, parse("scaled(3, uniform(1, 2))")), 1)
    (1.0, 1.0, 3.0)
    """
    if group.capacity is not None or group.overhead is not None:
        return None
    factor = float(steps) if group.per == "step" else 1.0
    delay: Delay = group.delay
    if type(delay) is Scaled and factor == 1:
        factor, delay = delay.factor, delay.delay
    if type(delay) is Constant:
        return delay.seconds, 0.0, factor
    if type(delay) is Uniform and isfinite(delay.high - delay.low):
        return delay.low, delay.high - delay.low, factor
    return None
