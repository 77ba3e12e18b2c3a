"""What a sweep found, as a table on a terminal, and the experiment file of the best settings."""

from collections.abc import Iterator
from statistics import fmean, stdev

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fairlag.analyse.sweep import Sensitivity, Swept
from fairlag.text.calls import write
from fairlag.text.numerals import NONE

_COLUMNS = ("trials", "best", "quartiles", "worst", "test")


def sweep_table(swept: Swept) -> RenderableType:
    """One row per strategy, the best first: how good its settings are; below, which is best."""
    scored = swept.objective.scored
    unit = " %" if scored.rate else ""
    title = f"Sweep by {swept.objective.words}{unit}, {_seeds(swept)} per trial"
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("strategy")
    for name in _COLUMNS:
        table.add_column(name, justify="right", no_wrap=True)
    for row in swept.best_first:
        quartiles = " to ".join(scored.written(row.quantile(part)) for part in (0.25, 0.75))
        test = (fmean(row.tested), stdev(row.tested)) if len(row.tested) > 1 else (*row.tested, None, None)[:2]
        table.add_row(
            Text(row.label),
            f"{row.trials:,}" + "*" * bool(row.failed or row.stopped),
            scored.written(row.best),
            quartiles if row.values else NONE,
            scored.written(row.worst),
            scored.written(*test),
        )
    best = [Text(f"{row.label}: {setting_in_words(row)}") for row in swept.best_first]
    reading = [Text(line, style="dim") for line in notes(swept)]
    return Group(Text(title, style="bold"), Text(), table, Text(), *best, Text(), *reading, Text())


def setting_in_words(row: Sensitivity) -> str:
    """The best setting in one line."""
    if not row.values and not row.setting:
        return "no trial ended well"
    return ", ".join(f"{key}={write(value)}" for key, value in row.setting.items()) or "nothing was swept"


def notes(swept: Swept) -> Iterator[str]:
    """How to read the table, and what happened to trials."""
    yield f"{_budgets(swept)}. best, quartiles, worst: over trials, on validation examples."
    yield "test: the best setting trained on all training examples with fresh seeds, on test examples; mean ± deviation"
    for row in swept.rows:
        of_all = f"of {_trials(row.trials)}"
        if row.made < row.trials:
            yield f"{row.label}: {row.trials - row.made:,} {of_all} repeated another one and were not made again"
        if row.failed:
            yield f"* {row.label}: {row.failed:,} {of_all} diverged or stalled and count as worst"
        if row.stopped:
            yield f"* {row.label}: {row.stopped:,} {of_all} were stopped early and are in no quartile"


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


def _trials(count: int) -> str:
    return f"{count:,} trial{'s' if count != 1 else ''}"


def _seeds(swept: Swept) -> str:
    return f"{len(swept.seeds)} seed{'s' if len(swept.seeds) != 1 else ''}"
