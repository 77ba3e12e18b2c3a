"""What throttling would gain under the strategies of runs, for figures and pages."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from fairlag.analyse.audit import Progress, StrategyAudit
from fairlag.analyse.audit import audit as audited
from fairlag.analyse.compare import Repeated
from fairlag.analyse.evidence import experiment_of
from fairlag.report.words import labels_of


def throttled(found: Sequence[Repeated], workers: int, progress: Progress | None = None) -> list[StrategyAudit]:
    """One audit a strategy, from the experiment of its first run: nothing is trained."""
    audits = []
    for each, label in zip(found, labels_of(found), strict=True):
        told = None if progress is None else partial(_tell, progress, label)
        (result,) = audited(experiment_of(each.runs[0]), seeds=1, workers=workers, progress=told)
        audits.append(replace(result, label=label))
    return audits


def _tell(progress: Progress, label: str, part: str, done: int, total: int) -> None:
    progress(f"{label}: {part}", done, total)
