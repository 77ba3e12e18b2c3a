"""Draws runs by the name of a kind of figure, for the command line and notebooks."""

from collections.abc import Sequence
from dataclasses import dataclass

from fairlag.analyse.compare import repeated
from fairlag.analyse.progress import Progress
from fairlag.errors import InputError
from fairlag.lab.run import Run
from fairlag.report.audits import throttled
from fairlag.report.figures.curve import curve_figure
from fairlag.report.figures.identity import Sheet, check_panels, check_size, strategy_looks
from fairlag.report.figures.incentives import incentives_figure
from fairlag.report.figures.influence import influence_figure
from fairlag.report.figures.privacy import privacy_figure
from fairlag.report.figures.ranks import ranks_figure
from fairlag.report.figures.staleness import staleness_figure
from fairlag.report.figures.timeline import timeline_figure

_OVER_RUNS = {
    "curve": curve_figure,
    "influence": influence_figure,
    "staleness": staleness_figure,
    "ranks": ranks_figure,
    "privacy": privacy_figure,
}
REWARDS, SWEEP = "rewards", "sweep"
KINDS = (*_OVER_RUNS, "timeline", "incentives", REWARDS, SWEEP)


@dataclass(frozen=True, slots=True)
class Kind:
    """What to draw, checked before any run is read."""

    name: str
    size: str = "double"
    begin: float | None = None
    until: float | None = None
    """The window of a timeline, in virtual time."""

    def __post_init__(self) -> None:
        if self.name not in KINDS:
            raise InputError(f"the kind of a figure is {self.name!r}, it must be one of {', '.join(KINDS)}")
        check_size(self.size)
        for word, value in (("from", self.begin), ("until", self.until)):
            if value is not None and self.name != "timeline":
                raise InputError(f"a window {word} {value:g} was given, but only a timeline has one, not {self.name}")

    def draw(self, runs: Sequence[Run], sheet: Sheet, *, workers: int = 1, progress: Progress | None = None) -> None:
        """Draws it. For incentives, the strategies are audited first, which takes a while and reports progress."""
        if self.name == REWARDS:
            raise InputError("rewards are drawn from an experiment, not from runs: fairlag figure FILE --kind rewards")
        if self.name == SWEEP:
            raise InputError("a sweep is drawn from its folder, not from runs: fairlag figure DIR --kind sweep")
        if self.name == "timeline":
            timeline_figure(runs, sheet, self.size, self.begin, self.until)
        elif self.name == "incentives":
            found = repeated(runs)
            check_panels(len(found))
            audits, notes = throttled(found, workers, progress)
            if len(audits) < len(found):
                raise InputError(f"not all incentives can be drawn: {' '.join(notes)}")
            incentives_figure(audits, sheet, self.size, strategy_looks(found))
        else:
            if self.name == "curve":
                _check_evaluated(runs)
            _OVER_RUNS[self.name](runs, sheet, self.size)


def _check_evaluated(runs: Sequence[Run]) -> None:
    """Refuses a strategy without any curve to draw."""
    for each in repeated(runs):
        if not any(len(run.curve()) for run in each.runs):
            raise InputError(
                f"{each.label} in {str(each.runs[0].folder)!r} has no curve to draw: no version of it was evaluated"
            )
