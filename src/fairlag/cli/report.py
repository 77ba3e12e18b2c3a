"""`fairlag report` and `fairlag watch`: a page about runs, either in a file or updated while they run."""

import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from fairlag.analyse.compare import repeated
from fairlag.analyse.sweep import Swept
from fairlag.cli.audit import trials_progress
from fairlag.cli.results import looked_at, planned_folders, sweeps_in
from fairlag.cli.terminal import Workers, at_least_one, check_page, complain, say
from fairlag.errors import InputError
from fairlag.files import save
from fairlag.lab.damaged import without_damaged
from fairlag.lab.executors import cores
from fairlag.lab.folder import DATABASE
from fairlag.lab.lock import is_locked
from fairlag.lab.run import Run
from fairlag.lab.runs import run_folders
from fairlag.lab.sweep.plan import is_sweep
from fairlag.lab.sweep.progress import made
from fairlag.limits import sentence
from fairlag.report.audits import Throttled, throttled
from fairlag.report.page.build import runs_page, waiting_page
from fairlag.report.page.shell import html
from fairlag.report.page.spec import Page
from fairlag.report.watch import Address, Follower, Server, is_loopback

_PORTS = 65535

_NAMED = 5
"""The most damaged runs that a page names."""


def report(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Runs, or folders of runs.")],
    file: Annotated[Path, typer.Option("--out", metavar="FILE", help="File to write.")] = Path("report.html"),
    incentives: Annotated[
        bool,
        typer.Option(
            "--incentives/--no-incentives", help="Also simulate who would gain by a different timing; takes a while."
        ),
    ] = True,
    workers: Workers = None,
) -> None:
    """Write a page about runs: scores, influence, staleness, a timeline, and who would gain by a different timing."""
    check_page("--out", file)
    workers = cores() if workers is None else at_least_one("--workers", workers)
    sweeps = sweeps_in(folders)
    page, damaged = without_damaged(
        planned_folders(folders), lambda runs: _audited_page(runs, workers, incentives, sweeps)
    )
    save(file, html(replace(page, lead=[*page.lead, *left_out(damaged)])))
    for why in damaged.values():
        complain(f"left out: {why}")
    say(f"The report was written to {file}")


def watch(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A run, or a folder of current and future runs.")],
    port: Annotated[int, typer.Option(metavar="PORT", help="Port to listen on; 0 for any free port.")] = 0,
    host: Annotated[
        str,
        typer.Option(metavar="ADDRESS", help="Address to listen on; other machines may then be able to read the page."),
    ] = "127.0.0.1",
    incentives: Annotated[
        bool,
        typer.Option(
            "--incentives/--no-incentives", help="First simulate who would gain by a different timing; takes a while."
        ),
    ] = False,
    workers: Workers = None,
) -> None:
    """Serve a page that follows runs in progress, for a browser; Ctrl-C ends it."""
    if not 0 <= port <= _PORTS:
        raise InputError(f"--port is {port}, it must be between 0 and {_PORTS}")
    if not folder.is_dir():
        raise InputError(f"there is no folder {str(folder)!r}")
    workers = cores() if workers is None else at_least_one("--workers", workers)
    tried = looked_at([folder], lambda runs: _audits(runs, workers)) if incentives else Throttled([], [])
    with watched(folder, (host, port), tried) as server:
        say(f"Following {folder} at {server.address}")
        if not is_loopback(host):
            say(f"Anyone who can reach {host} can read it")
        sys.stdout.flush()
        # Ctrl-C is the way to end it: nothing is lost.
        with suppress(KeyboardInterrupt):
            server.serve_forever(poll_interval=0.2)


def watched(folder: Path, address: Address, tried: Throttled = Throttled([], [])) -> Server:  # noqa: B008 (a tuple)
    """The server of the page that follows the runs in a folder."""
    follower = Follower(lambda: _state(folder), lambda: _page(folder, tried))
    try:
        return Server(address, str(folder), follower)
    except (OSError, UnicodeError) as error:
        raise InputError(f"cannot listen on {address[0]!r}, port {address[1]}: {error}") from None


def _audited_page(runs: Sequence[Run], workers: int, incentives: bool, sweeps: Sequence[Swept]) -> Page:
    tried = _audits(runs, workers) if incentives else Throttled([], [])
    return runs_page(runs, tried.audits, notes=tried.notes, sweeps=sweeps)


def _audits(runs: Sequence[Run], workers: int) -> Throttled:
    with trials_progress() as progress:
        return throttled(repeated(runs), workers, progress)


def _state(folder: Path) -> object:
    """A value that changes when a run begins, progresses or stops."""
    found = []
    with suppress(InputError, OSError):
        for each in run_folders(folder):
            files = (each / DATABASE, each / f"{DATABASE}-wal")
            stats = [file.stat() for file in files if file.exists()]
            found.append((each, [(one.st_mtime_ns, one.st_size) for one in stats], is_locked(each)))
    if is_sweep(folder):
        found.append((folder, [(made(folder), 0)], is_locked(folder)))
    return found


def _page(folder: Path, tried: Throttled) -> Page:
    """The page for the runs that can be read now: a broken run does not hide the others."""
    try:
        sweeps = sweeps_in([folder])
        page, damaged = without_damaged(
            planned_folders([folder]), lambda runs: runs_page(runs, tried.audits, _status(runs), tried.notes, sweeps)
        )
    except (InputError, OSError) as error:  # a run may be about to begin, or to be removed
        return waiting_page(str(folder), str(error))
    except Exception as error:  # no caller would see it, and the next page may be fine
        return waiting_page(str(folder), f"the page cannot be made ({type(error).__name__}: {sentence(str(error))})")
    if not damaged:
        return page
    missing = f"{len(damaged)} more cannot be read"
    return replace(page, lead=[*page.lead, *left_out(damaged)], status=f"{page.status}; {missing}")


def left_out(damaged: Mapping[Path, str]) -> list[str]:
    """What a page says about the runs that cannot be read."""
    words = [f"Left out: {why}." for why in damaged.values()]
    more = len(words) - _NAMED
    return (
        words
        if more <= 0
        else [*words[:_NAMED], f"Left out: {more:,} more that cannot be read; `fairlag runs` lists all."]
    )


def _status(runs: Sequence[Run]) -> str:
    """The progress of the runs, in one line."""
    statuses = [run.status for run in runs]
    words = [f"{statuses.count('finished')} of {len(runs)} runs finished"]
    for run, status in zip(runs, statuses, strict=True):
        if status != "finished":
            of = f" of {run.planned:,}" if run.planned else ""
            words.append(f"{run.label}, seed {run.seed}: {status} at {run.version:,}{of} aggregations")
    return "; ".join(words[:4]) + ("" if len(words) <= 4 else f"; and {len(words) - 4} more")
