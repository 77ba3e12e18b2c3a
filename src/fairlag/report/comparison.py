"""Tables of runs for a terminal: a list of runs, and how strategies compare over their seeds."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import isnan
from os.path import commonpath
from pathlib import Path
from textwrap import wrap

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fairlag.analyse.compare import Comparison, GroupComparison, groups_have_labels, groups_scored
from fairlag.analyse.metrics import Metric, Scope, Shown, select
from fairlag.analyse.ranking import Ranking
from fairlag.errors import InputError
from fairlag.lab.damaged import without_damaged
from fairlag.lab.run import Run
from fairlag.report.differences import differences
from fairlag.report.labels import number
from fairlag.report.own_data import OWN, own_data_table
from fairlag.report.plain import PlainTable, plain_terminal
from fairlag.report.ranking import MARK, about, with_least_served
from fairlag.report.ranking_terminal import ranking_terminal
from fairlag.report.tables import block, metric_widths, titled, with_groups
from fairlag.text import numerals
from fairlag.text.scored import ACCURACY, Scored

_NAME = 13

_FEW = 6
"""The most strategies that are shown with details: more would hide which is best."""

_UNREADABLE = "unreadable"
_STATUS = {"finished": "green", "running": "cyan", "interrupted": "yellow", "failed": "red", _UNREADABLE: "red"}


@dataclass(frozen=True, slots=True)
class Listed:
    """A run in a list: what it is, its progress and the score of its model; or why it cannot be read."""

    folder: Path
    experiment: str = ""
    label: str = ""
    seed: int | None = None
    status: str = _UNREADABLE
    version: int | None = None
    planned: int | None = None
    time: float | None = None
    score: float | None = None
    """The leading metric; None if no version was evaluated."""
    metric: Scored = ACCURACY
    """The leading metric's name, and how it is written."""
    error: str = ""
    """Why it cannot be read."""

    @classmethod
    def of(cls, folder: Path) -> "Listed":
        """The run in a folder."""

        def read(runs: list[Run]) -> Listed:
            run, score = runs[0], runs[0].score()
            return cls(
                folder=folder,
                experiment=run.experiment,
                label=run.label,
                seed=run.seed,
                status=run.status,
                version=run.version,
                planned=run.planned,
                time=float(run.virtual_time),
                score=None if isnan(score) else score,
                metric=run.lead,
            )

        try:
            return without_damaged([folder], read)[0]
        except (InputError, OSError) as error:
            return cls(folder, error=str(error))

    def as_json(self) -> dict[str, object]:
        """The record that `fairlag runs --json` prints."""
        found = {**asdict(self), "folder": str(self.folder)}
        metric = found.pop("metric").name
        named = {metric if name == "score" else name: value for name, value in found.items()}
        return named if metric == ACCURACY.name else {**named, "metric": metric}


def runs_table(runs: Sequence[Listed]) -> RenderableType:
    """One row per run: what it is, its progress, and the score of its model."""
    above = Path(commonpath([run.folder.parent for run in runs])) if runs else Path()
    table = titled(f"Runs in {above}", dense=True)
    leads = {run.metric for run in runs if not run.error}
    score = next(iter(leads or {ACCURACY})).words if len(leads) < 2 else "score"
    for name in ("run", "strategy", "seed", "status", "versions", "time", score):
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
        Text(numerals.NONE if run.score is None else run.metric.told(run.score)),
    ]


def compare_table(
    rankings: Sequence[Ranking], *, details: bool = False, more: str = "`fairlag compare DIR --details`"
) -> RenderableType:
    """The ranking of each experiment's strategies, then their details; of many strategies only if asked for."""
    parts: list[RenderableType] = []
    for ranking in rankings:
        strategies = [row.comparison for row in ranking.rows]
        shown = with_least_served(ranking)
        group = "" if ranking.group is None else f"; group: {ranking.group}"
        parts += [Text(shown.title + group, style="bold"), Text(), ranking_terminal(shown), Text()]
        if details or len(strategies) <= _FEW:
            parts += _differences(ranking)
            parts += _details(strategies, uneven=ranking.uneven)
        else:
            words = f"{len(strategies)} strategies: {more} shows the groups of each"
            parts.append(Text(words, style="dim"))
        parts += [Text(remark, style="yellow") for remark in shown.remarks]
    return Group(*parts)


def compare_plain(rankings: Sequence[Ranking]) -> list[PlainTable]:
    """For each experiment, the ranking and the differences from its first strategy."""
    found: list[PlainTable] = []
    for ranking in rankings:
        shown, apart, by = with_least_served(ranking), differences(ranking), f"rank: by {ranking.metric.title},"
        ranks = PlainTable(
            shown.title,
            ("rank", "strategy", *(column.title for column in shown.columns)),
            tuple((row.rank, row.comparison.label, *row.cells) for row in shown.rows),
            (*(line.replace(MARK, by) for line in shown.reading), *shown.remarks),
            words=2,
        )
        found += [ranks] if apart is None else [ranks, apart]
    return found


def _differences(ranking: Ranking) -> list[RenderableType]:
    """How far the strategies are from the first, if there are enough seeds."""
    found = differences(ranking)
    if found is None:
        return []
    return [
        Text(found.title, style="bold"),
        plain_terminal(found),
        *(Text(each, style="dim") for each in found.notes),
        Text(),
    ]


def _details(strategies: Sequence[Comparison], *, uneven: bool) -> list[RenderableType]:
    """One block per strategy, one row per group; then the time that each took to reach a target."""
    judged = strategies[0].judged
    lead, scored = judged[0], groups_scored(strategies)
    of_groups, overall = (
        select(Shown.DETAILS, scope, uneven=uneven, judged=judged) for scope in (Scope.GROUP, Scope.RUN)
    )
    of_all = {metric.name: metric for metric in overall if metric.name in {each.name for each in of_groups}}
    alone = [metric for metric in overall if metric.name not in of_all]
    names = {f"{what} %" if lead.rate else what: 14 if lead.rate else 16 for what in ("final", "best")}
    columns = with_groups({"clients": 9, **names} | metric_widths(of_groups, gap=2), most=_NAME)
    parts: list[RenderableType] = [block(columns, [[Text(name, style="dim") for name in columns]])]
    for each in strategies:
        words = [about(each), *(_named(metric, each) for metric in alone)]
        parts.append(Text.assemble((each.label, "bold"), (f"  {', '.join(words)}", "dim")))
        clients = sum(group.clients for group in each.groups)
        cells = [_written(of_all[metric.name], each) if metric.name in of_all else "" for metric in of_groups]
        rows = [_row("all", clients, each, cells)]
        for group in each.groups:
            cells = [_written(metric, group) for metric in of_groups]
            rows.append(_row(group.name, group.clients, group, cells, scored=scored))
        parts.append(block(columns, rows))
    if any(OWN in each.metrics for each in strategies):
        parts += [Text(), own_data_table(strategies)]
    if any(each.leading.reached for each in strategies):
        parts += [Text(), _targets_table(strategies, lead)]
    reading = [line for each in of_groups if each.reading for line in wrap(each.reading, 80, subsequent_indent="  ")]
    labels = scored and groups_have_labels(strategies)
    return [*parts, Text(), *(Text(line, style="dim") for line in (*_reading(lead, labels=labels), *reading))]


def _reading(lead: Scored, *, labels: bool) -> tuple[str, ...]:
    return (
        "final: the last version on all test examples, over the finished seeds",
        f"best: the {'highest' if lead.higher else 'lowest'} point of the curve, on its sample of the test examples",
        f"  both: mean ± standard deviation{'; for a group on the labels that it holds' if labels else ''}",
    )


def _row(
    name: str, clients: int, found: Comparison | GroupComparison, cells: Sequence[str], *, scored: bool = True
) -> list[Text]:
    """A row of the details; without scores for groups, theirs are empty."""
    lead = found.leading
    scores = (lead.metric.written(each.mean, each.deviation) if scored else "" for each in (lead.final, lead.best))
    return [Text(each) for each in (f"  {name}", f"{clients:,}", *scores, *cells)]


def _named(metric: Metric, found: Comparison) -> str:
    """A metric of a strategy in a line of words."""
    unit = " %" if metric.title.endswith(" %") else ""
    return f"{metric.words or metric.title} {_written(metric, found)}{unit}"


def _written(metric: Metric, found: Comparison | GroupComparison) -> str:
    spread = found.metrics[metric.name]
    return metric.written(spread.mean, spread.deviation)


def _targets_table(comparisons: Sequence[Comparison], lead: Scored) -> Table:
    """When each strategy first reached each target."""
    table = titled(f"Time to {lead.some}", dense=True)
    table.add_column("strategy")
    time = numerals.clock(*(each.real_time for each in comparisons))
    for name in (lead.words, time, "aggregations", "seeds"):
        table.add_column(name, justify="right")
    for each in comparisons:
        for goal in each.leading.reached:
            table.add_row(
                Text(each.label),  # not a plain string: rich would read brackets as a style
                lead.goal(goal.target),
                number(goal.virtual_time, "{:,.0f}"),
                number(goal.aggregations, "{:,.0f}"),
                f"{goal.virtual_time.seeds} of {len(each.seeds)}",
            )
    return table
