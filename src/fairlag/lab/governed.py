"""Who may take part in a deployment: authentication, the allow-list, quarantine, and the log of what was decided."""

from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairlag.core.types import Dispatch, Record, Report, Row
from fairlag.errors import InputError
from fairlag.lab.nodelog import NodeLog
from fairlag.lab.orders import Orders
from fairlag.lab.quarantine import requests
from fairlag.lab.run import Run
from fairlag.limits import shown
from fairlag.runtime.flower.allowed import allowed_nodes
from fairlag.runtime.flower.gate import Gate
from fairlag.runtime.flower.link import Work
from fairlag.runtime.flower.nodes import LOG, is_simulated
from fairlag.runtime.flower.options import Options
from fairlag.runtime.flower.roster import Roster
from fairlag.runtime.flower.wire import Told

if TYPE_CHECKING:
    from flwr.serverapp import Grid


def authenticated(grid: "Grid | None", options: Options) -> dict[str, str] | None:
    """The keys on the allow-list, if any; refuses a fleet whose nodes prove nothing, unless that is intended.

    A ServerApp cannot see whether its SuperLink asks for registered keys. Flower's simulation has no authentication and
    needs none: its nodes are made by the process that also runs the ServerApp.
    """
    simulated = is_simulated(grid)
    if simulated and options.allow is not None:
        raise InputError(
            f"allow is {str(options.allow)!r}, but nodes of Flower's simulation have no keys of their own: leave it out"
        )
    if not (simulated or options.identified or options.insecure):
        raise InputError(
            "nothing says that the nodes of this fleet prove who they are: give allow, a file with the public keys of "
            "those that may take part; or by_key=True, if the SuperLink was started with --enable-supernode-auth and "
            "any node that is registered there may take part; or insecure=True, if anyone may who can reach the "
            "SuperLink"
        )
    return None if options.allow is None else allowed_nodes(options.allow)


class Governed:
    """The gate of one deployment, and the log of what it decides. Close it at the end."""

    def __init__(
        self,
        folder: Path,
        meta: Mapping[str, Any],
        roster: Roster,
        options: Options,
        allowed: Mapping[str, str] | None,
    ) -> None:
        """`allowed` has the fingerprints of the keys that may take part; None if any key may."""
        self.log = NodeLog(folder, meta)
        """Where decisions are written."""
        if self.log.was_cut:
            LOG.warning(
                "The last line of %r is not whole and is left out: what it decided is forgotten", str(self.log.file)
            )
        how = "their keys" if options.identified else "what they say about themselves"

        def renamed(nodes: Iterable[str]) -> list[str]:
            return [node for node in nodes if node.startswith("key ") != options.identified]

        if roster.lasting and Run(folder).version and (before := renamed(self.log.clients)):
            self.log.close()
            raise InputError(
                f"the run in {str(folder)!r} cannot continue with nodes that are recognised by {how}: they would be "
                f"new clients, each with a new privacy budget. Before, one of them was {shown(min(before))}: start the "
                "app with the options that it had, or give another `out`"
            )
        for node in renamed(self.log.quarantined):
            LOG.warning("The quarantine of %r does not hold: nodes are recognised by %s now", node, how)
        self.gate = Gate(
            roster,
            queued=options.queued,
            allowed=allowed,
            quarantined=self.log.quarantined,
            strikes=options.strikes,
            orders=partial(requests, folder, LOG.warning),
            note=self.log.note,
        )
        """What decides."""

    def close(self) -> None:
        """Closes the log."""
        self.log.close()

    def recorded(self, record: Record) -> Record:
        """The server's callback, which also shows the gate how updates ended."""

        def both(row: Row) -> None:
            record(row)
            self.gate.watch(row)

        return both

    def work(self, orders: Orders) -> Work:
        """What is asked of clients; the gate is told if their reports were cut."""

        def report(task: Dispatch, told: Told) -> Report | str:
            believed = orders.report(task, told)
            for what in [] if isinstance(believed, str) else orders.cut(told, believed):
                self.gate.bounded(task.client, what)
            return believed

        return Work(orders.asked, report)
