"""`fairlag freeze` and `fairlag verify`: everything that is needed to repeat runs in one file, and repeating them."""

import csv
import sys
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from io import StringIO
from itertools import zip_longest
from math import isclose
from pathlib import Path
from typing import Annotated

import typer

from fairlag.analyse import compare as comparing
from fairlag.analyse.ranking import ranked
from fairlag.cli.results import planned_folders
from fairlag.cli.terminal import NoCode, Workers, at_least_one, check_file, complain, say, tell
from fairlag.errors import InputError
from fairlag.lab.bundle.contents import Contents
from fairlag.lab.bundle.freeze import Given
from fairlag.lab.bundle.freeze import freeze as frozen
from fairlag.lab.bundle.verify import FAILED, Part, Unpacked, Verdict, differing, fetch, unpacked
from fairlag.lab.bundle.verify import verify as verified
from fairlag.lab.ending import terminated_cleanly
from fairlag.lab.environment import versions
from fairlag.lab.folder import is_run
from fairlag.lab.run import Run
from fairlag.lab.sweep.plan import is_sweep
from fairlag.report.compared import Compared
from fairlag.report.comparison import compare_plain
from fairlag.report.plain import exported

_NUMBERS = "comparison.csv"
_TEXTS = {"comparison.md": "markdown", "comparison.tex": "latex"}
_CLOSE = 1e-9
"""How far, relatively, a number of the tables may be from the frozen one: other libraries may add it up differently."""


def freeze(
    folders: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Runs, folders of runs, or a sweep.")],
    out: Annotated[Path, typer.Option(metavar="FILE.zip", help="The bundle to write.")],
    add: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Also include this file, which your own code reads. Repeatable."),
    ] = None,
    unfinished: Annotated[
        bool, typer.Option("--unfinished", help="Also freeze runs that are not finished, as they are.")
    ] = False,
) -> None:
    """Write all that a reader needs to repeat runs into one file: experiments, code, data, versions, results."""
    check_file("--out", out)
    if out.suffix.lower() != ".zip":
        raise InputError(f"--out is {str(out)!r}: a bundle is a zip file, so its name must end with .zip")
    given = Given(
        planned_folders(folders),
        [folder for folder in folders if is_sweep(folder)],
        list(dict.fromkeys(plan for folder in folders for plan in _plans(folder))),
    )
    contents = frozen(given, out, _tables, add=add or (), unfinished=unfinished)
    for sentence in _remarks(contents):
        say(sentence)
    count = len(contents.runs)
    say(f"{count} run{'' if count == 1 else 's'} frozen in {out}, {out.stat().st_size / 1e6:,.1f} MB")
    say(f"`fairlag verify {out}` repeats a part of it")


def _plans(folder: Path) -> list[Path]:
    """The folders with all runs of a plan, in a folder that was given."""
    if is_run(folder):
        return []
    return [folder / "final"] if is_sweep(folder) else [folder, *(each for each in folder.iterdir() if each.is_dir())]


def _remarks(contents: Contents) -> list[str]:
    """What the bundle lacks, and which of its runs are not finished."""
    found = [
        f"{run.name}: {run.status} after {run.versions:,} aggregations{f': {run.reason}' if run.reason else ''}"
        for run in contents.runs
        if run.status != "finished"
    ]
    found += [f"{name}: not begun" for name in contents.not_begun]
    for home in contents.homes:
        found += [
            f"{each.path} is too large ({each.bytes / 1e6:,.0f} MB): the bundle has only its checksum, and verifying "
            "needs --files"
            for each in home.left_out
        ]
        found += [f"{name} is an installed package: it is not in the bundle" for name in home.packages]
    return found


def _tables(runs: list[Run]) -> dict[str, str]:
    """The tables of `fairlag compare`."""
    rankings = ranked(comparing.compare(runs))
    plain, rows = compare_plain(rankings), Compared(rankings).frame().to_dict("records")
    forms = {**_TEXTS, _NUMBERS: "csv"}
    return {name: exported(form, plain, rows) + "\n" for name, form in forms.items()}


def verify(
    bundle: Annotated[Path, typer.Argument(metavar="BUNDLE.zip", help="A file that `fairlag freeze` wrote.")],
    aggregations: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="How many aggregations of each run to repeat. Default: 20, or up to the first evaluation after "
            "training began.",
        ),
    ] = None,
    runs: Annotated[
        int | None,
        typer.Option(metavar="K", help="How many runs of each strategy to repeat. Default: 1; with --whole, all."),
    ] = None,
    whole: Annotated[bool, typer.Option("--whole", help="Repeat runs to their end, and compare final models.")] = False,
    files: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where the files are that were too large for the bundle.")
    ] = None,
    workers: Workers = None,
    no_code: NoCode = False,
) -> None:
    """Repeat a part of a bundle. The exit code is 0 if every byte is the same, 1 if not, 2 if it cannot be repeated."""
    for option, value in (("--aggregations", aggregations), ("--runs", runs), ("--workers", workers)):
        if value is not None:
            at_least_one(option, value)
    if whole and aggregations is not None:
        raise InputError("--whole repeats all aggregations: leave out --aggregations")
    if files is not None and not files.is_dir():
        raise InputError(f"--files is {str(files)!r}, but there is no such folder")
    with terminated_cleanly(), unpacked(bundle) as found:
        count = len(found.runs)
        say(f"{bundle}: every file has its checksum; {count} run{'' if count == 1 else 's'}")
        if files is not None and (missing := fetch(found, files)):
            complain(f"not in {files}: {', '.join(missing)}")
        _tell_versions(found)
        same = _same_tables(found)
        verdicts = []
        for verdict in _repeated(found, Part(aggregations, runs, whole), workers):
            say(f"{verdict.name}: {verdict.outcome}: {verdict.sentence}")
            verdicts.append(verdict)
    _conclude(verdicts, same, len(found.runs))


def _repeated(bundle: Unpacked, part: Part, workers: int | None) -> Iterator[Verdict]:
    repeating = verified(bundle, part, workers=workers, tell=tell)
    while True:
        with redirect_stdout(sys.stderr):  # output of a user's rule must not mix with the result
            verdict = next(repeating, None)
        if verdict is None:
            return
        yield verdict


def _tell_versions(bundle: Unpacked) -> None:
    apart = differing(bundle.contents.runs, versions())
    for name, (there, here) in apart.items():
        say(f"{name} is {there} there and {here} here: the last bits of results may differ")
    if not all("python" in run.made_with for run in bundle.contents.runs):
        say("An older fairlag made some runs, and did not note Python, the system and the processor")
    elif not apart:
        say("Versions, system and processor are the same as there")


def _same_tables(bundle: Unpacked) -> bool:
    """Do the tables follow from the runs in the bundle?"""
    here, there = _tables(list(bundle.runs.values())), bundle.tables
    wrong = [name for name in sorted(here.keys() | there.keys()) if not _agree(name, there.get(name), here.get(name))]
    for name in wrong:
        say(f"tables/{name}: DIFFERENT: it does not follow from the runs in the bundle")
    if not wrong:
        say("The tables follow from the runs in the bundle")
    return not wrong


def _agree(name: str, there: str | None, here: str | None) -> bool:
    if there is None or here is None or name != _NUMBERS:
        return there == here
    rows = zip_longest(*(csv.reader(StringIO(text)) for text in (there, here)), fillvalue=[])
    return all(len(one) == len(other) and all(map(_close, one, other)) for one, other in rows)


def _close(one: str, other: str) -> bool:
    try:
        return one == other or isclose(float(one), float(other), rel_tol=_CLOSE, abs_tol=_CLOSE)
    except ValueError:
        return False


def _conclude(verdicts: Sequence[Verdict], same_tables: bool, runs: int) -> None:
    """Says what all of it means, and ends with the exit code."""
    compared = [verdict for verdict in verdicts if verdict.same is not None]
    different = [verdict for verdict in compared if not verdict.same]
    failed = [verdict for verdict in verdicts if verdict.outcome == FAILED]
    if different or not same_tables:
        tables = "" if same_tables else "the tables do not follow from the runs in the bundle; "
        say(f"DIFFERENT: {tables}{len(different)} of {len(compared)} repeated runs differ from the bundle")
        raise typer.Exit(1)
    if failed or not compared:
        raise InputError(f"{len(compared)} of {len(verdicts)} runs could be repeated")
    left = f"; {runs - len(compared)} of {runs} runs were not repeated" if len(compared) < runs else ""
    say(f"The same: {len(compared)} of {len(compared)} repeated runs agree in every byte{left}")
