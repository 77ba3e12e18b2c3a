"""What attacks did to strategies and defences: accuracy lost, attackers' influence, and honest clients not heard."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import isnan, nan
from typing import TYPE_CHECKING, Any

from fairlag.analyse.outcomes import outcomes
from fairlag.core.types import Outcome
from fairlag.lab.attacks import HONEST, Case, Guarded
from fairlag.lab.run import Run

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class Assault:
    """One strategy with one defence under one attack, as means over its seeds."""

    strategy: str
    defence: str
    attack: str
    score: float
    """The leading metric of the last evaluated version; NaN if the model diverged before."""
    lost: float
    """How much worse that is than the same strategy without a defence and without an attack."""
    influence: float
    """The attackers' part of all influence; NaN without an attack."""
    share: float
    """The attackers' part of all clients."""
    refused: float
    """The part of honest updates that was refused."""
    unheard: float
    """The part of honest clients that had no influence at all."""
    seeds: int
    failed: int
    """How many of the runs ended early, because the model diverged or no version could be made any more."""
    reasons: tuple[str, ...] = ()
    """Why, each reason once."""

    def as_json(self) -> dict[str, Any]:
        """Its numbers, None if there is none."""
        return {name: None if isinstance(each, float) and isnan(each) else each for name, each in asdict(self).items()}


def assaults(cases: Sequence[Case], runs: Sequence[Sequence[Run]]) -> list[Assault]:
    """One per case, strategy and defence; `runs` are those of each case, in any order."""
    found, honest = [], dict[str, float]()
    for case, made in zip(cases, runs, strict=True):
        by_label: dict[Guarded, list[Run]] = {}
        for run in made:
            by_label.setdefault(case.guarded[run.label], []).append(run)
        for guarded, its in by_label.items():
            score = _mean([run.score() for run in its])
            if case.attack is None and guarded.defence == HONEST:
                honest[guarded.strategy] = score
            sign = 1 if its[0].lead.higher else -1
            lost = sign * (honest.get(guarded.strategy, nan) - score)
            found.append(_assault(case, guarded, its, score, lost))
    return found


def _assault(case: Case, guarded: Guarded, runs: Sequence[Run], score: float, lost: float) -> Assault:
    group = None if case.attack is None else case.attack.group
    # A run that ended before its first checkpoint has no records.
    frames = [frame for frame in (run.influence() for run in runs) if frame["updates"].any()]
    honest = [frame[frame["group"] != group] for frame in frames]
    counts = outcomes(runs)
    ends = [end for name in counts.groups if name != group for end in counts.of(name).items()]
    refused = sum(many for end, many in ends if end.outcome == Outcome.REFUSED)
    judged = refused + sum(many for end, many in ends if end.outcome == Outcome.AGGREGATED)
    return Assault(
        strategy=guarded.strategy,
        defence=guarded.defence,
        attack=case.name,
        score=score,
        lost=lost,
        influence=_mean([_of(group, frame, "influence") for frame in frames]) if group is not None else nan,
        share=_mean([_of(group, frame, "fair") for frame in (run.influence() for run in runs)]),
        refused=refused / judged if judged else nan,
        unheard=_mean([float((each["influence"] == 0).mean()) for each in honest]),
        seeds=len(runs),
        failed=sum(run.status != "finished" for run in runs),
        reasons=tuple(dict.fromkeys(run.failure for run in runs if run.failure)),
    )


def _of(group: str | None, frame: "pd.DataFrame", column: str) -> float:
    return float(frame[frame["group"] == group][column].sum())


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else nan
