"""Compares recorded federations with simulations of their fleets, as tables and a figure.

    python -m benchmarks.fidelity.compare FOLDER... [--until 2400] [--seeds 50] [--training 6] [--figure FILE]

A folder is one that measure.py has made. The first third of its run only serves to fit a fleet; the rest is compared.
Each simulation is as long as the run, and is measured in the same window. So its numbers for different seeds are what a
truthful simulator would see in such a run: their standard deviation is the sampling error. A file that was fitted to
few tasks is fitted again for each seed, to as many tasks drawn from itself: so the chance in the fit is included. A
fleet fitted to the whole run is compared with all of it: what then disagrees is the model's fault, and no change of the
fleet's speed. If a folder has a `calibration`, which measure.py has made too, its overhead is added to the experiment
file.
"""

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from pathlib import Path

import numpy as np

import fairlag
from benchmarks.fidelity.notes import overheads, queued_of, quiet
from benchmarks.fidelity.rows import FILE, OVERHEAD, THEN, WHOLE, Comparison, Row, spread, table
from benchmarks.fidelity.seen import Seen
from fairlag.analyse.fit.durations import fit
from fairlag.analyse.fit.families import Sample
from fairlag.analyse.fit.fleet import FleetFit
from fairlag.core.types import Floats
from fairlag.errors import FairlagError, InputError
from fairlag.fleet.delay import parse
from fairlag.lab.experiment import Experiment
from fairlag.lab.run import Run

THIRD = 1 / 3
MOMENTS = 5
"""How often accuracy is compared, at equal distances of time, from the end of the first third to the end."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A file whose simulations are compared with the run."""

    experiment: Experiment
    names: dict[str, str]
    """By its groups: the group of the run that each is a part of."""
    fitted_again: Callable[[int], Experiment] | None = None
    """The file as another fit might have made it, by seed; None if there is no chance in it."""


def compared(folder: Path, *, seeds: int, training: int, until: float = inf) -> Comparison:
    """Compares the run in a folder with its experiment file, also with overhead, and with the two fitted fleets.

    With `until`, the run counts as if it had ended at that time.
    """
    run = Run(folder / "run")
    end = min(float(run.settings["until_time"]), until)
    if run.status != "finished":
        raise InputError(f"the run in {str(run.folder)!r} is {run.status}, so it cannot be compared: wait for its end")
    start, facts = THIRD * end, [quiet(folder)]
    candidates = _candidates(folder, run, start, end, facts)
    size = int(run.settings.get("model_bytes", 0))
    names = {name: name for name in run.groups}
    real, whole = (Seen.run(run).quantities(begin, end, size, names) for begin in (start, 0.0))

    def simulated(name: str) -> dict[str, tuple[float, float]]:
        one, begin = candidates[name], 0.0 if name == WHOLE else start

        def found(of: Callable[[int], Experiment]) -> list[dict[str, float]]:
            files = (of(seed).checked(until_time=end, clock=None, speed=None) for seed in range(seeds))
            each = (Seen.simulated(file, seed) for seed, file in enumerate(files))
            return [seen.quantities(begin, end, size, one.names) for seen in each]

        plain = found(lambda _: one.experiment)
        again = plain if one.fitted_again is None else found(one.fitted_again)
        return {key: spread([each[key] for each in plain], [each[key] for each in again]) for key in real}

    drawn = {name: simulated(name) for name in candidates}
    moments = np.linspace(start, end, MOMENTS)
    return Comparison(
        name=folder.name,
        what=f"{len(run.clients)} clients, {len(run.tasks):,} tasks and {run.version:,} versions in all; compared from "
        f"{start:,.0f} to {end:,.0f} s",
        rows=tuple(Row(key, real[key], whole[key], {name: drawn[name][key] for name in drawn}) for key in real),
        # A node with several tasks has one set of data; in a simulation, each of its clients has its own.
        accuracy=_accuracies(run, candidates, moments, training) if training and queued_of(run) == 1 else (),
        facts=tuple(facts),
    )


def _candidates(folder: Path, run: Run, start: float, end: float, facts: list[str]) -> dict[str, Candidate]:
    """The files that are compared; what they say of the fleet is added to the facts."""
    same = {name: name for name in run.groups}
    file = _as_deployed(fairlag.load(folder / "experiment.toml"), run)
    found = {FILE: Candidate(file, same)}
    if (folder / "calibration").exists():
        seconds = overheads(folder / "calibration")
        known = with_overhead(file, seconds)
        delay = parse(known.clients[0].overhead)
        found[OVERHEAD] = Candidate(known, same, lambda seed: with_overhead(file, _drawn(delay, len(seconds), [seed])))
        facts.append(f"{OVERHEAD}: `{_shortened(str(delay))}`, mean {delay.mean:.3g} s, from {len(seconds)} tasks")
    for name, until in ((THEN, start), (WHOLE, end)):
        fitted = fairlag.fit_fleet(run, until=until)
        names = {each.name: each.group for each in fitted.groups}
        again = None if name == WHOLE else lambda seed, fitted=fitted: _fitted_again(fitted, seed)
        found[name] = Candidate(fitted.experiment, names, again)
        facts += [
            f"{name}: {each.clients} {each.name} clients, `{_shortened(str(each.table['delay']))}`, "
            f"mean {parse(each.table['delay']).mean:.4g} s, from {each.counted} tasks"
            for each in fitted.groups
        ]
    return found


def _shortened(delay: str) -> str:
    return delay if len(delay) < 60 else f"{delay[:40]}…)"


def _as_deployed(experiment: Experiment, run: Run) -> Experiment:
    """The experiment with as many clients as the run had: with `queued`, several per node."""
    queued = queued_of(run)
    if queued == 1:
        return experiment
    tables = [
        table.model_copy(update={"count": queued * table.count, "per_device": queued}) for table in experiment.clients
    ]
    return experiment.checked(clients=tuple(tables))


def with_overhead(experiment: Experiment, seconds: Floats) -> Experiment:
    """The experiment if the deployment adds such seconds to each task."""
    said = str(fit(Sample(seconds)).delay)
    return experiment.checked(
        clients=tuple(table.model_copy(update={"overhead": said}) for table in experiment.clients)
    )


def _fitted_again(fitted: FleetFit, seed: int) -> Experiment:
    """The fitted fleet if each group had been fitted to as many other durations of the same kind."""
    delays = [
        fit(Sample(_drawn(parse(each.table["delay"]), max(each.counted, 1), [seed, place]))).delay
        for place, each in enumerate(fitted.groups)
    ]
    pairs = zip(fitted.experiment.clients, delays, strict=True)
    return fitted.experiment.checked(
        clients=tuple(table.model_copy(update={"delay": str(delay)}) for table, delay in pairs)
    )


def _drawn(delay: fairlag.fleet.delay.Delay, count: int, seed: list[int]) -> Floats:
    return np.asarray(delay.quantile(np.random.default_rng(seed).random(count)))


def _accuracies(run: Run, candidates: dict[str, Candidate], moments: Floats, training: int) -> tuple[Row, ...]:
    """The accuracy of the newest version at some moments, beside simulations that train."""
    real, end = _accuracy(run, moments), moments[-1]
    found = {}
    for name, one in candidates.items():
        file = one.experiment.checked(until_time=float(end), clock=None, speed=None)
        made = (fairlag.simulate(file, seed=seed, workers=1) for seed in range(training))
        found[name] = [_accuracy(each, moments) for each in made]
    return tuple(
        Row(
            f"accuracy at {100 * moment / end:.0f} % of the run",
            real[place],
            real[place],
            {name: spread([each[place] for each in curves]) for name, curves in found.items()},
        )
        for place, moment in enumerate(moments)
    )


def _accuracy(run: Run, moments: Floats) -> list[float]:
    curve = run.curve(metric="accuracy")
    places = np.searchsorted(curve["time"].to_numpy(), moments, side="right") - 1
    return [float(curve["accuracy"].iloc[place]) for place in places]


def main() -> None:
    parser = argparse.ArgumentParser(description="Compares recorded federations with simulations of their fleets.")
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--until", type=float, default=inf, help="leave out what happened later, in seconds")
    parser.add_argument("--seeds", type=int, default=50, help="how many simulations of each fleet")
    parser.add_argument("--training", type=int, default=6, help="how many of them train, for accuracy; 0 for none")
    parser.add_argument("--figure", type=Path, help="where to save the figure")
    parser.add_argument("--json", type=Path, help="where to save the numbers")
    options = parser.parse_args()
    if options.seeds < 2 or options.training in (1, *range(-9, 0)):
        parser.error("a sampling error needs at least 2 seeds")
    asked = {name: getattr(options, name) for name in ("seeds", "training", "until")}
    try:
        found = [compared(folder, **asked) for folder in options.folders]
    except FairlagError as error:
        parser.error(str(error))
    print("\n\n".join(map(table, found)))
    if options.json is not None:
        rows = {
            each.name: {row.name: [row.real, row.whole, row.simulated] for row in each.rows + each.accuracy}
            for each in found
        }
        options.json.write_text(json.dumps(rows, indent=1))
    if options.figure is not None:
        from benchmarks.fidelity.figure import drawn

        drawn(found, options.figure)


if __name__ == "__main__":
    main()
