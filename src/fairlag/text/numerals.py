"""How single numbers are written for people: in per cent, in a format, or as a dash; and the names of time."""

from math import floor, isnan, log10

NONE = "–"
"""Written for a value that is not known."""


VIRTUAL = "virtual time"
"""The name of time in a simulation."""


def clock(*real: bool) -> str:
    """The name of time for runs, given for each whether real time passed.

    >>> clock(False, False), clock(False, True)
    ('virtual time', 'time')
    """
    return "time" if any(real) else VIRTUAL


def number(value: float | None, form: str) -> str:
    """A number in a format.

    >>> number(1234.5, "{:,.0f}"), number(None, "{:,.0f}"), number(float("nan"), "{:.2f}")
    ('1,234', '–', '–')
    """
    return NONE if value is None or isnan(value) else form.format(value)


def percent(value: float | None, deviation: float | None = None) -> str:
    """A number in per cent, and its standard deviation if given.

    >>> percent(0.5, 0.015), percent(0.5), percent(None)
    ('50.00 ±1.50', '50.00', '–')
    """
    mean = number(value, "{:.2%}").rstrip("%")
    return mean if deviation is None else f"{mean} ±{100 * deviation:.2f}"


def significant(value: float | None, deviation: float | None = None) -> str:
    """A number of unknown size with four digits, and its standard deviation, if given, with as many decimals.

    >>> significant(0.51961, 0.0194), significant(1.09), significant(3141.5, 29.1), significant(-0.05)
    ('0.5196 ±0.0194', '1.090', '3,142 ±29', '-0.0500')
    >>> significant(0.00012), significant(2.5e9, 1e8), significant(0.0), significant(None)
    ('1.200e-04', '2.500e+09 ±1.000e+08', '0.0000', '–')
    """
    if value is None or isnan(value):
        return NONE
    size = abs(value)
    form = "{:.3e}"
    if not size or 1e-3 <= size < 1e6:
        form = f"{{:,.{4 if size < 1 else max(0, 3 - floor(log10(size)))}f}}"
    return form.format(value) if deviation is None else f"{form.format(value)} ±{form.format(deviation)}"


def duration(seconds: float | None) -> str:
    """A time in a suitable unit.

    >>> duration(70.4), duration(1000.0), duration(40_000.0), duration(400_000.0), duration(None)
    ('70 s', '17 min', '11 h', '4.6 days', '–')
    """
    if seconds is None or isnan(seconds):
        return NONE
    units = ((86400, "days"), (3600, "h"), (60, "min"))
    size, unit = next(((size, unit) for size, unit in units if seconds >= 2 * size), (1, "s"))
    return f"{seconds / size:,.0f} {unit}" if seconds >= 10 * size else f"{seconds / size:.1f} {unit}"


def made_of(made: int, planned: int | None) -> str:
    """How many were made, and how many were planned, if that is known.

    >>> made_of(1500, 2000), made_of(1500, None)
    ('1,500 of 2,000', '1,500')
    """
    return f"{made:,}" + (f" of {planned:,}" if planned else "")
