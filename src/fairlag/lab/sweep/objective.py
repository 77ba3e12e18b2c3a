"""What makes one trial better than another: a final score, the score of the worst group, or the time to a score."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, isnan
from typing import Literal

from fairlag.errors import InputError, nearest
from fairlag.lab.run import Run
from fairlag.lab.scores import first_at
from fairlag.text.scored import LOSS, Scored

GROUP, TIME = "group", "time"


@dataclass(frozen=True, slots=True)
class Objective:
    """What is best: of all examples, of the worst group, or the shortest time to a value of a metric."""

    by: Literal["all", "group", "time"]
    metric: Scored
    target: float = 0.0

    @classmethod
    def read(cls, text: str | None, metrics: Sequence[Scored]) -> "Objective":
        """From a text such as "accuracy", "group" or "time:0.9"; without one, the leading metric.

        >>> from fairlag.text.scored import ACCURACY
        >>> Objective.read("time:0.9", [ACCURACY]).words
        'time to 90 % accuracy'
        """
        lead, known = metrics[0], {each.name: each for each in (*metrics, LOSS)}
        name, colon, target = (text or lead.name).partition(":")
        if name == TIME:
            return cls("time", lead, _target(target, text or "", lead))
        if name == GROUP and not colon:
            return cls("group", lead)
        if text is not None and text not in known:
            raise InputError(f"the metric of a sweep is {text!r}: {nearest(text, [*known, GROUP, f'{TIME}:0.9'])}")
        return cls("all", known[name])

    @property
    def higher(self) -> bool:
        """Are higher values better?"""
        return self.by != "time" and self.metric.higher

    @property
    def scored(self) -> Scored:
        """How its values are written."""
        return Scored(TIME, higher=False, rate=False) if self.by == "time" else self.metric

    @property
    def words(self) -> str:
        """In a sentence."""
        if self.by == "time":
            return f"time to {self.metric.level(self.target)}"
        return self.metric.words + (" of the worst group" if self.by == "group" else "")

    @property
    def ranking(self) -> tuple[str | None, tuple[float, ...]]:
        """What the comparison of its tests ranks by, with the target: the same, or the least served group's score."""
        if self.by == "all":
            return None if self.metric == LOSS else self.metric.name, ()
        return self.by, (self.target,) if self.by == "time" else ()

    def of(self, run: Run) -> float | None:
        """The value of a finished run; None if it did not reach the target, or has no score."""
        name = self.metric.name
        if self.by == "time":
            return _known(first_at(run.curve(metric=name), self.target, "time", self.metric))
        if self.by == "group":
            return self._worst([run.score(name, "group", group) for group in run.groups])
        return _known(run.score(name))

    def now(self, time: float, scores: Mapping[str, Mapping[str, float]]) -> float | None:
        """The same for a version on the way, from its scores on all examples and per group; None as well."""
        found = {name: each[self.metric.name] for name, each in scores.items() if self.metric.name in each}
        if self.by == "time":
            value = found.get("")
            reached = value is not None and (value >= self.target if self.metric.higher else value <= self.target)
            return time if reached else None
        if self.by == "group":
            return self._worst([value for name, value in found.items() if name])
        return _known(found.get("", float("nan")))

    def _worst(self, values: Sequence[float]) -> float | None:
        known = [value for value in values if not isnan(value)]
        return None if not known else min(known) if self.metric.higher else max(known)


def _known(value: float) -> float | None:
    return None if isnan(value) else value


def _target(number: str, text: str, lead: Scored) -> float:
    try:
        target = float(number)
    except ValueError:
        target = float("nan")
    if not isfinite(target) or (lead.rate and not 0 < target <= 1):
        rule = "above 0 and at most 1, such as time:0.9" if lead.rate else "a finite number, such as time:0.5"
        raise InputError(f"the metric of a sweep is {text!r}: the {lead.words} to reach must be {rule}")
    return target
