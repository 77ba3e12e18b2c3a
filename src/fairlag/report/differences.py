"""How far the strategies of a ranking are from the first: differences over seeds with intervals and tests."""

from collections.abc import Sequence
from math import isnan

from fairlag.analyse.metrics import Better, Metric
from fairlag.analyse.ranking import Ranking
from fairlag.analyse.significance import CONFIDENCE, FEWEST, LEVEL, Test
from fairlag.report.plain import PlainTable
from fairlag.text.numerals import NONE

UNCLEAR = f"t-test over seeds, paired over those that both have, p ≥ {LEVEL:g} after Holm's correction"
"""Why two strategies are not told apart if both have enough seeds."""

CLEAR = UNCLEAR.replace("≥", "<")

_HEAD = ("strategy", "difference", f"{100 * CONFIDENCE:g} % interval", "p", "seeds", "distinguishable")


def why_unclear(tests: Sequence[Test]) -> str:
    """Why none of these tests tells strategies apart, in a few words.

    >>> why_unclear([Test(2, True, 1.0), Test(2, True, 1.0)])
    '2 seeds are too few'
    >>> why_unclear([Test(5, True, 0.3), Test(5, True, 0.01, difference=0.001, floor=0.002)]).partition(" or ")[2]
    'less than one test example apart'
    """
    if len({test.words for test in tests}) == 1:
        return tests[0].words
    return f"{UNCLEAR} or less than one test example apart" if any(test.p < LEVEL for test in tests) else UNCLEAR


def differences(ranking: Ranking) -> PlainTable | None:
    """One row per strategy that is compared with the first; None if there are too few seeds for a test."""
    rivals = ranking.rivals()
    if not any(test.seeds >= FEWEST for _, test in rivals):
        return None
    metric = ranking.metric
    return PlainTable(
        title=f"Differences from {first_of(ranking)}: {subject(ranking)}",
        head=_HEAD,
        rows=tuple((row.comparison.label, *_cells(metric, test)) for row, test in rivals),
        notes=tuple(_notes(ranking, [test for _, test in rivals])),
    )


def first_of(ranking: Ranking) -> str:
    """The label of the strategy that the others are compared with."""
    return next(row for row in ranking.rows if ranking.knows(row)).comparison.label


def subject(ranking: Ranking) -> str:
    """What the differences are of."""
    metric = ranking.metric
    return f"distance of {metric.title} from fair" if metric.better is Better.FAIR else metric.title


def _cells(metric: Metric, test: Test) -> tuple[str, ...]:
    low, high = (_signed(metric, end) for end in (test.low, test.high))
    known = not isnan(test.margin)
    return (
        _signed(metric, test.difference),
        f"{low} to {high}" if known else NONE,
        NONE if not known else "< 0.001" if test.p < 0.001 else f"{test.p:.3f}",
        str(test.seeds),
        "yes" if test.clear else "no",
    )


def _signed(metric: Metric, value: float) -> str:
    return f"+{metric.written(value)}" if value > 0 else metric.written(value)


def _notes(ranking: Ranking, tests: Sequence[Test]) -> list[str]:
    paired = all(test.paired for test in tests)
    how = "paired over seeds" if paired else "paired over the seeds that both have, or Welch's if those are too few"
    comparisons = max(test.comparisons for test in tests)
    pairs = f", p corrected for all {comparisons} pairs (Holm)" if comparisons > 1 else ""
    found = [f"difference: mean over seeds, minus the first; its interval is for this pair alone; t-test {how}{pairs}"]
    if ranking.floor:
        found.append(
            f"A difference of less than one test example ({100 * ranking.floor:.2g} %) is never called distinguishable"
        )
    return found
