"""Progress of runs: a live table on a terminal, otherwise a line at each quarter of a run; both on standard error."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from math import isnan
from pathlib import Path
from time import monotonic

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from fairlag.cli.terminal import err, tell
from fairlag.errors import InputError
from fairlag.lab.damaged import without_damaged
from fairlag.lab.events import Event, Over, Progress
from fairlag.lab.experiment import Experiment
from fairlag.lab.folder import is_run
from fairlag.lab.plan import Plan, Planned
from fairlag.lab.run import Run
from fairlag.text.scored import ACCURACY, Scored

_STYLES = {"finished": "green", "running": "cyan", "waiting": "dim", "interrupted": "yellow", "failed": "red"}
_REFRESHES = 2
"""Per second. Drawing the table takes as long as several training steps."""
_WIDE = 110
"""Columns of a terminal from which on a bar is shown."""
_FIXED, _SCORE = 64, 8
"""The width of a row without the scores of groups, and the width of each of these."""
_AROUND = 4
"""Lines of the table that are not rows."""


class Row:
    """One run: its progress, its speed, and the scores of its last evaluation."""

    def __init__(self, planned: Planned, experiment: Experiment) -> None:
        self.label, self.seed = planned.use.label, planned.seed
        self._total, self._until = experiment.aggregations, experiment.until_time
        self.now, finished = _kept(planned.folder)
        self.status = "finished" if finished else "waiting"
        self._reports: list[tuple[float, int]] = []
        """The first and the last report in this process: its time, and the number of updates."""

    def update(self, progress: Progress) -> None:
        """Takes a new report."""
        self.now = progress if progress.scores else progress._replace(scores=self.now.scores)
        self.status = "running"
        self._reports = [*self._reports[:1], (monotonic(), progress.updates)]

    @property
    def share(self) -> float:
        """The part of the run that is done, as far as its end is known."""
        parts = [self.now.version / self._total] if self._total else []
        parts += [self.now.time / self._until] if self._until else []
        return 1.0 if self.status == "finished" else min(max(parts), 1.0)

    @property
    def versions(self) -> str:
        """The newest version, and the planned number of versions if it is known."""
        return f"{self.now.version:,}" + (f" of {self._total:,}" if self._total else "")

    @property
    def speed(self) -> float:
        """Updates per second since the first report; 0 if not known yet."""
        if len(self._reports) < 2:
            return 0.0
        (began, before), (last, after) = self._reports
        return (after - before) / (last - began) if last > began else 0.0

    @property
    def left(self) -> float | None:
        """The remaining seconds at the speed so far."""
        return self.now.updates * (1 / self.share - 1) / self.speed if self.speed and self.share else None

    @property
    def sentence(self) -> str:
        """Its progress in words."""
        words = f"{self.label}, seed {self.seed}: {self.versions} aggregations, time {self.now.time:,.0f}"
        if self.speed:
            words += f", {self.speed:,.0f} updates/s"
        if not self.now.scores:
            return words
        lead, found = self.now.lead, self.now.scores
        groups = ", ".join(f"{name} {_short(value, lead)}{_sign(lead)}" for name, value in found.items() if name)
        return f"{words}, {lead.words} {_short(found[''], lead)}{_sign(lead)}" + (f" ({groups})" if groups else "")


def _kept(folder: Path) -> tuple[Progress, bool]:
    """The progress of a run on disk, and whether it is finished."""

    def read(runs: list[Run]) -> tuple[Progress, bool]:
        (run,) = runs
        found = {"": run.score(), **{name: run.score(scope="group", name=name) for name in run.groups}}
        scores = {} if isnan(found[""]) else {name: value for name, value in found.items() if not isnan(value)}
        return Progress(run.version, run.virtual_time, 0, scores, run.lead), run.status == "finished"

    with suppress(InputError):  # a damaged run is reported when it is continued
        if is_run(folder):
            return without_damaged([folder], read)[0]
    return Progress(0, 0.0, 0, {}), False


class Watch:
    """Follows the events of all runs of a plan."""

    def __init__(self, plan: Plan) -> None:
        self.rows = {planned.folder: Row(planned, plan.experiment) for planned in plan}
        self.began = False
        """Was there any event?"""

    def __call__(self, planned: Planned, event: Event) -> None:
        """Takes an event of a run."""
        self.began = True
        row = self.rows[planned.folder]
        if isinstance(event, Progress):
            row.update(event)
        elif isinstance(event, Over):
            row.status = event.status


class Lines(Watch):
    """Prints a line at each quarter of each run."""

    def __call__(self, planned: Planned, event: Event) -> None:
        """Takes an event of a run."""
        row = self.rows[planned.folder]
        before = row.share
        super().__call__(planned, event)
        if row.status == "finished" or (int(4 * row.share) > int(4 * before) and row.share < 1):
            tell(row.sentence)


class Board(Watch):
    """A table of all runs, redrawn as they progress."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self._groups = [table.group for table in plan.experiment.clients] if plan.experiment.data else []
        self._trains = plan.experiment.data is not None
        self._open = True

    def close(self) -> None:
        """There will be no more events: from now on all rows are shown."""
        self._open = False

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if not self.began:
            yield Text("Loading the data and the model …", style="dim")
            return
        rows = list(self.rows.values())
        room = console.height - _AROUND
        if self._open and len(rows) > room > 0:
            busy = next((place for place, row in enumerate(rows) if row.status == "running"), len(rows))
            start = min(max(busy - room // 2, 0), len(rows) - room)
            rows = rows[start : start + room]
        yield self._table(rows, options.max_width)
        yield Text(self._summary(), style="dim")

    def _table(self, rows: list[Row], width: int) -> Table:
        lead = next((row.now.lead for row in rows if row.now.lead != ACCURACY), ACCURACY)
        known = {name for row in rows for name in row.now.scores}
        groups = self._groups if known != {""} else []  # a regression has no scores for groups
        fits = len(groups) <= (width - _FIXED) // _SCORE
        whole = "all %" if lead.rate else lead.words
        names = [whole, *(groups if fits else ["worst"])] if self._trains else []
        table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
        table.add_column("strategy")
        for name in ("seed", *([""] if width >= _WIDE else []), "versions", "time", *names, "updates/s", "left"):
            table.add_column(name, justify="right", no_wrap=True, max_width=_SCORE if name in groups else None)
        for row in rows:
            bar = [ProgressBar(total=1.0, completed=row.share, width=20)] if width >= _WIDE else []
            scores = dict(row.now.scores)
            worst = min if lead.higher else max
            found = {whole: scores.pop("", None), "worst": worst(scores.values(), default=None), **scores}
            table.add_row(
                Text(row.label, no_wrap=True, overflow="ellipsis"),
                str(row.seed),
                *bar,
                row.versions.replace(" of ", "/"),
                f"{row.now.time:,.0f}",
                *(_short(found.get(name), lead) for name in names),
                f"{row.speed:,.0f}" if row.speed else "",
                Text(_clock(row.left) if row.status == "running" else row.status, style=_STYLES[row.status]),
            )
        return table

    def _summary(self) -> str:
        rows = self.rows.values()
        done = sum(row.status == "finished" for row in rows)
        speeds = [row.left / (1 - row.share) for row in rows if row.left is not None and row.share < 1]
        whole = f"{done} of {len(rows)} runs finished"
        if not speeds or not self._open:
            return whole
        return f"{whole}, about {_clock(speeds[-1] * sum(1 - row.share for row in rows))} left"


def _short(value: float | None, lead: Scored) -> str:
    return "" if value is None else f"{100 * value:.1f}" if lead.rate else lead.written(value)


def _sign(lead: Scored) -> str:
    return " %" if lead.rate else ""


def _clock(seconds: float | None) -> str:
    """Seconds as a clock shows them.

    >>> _clock(42.4), _clock(3723)
    ('0:42', '1:02:03')
    """
    if seconds is None:
        return "…"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


@contextmanager
def watching(plan: Plan) -> Iterator[Watch]:
    """Inside, the progress of a plan's runs is shown."""
    watch = Board(plan) if err.is_terminal else Lines(plan)
    if not isinstance(watch, Board):
        yield watch
        return
    with Live(watch, console=err, refresh_per_second=_REFRESHES) as live:
        try:
            yield watch
        finally:
            watch.close()
            live.transient = not watch.began  # if no run began, the screen is cleared
