"""`fairlag quarantine`: the nodes of a deployment, and excluding one of them."""

from pathlib import Path
from typing import Annotated

import typer

from fairlag.cli.terminal import say, show
from fairlag.errors import InputError
from fairlag.lab.nodelog import lines_of, per_node
from fairlag.lab.quarantine import request, waiting
from fairlag.lab.run import Run
from fairlag.report.nodes import nodes_table
from fairlag.runtime.decisions import QUARANTINED, RELEASED


def quarantine(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="A run of `fairlag.deploy`, also while it is made.")],
    node: Annotated[
        str | None,
        typer.Argument(
            metavar="NODE",
            help="The number of its client, its name, or the beginning of its key. Without it, all nodes are listed.",
        ),
    ] = None,
    why: Annotated[str, typer.Option(metavar="TEXT", help="The reason, for the log.")] = "by hand",
    release: Annotated[bool, typer.Option("--release", help="End the quarantine of the node.")] = False,
) -> None:
    """Put a node of a deployment into quarantine, or list its nodes. Such a node gets no tasks until it is released."""
    run = Run(folder)
    if node is None:
        if release:
            raise InputError("--release needs the NODE whose quarantine ends")
        _list(run)
        return
    lines, _ = lines_of(run.folder, run.meta)
    name = request(run, node, why, release=release)
    done = "released from quarantine" if release else "put into quarantine"
    when = "within a few seconds" if run.status == "running" else "when the app is run again"
    seen = {line.node for line in lines if line.kind not in (QUARANTINED, RELEASED)}
    unseen = "" if name in seen else "; no node with this name has come so far"
    say(f"{name} is {done} {when}{unseen}")


def _list(run: Run) -> None:
    lines, head = lines_of(run.folder, run.meta)
    if not lines:
        say(f"The run in {run.folder} has no log of nodes: nothing was decided about any")
    else:
        show(nodes_table(f"Nodes of {run.folder}", per_node(lines)))
        say(f"{head.lines} lines in the log; the digest of all of them is {head.digest}")
    for order in waiting(run.folder):
        say(f"Not carried out yet: {order.node}, {'release' if order.release else 'quarantine'}, {order.why}")
