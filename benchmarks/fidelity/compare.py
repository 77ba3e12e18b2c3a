"""Compares recorded federations with simulations of their fleets, as a table and a figure.

    python -m benchmarks.fidelity.compare FOLDER... [--seeds 50] [--training 6] [--figure docs/fidelity.png]

A folder is one that measure.py has made. The first third of its run only serves to fit a fleet; the rest is compared.
Each simulation is as long as the run, and is measured in the same window. So its numbers for different seeds are what a
truthful simulator would see in such a run: their standard deviation is the sampling error. A fleet fitted to the whole
run is compared with all of it: what then disagrees is the model's fault, and no change of the fleet's speed.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import fairlag
from benchmarks.fidelity.seen import Seen
from fairlag.core.types import Floats
from fairlag.errors import FairlagError, InputError
from fairlag.lab.experiment import Experiment
from fairlag.lab.run import Run

THIRD = 1 / 3
LIMIT = 2.0
"""A difference of at most this many per cent, or of at most this many sampling errors, counts as agreement."""
MOMENTS = 5
"""How often accuracy is compared, at equal distances of time, from the end of the first third to the end."""


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

    def sigmas(self, fleet: str) -> float:
        """The difference in units of the sampling error."""
        mean, deviation = self.simulated[fleet]
        return (mean - self.truth(fleet)) / deviation if deviation else float("nan")

    def agrees(self, fleet: str) -> bool:
        """Is the difference within `LIMIT`?"""
        mean, _ = self.simulated[fleet]
        return mean == self.truth(fleet) or abs(self.error(fleet)) <= LIMIT or abs(self.sigmas(fleet)) <= LIMIT


@dataclass(frozen=True, slots=True)
class Comparison:
    """A run beside the simulations of its fleet."""

    name: str
    what: str
    rows: tuple[Row, ...]
    accuracy: tuple[Row, ...]
    fits: tuple[str, ...]
    """What was fitted, group by group."""


FILE, THEN, WHOLE = "experiment file", "fitted to the first third", "fitted to the whole run"


def compared(folder: Path, *, seeds: int, training: int) -> Comparison:
    """Compares the run in a folder with its experiment file and with the two fitted fleets."""
    run = Run(folder / "run")
    end = float(run.settings["until_time"])
    if run.status != "finished":
        raise InputError(f"the run in {str(run.folder)!r} is {run.status}, so it cannot be compared: wait for its end")
    start = THIRD * end
    fits = {THEN: fairlag.fit_fleet(run, until=start), WHOLE: fairlag.fit_fleet(run)}
    fleets = {FILE: _as_deployed(fairlag.load(folder / "experiment.toml"), run)}
    fleets |= {name: fit.experiment for name, fit in fits.items()}
    fleets = {name: each.checked(until_time=end, clock=None, speed=None) for name, each in fleets.items()}
    names = {FILE: {name: name for name in run.groups}}
    names |= {name: {each.name: each.group for each in fit.groups} for name, fit in fits.items()}
    size = int(run.settings.get("model_bytes", 0))
    begins = {FILE: start, THEN: start, WHOLE: 0.0}
    real, whole = (Seen.run(run).quantities(begin, end, size, names[FILE]) for begin in (start, 0.0))
    drawn = {
        name: [Seen.simulated(each, seed).quantities(begins[name], end, size, names[name]) for seed in range(seeds)]
        for name, each in fleets.items()
    }
    rows = [
        Row(
            name, value, whole[name], {fleet: _spread([each[name] for each in found]) for fleet, found in drawn.items()}
        )
        for name, value in real.items()
    ]
    return Comparison(
        name=folder.name,
        what=_what(run, folder, start, end),
        rows=tuple(rows),
        accuracy=_accuracies(run, fleets, np.linspace(start, end, MOMENTS), training) if training else (),
        fits=tuple(
            f"{name}: {each.clients} {each.name} clients, `{_shortened(str(each.table['delay']))}`, "
            f"mean {each.fitted.mean if each.fitted else float('nan'):.4g} s"
            for name, fit in fits.items()
            for each in fit.groups
        ),
    )


def _shortened(delay: str) -> str:
    return delay if len(delay) < 60 else f"{delay[:40]}…)"


def _as_deployed(experiment: Experiment, run: Run) -> Experiment:
    """The experiment with as many clients as the run had: with `queued`, several per node."""
    queued = int(run.meta.get("queued", 1))
    if queued == 1:
        return experiment
    tables = [
        table.model_copy(update={"count": queued * table.count, "per_device": queued}) for table in experiment.clients
    ]
    return experiment.checked(clients=tuple(tables))


def _spread(values: Sequence[float]) -> tuple[float, float]:
    return float(np.nanmean(values)), float(np.nanstd(values, ddof=1))


def _accuracies(run: Run, fleets: dict[str, Experiment], moments: Floats, training: int) -> tuple[Row, ...]:
    """The accuracy of the newest version at some moments, beside simulations that train."""
    real = _accuracy(run, moments)
    found = {}
    for name, experiment in fleets.items():
        made = (fairlag.simulate(experiment, seed=seed, workers=1) for seed in range(training))
        found[name] = [_accuracy(each, moments) for each in made]
    return tuple(
        Row(
            f"accuracy at {moment:.0f} s",
            real[place],
            real[place],
            {name: _spread([each[place] for each in curves]) for name, curves in found.items()},
        )
        for place, moment in enumerate(moments)
    )


def _accuracy(run: Run, moments: Floats) -> list[float]:
    curve = run.curve(metric="accuracy")
    places = np.searchsorted(curve["time"].to_numpy(), moments, side="right") - 1
    return [float(curve["accuracy"].iloc[place]) for place in places]


def _what(run: Run, folder: Path, start: float, end: float) -> str:
    tasks = run.tasks
    whole = f"{len(run.clients)} clients, {len(tasks):,} tasks, {run.version:,} versions in {end:,.0f} s"
    load = folder / "load.csv"
    if load.exists():
        loads = np.genfromtxt(load, delimiter=",", skip_header=1)[:, 1]
        whole += f", load average {loads.min():.1f} to {loads.max():.1f}, {np.median(loads):.1f} in the median"
    return f"{whole}; compared from {start:,.0f} s on"


def table(found: Comparison) -> str:
    """The comparison in Markdown: errors in per cent, and in sampling errors; bold beyond the limit."""
    fleets = tuple(found.rows[0].simulated)
    head = ["quantity", "real", *(word for fleet in fleets for word in (fleet, "error"))]
    head.insert(-2, "real, whole run")
    lines = [f"**{found.name}**: {found.what}.", "", *(f"- {each}" for each in found.fits), ""]
    lines += [f"| {' | '.join(head)} |", f"|{'|'.join(['---', *['--:'] * (len(head) - 1)])}|"]
    for row in (*found.rows, *found.accuracy):
        cells = [row.name, f"{row.real:.4g}"]
        for fleet in fleets:
            mean, deviation = row.simulated[fleet]
            cells += [f"{row.whole:.4g}"] if fleet == WHOLE else []
            error = f"{row.error(fleet):+.1f} % ({row.sigmas(fleet):+.1f})" if row.truth(fleet) and deviation else "–"
            cells += [f"{mean:.4g} ± {deviation:.2g}", error if row.agrees(fleet) else f"**{error}**"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="Compares recorded federations with simulations of their fleets.")
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--seeds", type=int, default=50, help="how many simulations of each fleet")
    parser.add_argument("--training", type=int, default=6, help="how many of them train, for accuracy; 0 for none")
    parser.add_argument("--figure", type=Path, help="where to save the figure")
    parser.add_argument("--json", type=Path, help="where to save the numbers")
    options = parser.parse_args()
    if options.seeds < 2 or options.training in (1, *range(-9, 0)):
        parser.error("a sampling error needs at least 2 seeds")
    try:
        found = [compared(folder, seeds=options.seeds, training=options.training) for folder in options.folders]
    except FairlagError as error:
        parser.error(str(error))
    print("\n\n".join(map(table, found)))
    if options.json is not None:
        rows = {each.name: {row.name: [row.real, row.simulated] for row in each.rows + each.accuracy} for each in found}
        options.json.write_text(json.dumps(rows, indent=1))
    if options.figure is not None:
        from benchmarks.fidelity.figure import drawn

        drawn(found, options.figure)


if __name__ == "__main__":
    main()
