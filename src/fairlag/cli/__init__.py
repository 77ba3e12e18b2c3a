"""The command line: every command, and how errors and interrupts end it."""

import signal
import sys
import traceback
from errno import EBADF, EDQUOT, EIO, ENOSPC, EPIPE
from io import TextIOWrapper
from typing import Annotated

import typer

import fairlag
from fairlag.cli import (
    attack,
    audit,
    bundle,
    data,
    doctor,
    figure,
    fit,
    fleet,
    keeper,
    lists,
    nodes,
    reference,
    report,
    results,
    run,
    sweep,
)
from fairlag.cli.terminal import complain, modules_named, show
from fairlag.errors import FairlagError, InputError, Interrupted
from fairlag.lab.ending import shortage

_INTERRUPTED = 130
_shows_tracebacks = False

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Asynchronous federated learning in virtual time: see who the model listens to, and who gains by cheating.",
)
for command in (
    audit.audit,
    attack.attack,
    run.run,
    run.resume,
    sweep.sweep,
    results.runs,
    results.rollback,
    nodes.quarantine,
    results.compare,
    bundle.freeze,
    bundle.verify,
    report.report,
    report.watch,
    figure.figure,
    fit.fit_fleet,
    keeper.keeper,
    lists.strategies,
    lists.presets,
    doctor.doctor,
    reference.reference,
):
    app.command()(command)
app.add_typer(data.app)
app.add_typer(fleet.app)


def main() -> None:
    """Runs the command line; bad input ends with one sentence and exit code 2, an interrupt with 130."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that cannot show × still gets its table
    try:
        with modules_named():
            code = app(standalone_mode=False)
    except InputError as error:
        code = _fail(str(error), trace=error)
    except (Interrupted, KeyboardInterrupt) as error:
        code = _leave(str(error))
    except FairlagError as error:
        code = _fail(str(error), 1, error)
    except OSError as error:
        code = _fail(shortage(error) or _mishap(error), 1, error)
    except Exception as error:
        # An error of the option parser. It is recognised by its method, because typer hides its class.
        if not hasattr(error, "format_message"):
            raise
        code = _fail(error.format_message()) if error.format_message() else 0
    else:
        # The option parser turns an interrupt that no command handled into this code.
        code = _leave("") if code == _INTERRUPTED else code
    sys.exit(code or 0)


def _mishap(error: OSError) -> str:
    """An error of the system in words: about the output, if it names no file, or else about a file."""
    if error.filename is None and error.errno in (EPIPE, ENOSPC, EDQUOT, EIO, EBADF):
        return f"cannot write the output: {error}"
    return f"the system refused: {error}"


def _fail(sentence: str, code: int = 2, trace: Exception | None = None) -> int:
    if trace is not None and _shows_tracebacks:
        traceback.print_exception(trace)
    complain(sentence)
    return code


def _leave(sentence: str) -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # already exiting: another Ctrl-C could only garble the message
    return _fail(sentence or "interrupted; nothing was written", _INTERRUPTED)


def _version(wanted: bool) -> None:
    if wanted:
        show(f"fairlag {fairlag.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    tracebacks: Annotated[
        bool, typer.Option("--traceback", help="Show the traceback of an error before its message.")
    ] = False,
) -> None:
    global _shows_tracebacks
    _shows_tracebacks = tracebacks
