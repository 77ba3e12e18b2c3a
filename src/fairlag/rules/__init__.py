"""The rules that strategies are composed of: one module per slot, and decorators with which a rule declares its needs.

`keep`, `recent` and `replay` have reductions with a memory; `control` has one more direction of local steps;
`tolerant`, `utility` and `compass` have one more selection each; `phases` has a selection and the reduction that goes
with it; `robust` and `suspect` have defences against attackers; `bounded` bounds one client's part of a version.

>>> import fairlag
>>> from fairlag.rules import select, trigger, weigh
>>> fairlag.Strategy(select.concurrency(10), trigger.count(5), weigh.polynomial(0.5))
Strategy(select=concurrency(10), trigger=count(5), weigh=polynomial(0.5), reduce=weighted_sum, apply=scale(1.0))
"""

from fairlag.rules import (
    admit,
    apply,
    bounded,
    compass,
    control,
    edit,
    keep,
    local,
    phases,
    recent,
    reduce,
    replay,
    robust,
    select,
    suspect,
    tolerant,
    trigger,
    utility,
    weigh,
)
from fairlag.rules.rule import (
    credits_by,
    mixes_statistics,
    reads_account,
    reads_intervals,
    reads_profiles,
    reads_reference,
    reads_updates,
    reads_window,
    sums_only,
)

__all__ = [
    "admit",
    "apply",
    "bounded",
    "compass",
    "control",
    "credits_by",
    "edit",
    "keep",
    "local",
    "mixes_statistics",
    "phases",
    "reads_account",
    "reads_intervals",
    "reads_profiles",
    "reads_reference",
    "reads_updates",
    "reads_window",
    "recent",
    "reduce",
    "replay",
    "robust",
    "select",
    "sums_only",
    "suspect",
    "tolerant",
    "trigger",
    "utility",
    "weigh",
]
