"""Tables for a terminal: an audit, the strategies, the presets, and the paper's theory."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from math import ceil, isinf
from textwrap import wrap
from typing import Literal

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fairlag.analyse import theory
from fairlag.analyse.audit import GroupAudit, StrategyAudit
from fairlag.analyse.incentives import FACTORS
from fairlag.analyse.metrics import Better, Metric, Scope, Shown, select
from fairlag.lab.experiment import Experiment
from fairlag.report.answer import DEPLOYMENT, answer, deployment_cells, device_cells
from fairlag.report.figures.incentives import brief_verdict, brief_words, how_tried
from fairlag.report.labels import gain, span
from fairlag.report.plain import PlainTable
from fairlag.report.remarks import remarks
from fairlag.text.numerals import NONE, number
from fairlag.zoo import ALGORITHMS, Algorithm

_WIDE = 80
"""Columns of a terminal."""
_LEAST_NAME = 8

_CHEATING = {
    "group": 15,
    "best cheat": 27,
    "gain": 14,
    "new names": 12,
    "two clients": 12,
}
"""The columns about cheating, and their widths."""

_DEPLOYED = {
    "group": 22,
    "versions/h": 11,
    "updates/day": 12,
    "MB/day": 9,
    "lost": 7,
    "waiting": 8,
    "settled": 11,
}


def audit_table(experiment: Experiment, audits: Sequence[StrategyAudit], seeds: int) -> RenderableType:
    """The audit of an experiment, one block per strategy, one row per group."""
    title = f"Audit of {experiment.name}: {experiment.population:,} clients"
    parts: list[RenderableType] = [Text(title, style="bold"), Text()]
    uneven = any(audit.comes_and_goes for audit in audits)
    metrics = select(Shown.AUDIT, Scope.GROUP, uneven=uneven)
    columns = _columns(metrics, uneven=uneven)
    parts.append(block(columns, [[Text(name, style="dim") for name in columns]]))
    for audit in audits:
        words = [
            f"{each.words or each.title} {each.written(audit.metrics[each.name])}"
            for each in select(Shown.AUDIT, Scope.RUN, uneven=uneven)
        ]
        words += [f"cap needed {audit.bounds.cap_needed:.2f}"] if audit.bounds else []
        parts.append(Text.assemble((audit.label, "bold"), (f"  {', '.join(words)}", "dim")))
        cells = (_group_cells(group, metrics, tried=audit.throttling.tried) for group in audit.groups)
        parts.append(block(columns, ([row[name] for name in columns] for row in cells)))
    parts += [Text(), *(Text(line, style="dim") for line in _reading(audits, seeds, metrics, uneven=uneven))]
    if any(group.cheat.tried for audit in audits for group in audit.groups):
        parts += [Text(), block(_CHEATING, [[Text(name, style="dim") for name in _CHEATING]])]
        for audit in audits:
            parts += [Text(audit.label, style="bold"), block(_CHEATING, map(_cheating_row, audit.groups))]
        parts += [Text(), *(Text(line, style="dim") for line in _on_cheating(audits))]
    parts += [Text(remark, style="yellow") for remark in remarks(audits)]
    parts += [Text(), block(_DEPLOYED, [[Text(name, style="dim") for name in _DEPLOYED]])]
    for audit in audits:
        parts += [Text(audit.label, style="bold"), block(_DEPLOYED, _deployment_rows(audit))]
    parts.append(Text())
    parts += [
        Text(line, style="dim")
        for name, meaning in DEPLOYMENT.items()
        for line in wrap(f"{name}: {meaning}", 78, subsequent_indent="  ")
    ]
    parts += [Text(), *(Text(sentence, style="bold") for sentence in answer(audits))]
    return Group(*parts)


def audit_plain(experiment: Experiment, audits: Sequence[StrategyAudit], seeds: int) -> list[PlainTable]:
    """The same tables as records, with one row per strategy and group: influence, cheating and deployment."""
    uneven = any(audit.comes_and_goes for audit in audits)
    metrics = select(Shown.AUDIT, Scope.GROUP, uneven=uneven)
    columns = _columns(metrics, uneven=uneven)
    found = [
        _plain(
            f"Audit of {experiment.name}",
            columns,
            (
                (audit, [_group_cells(group, metrics, tried=audit.throttling.tried)[name] for name in columns])
                for audit in audits
                for group in audit.groups
            ),
            _reading(audits, seeds, metrics, uneven=uneven),
        )
    ]
    if any(group.cheat.tried for audit in audits for group in audit.groups):
        cheats = ((audit, _cheating_row(group)) for audit in audits for group in audit.groups)
        found.append(_plain(f"Cheating in {experiment.name}", _CHEATING, cheats, _on_cheating(audits)))
    rows = ((audit, row) for audit in audits for row in _deployment_rows(audit))
    notes = [f"{name}: {meaning}" for name, meaning in DEPLOYMENT.items()]
    return [*found, _plain(f"Deployment of {experiment.name}", _DEPLOYED, rows, notes)]


def _plain(
    title: str, columns: Iterable[str], rows: Iterable[tuple[StrategyAudit, Sequence[Text]]], notes: Sequence[str]
) -> PlainTable:
    """A table with the strategy in front and no row too short; notes that were wrapped for a terminal are joined."""
    head = ("strategy", *columns)
    written = ([audit.label, *(cell.plain.strip() for cell in row)] for audit, row in rows)
    cells = tuple((*row, *[""] * (len(head) - len(row))) for row in written)
    joined = "\n".join(notes).replace("\n  ", " ").split("\n")
    return PlainTable(title, head, cells, tuple(joined), words=2)


def _columns(metrics: Sequence[Metric], *, uneven: bool) -> dict[str, int]:
    """The columns of an audit's table and their widths. Nothing is predicted for clients that come and go."""
    others = {"clients": 8, **metric_widths(metrics)}
    return with_groups(others | ({"throttling": 17} if uneven else {"predicted": 10, "throttling": 18}))


def metric_widths(metrics: Sequence[Metric], gap: int = 1) -> dict[str, int]:
    """Columns for metrics, and their widths."""
    return {each.title: gap + max(len(each.title), len(each.written(0.0))) for each in metrics}


def with_groups(others: Mapping[str, int], most: int = _WIDE) -> dict[str, int]:
    """Adds the column of group names, which gets the width that the other columns leave."""
    return {"group": max(_LEAST_NAME, min(most, _WIDE - sum(others.values()))), **others}


def _deployment_rows(audit: StrategyAudit) -> Iterator[list[Text]]:
    yield [Text("  all"), *map(Text, deployment_cells(audit))]
    for group in audit.groups:
        yield [Text(f"  {group.name}"), Text(), *map(Text, device_cells(group.deployment))]


def block(columns: Mapping[str, int], rows: Iterable[Sequence[Text]]) -> Table:
    """Rows under columns of these widths, the first aligned left. Consecutive blocks look like one table."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=0)
    for name, width in columns.items():
        justify: Literal["left", "right"] = "left" if name == "group" else "right"
        table.add_column(width=width, justify=justify, overflow="ellipsis", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return table


def titled(title: str, *, dense: bool = False) -> Table:
    """An empty table with a title; a dense one has less space between its columns."""
    table = Table(title=title, title_style="bold", title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    if dense:
        table.padding = (0, 1, 0, 0)
    return table


def _group_cells(group: GroupAudit, metrics: Sequence[Metric], *, tried: bool) -> dict[str, Text]:
    """The cells of a group, by column."""
    deviation = abs(group.influence - group.entitled) / group.entitled if group.entitled else 0.0
    style = "green" if deviation < 0.05 else "yellow" if deviation < 0.3 else "red"
    incentive = group.incentive
    sure = incentive.heard and incentive.truthful and incentive.largest_gain < 1
    told = "yellow" if not tried else "green" if sure else "yellow" if incentive.truthful else "red"
    gain = Text(brief_verdict(incentive, tried=tried), style=told)
    return {
        "group": Text(f"  {group.name}"),
        "clients": Text(f"{group.clients:,}"),
        **{
            metric.title: Text(
                metric.written(group.metrics[metric.name]), style=style if metric.better is Better.FAIR else ""
            )
            for metric in metrics
        },
        "predicted": Text(number(group.staleness_predicted, "{:.2f}")),
        "throttling": gain,
    }


def _cheating_row(group: GroupAudit) -> list[Text]:
    cheat = group.cheat
    if not cheat.known:
        told = [Text(brief_words(cheat), style="yellow"), Text(NONE)]
    elif cheat.truthful:
        sure = "green" if cheat.at_most < 1 else "yellow"
        told = [Text("none found", style=sure), Text(f"< {ceil(100 * cheat.at_most)}%" if cheat.at_most else "", sure)]
    else:
        told = [Text(str(cheat.timing), style="red"), Text(f"+{gain(cheat.gain, cheat.error)}", style="red")]
    identities = (group.identities.rejoin_anew, group.identities.two)
    return [Text(f"  {group.name}"), *told, *(Text(number(each, "{:+.0%}")) for each in identities)]


def _on_cheating(audits: Sequence[StrategyAudit]) -> list[str]:
    tried = [audit.timings for audit in audits if audit.timings.tried]
    lines = [
        "best cheat: the timing with which one client gains most influence over a whole",
        "  run; schedule(64, 1, 1, 1): 64 times slower in its first quarter, then",
        "  truthful; < 4%: the best timing tried gains less than 4 %",
        "new names, two clients: what it gains by returning under a new name after every",
        "  update or every fourth, and by acting as two; no weighting can prevent that",
    ]
    if tried:
        short, long = (span([each.aggregations[place] for each in tried]) for place in range(2))
        lines += [
            f"Timings: {span([each.tried for each in tried])} per group in runs of {short} aggregations; the best",
            f"  again in {span([each.replications for each in tried])} fresh runs of {long} aggregations.",
        ]
    return lines


_PREDICTED = (
    "predicted: staleness by the closed form, if fleet and strategy have one; it",
    "  ignores that `fresh` makes very fast clients wait",
)


def _reading(audits: Sequence[StrategyAudit], seeds: int, metrics: Sequence[Metric], *, uneven: bool) -> list[str]:
    aggregations = span([audit.aggregations for audit in audits])
    told = [each.reading for each in (*select(Shown.AUDIT, Scope.RUN, uneven=uneven), *metrics) if each.reading]
    lines = [
        *(line for each in told for line in wrap(each, _WIDE, subsequent_indent="  ")),
        *(() if uneven else _PREDICTED),
        "throttling: the influence that a client gains in the long run by pretending to",
        f"  be up to ×{FACTORS[-1]:g} slower, ± the error; no (< 4%): 4 % would have been noticed",
    ]
    if any(audit.bounds for audit in audits):
        lines.append("cap needed: the smallest cap with which every client can get its share")
    lines.append("Nothing is trained: all clients count as having the same number of examples.")
    lines.append(f"Means over {seeds} {'seed' if seeds == 1 else 'seeds'} of {aggregations} aggregations.")
    if tried := how_tried(audits):
        lines.append(f"Throttling: {tried}, half of them warm-up.")
    return lines


def theory_table(experiment: Experiment, buffer: int, audits: Sequence[StrategyAudit]) -> RenderableType:
    """The paper's predictions for the fleet at a buffer size, one row per group, and what audits measured."""
    fleet = experiment.fleet()
    rates = 1 / fleet.mean_durations
    shares, late = theory.expected_share(rates), theory.expected_staleness(rates, buffer)
    weights = theory.fair_weight(late, buffer, fleet.clients)
    table = titled(f"Theory at a buffer of {buffer}")
    for name in ("group", "rate r", "share p", "staleness E[τ]", "fair weight α", "tempting rate r*", "throttle"):
        table.add_column(name, justify="left" if name == "group" else "right")
    for place, group in enumerate(fleet.groups):
        client = fleet.members(place)[0]
        row = [group.name, f"{rates[client]:.4g}", f"{shares[client]:.4f}", f"{late[client]:.2f}"]
        row.append(f"{weights[client]:.3f}")
        if fleet.clients > 1:
            tempted = theory.incentive(rates, client, buffer)
            row += ["none" if isinf(tempted.best_rate) else f"{tempted.best_rate:.4g}", f"×{tempted.throttle:.2f}"]
        table.add_row(*row)
    most = float(late.max())
    lines = [
        "Per client. FedStaleWeight rewards a client most at the rate r*: a faster one gains by throttling.",
        f"Weights of FedStaleWeight are between {theory.smallest_weight(buffer, most):.4f} and "
        f"{theory.largest_weight(buffer, most):.4f} if the mean staleness is at most {most:.2f}; "
        f"their squared distance from 1/b is at most U = {theory.largest_deviation(buffer, most):.4f}.",
    ]
    for audit in audits:
        if audit.whole_buffer == buffer:
            longest = max(len(group.histogram) for group in audit.groups) - 1
            lines.append(
                f"Measured with {audit.label}: weights from {audit.weights[0]:.4f} to {audit.weights[1]:.4f}, "
                f"staleness up to {longest}."
            )
    return Group(Text(), table, Text("\n".join(lines), style="dim"))


_STRATEGIES = ("use", "what it is", "parameters and defaults")


def strategies_table() -> RenderableType:
    """Every registered algorithm with its parameters and their defaults."""
    table = titled("Strategies")
    for name in _STRATEGIES:
        table.add_column(name, no_wrap=name == "use", style="bold" if name == "use" else "")
    for _, family in groupby(ALGORITHMS.values(), lambda algorithm: algorithm.family):
        for each in family:
            table.add_row(*_strategy_cells(each))
        table.add_section()
    return table


def strategies_plain() -> PlainTable:
    """The same as a record."""
    rows = tuple(map(_strategy_cells, ALGORITHMS.values()))
    return PlainTable("Strategies", _STRATEGIES, rows, words=len(_STRATEGIES))


def _strategy_cells(algorithm: Algorithm) -> tuple[str, ...]:
    words = [f"{key}={parameter.default!r}" for key, parameter in algorithm.parameters.items()]
    return algorithm.name, algorithm.description, ", ".join(words)


def presets_json(presets: dict[str, str]) -> list[dict[str, str]]:
    """The shipped experiment files, each with its first comment, as `fairlag presets --json` prints them.

    >>> presets_json({"mine": "# Three kinds.\\nname = 'mine'"})
    [{'name': 'mine', 'what': 'Three kinds.'}]
    """
    return [{"name": name, "what": text.partition("\n")[0].lstrip("# ")} for name, text in presets.items()]


def presets_table(presets: dict[str, str]) -> RenderableType:
    """The shipped experiment files, each with its first comment."""
    table = titled("Presets")
    table.add_column("name", no_wrap=True, style="bold")
    table.add_column("what it is")
    for each in presets_json(presets):
        table.add_row(each["name"], each["what"])
    return table
