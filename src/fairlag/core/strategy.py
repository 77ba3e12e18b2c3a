"""A strategy: the slots that an algorithm fills with rules, checked when it is constructed."""

import inspect
from dataclasses import dataclass, fields

from fairlag.core.accounts import Entitlement
from fairlag.core.vector import Layout
from fairlag.errors import StrategyError
from fairlag.rules.admit import Admit
from fairlag.rules.apply import Apply, scale
from fairlag.rules.edit import Edit
from fairlag.rules.keep import Keeping
from fairlag.rules.local import Local
from fairlag.rules.reduce import Reduce, weighted_sum
from fairlag.rules.rule import common_terms, label_of, traits
from fairlag.rules.select import Select
from fairlag.rules.trigger import Trigger
from fairlag.rules.weigh import Weigh

_MAX_SAMPLES = 1 << 28
"""The most staleness samples, of 8 bytes each, that the ledger keeps for a window: 2 GB."""


@dataclass(frozen=True, slots=True)
class Strategy:
    """An aggregation algorithm as a composition of rules; `dataclasses.replace` makes variants.

    >>> from fairlag.rules.select import all_idle
    >>> from fairlag.rules.trigger import count
    >>> from fairlag.rules.weigh import uniform
    >>> Strategy(all_idle(), count(5), uniform)
    Strategy(select=all_idle(fresh=True), trigger=count(5), weigh=uniform, reduce=weighted_sum, apply=scale(1.0))
    """

    select: Select
    trigger: Trigger
    weigh: Weigh
    local: Local = Local()  # noqa: RUF009 (frozen)
    admit: Admit | None = None
    edit: Edit | None = None
    reduce: Reduce | Keeping = weighted_sum
    apply: Apply = scale(1.0)

    def __post_init__(self) -> None:
        for slot, kind in (("select", Select), ("trigger", Trigger), ("local", Local), ("apply", Apply)):
            value = getattr(self, slot)
            if not isinstance(value, kind):
                raise StrategyError(f"{slot} is {value!r}, it must be a {kind.__name__} such as fairlag.rules.{slot}'s")
        for slot, words in (
            ("weigh", "buffer, view"),
            ("admit", "update, task, view"),
            ("edit", "updates, buffer, view"),
            ("reduce", "weights, updates"),
        ):
            rule = getattr(self, slot)
            if (rule is None and slot in ("admit", "edit")) or isinstance(rule, Keeping):
                continue
            if not _takes(rule, words.count(",") + 1):
                raise StrategyError(f"{slot} is {traits(rule).label}, it must be a function of ({words})")
        if self.account is not None and isinstance(self.reduce, Keeping):
            raise StrategyError(
                f"{traits(self.weigh).label} spends accounts on updates that act once, but {self.reduce.label} keeps "
                "updates: use weighted_sum"
            )
        if self.select.plans and self.local.steps is not None:
            raise StrategyError(
                f"both {self.select.label} and {label_of(self.local.steps)} set the local steps: use one of them"
            )
        if self.select.holds and not self.trigger.planned:
            raise StrategyError(
                f"{self.select.label} says itself when and what to merge: use as_planned(), not {self.trigger.label}"
            )
        if self.trigger.planned and not self.select.holds:
            raise StrategyError(
                f"{self.trigger.label} needs a selection that says when to merge, such as phases(), "
                f"not {self.select.label}"
            )
        if self.trigger.rounds and not self.select.rounds:
            raise StrategyError(
                f"{self.trigger.label} needs a selection with rounds, such as cohort(m), not {self.select.label}"
            )
        if self.trigger.fresh and not self.select.fresh:
            raise StrategyError(
                f"{self.trigger.label} waits until no task is running, but with {self.select.label} clients never "
                "stop: use fresh = true"
            )
        if self.select.rounds and not (self.trigger.rounds or self.trigger.wake):
            raise StrategyError(
                f"{self.trigger.label} may wait for ever: a round gets no new tasks after its last one has ended; "
                "use cohort_done(), or a trigger with a deadline"
            )

    @property
    def window(self) -> int:
        """How many recent staleness samples per client the ledger must keep."""
        rules = (self.weigh, self.admit, self.edit, self.reduce)
        return max(self.select.window, *(traits(rule).window for rule in rules))

    @property
    def profiles(self) -> bool:
        """Must the ledger keep the sum of all rates, and the slowest running client, up to date?"""
        rules = (self.weigh, self.admit, self.edit, self.reduce, self.local.pace)
        return self.trigger.profiles or any(traits(rule).profiles for rule in rules)

    @property
    def awaits(self) -> bool:
        """Must the ledger count the present clients without an update in the buffer?"""
        return self.trigger.awaits or self.select.awaits

    @property
    def account(self) -> Entitlement | None:
        """The terms of the accounts that the ledger must keep, None if no rule reads them."""
        return common_terms(traits(rule).account for rule in (self.weigh, self.admit, self.edit, self.reduce))

    @property
    def intervals(self) -> int:
        """The longest interval between two of a client's versions, if the ledger must keep intervals; else 0."""
        return max(traits(rule).intervals for rule in (self.weigh, self.admit, self.edit, self.reduce))

    @property
    def reference(self) -> bool:
        """Does a rule read the step that the server makes on its own examples?"""
        return any(traits(rule).reference for rule in (self.weigh, self.admit, self.edit, self.reduce))

    @property
    def readers(self) -> tuple[str, ...]:
        """The slots whose rules read single updates; secure aggregation, which hides them, must refuse these.

        A weighting reads updates only if it declares so. Any other rule receives updates, so it reads them unless it
        declares that it does not.
        """
        found = ["local"] * self.local.reads_updates + ["weigh"] * (traits(self.weigh).reads_updates is True)
        rules = {"admit": self.admit, "edit": self.edit, "reduce": self.reduce}
        found += [slot for slot, rule in rules.items() if rule and traits(rule).reads_updates is not False]
        return tuple(found)

    @property
    def averages(self) -> Reduce | None:
        """How the clients' statistics are averaged; None if the reduction does not declare that it can mix them."""
        if isinstance(self.reduce, Keeping):
            return weighted_sum if self.reduce.mixes_statistics else None
        return self.reduce if traits(self.reduce).mixes_statistics else None

    def check_model(self, layout: Layout) -> None:
        """Refuses a model with statistics if the reduction cannot mix them."""
        names = layout.names[len(layout.parameters.names) :]
        if names and self.averages is None:
            more = f" and {len(names) - 2} more" if len(names) > 2 else ""
            keeps = isinstance(self.reduce, Keeping)
            declared = "give it mixes_statistics=True" if keeps else "declare it with @fairlag.rules.mixes_statistics"
            raise StrategyError(
                f"the reduction {label_of(self.reduce)} does not declare that it can mix the statistics of the model "
                f"({', '.join(map(repr, names[:2]))}{more}): {declared} if they may be averaged, use weighted_sum or "
                "trimmed_mean, or use a model without statistics, such as one with GroupNorm instead of BatchNorm"
            )

    def check(self, clients: int) -> None:
        """Refuses a fleet for which this strategy would wait for ever, or needs too much memory."""
        if self.select.fresh and self.trigger.needs > clients:
            raise StrategyError(
                f"a buffer of {self.trigger.needs} never fills with {clients} clients that each contribute once per "
                f"version (fresh = true): use a buffer of at most {clients}, or fresh = false"
            )
        if self.window * clients > _MAX_SAMPLES:
            raise StrategyError(
                f"a window of {self.window:,} updates for each of {clients:,} clients takes "
                f"{self.window * clients * 8 / 1e9:,.0f} GB: use a window of at most {_MAX_SAMPLES // clients:,}"
            )
        if self.select.least > clients:
            raise StrategyError(f"{self.select.label} needs {self.select.least} clients, the fleet has {clients}")

    def __repr__(self) -> str:
        words = []
        for slot in fields(self):
            rule = getattr(self, slot.name)
            if rule is not None and rule != Local():
                words.append(f"{slot.name}={rule if isinstance(rule, Local) else label_of(rule)}")
        return f"Strategy({', '.join(words)})"


def _takes(rule: object, arguments: int) -> bool:
    if not callable(rule):
        return False
    try:
        inspect.signature(rule).bind(*range(arguments))
    except (TypeError, ValueError):  # it takes other arguments, or does not say
        return False
    return True
