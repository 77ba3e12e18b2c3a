"""How numbers over seeds and the labels of strategies are written where there is little room for them."""

from collections.abc import Sequence

from fairlag import numerals
from fairlag.analyse.compare import Repeated, Spread


def percent(spread: Spread) -> str:
    """The mean in per cent, and the standard deviation where there is one.

    >>> percent(Spread(0.5, 0.015, 2)), percent(Spread(0.5, None, 1)), percent(Spread(None, None, 0))
    ('50.00 ±1.50', '50.00', '–')
    """
    return numerals.percent(spread.mean, spread.deviation)


def number(spread: Spread, form: str) -> str:
    """The mean in a format.

    >>> number(Spread(1234.5, None, 1), "{:,.0f}"), number(Spread(None, None, 0), "{:,.0f}")
    ('1,234', '–')
    """
    return numerals.number(spread.mean, form)


def span(numbers: Sequence[int]) -> str:
    """From the smallest to the largest.

    >>> span([2000, 500, 2000]), span([500])
    ('500 to 2,000', '500')
    """
    return " to ".join(f"{each:,}" for each in dict.fromkeys((min(numbers), max(numbers))))


def shortened(labels: Sequence[str], width: int) -> list[str]:
    """Labels of at most this width; where cutting the end would make some alike, a third or more is of their end.

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
    """What strategies are called beside one another: with their experiment where there are several.

    >>> labels_of([Repeated("demo", "FairShare", ()), Repeated("paper", "FairShare", ())])
    ['FairShare, demo', 'FairShare, paper']
    """
    several = len({each.experiment for each in found}) > 1
    labels = [f"{each.label}, {each.experiment}" if several else each.label for each in found]
    return labels if width is None else shortened(labels, width)


def bands_in_words(seeds: Sequence[int]) -> str:
    """What lines of so many seeds each, and the bands around them, are; nothing where there are none.

    >>> bands_in_words([2, 1])
    'Lines and bands: mean and standard deviation over 2 seeds, up to the end of the shortest; one seed, with the \
standard error of the test sample.'
    """
    counts = sorted({*seeds} - {0})
    several = " or ".join(str(count) for count in counts if count > 1)
    words = [f"mean and standard deviation over {several} seeds, up to the end of the shortest"] * bool(several)
    words += ["one seed, with the standard error of the test sample"] * (1 in counts)
    return f"Lines and bands: {'; '.join(words)}." if words else ""


def with_deviation(spread: Spread, form: str) -> str:
    """The mean in a format, and the standard deviation where there is one.

    >>> with_deviation(Spread(0.5, 0.015, 2), "{:.3f}"), with_deviation(Spread(0.5, None, 1), "{:.3f}")
    ('0.500 ±0.015', '0.500')
    """
    return number(spread, form) + (f" ±{form.format(spread.deviation)}" if spread.deviation is not None else "")
