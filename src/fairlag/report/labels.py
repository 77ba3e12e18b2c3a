"""Short texts for tables and figures: numbers over seeds, labels of strategies, timings."""

from collections.abc import Sequence
from itertools import groupby

from fairlag.analyse.compare import Repeated
from fairlag.analyse.significance import CONFIDENCE, FEWEST
from fairlag.analyse.spread import Spread
from fairlag.fleet.timing import Late, Rejoin, Schedule, Throttle, Timing
from fairlag.text import numerals

_QUARTERS = {
    (0, 1): "the first quarter",
    (1, 2): "the second quarter",
    (2, 3): "the third quarter",
    (3, 4): "the last quarter",
    (0, 2): "the first half",
    (1, 3): "the middle half",
    (2, 4): "the second half",
    (0, 3): "the first three quarters",
    (1, 4): "the last three quarters",
}


def number(spread: Spread, form: str) -> str:
    """The mean in the given format.

    >>> number(Spread(1234.5, None, 1), "{:,.0f}"), number(Spread(None, None, 0), "{:,.0f}")
    ('1,234', '–')
    """
    return numerals.number(spread.mean, form)


def span(numbers: Sequence[int]) -> str:
    """The range from the smallest to the largest.

    >>> span([2000, 500, 2000]), span([500])
    ('500 to 2,000', '500')
    """
    return " to ".join(f"{each:,}" for each in dict.fromkeys((min(numbers), max(numbers))))


def shortened(labels: Sequence[str], width: int) -> list[str]:
    """Labels of at most this width. If cutting the end would make some equal, a third or more of each end is kept.

    >>> shortened(["FairShare", "FedBuff (buffer=10)"], 14)
    ['FairShare', 'FedBuff (buff…']
    >>> shortened(["FairShare", "FedBuff (buffer=5)", "FedBuff (buffer=10)"], 14)
    ['FairShare', 'FedBuff (…r=5)', 'FedBuff (…=10)']
    """

    def cut(label: str, tail: int) -> str:
        return label if len(label) <= width else f"{label[: width - 1 - tail]}…{label[len(label) - tail :]}"

    tries = [[cut(label, tail) for label in labels] for tail in (0, *range(width // 3, width - 1))]
    return max(tries, key=lambda cuts: len(set(cuts)))


def labels_of(found: Sequence[Repeated], width: int | None = None) -> list[str]:
    """The labels of strategies in one figure or table, with the experiment if there are several.

    >>> labels_of([Repeated("demo", "FairShare", ()), Repeated("paper", "FairShare", ())])
    ['FairShare, demo', 'FairShare, paper']
    """
    several = len({each.experiment for each in found}) > 1
    labels = [f"{each.label}, {each.experiment}" if several else each.label for each in found]
    return labels if width is None else shortened(labels, width)


def bands_in_words(seeds: Sequence[int], *, rate: bool = True, interval: bool = False) -> str:
    """What lines over these numbers of seeds and the bands around them show; empty without any.

    Only a metric that is a share of examples (`rate`) has a standard error. With `interval`, bands are as wide as
    `fairlag.analyse.significance.factor` says.

    >>> bands_in_words([2, 1])
    'Lines and bands: mean and standard deviation over 2 seeds, up to the end of the shortest run; one seed, with \
the standard error of the test sample.'
    >>> bands_in_words([1], rate=False)
    'Lines: one seed.'
    >>> bands_in_words([5], interval=True)
    'Lines and bands: mean over 5 seeds and its 95 % interval, up to the end of the shortest run.'
    >>> bands_in_words([2], interval=True)
    'Lines and bands: mean and range of 2 seeds, up to the end of the shortest run.'
    """
    counts = sorted({*seeds} - {0})
    several = [count for count in counts if count > 1]
    forms = {"mean and standard deviation over {} seeds": several}
    if interval:
        tested = [count for count in several if count >= FEWEST]
        forms = {f"mean over {{}} seeds and its {100 * CONFIDENCE:g} % interval": tested}
        forms["mean and range of {} seeds"] = [count for count in several if count < FEWEST]
    words = [
        f"{form.format(' or '.join(map(str, those)))}, up to the end of the shortest run"
        for form, those in forms.items()
        if those
    ]
    words += [f"one seed{', with the standard error of the test sample' if rate else ''}"] * (1 in counts)
    return f"Lines{' and bands' if several or rate else ''}: {'; '.join(words)}." if words else ""


def listed(words: Sequence[str]) -> str:
    """A list of words as in a sentence.

    >>> listed(["fast", "slow", "late"]), listed(["fast"])
    ('fast, slow and late', 'fast')
    """
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def sentences(lines: Sequence[str]) -> str:
    """Lines as sentences of one paragraph.

    >>> sentences(["lost: updates", "cost: influence"])
    'Lost: updates. Cost: influence.'
    """
    return " ".join(f"{line[0].upper()}{line[1:]}." for line in lines)


def with_deviation(spread: Spread, form: str) -> str:
    """The mean in the given format, and the standard deviation if there is one.

    >>> with_deviation(Spread(0.5, 0.015, 2), "{:.3f}"), with_deviation(Spread(0.5, None, 1), "{:.3f}")
    ('0.500 ±0.015', '0.500')
    """
    return number(spread, form) + (f" ±{form.format(spread.deviation)}" if spread.deviation is not None else "")


def gain(found: float, error: float) -> str:
    """A relative gain and its error, in per cent.

    >>> gain(6.604, 0.074), gain(0.0229, 0.0113)
    ('660% ± 7%', '2.3% ± 1.1%')
    """
    form = "{:.1%}" if found < 0.1 else "{:.0%}"
    return f"{form.format(found)} ± {form.format(error)}"


def timing_words(timing: Timing) -> str:
    """What a client with this timing does.

    >>> from fairlag.fleet.timing import parse
    >>> timing_words(parse("schedule(64, 16, 1, 1)"))
    '64 times slower in the first quarter of the run, 16 times slower in the second quarter, then truthful'
    >>> timing_words(parse("late(16, 0.05)"))
    '16 times slower in the first 5% of the run, then truthful'
    >>> timing_words(parse("throttle(8)")), timing_words(parse("rejoin(30, 3)"))
    ('8 times slower throughout', 'present for 30 seconds, away for 3, and so on')
    """
    if isinstance(timing, Throttle):
        return f"{_pace(timing.factor)} throughout"
    if isinstance(timing, Rejoin):
        return f"present for {timing.every:g} seconds, away for {timing.away:g}, and so on"
    if isinstance(timing, Late) and timing.until < 1:
        return f"{_pace(timing.factor)} in the first {timing.until:.0%} of the run, then truthful"
    if not isinstance(timing, Schedule) or len(timing.factors) != 4:
        return str(timing)
    words, start = [], 0
    for factor, same in groupby(timing.factors):
        end = start + len(list(same))
        ends_well = factor == 1 and end == len(timing.factors) and start > 0
        of_the_run = "" if start else " of the run"
        words.append("then truthful" if ends_well else f"{_pace(factor)} in {_QUARTERS[start, end]}{of_the_run}")
        start = end
    return ", ".join(words)


def _pace(factor: float) -> str:
    return "truthful" if factor == 1 else f"{factor:g} times slower"
