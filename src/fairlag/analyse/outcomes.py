"""What became of all tasks: merged, refused, lost or cancelled, and why; counted by the database."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fairlag.analyse.audit import StrategyAudit
from fairlag.core.types import Outcome
from fairlag.lab.folder import meta_of, reading
from fairlag.lab.run import Run

# Most tasks are merged: those are counted by client alone, which takes half the time of sorting the words as well.
_OUTCOMES = f"""
SELECT grp, outcome, reason, SUM(many) FROM clients JOIN (
    SELECT client, '{Outcome.AGGREGATED}' AS outcome, '' AS reason, COUNT(*) AS many
    FROM tasks WHERE outcome = '{Outcome.AGGREGATED}' GROUP BY client
    UNION ALL
    SELECT client, outcome, COALESCE(reason, ''), COUNT(*)
    FROM tasks WHERE outcome <> '{Outcome.AGGREGATED}' GROUP BY client, outcome, reason
) USING (client) GROUP BY grp, outcome, reason
"""
_MADE = "SELECT COUNT(*), COALESCE(SUM(partial), 0) FROM aggregations"


class TaskEnd(NamedTuple):
    """How tasks ended, and why if they were not merged."""

    outcome: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Outcomes:
    """What became of the tasks of a strategy, over all its seeds."""

    groups: tuple[str, ...]
    """Empty where it is not known whose tasks they were."""
    tasks: Counter[tuple[str, TaskEnd]]
    """How many tasks of a group ended that way."""
    aggregations: int
    partial: int
    """How many of these were merged short of what the trigger wanted, because everyone was waiting."""
    unmatched: Counter[str]
    """Updates that were refused because they belonged to no running task, by reason."""
    open: int | None
    """How many tasks were running, or waited in a buffer, at the end; None where a run has not ended."""

    def of(self, group: str | None = None) -> Counter[TaskEnd]:
        """The tasks of one group, or of all."""
        found: Counter[TaskEnd] = Counter()
        for (name, end), many in self.tasks.items():
            if group is None or name == group:
                found[end] += many
        return found


def outcomes(runs: Sequence[Run]) -> Outcomes:
    """What became of the tasks of runs of one strategy."""
    tasks: Counter[tuple[str, TaskEnd]] = Counter()
    refusals: Counter[str] = Counter()
    aggregations = partial = 0
    left: list[int | None] = []
    for run in runs:
        with reading(run.folder) as database:
            for group, outcome, reason, many in database.execute(_OUTCOMES):
                tasks[group, TaskEnd(outcome, reason)] += many
            made, short = database.execute(_MADE).fetchone()
            refusals.update(dict(database.execute("SELECT reason, count FROM refusals").fetchall()))
            counts = meta_of(database, run.folder).get("counts")
        aggregations, partial = aggregations + made, partial + short
        left.append(counts["running"] + counts["buffered"] if counts else None)
    return Outcomes(
        groups=tuple(dict.fromkeys(name for run in runs for name in run.groups)),
        tasks=tasks,
        aggregations=aggregations,
        partial=partial,
        unmatched=refusals - _refused(tasks),
        open=None if None in left else sum(many or 0 for many in left),
    )


def audited_outcomes(audit: StrategyAudit, seeds: int) -> Outcomes:
    """What an audit over so many seeds knows of it: no groups, no reasons, and about how many were merged."""
    counts = {
        TaskEnd(Outcome.AGGREGATED): audit.updates * seeds,
        TaskEnd(Outcome.REFUSED): audit.refused,
        TaskEnd(Outcome.LOST): audit.lost,
        TaskEnd(Outcome.CANCELLED): audit.cancelled,
    }
    return Outcomes(
        groups=(),
        tasks=Counter({("", end): many for end, many in counts.items() if many}),
        aggregations=audit.aggregations * seeds,
        partial=audit.partial,
        unmatched=Counter(),
        open=None,
    )


def _refused(tasks: Counter[tuple[str, TaskEnd]]) -> Counter[str]:
    found: Counter[str] = Counter()
    for (_, end), many in tasks.items():
        if end.outcome == Outcome.REFUSED:
            found[end.reason] += many
    return found
