"""What secure aggregation costs per update, in bytes and milliseconds, compared with plain updates of float32.

A plain update is copied into bytes by the client, and its weighted sum is made by the server. A masked one is
quantised, masked, and its seed is sealed and signed by the client. The server sums it with its whole weight. The keeper
checks and opens its seal, marks its seed as used on disk, computes its keystream, and its share of the blur. `asked` is
all of a request over TLS on this machine, both sides together, with the keeper in a thread: what exceeds the keeper's
own time is the wire. Bytes: what a client sends, and what the server and the keeper exchange per update, without TLS.

Everything is per update of a buffer of 10 (`--buffer`), as the best of several rounds. Times are processor times, which
are more reliable on a busy machine. `memory` is the most that numpy and Python allocated at once while an update was
masked, and while the keeper answered, in vectors of 8 bytes per parameter; the result is one of them.

    python benchmarks/privacy.py [--sizes 650 470000 10000000] [--buffer 10] [--rounds 5]
"""

import argparse
import os
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np

from fairlag.core.vector import Vector
from fairlag.privacy.fixed import quantise, weighted_sum, whole_weights
from fairlag.privacy.secure.client import Masked, mask
from fairlag.privacy.secure.keeper import Keeper, Policy
from fairlag.privacy.secure.keys import allowed_clients, client_key, keeper_key, keeper_public, make_keys
from fairlag.privacy.secure.link import KeeperLink
from fairlag.privacy.secure.process import KeeperProcess
from fairlag.privacy.secure.seal import Origin
from fairlag.privacy.secure.server import mean_of
from fairlag.privacy.secure.used import UsedOnDisk
from fairlag.privacy.secure.wire import request

RUN, LEAST, BOUND = "benchmark", 2, 0.6


class Scene:
    """Keys in files, and a buffer of updates of one size."""

    def __init__(self, folder: Path, size: int, buffer: int) -> None:
        self.folder, self.size = folder, size
        for party in ("keeper", "server"):
            make_keys(folder, party)
        for number in range(buffer):
            make_keys(folder / f"{number}", "client")
        self.signers = [client_key(folder / f"{number}" / "client.key") for number in range(buffer)]
        lines = [folder.joinpath(f"{number}", "client.pub").read_text() for number in range(buffer)]
        folder.joinpath("clients.txt").write_text("".join(lines))
        self.public = keeper_public(folder / "keeper.pub")
        self.update: Vector = np.random.default_rng(0).normal(0, 0.01, size).astype(np.float32)
        self.weights = whole_weights([1.0] * buffer)

    def masked(self, number: int) -> Masked:
        return mask(self.update, Origin(RUN, number, 0), self.public, self.signers[number])

    def masked_buffer(self, vector: Masked) -> list[Masked]:
        """New seals, all with one vector: the memory of a buffer is not what is measured."""
        tiny = np.zeros(1, np.float32)
        seals = [mask(tiny, Origin(RUN, place, 0), self.public, each).sealed for place, each in enumerate(self.signers)]
        return [Masked(vector.vector, each) for each in seals]

    def asked(self, updates: list[Masked]) -> bytes:
        return request(RUN, self.size, [each.sealed for each in updates], self.weights)

    def link(self, keeper: Keeper) -> KeeperLink:
        """A connection to the keeper, which listens in a thread until the benchmark ends."""
        folder = self.folder
        listening = KeeperProcess(
            keeper, "127.0.0.1:0", folder / "keeper.key", folder / "server.pub", lambda line: None
        )
        Thread(target=listening.serve, daemon=True).start()
        return KeeperLink(listening.address, folder / "server.key", folder / "keeper.pub", self.size)


def best(call: Callable[[], object], rounds: int) -> float:
    """The least milliseconds of a call in these rounds."""

    def timed() -> float:
        begin = time.process_time()
        call()
        return 1e3 * (time.process_time() - begin)

    return min(timed() for _ in range(rounds))


def peak(call: Callable[[], object]) -> int:
    """The most bytes that were allocated at once during a call."""
    tracemalloc.start()
    call()
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return most


def plain_sum(update: Vector, buffer: int) -> Vector:
    total = np.zeros_like(update)
    for _ in range(buffer):
        total += np.float32(1 / buffer) * update
    return total


def measured(size: int, buffer: int, rounds: int) -> dict[str, float]:
    """All numbers for a model of this size, per update."""
    with tempfile.TemporaryDirectory() as folder:
        scene = Scene(Path(folder), size, buffer)
        one = scene.masked(0)
        calls: dict[str, Callable[[], Any]] = {
            "client, plain": scene.update.tobytes,
            "client, masked": lambda: scene.masked(0),
            "quantise": lambda: quantise(scene.update),
            "seal": lambda: mask(np.zeros(1, np.float32), Origin(RUN, 0, 0), scene.public, scene.signers[0]),
        }
        found = {name: best(call, rounds) for name, call in calls.items()}
        per_buffer: dict[str, Callable[[], Any]] = {
            "server, plain": lambda: plain_sum(scene.update, buffer),
            "server, masked": lambda: weighted_sum([one.vector] * buffer, scene.weights, size),
        }
        found |= {name: best(call, rounds) / buffer for name, call in per_buffer.items()}
        requests = [scene.asked(scene.masked_buffer(one)) for _ in range(2 * rounds + 1)]
        policy = Policy(RUN, size, LEAST, BOUND, allowed_clients(scene.folder / "clients.txt"))
        with closing(UsedOnDisk(scene.folder / "keeper.used")) as used:
            keeper = Keeper(policy, keeper_key(scene.folder / "keeper.key"), used, os.urandom(32))
            found["keeper"] = best(lambda: keeper.answer(requests.pop()), rounds) / buffer
            found["memory, keeper"] = peak(lambda: keeper.answer(requests.pop())) / (8 * size)
            found["memory, client"] = peak(lambda: scene.masked(0)) / (8 * size)
            link = scene.link(keeper)
            found["asked"] = best(lambda: link.ask(requests.pop()), rounds) / buffer
            updates = scene.masked_buffer(one)
            mean_of(RUN, updates, scene.weights, link.ask)  # that all of it works
        found["bytes, plain"], found["bytes, masked"] = 4 * size, one.vector.nbytes + len(bytes(one.sealed))
        found["bytes, keeper"] = (len(scene.asked(updates)) + 1 + 8 * size) / buffer
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[650, 470_000, 10_000_000])
    parser.add_argument("--buffer", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    columns = [measured(size, options.buffer, options.rounds) for size in options.sizes]
    print(
        f"{'per update of a buffer of ' + str(options.buffer):34}" + "".join(f"{size:>14,}" for size in options.sizes)
    )
    for name in columns[0]:
        unit = "bytes" if name.startswith("bytes") else "vectors" if name.startswith("memory") else "ms"
        digits = 0 if unit == "bytes" else 2 if unit == "vectors" else 3
        print(f"{name:24}{unit:>10}" + "".join(f"{column[name]:14,.{digits}f}" for column in columns))


if __name__ == "__main__":
    main()
