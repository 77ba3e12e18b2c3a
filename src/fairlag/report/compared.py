"""`fairlag.compare`: strategies side by side in Python, as a sequence, a table, a frame, and HTML for a notebook."""

from collections.abc import Container, Iterable, Iterator, Sequence
from io import StringIO
from shutil import get_terminal_size
from typing import TYPE_CHECKING, overload

from fairlag.analyse import compare as comparing
from fairlag.analyse.compare import Comparison
from fairlag.analyse.metrics import Judged, Measured, Scope, Shown, select
from fairlag.analyse.ranking import Ranked, Ranking, ranked
from fairlag.analyse.significance import Test
from fairlag.analyse.spread import Spread
from fairlag.lab.damaged import made_of
from fairlag.lab.runs import Runs
from fairlag.report.comparison import compare_table
from fairlag.report.console import SafeConsole
from fairlag.report.ranking import with_all_groups
from fairlag.report.ranking_html import ranking_html
from fairlag.text.markup import element

if TYPE_CHECKING:
    import pandas as pd


def compare(runs: Runs, targets: Sequence[float] = (), *, by: str | None = None) -> "Compared":
    """Compares strategies, each over its seeds, and ranks them.

    `runs` are Runs, or the folder with them. `targets` are values of the leading metric to reach, such as accuracies
    between 0 and 1; without any, one is chosen. Strategies are ranked `by` the leading metric, or by another metric of
    the runs, jain, time to the first target, or by the leading metric ("group") or the influence of the least served
    group.

    >>> import fairlag
    >>> experiment = fairlag.load("demo").checked(aggregations=5)
    >>> run = fairlag.simulate(experiment, strategy="fairshare", workers=1)
    >>> compared = compare([run])
    >>> compared[0].label, compared.frame()["aggregations"].tolist()
    ('FairShare', [5.0])
    >>> compare([run], by="speed")
    Traceback (most recent call last):
    fairlag.errors.InputError: cannot rank the strategies of 'demo' by 'speed': choose from accuracy, group, \
influence, jain, time
    """
    return Compared(ranked(made_of(runs, lambda found: comparing.compare(found, targets)), by))


class Compared(Sequence[Comparison]):
    """The strategies of each experiment, the best first."""

    def __init__(self, rankings: Iterable[Ranking]) -> None:
        self.rankings = tuple(rankings)
        """One per experiment."""

    @property
    def _rows(self) -> list[tuple[Ranking, Ranked]]:
        return [(ranking, row) for ranking in self.rankings for row in ranking.rows]

    @overload
    def __getitem__(self, index: int) -> Comparison: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Comparison, ...]: ...
    def __getitem__(self, index: int | slice) -> Comparison | tuple[Comparison, ...]:
        return tuple(row.comparison for _, row in self._rows)[index]

    def __len__(self) -> int:
        return len(self._rows)

    def frame(self) -> "pd.DataFrame":
        """One row per strategy: the settings that differ, and means over seeds, for groups as "influence: slow".

        The last columns are the difference from the first strategy, its 95 % interval and its p-value, which is
        corrected for all pairs (Holm).
        """
        import pandas as pd

        tests = {id(row): test for ranking in self.rankings for row, test in ranking.rivals()}
        return pd.DataFrame([dict(_columns(ranking, row, tests.get(id(row)))) for ranking, row in self._rows])

    def __repr__(self) -> str:
        text = StringIO()
        width = max(80, get_terminal_size().columns)
        # In a notebook, a console would display its output instead of writing it.
        console = SafeConsole(file=text, width=width, color_system=None, force_jupyter=False)
        console.print(compare_table(self.rankings, more="`.frame()`"), highlight=False)
        return "\n".join(line.rstrip() for line in text.getvalue().splitlines())

    def _repr_html_(self) -> str:
        return element("div", *(ranking_html(with_all_groups(each, Shown.NOTEBOOK)) for each in self.rankings))


def _columns(ranking: Ranking, row: Ranked, test: Test | None) -> Iterator[tuple[str, object]]:
    found, goal = row.comparison, row.reached
    yield from (("experiment", ranking.experiment), ("rank", row.rank), ("strategy", found.label))
    yield from found.settings.items()
    yield from (("seeds", len(found.seeds)), ("finished", found.finished))
    yield from _means(found, Scope.RUN, found.judged)
    yield from _means(found, Scope.OWN, found.judged)
    yield from (("best", found.leading.best.mean), ("target", goal and goal.target))
    yield "time_to_target", goal and goal.virtual_time.mean
    left_out = set() if ranking.groups_scored else {each.name for each in found.judged}
    for group in found.groups:
        for name, value in (*_means(group, Scope.GROUP, found.judged, left_out), ("fair", group.fair)):
            yield f"{name}: {group.name}", value
    yield "difference", test and test.difference
    yield from (("difference_low", test and test.low), ("difference_high", test and test.high), ("p", test and test.p))


def _means(
    found: Measured[Spread], scope: Scope, judged: Judged, left_out: Container[str] = ()
) -> Iterator[tuple[str, float | None]]:
    for metric in select(Shown.DATA, scope, judged=judged):
        if metric.name in left_out or metric.name not in found.metrics:  # no client was tested on its own data
            continue
        spread = found.metrics[metric.name]
        yield metric.name, spread.mean
        if metric.deviates:
            yield f"{metric.name}_deviation", spread.deviation
