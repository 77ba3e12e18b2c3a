"""A fleet of masked Flower clients on a grid in memory, and the files that they, their server and their keeper have."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fairlag.flower import KeeperAddress, masked
from fairlag.privacy.secure.keys import make_keys
from fairlag.privacy.secure.wire import Terms
from tests.support.flower_deploy import FLEET, OWN
from tests.support.flower_grid import FakeGrid, FakeNode

PRIVACY = {"secure": True, "bound": 0.6}
SECURE: dict[str, Any] = {**FLEET, "privacy": PRIVACY, "strategies": [{"use": "buffered_fedavg", "buffer": 2}]}
SECURE_OWN: dict[str, Any] = {**OWN, "privacy": PRIVACY, "strategies": [{"use": "buffered_fedavg", "buffer": 2}]}


def terms(size: int) -> Terms:
    return Terms("digits", size, 2, 0.6)


def keys(folder: Path, clients: int = 4) -> Path:
    """A folder with the keys of a keeper, a server and some clients; the keeper lists the clients."""
    for party in ("keeper", "server"):
        make_keys(folder, party)
    listed = ""
    for each in range(clients):
        _, public = make_keys(folder / f"client-{each}", "client")
        listed += public.read_text()
    folder.joinpath("clients.txt").write_text(listed)
    return folder


def at(folder: Path, address: str) -> KeeperAddress:
    return KeeperAddress(address, folder / "server.key", folder / "keeper.pub")


def context(folder: Path, client: int) -> Context:
    """What a node knows of itself."""
    files: dict[str, Any] = {
        "keeper": str(folder / "keeper.pub"),
        "client-key": str(folder / f"client-{client}" / "client.key"),
    }
    return Context(1, client, {"partition-id": client, **files}, RecordDict(), {})


def masks(folder: Path, client: int, train: Callable[[Message], Message]) -> Callable[[Message], Message]:
    """How a node answers a task: by a masked app around a train function."""
    app = ClientApp()

    @app.train()
    def trained(message: Message, context: Context) -> Message:
        return train(message)

    hidden = masked(app)
    return lambda message: hidden(message, context(folder, client))


def fleet(folder: Path, train: Callable[[int], Callable[[Message], Message]], seconds: float = 0.01) -> FakeGrid:
    """Four masked nodes; `train` makes the train function of each."""
    return FakeGrid(
        {100 + each: FakeNode({"partition-id": each}, masks(folder, each, train(each)), seconds) for each in range(4)}
    )
