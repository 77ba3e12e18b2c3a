"""`fairlag keeper`: the mask keeper of secure aggregation as a process, and the keys that it needs."""

import signal
from importlib import import_module
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from fairlag.cli.terminal import say, tell
from fairlag.errors import InputError

Kind = TypeVar("Kind")


def keeper(
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where to listen; port 0: any.")] = "127.0.0.1:0",
    key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The keeper's keeper.key; keeper.used is kept beside it.")
    ] = None,
    server: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The server's server.pub: only this server is answered.")
    ] = None,
    clients: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The clients that may take part: the lines of their client.pub.")
    ] = None,
    run: Annotated[str | None, typer.Option(metavar="NAME", help="The run that is served.")] = None,
    size: Annotated[int | None, typer.Option(metavar="N", help="The number of parameters of the model.")] = None,
    least: Annotated[
        int | None, typer.Option(metavar="N", help="The least number of clients with a positive weight in a sum.")
    ] = None,
    bound: Annotated[
        float | None, typer.Option(metavar="SHARE", help="The largest share of the weight that a client may hold.")
    ] = None,
    make_keys: Annotated[
        Path | None, typer.Option("--make-keys", metavar="DIR", help="Write new keys into a folder, and exit.")
    ] = None,
    party: Annotated[
        str, typer.Option("--for", metavar="PARTY", help="Whose keys to make: keeper, server or client.")
    ] = "keeper",
) -> None:
    """Keep the masks of secure aggregation: answer with sums of masks, never with one. Needs the extra `privacy`."""
    import_module("fairlag.privacy.secure")  # says so if the extra is missing
    if make_keys is not None:
        from fairlag.privacy.secure.keys import make_keys as make

        private, public, *_ = made = make(make_keys, party)
        say(f"Written: {', '.join(map(str, made))}. Keep {private.name} secret, and give {public.name} to the others")
        return
    from fairlag.privacy.secure.process import keep
    from fairlag.privacy.secure.wire import Terms

    terms = Terms(_given(run, "--run"), _given(size, "--size"), _given(least, "--least"), _given(bound, "--bound"))
    files = _given(key, "--key"), _given(server, "--server"), _given(clients, "--clients")
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        keep(listen, *files, terms, tell)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # already stopping
        tell("stopped")
    finally:
        signal.signal(signal.SIGTERM, before)


def _given(value: Kind | None, option: str) -> Kind:
    if value is None:
        raise InputError(f"{option} is missing: see `fairlag keeper --help`")
    return value
