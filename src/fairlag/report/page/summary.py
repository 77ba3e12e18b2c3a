"""What was run, in words, from the settings stored in runs: fleet, data, local training, strategies and seeds."""

import json
from collections.abc import Mapping, Sequence
from math import inf
from types import MappingProxyType
from typing import Any

from fairlag.analyse.compare import Comparison, Repeated
from fairlag.analyse.metrics import Shown
from fairlag.analyse.ranking import Ranking, ranked
from fairlag.report.differences import why_unclear
from fairlag.report.labels import sentences, shortened
from fairlag.report.page.spec import Named, Section, Table, group_colour
from fairlag.report.ranking import MARK, RankingTable, several, with_all_groups
from fairlag.text.numerals import NONE, VIRTUAL
from fairlag.text.scored import ACCURACY, Scored

Tables = Mapping[str, Any]
"""An experiment as stored in the directory of a run."""

_HEAD = 20
"""The longest name of a group at the head of a column."""


def settings(found: Sequence[Repeated]) -> list[dict[str, Any]]:
    """The resolved experiments of these strategies, each once, with all its strategies and seeds."""
    together: dict[str, dict[str, Any]] = {}
    for each in found:
        for run in each.runs:
            tables = dict(run.settings)
            strategies, seed = tables.pop("strategies"), tables.pop("seed")
            whole = together.setdefault(json.dumps(tables), {**tables, "seeds": [], "strategies": []})
            whole["seeds"] += [seed] if seed not in whole["seeds"] else []
            whole["strategies"] += [one for one in strategies if one not in whole["strategies"]]
    return list(together.values())


def experiment_section(
    experiments: Sequence[Tables],
    rankings: Sequence[Ranking],
    named: Sequence[Named],
    groups: Sequence[str],
    clock: str = VIRTUAL,
    *,
    assumed: bool = False,
    classes: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> Section:
    """The settings in words and as a file, and the ranking of the strategies; `groups` are those of the whole page.

    If `assumed`, the fleet was real, and the settings only describe what was assumed about it. `classes` are their
    names in the data of each experiment; none if they have only numbers.
    """
    shown = [with_all_groups(ranking, Shown.PAGE, known=True) for ranking in rankings]
    return Section(
        name="experiment",
        title="What was run",
        lead=_lead(experiments, clock),
        tables=[
            *(_ranking(each, ranking.experiment, named) for each, ranking in zip(shown, rankings, strict=True)),
            *_fleets(experiments, groups, classes, assumed=assumed),
        ],
        remarks=list(dict.fromkeys(line for each in shown for line in (*each.remarks, _legend(each)))),
        source="\n\n".join(json.dumps(tables, indent=2, ensure_ascii=False) for tables in experiments),
    )


def _lead(experiments: Sequence[Tables], clock: str) -> str:
    """The experiments in words; if only their tasks differ, the rest once, and which strategies have which task."""
    whole = [described(tables, clock) for tables in experiments]
    heads = [described({**tables, "local": None}, clock) for tables in experiments]
    if len(set(whole)) == 1 or len(set(heads)) > 1:
        return " ".join(dict.fromkeys(whole))
    labels = (several([str(use["label"]) for use in tables["strategies"]]) for tables in experiments)
    tasks = (f"{names}: a{_task(tables['local'])[1:]}" for names, tables in zip(labels, experiments, strict=True))
    return " ".join([heads[0], *tasks])


def _ranking(shown: RankingTable, experiment: str, named: Sequence[Named]) -> Table:
    """The strategies, best first, with the metrics of each client group."""
    names = list(dict.fromkeys(column.group for column in shown.columns if column.group is not None))
    short = dict(zip(names, shortened(names, _HEAD), strict=True))
    return Table(
        caption=shown.title,
        head=["", *(f"{short[each.group]}: {each.title}" if each.group else each.title for each in shown.columns)],
        rows=[[f"{row.rank} {row.comparison.label}", *row.cells] for row in shown.rows],
        marks=_marks(shown.labels, experiment, named),
    )


def _marks(labels: Sequence[str], experiment: str, named: Sequence[Named]) -> list[str]:
    """The colours of strategies on this page."""
    colours = {name.label: name.colour for name in named}
    return [colours.get(label, colours.get(f"{label}, {experiment}", "")) for label in labels]


def _legend(shown: RankingTable) -> str:
    return sentences([line.removeprefix(f"{MARK} ") for line in shown.reading])


def described(tables: Tables, clock: str = VIRTUAL) -> str:
    """An experiment in a sentence or two.

    >>> described({"clients": [{"count": 2}], "aggregations": 100, "data": {"use": "digits"}, "model": {"use": "mlp"},
    ...            "local": {"steps": 1, "batch": 32, "lr": 0.1}})
    '2 clients train the model mlp on digits until 100 aggregations are made. A task is 1 step on batches of 32 at a \
learning rate of 0.1.'
    """
    ends = [f"{tables['aggregations']:,} aggregations are made"] if tables.get("aggregations") else []
    ends += [f"the {clock} is {tables['until_time']:,g}"] if tables.get("until_time") else []
    data, model = tables.get("data"), tables.get("model", {})
    many = counted(tables)
    train, are = ("trains", "is") if many == 1 else ("train", "are")
    kind = f" ({tables['task']['use']})" if tables.get("task") else ""
    what = (
        f"{train} the model {model.get('use', '')} on {data['use']}{kind}"
        if data
        else f"{are} simulated without training"
    )
    pace = f" on the wall clock, {tables.get('speed', 1):g} times as fast," if tables.get("clock") else ""
    words = f"{_many(many, 'client')} {what}{pace} until {' or '.join(ends) or 'they are stopped'}."
    return f"{words} {_task(tables['local'])}" if data and tables.get("local") else words


def _task(local: Tables) -> str:
    length = _many(local["epochs"], "epoch") if local.get("epochs") else _many(local.get("steps") or 1, "step")
    said = "steps", "epochs", "batch", "lr", "engine"
    names = {"prox": "proximal term"}
    rest = {names.get(key, key.replace("_", " ")): value for key, value in local.items() if key not in said and value}
    words = [f"{name} {value if isinstance(value, str) else format(value, 'g')}" for name, value in rest.items()]
    more = f", with {' and '.join(words)}" if words else ""
    return f"A task is {length} on batches of {local['batch']} at a learning rate of {local['lr']}{more}."


_FLEET = {
    "count": "clients",
    "delay": "a task takes",
    "steps": "steps per task",
    "labels": "labels",
    "availability": "present",
    "vanish": "vanishes during a task",
    "upload": "upload",
    "download": "download",
    "overhead": "the deployment adds",
    "join": "joins at",
    "leave": "leaves at",
}
"""The keys of a group in a file, and their names on the page."""

_USUAL = {"availability": "always", "vanish": 0.0, "join": 0.0}


def _fleets(
    experiments: Sequence[Tables], groups: Sequence[str], classes: Mapping[str, Sequence[str]], *, assumed: bool
) -> list[Table]:
    """Each fleet once, however many experiments it is in."""
    found = [_fleet(tables, groups, classes.get(tables["name"], ()), assumed=assumed) for tables in experiments]
    return [table for place, table in enumerate(found) if table not in found[:place]]


def _fleet(tables: Tables, groups: Sequence[str], classes: Sequence[str], *, assumed: bool) -> Table:
    """The clients: one row per group, with all settings that are not the default; of a real fleet, as assumed."""
    clients = tables["clients"]
    keys = [
        key for key in _FLEET if any(each.get(key) is not None and each[key] != _USUAL.get(key) for each in clients)
    ]
    return Table(
        caption=f"The clients of {tables['name']}" + (", as assumed" if assumed else ""),
        head=["group", *(_FLEET[key] for key in keys)],
        rows=[[each["group"], *(_cell(each, key, classes) for key in keys)] for each in clients],
        marks=[group_colour(groups.index(each["group"])) for each in clients],
    )


def _cell(table: Tables, key: str, classes: Sequence[str]) -> str:
    value = table.get(key, _USUAL.get(key))
    if value is None:
        return NONE
    if key == "labels":
        return several([classes[label] for label in value]) if classes else spans(value)
    if key == "delay" and table.get("delay_per") == "step":
        return f"{value} per step"
    return f"{value:,g}" if isinstance(value, int | float) else str(value)


def spans(labels: Sequence[int]) -> str:
    """Whole numbers, with neighbours joined into ranges.

    >>> spans([0, 1, 2, 5, 7, 8])
    '0–2, 5, 7–8'
    """
    runs: list[list[int]] = []
    for label in sorted(labels):
        if runs and label == runs[-1][-1] + 1:
            runs[-1].append(label)
        else:
            runs.append([label])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}–{run[-1]}" for run in runs)


def findings(compared: Sequence[Comparison]) -> list[str]:
    """The results of each experiment in words: the best strategies, and the groups with the least influence."""
    together: dict[str, list[Comparison]] = {}
    for each in compared:
        together.setdefault(each.experiment, []).append(each)
    several = len(together) > 1
    return [f"In {name}: {line}" if several else line for name, found in together.items() for line in _findings(found)]


def _findings(compared: Sequence[Comparison]) -> list[str]:
    lines = []
    if any(each.leading.final.mean is not None for each in compared):
        (ranking,) = ranked(compared)
        lines.append(_ended(ranking))
    heard = [each for each in compared if each.evenness.mean is not None and len(each.groups) > 1]
    for each in _extremes(heard):
        group = min(each.groups, key=lambda one: (one.influence.mean or 0.0) / one.due if one.due else inf)
        index = f"Jain index{' of influence ÷ entitlement' if each.comes_and_goes else ''} {each.evenness.mean:.3f}"
        lines.append(
            f"Under {each.label}, the group {group.name} has {_share(group.influence.mean)} of all weight; "
            f"{_share(group.due)} would be fair ({index})."
        )
    return lines


def _ended(ranking: Ranking) -> str:
    """The strategies with the best and worst final value of the leading metric, as far as the seeds can tell."""
    lead = ranking.judged[0]
    highest, lowest = ("highest", "lowest") if lead.higher else ("lowest", "highest")
    ended = [row.comparison for row in ranking.rows if row.comparison.leading.final.mean is not None]
    (best, *_), worst = ended, ended[-1]
    if worst is best:
        return f"{best.label} ended with {lead.some} of {_final(best)}."
    above, below = ([found for found in ranking.rivals(place) if not found[1].clear] for place in (0, -1))
    words = why_unclear([test for _, test in above])
    if len(above) == len(ended) - 1:
        return (
            f"The strategies are not distinguishable by {lead.words} ({words}): it ranges from {_final(worst)} "
            f"for {worst.label} to {_final(best)} for {best.label}."
        )
    line = f"{best.label} ended with the {highest} {lead.words}, {_final(best)}."
    if above:
        rivals = several([row.comparison.label for row, _ in above])
        line = f"No strategy is clearly {_most(lead)}: {best.label}, {_final(best)}, is not distinguishable from "
        line += f"{rivals} ({words})."
    return line if below else f"{line} {worst.label} ended with the {lowest}, {_final(worst)}."


def _most(lead: Scored) -> str:
    """What only the best strategy is."""
    return "the most accurate" if lead == ACCURACY else f"the best by {lead.words}"


def _final(found: Comparison) -> str:
    mean, lead = found.leading.final.mean or 0.0, found.leading.metric
    return f"{100 * mean:.1f}\N{NO-BREAK SPACE}%" if lead.rate else lead.told(mean)


def _extremes(heard: Sequence[Comparison]) -> list[Comparison]:
    """The strategies with the least and the most even influence."""
    order = sorted(heard, key=lambda each: each.evenness.mean or 0.0)
    return order if len(order) < 2 else [order[0], order[-1]]


def _share(part: float | None) -> str:
    return NONE if part is None else f"{100 * part:.1f}\N{NO-BREAK SPACE}%"


def counted(tables: Tables) -> int:
    """The number of clients."""
    return int(sum(each["count"] for each in tables["clients"]))


def _many(count: float, noun: str) -> str:
    return f"{count:,g} {noun}{'' if count == 1 else 's'}"
