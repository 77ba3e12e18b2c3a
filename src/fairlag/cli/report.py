"""`fairlag report` and `fairlag watch`: a page about runs, written to a file or following them."""

import sqlite3
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import Annotated

import typer

from fairlag.analyse.compare import repeated
from fairlag.cli.audit import trials_progress
from fairlag.cli.results import planned_runs
from fairlag.cli.terminal import Workers, at_least_one, check_page, say
from fairlag.errors import InputError, UnreadableError
from fairlag.lab.folder import DATABASE, is_locked
from fairlag.lab.run import Run, run_folders
from fairlag.lab.staff import cores
from fairlag.report.audits import Throttled, throttled
from fairlag.report.page.build import runs_page, waiting_page
from fairlag.report.page.shell import html
from fairlag.report.page.spec import Page
from fairlag.report.save import save
from fairlag.report.watch import Follower, Server, is_loopback

_PORTS = 65535


def report(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Runs, or folders of runs.")],
    file: Annotated[Path, typer.Option("--out", metavar="FILE", help="Where to write it.")] = Path("report.html"),
    incentives: Annotated[
        bool,
        typer.Option("--incentives/--no-incentives", help="Also simulate who would gain by throttling; takes a while."),
    ] = True,
    workers: Workers = None,
) -> None:
    """A page about runs in one file: accuracy, who was listened to, staleness, the timeline, who would gain."""
    check_page("--out", file)
    workers = cores() if workers is None else at_least_one("--workers", workers)
    runs = planned_runs(folders)
    tried = _audits(runs, workers) if incentives else Throttled([], [])
    save(file, html(runs_page(runs, tried.audits, notes=tried.notes)))
    say(f"The report is {file}")


def watch(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A run, or a folder where runs are and will be.")],
    port: Annotated[int, typer.Option(metavar="PORT", help="Where to listen; 0: any that is free.")] = 0,
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Which address to listen at: others than this machine may then read.")
    ] = "127.0.0.1",
    incentives: Annotated[
        bool,
        typer.Option(
            "--incentives/--no-incentives", help="First simulate who would gain by throttling; takes a while."
        ),
    ] = False,
    workers: Workers = None,
) -> None:
    """A page that follows runs while they are made, at an address that a browser opens; Ctrl-C ends it."""
    if not 0 <= port <= _PORTS:
        raise InputError(f"--port is {port}, it must be between 0 and {_PORTS}")
    if not folder.is_dir():
        raise InputError(f"there is no folder {str(folder)!r}")
    workers = cores() if workers is None else at_least_one("--workers", workers)
    tried = _audits(planned_runs([folder]), workers) if incentives else Throttled([], [])
    follower = Follower(lambda: _state(folder), lambda: _page(folder, tried))
    try:
        server = Server((host, port), str(folder), follower)
    except (OSError, UnicodeError) as error:
        raise InputError(f"cannot listen at {host!r}, port {port}: {error}") from None
    with server:
        say(f"Following {folder} at {server.address}")
        if not is_loopback(host):
            say(f"Everybody who reaches {host} can read it")
        sys.stdout.flush()
        # Ctrl-C is how it ends: nothing is lost by it.
        with suppress(KeyboardInterrupt):
            server.serve_forever(poll_interval=0.2)


def _audits(runs: Sequence[Run], workers: int) -> Throttled:
    # What a user's rule prints must not get between the lines of the result.
    with redirect_stdout(sys.stderr), trials_progress() as progress:
        return throttled(repeated(runs), workers, progress)


def _state(folder: Path) -> object:
    """What is different when a run was begun, has gone on, or has stopped."""
    found = []
    with suppress(InputError, OSError):
        for each in run_folders(folder):
            files = (each / DATABASE, each / f"{DATABASE}-wal")
            stats = [file.stat() for file in files if file.exists()]
            found.append((each, [(one.st_mtime_ns, one.st_size) for one in stats], is_locked(each)))
    return found


def _page(folder: Path, tried: Throttled) -> Page:
    """The page as far as it can be read now."""
    spoilt: dict[Path, str] = {}
    while True:
        try:
            runs = planned_runs([folder], without=spoilt)
            status = "; ".join([_status(runs), *spoilt.values()])
            return runs_page(runs, tried.audits, status, tried.notes)
        except UnreadableError as error:  # it may be about to begin, or to be removed; the others are shown
            if error.folder in spoilt:
                return waiting_page(str(folder), str(error))
            spoilt[error.folder] = str(error)
        except (InputError, OSError, sqlite3.Error) as error:
            return waiting_page(str(folder), "; ".join(spoilt.values()) or str(error))


def _status(runs: Sequence[Run]) -> str:
    """How far the runs are, in one line."""
    statuses = [run.status for run in runs]
    words = [f"{statuses.count('finished')} of {len(runs)} runs finished"]
    for run, status in zip(runs, statuses, strict=True):
        if status != "finished":
            of = f" of {run.planned:,}" if run.planned else ""
            words.append(f"{run.label}, seed {run.seed}: {status} at {run.version:,}{of} aggregations")
    return "; ".join(words[:4]) + ("" if len(words) <= 4 else f"; and {len(words) - 4} more")
