"""The outcomes of all tasks (merged, refused, lost or cancelled) and their reasons, counted by the database."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fairlag.analyse.audit import StrategyAudit
from fairlag.core.types import Outcome
from fairlag.lab.folder import meta_of, reading
from fairlag.lab.run import Run

# Most tasks are merged. Counting those by client alone takes half the time, because their texts need no sorting.
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
    """The outcomes of a strategy's tasks, over all its seeds."""

    groups: tuple[str, ...]
    """Empty if the groups of the tasks are not known."""
    tasks: Counter[tuple[str, TaskEnd]]
    """The number of tasks by group and end."""
    aggregations: int
    partial: int
    """How many of these had fewer updates than the trigger wants, because all clients were waiting."""
    unmatched: Counter[str]
    """The number of updates that were refused because they belonged to no running task, by reason."""
    open: int | None
    """The number of tasks that were running, or waited in a buffer, at the end; None if a run has not ended."""

    def of(self, group: str | None = None) -> Counter[TaskEnd]:
        """The tasks of one group, or of all."""
        found: Counter[TaskEnd] = Counter()
        for (name, end), many in self.tasks.items():
            if group is None or name == group:
                found[end] += many
        return found


def outcomes(runs: Sequence[Run]) -> Outcomes:
    """The outcomes of the tasks in runs of one strategy."""
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
    """The outcomes in an audit over `seeds` seeds: no groups, no reasons, and about how many tasks were merged."""
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
