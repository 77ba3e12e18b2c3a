"""Defences against attackers: each turns a strategy into one that resists a minority, or says why it cannot."""

from collections.abc import Callable
from dataclasses import replace

from fairlag.core.strategy import Strategy
from fairlag.errors import InputError, StrategyError
from fairlag.limits import shown
from fairlag.rules import check, robust, suspect, trigger
from fairlag.rules.admit import Admit, all_of
from fairlag.rules.edit import Edit, in_turn
from fairlag.rules.edit import clip as clip_to
from fairlag.rules.keep import Keeping
from fairlag.rules.reduce import Reduce, weighted_sum
from fairlag.rules.reduce import trimmed_mean as without_extremes
from fairlag.rules.rule import label_of, provenance, traits
from fairlag.text import calls

Defence = Callable[[Strategy], Strategy]

_EXAMPLE = "krum(f=2)"


def clip(norm: float) -> Defence:
    """``clip(norm)``: shortens every update to at most this length. With inf, none is changed.

    >>> from fairlag.zoo import fedbuff
    >>> clip(1.0)(fedbuff()).edit._traits.label
    'clip(1.0)'
    """
    rule = clip_to(norm)
    return lambda strategy: _edited(strategy, rule)


def clip_to_median(factor: float = 1.0) -> Defence:
    """``clip_to_median(factor=1)``: shortens every update to `factor` times the median length of recent ones.

    >>> from fairlag.zoo import fedbuff
    >>> clip_to_median()(fedbuff()).edit._traits.label
    'clip_to_median(1.0)'
    """
    rule = robust.clip_to_median(factor)
    return lambda strategy: _edited(strategy, rule)


def median() -> Defence:
    """``median``: the weighted median of the buffer in every parameter.

    >>> from fairlag.zoo import fedbuff
    >>> median()(fedbuff()).reduce._traits.label
    'median'
    """
    return lambda strategy: _reduced(strategy, robust.median, "median", 3)


def trimmed_mean(share: float = 0.2) -> Defence:
    """``trimmed_mean(share=0.2)``: in every parameter the mean without this share of the lowest and highest values.

    It ignores how the strategy's weights differ.

    >>> from fairlag.zoo import fedbuff
    >>> trimmed_mean()(fedbuff()).reduce._traits.label
    'trimmed_mean(0.2)'
    """
    rule = without_extremes(share)
    least = 1 if share == 0 else int(-(-1 // share))
    return lambda strategy: _reduced(strategy, rule, f"trimmed_mean({share:g})", least)


def krum(f: int = 1) -> Defence:
    """``krum(f=1)``: multi-Krum: leaves out the f updates of a buffer that are farthest from the others.

    >>> from fairlag.zoo import fedbuff
    >>> krum(2)(fedbuff(buffer=10)).reduce._traits.label
    'krum(2)'
    >>> krum(2)(fedbuff(buffer=5))
    Traceback (most recent call last):
    fairlag.errors.StrategyError: krum(2) needs at least 7 updates per version, but the strategy merges 5: use a \
larger buffer or another defence
    """
    rule = robust.krum(f)
    return lambda strategy: _reduced(strategy, rule, f"krum({f})", 2 * f + 3 if f else 1)


def centred_clip(radius: float) -> Defence:
    """``centred_clip(radius)``: shortens what differs from the last step to this length.

    >>> from fairlag.zoo import fedbuff
    >>> centred_clip(0.5)(fedbuff()).reduce.label
    'centred_clip(0.5)'
    """
    rule = robust.centred_clip(radius)
    return lambda strategy: _reduced(strategy, rule, rule.label, 1)


def basgd(buckets: int, share: float | None = None) -> Defence:
    """``basgd(buckets, share=median)``: BASGD: client i fills bucket i mod `buckets`; merges when each has an update.

    Merges the means of the buckets by their median, or by their trimmed mean if `share` is given.

    >>> from fairlag.zoo import fedbuff
    >>> basgd(5)(fedbuff()).trigger.label
    'every_bucket(5)'
    """
    check.whole("the number of buckets", buckets, 1)
    rule = robust.bucketed(buckets, robust.median if share is None else without_extremes(share))

    def defend(strategy: Strategy) -> Strategy:
        if strategy.select.rounds:
            raise StrategyError(
                f"basgd waits until every bucket has an update, but {strategy.select.label} works in rounds, which end "
                "before: use a strategy without rounds"
            )
        return replace(_reduced(strategy, rule, "basgd", 1), trigger=robust.every_bucket(buckets))

    return defend


def kardam(f: int = 1) -> Defence:
    """``kardam(f=1)``: Kardam: refuses updates that change much more than the model, and clients that send too often.

    >>> from fairlag.zoo import fedbuff
    >>> kardam(2)(fedbuff()).admit._traits.label
    'lipschitz(2)'
    """
    rule = suspect.lipschitz(f)
    return lambda strategy: _admitting(strategy, rule)


def zeno(rho: float = 0.001, eps: float = 0.01, gamma: float = 1.0) -> Defence:
    """``zeno(rho=0.001, eps=0.01, gamma=1)``: Zeno++: refuses updates that point away from the server's own step.

    That step is made on the server's own examples: needs `trusted` in `[data]`. Admitted updates are made as long.

    >>> from fairlag.zoo import fedbuff
    >>> zeno()(fedbuff()).reference
    True
    """
    rule = suspect.along_reference(gamma=gamma, rho=rho, eps=eps)
    return lambda strategy: _edited(_admitting(strategy, rule), suspect.as_long_as_reference)


def aflguard(factor: float = 1.5) -> Defence:
    """``aflguard(factor=1.5)``: AFLGuard: refuses updates that are far from the server's own step.

    That step is made on the server's own examples: needs `trusted` in `[data]`. With inf, everything is admitted.

    >>> from fairlag.zoo import fedbuff
    >>> aflguard()(fedbuff()).admit._traits.label
    'near_reference(1.5)'
    """
    rule = suspect.near_reference(factor)
    return lambda strategy: _admitting(strategy, rule)


DEFENCES: dict[str, Callable[..., Defence]] = {
    "clip": clip,
    "clip_to_median": clip_to_median,
    "median": median,
    "trimmed_mean": trimmed_mean,
    "krum": krum,
    "centred_clip": centred_clip,
    "basgd": basgd,
    "kardam": kardam,
    "zeno": zeno,
    "aflguard": aflguard,
}


def defended(strategy: Strategy, text: str) -> Strategy:
    """A strategy with the defence that a text describes.

    >>> from fairlag.zoo import fedstaleweight
    >>> defended(fedstaleweight(buffer=5), "median").reduce._traits.label
    'median'
    """
    read = calls.read(text, "defence", _EXAMPLE)
    if not isinstance(read, calls.Call):
        raise InputError(f"the defence is {shown(text)}, but must be a call such as {_EXAMPLE}")
    return calls.build(read, DEFENCES, "defence", nested=_no_call)(strategy)


def _no_call(call: calls.Call) -> object:
    raise InputError(f"{call.text} cannot be part of a defence, write a number")


def _edited(strategy: Strategy, rule: Edit) -> Strategy:
    """The rule sees what clients sent, before any other edit."""
    return replace(strategy, edit=rule if strategy.edit is None else in_turn(rule, strategy.edit))


def _admitting(strategy: Strategy, rule: Admit) -> Strategy:
    if strategy.awaits:
        raise StrategyError(
            f"{label_of(rule)} may refuse all updates of a client, but the strategy waits for everyone: use a strategy "
            "that does not, or a defence that refuses nothing, such as clip_to_median"
        )
    return replace(strategy, admit=rule if strategy.admit is None else all_of(strategy.admit, rule))


def _reduced(strategy: Strategy, rule: Reduce | Keeping, name: str, least: int) -> Strategy:
    """The strategy with another reduction of its buffers, which must have at least this many updates."""
    if strategy.reduce is not weighted_sum:
        raise StrategyError(
            f"{name} replaces the weighted sum of a buffer, but the strategy uses {label_of(strategy.reduce)}: "
            "use another defence, such as clip_to_median"
        )
    if strategy.account is not None:
        raise StrategyError(
            f"{traits(strategy.weigh).label} spends accounts by weight, but {name} itself decides how much of an "
            "update counts: use another defence, such as clip_to_median"
        )
    made = provenance(strategy.trigger.ready)
    if made is not None and made.make is trigger.count and strategy.trigger.needs < least:
        raise StrategyError(
            f"{name} needs at least {least} updates per version, but the strategy merges {strategy.trigger.needs}: "
            "use a larger buffer or another defence"
        )
    return replace(strategy, reduce=rule)
