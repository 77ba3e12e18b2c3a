"""Events per second of the server and the compiled loop, compared with a bare heapq loop, 15 to 1,000,000 clients.

The bare loop is the minimum that any simulator of the fleet must do: take the next arrival from a heap, draw that
client's next delay, put it back. It keeps no history, makes no versions and weighs nothing. There are two kinds:
`shared` draws all delays from one generator, and `own` draws the durations of the server's fleet, in which every client
has its own stream. The first shows what all of fairlag costs, the second what the server costs. The compiled loop does
everything that the server does, weights included. In all of them, an event is one arrival. Start-up (every client's
first task, and compiling) is left out. Every size runs in a separate process, so the peak memory is its own (that of
FedStaleWeight by the server, which runs first). Timings are the best of several rounds, in turns, in processor time.

Below each size is the speed of FairShare by account as a fraction of its speed by gap: the median of the ratios of the
rounds, in which one is measured right after the other, with the lowest and the highest.

`--store` prints another table: all of `fairlag run` for an experiment without data, which trains nothing, with the
store, compared with the bare loop with shared draws. There an event is one call of `Server.handle`: no client comes,
goes or fails, so that is one per arriving update. Events are counted from the first progress report of the run until
its directory is complete, by processor time and by wall clock; each row is the best of its rounds.

    python benchmarks/timeline.py [--sizes 15 1000 …] [--events 200000] [--repeat 3] [--store]
"""

import argparse
import gc
import heapq
import json
import multiprocessing
import random
import resource
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from statistics import median

from fairlag.core.buffer import Buffer
from fairlag.core.server import Server
from fairlag.core.strategy import Strategy
from fairlag.core.types import Floats
from fairlag.core.view import View
from fairlag.fleet.clients import Fleet, Group
from fairlag.fleet.delay import parse
from fairlag.lab.events import Event, Progress
from fairlag.lab.experiment import parse as parse_experiment
from fairlag.lab.simulate import simulate
from fairlag.runtime import virtual
from fairlag.runtime.compiled.spec import LoopSpec, loop_spec
from fairlag.runtime.compiled.timeline import Timeline
from fairlag.zoo import async_fedavg, buffered_fedavg, fairshare, fedavg, fedbuff, fedstaleweight

STRATEGIES: dict[str, Callable[[int], Strategy]] = {
    "FedStaleWeight": lambda clients: fedstaleweight(buffer=5),
    "Buffered FedAvg": lambda clients: buffered_fedavg(buffer=5),
    "FairShare by gap": lambda clients: fairshare(buffer=5, estimator="gap", cap=1.5),
    "FairShare by account": lambda clients: fairshare(buffer=5, estimator="account", cap=2.0),
    "FedBuff": lambda clients: fedbuff(buffer=5, concurrency=min(10, clients)),
    "FedAvg": lambda clients: fedavg(cohort=10),
    "Asynchronous FedAvg": lambda clients: async_fedavg(),
}


_COMPILED = "compiled "
PATHS = {"server": "", "compiled": _COMPILED}


def fleet_of(clients: int) -> Fleet:
    slow = clients // 3
    return Fleet(
        [Group("slow", slow, parse("uniform(8, 12)")), Group("fast", clients - slow, parse("uniform(1, 2)"))], seed=0
    )


def bare_shared(clients: int, events: int, clock: Callable[[], float] = time.process_time) -> float:
    """Seconds per event of the bare loop with one generator for all delays."""
    uniform = random.Random(0).uniform
    slow = clients // 3
    bounds = [(8.0, 12.0) if client < slow else (1.0, 2.0) for client in range(clients)]
    heap = [(uniform(*bounds[client]), client, client) for client in range(clients)]
    heapq.heapify(heap)
    pop, push, sequence = heapq.heappop, heapq.heappush, clients
    begin = clock()
    for _ in range(events):
        now, _, client = pop(heap)
        push(heap, (now + uniform(*bounds[client]), sequence, client))
        sequence += 1
    return (clock() - begin) / events


def bare_own(clients: int, events: int) -> float:
    """Seconds per event of the bare loop with the durations of the server's fleet."""
    duration = fleet_of(clients).duration
    heap = [(duration(client, 0), client, client, 1) for client in range(clients)]
    heapq.heapify(heap)
    pop, push, sequence = heapq.heappop, heapq.heappush, clients
    begin = time.process_time()
    for _ in range(events):
        now, _, client, ordinal = pop(heap)
        push(heap, (now + duration(client, ordinal), sequence, client, ordinal + 1))
        sequence += 1
    return (time.process_time() - begin) / events


def served(strategy: Strategy, clients: int, events: int) -> float:
    """Seconds per event through the server in virtual time, from the first aggregation to the last."""
    per_version = 10 if strategy.select.rounds else strategy.trigger.needs
    aggregations = events // per_version
    begin: list[float] = []

    @wraps(strategy.weigh)
    def weigh(buffer: Buffer, view: View) -> Floats:
        if not begin:
            begin.append(time.process_time())
        return strategy.weigh(buffer, view)

    gc.collect()  # the server before this one, which would otherwise be collected during the measurement
    server = Server(replace(strategy, weigh=weigh), clients=clients, aggregations=aggregations + 1)
    virtual.run(server, fleet_of(clients))
    return (time.process_time() - begin[0]) / (aggregations * per_version)


def compiled(strategy: Strategy, clients: int, events: int) -> float:
    """Seconds per event through the compiled loop, from the first page to the last."""
    fleet = fleet_of(clients)
    known = loop_spec(strategy, fleet)
    assert isinstance(known, LoopSpec), known
    timeline = Timeline(known, fleet, seed=0, aggregations=events // known.buffer + 10_000)
    pages = iter(timeline)
    next(pages)
    begin, first = time.process_time(), timeline.version
    for _ in pages:
        pass
    return (time.process_time() - begin) / ((timeline.version - first) * known.buffer)


def stored(name: str, clients: int, events: int) -> tuple[float, float]:
    """Events per second of a whole run that trains nothing, with the store: by processor time, and by wall clock."""
    slow = clients // 3
    experiment = parse_experiment(
        {
            "name": "queue",
            "aggregations": events // 5,
            "clients": [
                {"group": "slow", "count": slow, "delay": "uniform(8, 12)"},
                {"group": "fast", "count": clients - slow, "delay": "uniform(1, 2)"},
            ],
            "strategies": [{"use": name, "buffer": 5}],
        }
    )
    marks: list[tuple[float, float, int]] = []

    def watch(event: Event) -> None:
        if isinstance(event, Progress):
            marks.append((time.process_time(), time.perf_counter(), event.updates))

    simulate(experiment, watch=watch)
    (busy, clock, before), (busy_end, clock_end, after) = marks[0], marks[-1]
    return (after - before) / (busy_end - busy), (after - before) / (clock_end - clock)


def bare_both(clients: int, events: int) -> tuple[float, float]:
    """Events per second of the bare loop with shared draws, by processor time and by wall clock."""
    begin = time.process_time()
    clock = 1 / bare_shared(clients, events, time.perf_counter)
    return events / (time.process_time() - begin), clock


def store_table(clients: int, events: int, repeat: int) -> None:
    """Whole runs that train nothing and the bare loop, in turns."""
    best: dict[str, tuple[float, float]] = {}
    for _ in range(repeat):
        found = {"bare shared": bare_both(clients, events)}
        found |= {name: stored(name, clients, events) for name in ("buffered_fedavg", "fedstaleweight", "fairshare")}
        for name, (busy, clock) in found.items():
            before = best.get(name, (0.0, 0.0))
            best[name] = max(before[0], busy), max(before[1], clock)
    print(f"{clients} clients, {events:,} events per run, with store; events per second, best of {repeat}, and ÷ bare")
    print(f"{'':16} {'by processor time':>26} {'by wall clock':>26}")
    for name, speeds in best.items():
        cells = [
            f"{speed:>14,.0f} {_part(bare / speed):>11}"
            for speed, bare in zip(speeds, best["bare shared"], strict=True)
        ]
        print(f"{name:16} {' '.join(cells)}", flush=True)


def measure(clients: int, events: int, repeat: int) -> str:
    """One size, in this process; the time of each round as JSON."""
    rounds: dict[str, list[float]] = defaultdict(list)
    for _ in range(repeat):
        for name, make in STRATEGIES.items():
            rounds[name].append(served(make(clients), clients, events))
            # The peak so far: of FedStaleWeight alone, because it runs first.
            rounds["megabytes"].append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
        for name, make in STRATEGIES.items():
            rounds[_COMPILED + name].append(compiled(make(clients), clients, events))
        rounds["shared"].append(bare_shared(clients, events))
        rounds["own"].append(bare_own(clients, events))
    return json.dumps(rounds)


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    options.add_argument("--sizes", type=int, nargs="+", default=[15, 1_000, 100_000, 1_000_000])
    options.add_argument("--events", type=int, default=200_000)
    options.add_argument("--repeat", type=int, default=3)
    options.add_argument("--store", action="store_true", help="whole runs of the paper's 15 clients, with the store")
    chosen = options.parse_args()
    if chosen.store:
        store_table(15, chosen.events, chosen.repeat)
        return
    print(f"events per second, best of {chosen.repeat}, {chosen.events:,} events each;")
    print("in brackets: as a fraction of the bare loop with shared draws, and of the one with own draws per client")
    print(
        f"{'clients':>10} {'peak MB':>8} {'bare shared':>12} {'bare own':>12} {'':>10}"
        + "".join(f"{name:>29}" for name in STRATEGIES)
    )
    for clients in chosen.sizes:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            rounds = json.loads(pool.apply(measure, (clients, chosen.events, chosen.repeat)))
        best = {name: min(found) for name, found in rounds.items()}
        speeds = f"{1 / best['shared']:>12,.0f} {1 / best['own']:>12,.0f}"
        print(f"{clients:>10,} {best['megabytes']:>8,.0f} {speeds} {'server':>10}" + cells(best, ""))
        print(f"{_COMPILED:>56}" + cells(best, _COMPILED))
        parts = ", ".join(f"{path} {account_to_gap(rounds, prefix)}" for path, prefix in PATHS.items())
        print(f"{'':>10} FairShare by account, as a fraction of its speed by gap: {parts}", flush=True)


def cells(best: dict[str, float], path: str) -> str:
    """The speed of every strategy on one path, and as a fraction of the bare loops."""
    written = []
    for name in STRATEGIES:
        parts = [_part(best[path + name] / best[bare]) for bare in ("shared", "own")]
        written.append(f"{1 / best[path + name]:>12,.0f} {'[' + ', '.join(parts) + ']':>16}")
    return "".join(written)


def account_to_gap(rounds: dict[str, list[float]], path: str) -> str:
    """The speed of one as a fraction of the other's on one path: the median, lowest and highest of the rounds."""
    pairs = zip(rounds[path + "FairShare by gap"], rounds[path + "FairShare by account"], strict=True)
    ratios = [gap / account for gap, account in pairs]
    return f"{median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def _part(times: float) -> str:
    return f"1/{times:.1f}" if times > 1 else f"×{1 / times:.1f}"


if __name__ == "__main__":
    main()
