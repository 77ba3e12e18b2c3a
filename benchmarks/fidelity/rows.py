"""The comparison of a run with simulations: its rows, which of them agree, and the table."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

FILE, OVERHEAD = "experiment file", "with measured overhead"
THEN, WHOLE = "fitted to the first third", "fitted to the whole run"
FLEETS = (FILE, OVERHEAD, THEN, WHOLE)
"""The files whose simulations are compared; a run without calibration has no `OVERHEAD`."""

LIMIT = 2.0
"""A difference of at most this many per cent, or of at most this many sampling errors, counts as agreement."""


@dataclass(frozen=True, slots=True)
class Row:
    """One quantity: what was measured, and what simulations say."""

    name: str
    real: float
    """In the last two thirds of the run."""
    whole: float
    """In all of it."""
    simulated: dict[str, tuple[float, float]]
    """By fleet: the mean over seeds, and the standard deviation."""

    def truth(self, fleet: str) -> float:
        """What was measured in the window in which this fleet is compared."""
        return self.whole if fleet == WHOLE else self.real

    def error(self, fleet: str) -> float:
        """(simulated − real) / real in per cent."""
        return 100 * (self.simulated[fleet][0] / self.truth(fleet) - 1) if self.truth(fleet) else float("nan")

    def chance(self, fleet: str) -> float:
        """The sampling error in per cent."""
        return 100 * self.simulated[fleet][1] / self.truth(fleet) if self.truth(fleet) else float("nan")

    def sigmas(self, fleet: str) -> float:
        """The difference in units of the sampling error; 0 if there is no difference."""
        mean, deviation = self.simulated[fleet]
        gap = mean - self.truth(fleet)
        return gap / deviation if deviation else float(np.sign(gap) * np.inf) if gap else 0.0

    def agrees(self, fleet: str) -> bool:
        """Is the difference within `LIMIT`?"""
        return abs(self.error(fleet)) <= LIMIT or abs(self.sigmas(fleet)) <= LIMIT

    @property
    def is_part(self) -> bool:
        """Is it a part of something that is near 0, so that a relative error says little?"""
        return self.name.startswith("part of")

    def cell(self, fleet: str) -> str:
        """The error in per cent and its sampling error; of a part near 0, the simulated value. Bold if it disagrees."""
        mean, deviation = self.simulated[fleet]
        if self.is_part:
            words = f"{mean:.2g} ± {deviation:.1g}" if deviation else f"{mean:.2g}"
        else:
            words = f"{self.error(fleet):+.1f} ± {self.chance(fleet):.1f} %"
        return words if self.agrees(fleet) else f"**{words}**"


@dataclass(frozen=True, slots=True)
class Comparison:
    """A run beside the simulations of its fleet."""

    name: str
    what: str
    rows: tuple[Row, ...]
    accuracy: tuple[Row, ...]
    facts: tuple[str, ...]
    """How quiet the machine was, and what the files say of the fleet."""

    @property
    def fleets(self) -> tuple[str, ...]:
        """The files that were compared."""
        return tuple(self.rows[0].simulated)

    def misses(self, fleet: str) -> str:
        """How many quantities are more than two sampling errors off."""
        counted = [row for row in self.rows if row.truth(fleet) or row.simulated[fleet][0]]
        return f"{sum(abs(row.sigmas(fleet)) > 2 for row in counted)} of {len(counted)}"


def spread(values: Sequence[float], again: Sequence[float] | None = None) -> tuple[float, float]:
    """The mean over seeds, and the standard deviation, which is that of `again` if that is given."""
    return float(np.nanmean(values)), float(np.nanstd(values if again is None else again, ddof=1))


def table(found: Comparison) -> str:
    """The comparison in Markdown."""
    head = ["quantity", "real", *found.fleets]
    head.insert(-1, "real, whole run")
    lines = [f"**{found.name}**: {found.what}.", "", *(f"- {each}" for each in found.facts), ""]
    lines += [f"| {' | '.join(head)} |", f"|{'|'.join(['---', *['--:'] * (len(head) - 1)])}|"]
    for row in (*found.rows, *found.accuracy):
        cells = [row.name, f"{row.real:.4g}", *map(row.cell, found.fleets)]
        cells.insert(-1, f"{row.whole:.4g}")
        lines.append(f"| {' | '.join(cells)} |")
    misses = ["beyond two sampling errors", "", *map(found.misses, found.fleets)]
    misses.insert(-1, "")
    return "\n".join([*lines, f"| {' | '.join(misses)} |"])
