"""Tables of runs for a terminal: which there are, and how strategies compare over their seeds."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import isnan, nan
from os.path import commonpath
from pathlib import Path
from textwrap import wrap

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fairlag.analyse.compare import Comparison, GroupComparison
from fairlag.analyse.ranking import Ranking
from fairlag.errors import InputError
from fairlag.lab.damaged import without_damaged
from fairlag.lab.run import Run
from fairlag.report.cells import STALENESS, about, group_cells, heads, remarks, title
from fairlag.report.labels import number, percent
from fairlag.report.ranking import ranking_table
from fairlag.report.tables import block, titled
from fairlag.text import numerals

_COLUMNS = {"group": 13, "clients": 9, "final %": 14, "best %": 14, "influence": 11, "fair": 7, "staleness": 10}
"""What a comparison shows, and how wide: 78 in all, so that a terminal of 80 holds it."""
_COMING = {"group": 11, "clients": 8, "final %": 13, "best %": 13, "influence": 10, "entitled": 9, "per time": 9}
"""The same of a fleet that comes and goes."""
_PER_TIME = "per time: its influence per time that it was there; 1 is the mean of all clients"

_FEW = 6
"""Of more strategies than that, the details would hide who is best."""

_UNREADABLE = "unreadable"
_STATUS = {"finished": "green", "running": "cyan", "interrupted": "yellow", "failed": "red", _UNREADABLE: "red"}


@dataclass(frozen=True, slots=True)
class Listed:
    """A run in a list: what it is, how far it came, and how good its model is; or why it cannot be read."""

    folder: Path
    experiment: str = ""
    label: str = ""
    seed: int | None = None
    status: str = _UNREADABLE
    version: int | None = None
    planned: int | None = None
    time: float | None = None
    accuracy: float | None = None
    """None if no version of it was evaluated."""
    error: str = ""
    """Why it cannot be read."""

    @classmethod
    def of(cls, folder: Path) -> "Listed":
        """The run in a folder."""

        def read(runs: list[Run]) -> Listed:
            run, accuracy = runs[0], runs[0].accuracy()
            return cls(
                folder=folder,
                experiment=run.experiment,
                label=run.label,
                seed=run.seed,
                status=run.status,
                version=run.version,
                planned=run.planned,
                time=float(run.virtual_time),
                accuracy=None if isnan(accuracy) else accuracy,
            )

        try:
            return without_damaged([folder], read)[0]
        except (InputError, OSError) as error:
            return cls(folder, error=str(error))

    def as_json(self) -> dict[str, object]:
        """What `fairlag runs --json` prints of it."""
        return {**asdict(self), "folder": str(self.folder)}


def runs_table(runs: Sequence[Listed]) -> RenderableType:
    """These runs, one a row: what each is, how far it came, and how good its model is."""
    above = Path(commonpath([run.folder.parent for run in runs])) if runs else Path()
    table = titled(f"Runs in {above}", dense=True)
    for name in ("run", "strategy", "seed", "status", "versions", "time", "accuracy"):
        wide = name in ("run", "strategy")
        table.add_column(
            name, justify="left" if wide or name == "status" else "right", no_wrap=not wide, overflow="fold"
        )
    reasons = []
    for run in runs:
        where = Text(str(run.folder.relative_to(above)))
        table.add_row(where, *_run_row(run))
        if run.error:
            reasons.append(Text.assemble(where, f": {run.error}.", style="yellow"))
    return Group(table, *reasons)


def _run_row(run: Listed) -> list[Text]:
    status = Text(run.status, style=_STATUS[run.status])
    if run.version is None or run.time is None:
        return [Text(), Text(), status]
    return [
        Text(run.label),
        Text(str(run.seed)),
        status,
        Text(f"{run.version:,}" + (f"/{run.planned:,}" if run.planned else "")),
        Text(f"{run.time:,.0f}"),
        Text(numerals.number(nan if run.accuracy is None else 100 * run.accuracy, "{:.2f} %")),
    ]


def compare_table(
    rankings: Sequence[Ranking], *, details: bool = False, more: str = "`fairlag compare DIR --details`"
) -> RenderableType:
    """The ranking of each experiment's strategies, then what is to know of each; of many only where it is asked for."""
    parts: list[RenderableType] = []
    for ranking in rankings:
        strategies = [row.comparison for row in ranking.rows]
        group = "" if ranking.group is None else f"; group: {ranking.group}"
        parts += [Text(title(ranking) + group, style="bold"), Text(), ranking_table(ranking), Text()]
        if details or len(strategies) <= _FEW:
            parts += _details(strategies)
        else:
            words = f"{len(strategies)} strategies: {more} shows the groups of each"
            parts.append(Text(words, style="dim"))
        parts += [Text(remark, style="yellow") for remark in remarks(ranking)]
    return Group(*parts)


def _details(strategies: Sequence[Comparison]) -> list[RenderableType]:
    """One block a strategy, one row a group; then how long each took to an accuracy."""
    coming = any(each.comes_and_goes for each in strategies)
    columns = _COMING if coming else _COLUMNS
    parts: list[RenderableType] = [block(columns, [[Text(name, style="dim") for name in columns]])]
    for each in strategies:
        words = f"  {about(each)}, Jain index {number(each.jain, '{:.3f}')}"
        words += f", {heads(strategies).jain} {number(each.jain_entitled, '{:.3f}')}" if coming else ""
        parts.append(Text.assemble((each.label, "bold"), (words, "dim")))
        rows = [_all_row(each, coming=coming), *(_group_row(group, coming=coming) for group in each.groups)]
        parts.append(block(columns, rows))
    if any(each.accuracy.reached for each in strategies):
        parts += [Text(), _targets_table(strategies)]
    reading = [
        *_READING,
        *wrap(heads(strategies).words, 78, subsequent_indent="  "),
        _PER_TIME if coming else STALENESS,
    ]
    return [*parts, Text(), *(Text(line, style="dim") for line in reading)]


_READING = (
    "final: the last version on all test examples, over the seeds that finished",
    "best: the highest point of the curve, on the sample of them that it is drawn on",
    "  both mean ± standard deviation, for a group on the labels that it holds",
)


def _all_row(comparison: Comparison, *, coming: bool) -> list[Text]:
    clients = sum(group.clients for group in comparison.groups)
    final, best = comparison.accuracy.final, comparison.accuracy.best
    late = "" if coming else number(comparison.staleness, "{:.2f}")
    return [Text(each) for each in ("  all", f"{clients:,}", percent(final), percent(best), "", "", late)]


def _group_row(group: GroupComparison, *, coming: bool) -> list[Text]:
    final, *others, last = group_cells(group)
    best = percent(group.accuracy.best)
    last = number(group.per_presence, "{:.2f}") if coming else last
    return [Text(each) for each in (f"  {group.name}", f"{group.clients:,}", final, best, *others, last)]


def _targets_table(comparisons: Sequence[Comparison]) -> Table:
    """When each strategy first reached each accuracy."""
    table = titled("Time to an accuracy", dense=True)
    table.add_column("strategy")
    time = numerals.clock(*(each.real_time for each in comparisons))
    for name in ("accuracy", time, "aggregations", "seeds"):
        table.add_column(name, justify="right")
    for each in comparisons:
        for goal in each.accuracy.reached:
            table.add_row(
                Text(each.label),  # as it is: brackets in a plain string would be a style
                f"{100 * goal.target:g} %",
                number(goal.virtual_time, "{:,.0f}"),
                number(goal.aggregations, "{:,.0f}"),
                f"{goal.virtual_time.seeds} of {len(each.seeds)}",
            )
    return table
