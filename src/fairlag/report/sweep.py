"""What a sweep found: as a table, on a terminal, and the head of the experiment file of the best settings."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from statistics import fmean, stdev
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from fairlag.analyse.sweep import Sensitivity, Swept
from fairlag.report.plain import PlainTable, plain_terminal
from fairlag.text.calls import write
from fairlag.text.numerals import NONE
from fairlag.text.scored import Scored


def sweep_plain(swept: Swept) -> PlainTable:
    """One row per strategy, the best first: its best setting, how good its settings are, and the test of the best."""
    scored = swept.objective.scored
    return PlainTable(
        f"Sweep by {swept.objective.words}{' %' if scored.rate else ''}, {_seeds(swept)} per trial",
        ("strategy", "best setting", "trials", "best", "quartiles", "worst", "test"),
        tuple((row.label, setting_in_words(row), *_cells(row, scored)) for row in swept.best_first),
        tuple(notes(swept)),
        words=2,
    )


def sweep_table(swept: Swept) -> RenderableType:
    """The same for a terminal, with the best settings below the table, where there is room for them."""
    plain = sweep_plain(swept)
    narrow = replace(plain, head=_without_setting(plain.head), rows=tuple(map(_without_setting, plain.rows)), words=1)
    best = [Text(f"{label}: {setting}") for label, setting, *_ in plain.rows]
    reading = [Text(line, style="dim") for line in plain.notes]
    title = Text(plain.title, style="bold")
    return Group(title, Text(), plain_terminal(narrow), Text(), *best, Text(), *reading, Text())


def _without_setting(row: tuple[str, ...]) -> tuple[str, ...]:
    return (row[0], *row[2:])


def _cells(row: Sensitivity, scored: Scored) -> tuple[str, ...]:
    quartiles = " to ".join(scored.written(row.quantile(part)) for part in (0.25, 0.75))
    test = (fmean(row.tested), stdev(row.tested)) if len(row.tested) > 1 else (*row.tested, None, None)[:2]
    return (
        f"{row.trials:,}" + "*" * bool(row.failed or row.stopped or row.missed),
        scored.written(row.best),
        quartiles if row.values else NONE,
        scored.written(row.worst),
        scored.written(*test),
    )


def setting_in_words(row: Sensitivity) -> str:
    """The best setting in one line."""
    if not row.values and not row.setting:
        return "no trial ended well"
    return in_words(row.setting)


def in_words(setting: Mapping[str, Any]) -> str:
    """A setting in one line.

    >>> in_words({"lr": 0.5, "buffer": 2})
    'lr=0.5, buffer=2'
    """
    return ", ".join(f"{key}={write(value)}" for key, value in setting.items()) or "nothing was swept"


def notes(swept: Swept) -> Iterator[str]:
    """How to read the table, and what happened to trials."""
    yield f"{_budgets(swept)}. best, quartiles, worst: over trials, on validation examples."
    yield "test: the best setting trained on all training examples with fresh seeds, on test examples; mean ± deviation"
    if swept.unfinished:
        yield swept.unfinished
    for row in swept.rows:
        of_all = f"of {_trials(row.trials)}"
        if row.made < row.trials:
            yield f"{row.label}: {row.trials - row.made:,} {of_all} repeated another one and were not made again"
        if row.failed:
            yield f"* {row.label}: {row.failed:,} {of_all} diverged or stalled and count as worst"
        if row.stopped:
            yield f"* {row.label}: {row.stopped:,} {of_all} were stopped early and are in no quartile"
        if row.missed:
            yield f"* {row.label}: {row.missed:,} {of_all} {_missed(swept)} with every seed and are in no quartile"
        if row.missed and not row.values:
            yield f"{row.label}: its setting is the one that did with most seeds, or the first of equals"
        if lacking := row.tests - len(row.tested):
            yield f"{row.label}: {lacking:,} of {row.tests:,} tests failed or {_missed(swept)}, and are not in its mean"


def head_of_best(swept: Swept, tests: int) -> list[str]:
    """The comments at the top of the experiment file of the best settings."""
    return [
        f"The best settings of a sweep by {swept.objective.words} on validation examples, {_seeds(swept)} per trial.",
        f"{_budgets(swept)}.",
        f"Its seed is the first that no trial had: `fairlag run FILE --seeds {tests}` repeats the tests of the sweep.",
    ]


def _budgets(swept: Swept) -> str:
    """How many trials each strategy had."""
    budgets = {row.trials for row in swept.rows}
    if len(budgets) == 1:
        return f"Every strategy had {_trials(budgets.pop())}"
    each = ", ".join(f"{row.label} {row.trials:,}" for row in swept.rows)
    return f"Strategies had as many trials as they have settings: {each}"


def _missed(swept: Swept) -> str:
    """What happened to a trial without a value."""
    objective = swept.objective
    return f"did not reach {objective.metric.level(objective.target)}" if objective.by == "time" else "had no value"


def _trials(count: int) -> str:
    return f"{count:,} trial{'s' if count != 1 else ''}"


def _seeds(swept: Swept) -> str:
    return f"{len(swept.seeds)} seed{'s' if len(swept.seeds) != 1 else ''}"
