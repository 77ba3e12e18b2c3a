"""Runs many seeds of simulated faults and counts them: `make soak SEEDS=10000`; one alone: `make soak SEED=17`.

Each seed is a run in a random world with random faults (tests/support/soak.py). Exit code 1 means that something which
is always true was not: the seed is printed with what it had drawn, its last events and the command that repeats it.
"""

import argparse
import json
import logging
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from tests.support import sqlite_io
from tests.support.soak import Broken, Tally, soak

_BATCH = 20
"""How many seeds a worker takes at once."""
_SHOWN = 3
"""How many broken seeds are printed in full."""
_LINES = 60.0
"""Without a terminal, seconds between two lines of progress."""

Found = tuple[int, Tally, dict[int, str]]
"""How many seeds were run, what they met, and the stories of those that broke something."""


def batch(seeds: range, root: Path) -> Found:
    """Runs some seeds, one after the other."""
    tally, broken = Tally(), {}
    for seed in seeds:
        try:
            soak(seed, root, tally)
        except Broken as error:
            broken[seed] = str(error)
    return len(seeds), tally, broken


def _alone() -> None:
    """What a worker does first: Ctrl-C is for the parent, and faults need not be logged."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.getLogger("flwr").setLevel(logging.CRITICAL)


def batches(seeds: range, workers: int, root: Path) -> Iterator[Found]:
    """The results of all seeds, as they come."""
    if workers == 1:
        logging.getLogger("flwr").setLevel(logging.CRITICAL)
        for seed in seeds:
            yield batch(range(seed, seed + 1), root)
        return
    parts = [seeds[at : at + _BATCH] for at in range(0, len(seeds), _BATCH)]
    with ProcessPoolExecutor(workers, get_context("spawn"), _alone) as pool:
        futures: list[Future[Found]] = [pool.submit(batch, part, root) for part in parts]
        try:
            for done in as_completed(futures):
                yield done.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def shown(found: Iterator[Found], total: int, console: Console) -> tuple[int, Tally, dict[int, str]]:
    """Follows the seeds until they are done or Ctrl-C is pressed; returns what there is by then."""
    seeds, tally, broken = 0, Tally(), dict[int, str]()
    said = time.monotonic()
    with Progress(console=console, disable=not console.is_terminal) as progress:
        bar = progress.add_task("seeds", total=total)
        try:
            for count, met, stories in found:
                seeds += count
                tally.add(met)
                broken |= stories
                progress.update(bar, completed=seeds)
                if not console.is_terminal and time.monotonic() - said > _LINES:
                    said = time.monotonic()
                    console.print(f"{seeds} of {total} seeds, {len(broken)} broken")
        except KeyboardInterrupt:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second one must not prevent the report
            console.print(f"interrupted: {seeds} of {total} seeds were run")
    return seeds, tally, broken


def report(seeds: int, tally: Tally, broken: dict[int, str], seconds: float, console: Console) -> None:
    """Prints the faults, and the seeds that broke something."""
    table = Table("fault", "times", title=f"{seeds} seeds in {seconds:.0f} s")
    table.columns[1].justify = "right"
    for name, times in [*sorted(tally.worlds.items()), *tally.faults.most_common()]:
        table.add_row(name, str(times))
    table.add_row("different places on disk (fault, step, kind of file)", str(len(tally.places)))
    console.print(table)
    for seed in sorted(broken)[:_SHOWN]:
        console.print(f"\n{broken[seed]}\nrepeat with: make soak SEED={seed}", markup=False, highlight=False)
    rest = ", ".join(str(seed) for seed in sorted(broken)[_SHOWN:])
    if rest:
        console.print(f"\nalso broken: {rest}")
    console.print(f"{len(broken)} of {seeds} seeds broke something that is always true")


def number(text: str) -> int:
    """A whole number of at least 1."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=number, default=1000, help="how many seeds to run (1000)")
    parser.add_argument("--first", type=int, default=0, help="the first of them (0)")
    parser.add_argument("--seed", type=int, help="run only this one")
    parser.add_argument("--workers", type=number, default=os.cpu_count() or 1, help="how many processes (one per core)")
    parser.add_argument("--json", type=Path, help="also write the counts to this file")
    chosen = parser.parse_args()
    if not sqlite_io.available():
        print(
            "the writes of SQLite cannot be followed: this Python hides the functions of its library", file=sys.stderr
        )
        return 2
    first, count = (chosen.first, chosen.seeds) if chosen.seed is None else (chosen.seed, 1)
    workers = min(chosen.workers, -(-count // _BATCH))
    memory = Path("/dev/shm")  # real syncs would only take time: the disk is simulated
    root = Path(tempfile.mkdtemp(prefix="fairlag-soak-", dir=memory if memory.is_dir() else None))
    console, began = Console(), time.monotonic()
    try:
        found = shown(batches(range(first, first + count), workers, root), count, console)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    seeds, tally, broken = found
    seconds = time.monotonic() - began
    report(seeds, tally, broken, seconds, console)
    if chosen.json is not None:
        counts = {"seeds": seeds, "seconds": round(seconds, 1), "broken": sorted(broken), "worlds": tally.worlds}
        text = json.dumps({**counts, "faults": tally.faults, "places": sorted(tally.places)}, indent=2)
        chosen.json.write_text(f"{text}\n")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
