"""The state of the compiled loop between two versions, converted to the state of the reference simulation."""

import numpy as np

from fairlag.core.durations import mean_duration
from fairlag.core.state import State, table, take
from fairlag.core.types import Dispatch, Integers
from fairlag.core.vector import Vector
from fairlag.runtime.agenda import NOBODY, Due
from fairlag.runtime.compiled.layout import HANDED, IDLE, WAITING
from fairlag.runtime.compiled.timeline import Timeline
from fairlag.runtime.virtual import STRETCH

Running = list[tuple[float, Dispatch]]
"""The running tasks and when each ends, in order of dispatch."""


def moment(
    begun: State,
    timeline: Timeline,
    running: Running,
    *,
    examples: Integers,
    kept: dict[int, Vector],
    stop: str | None,
) -> State:
    """The initial state of a simulation, updated with everything that has happened since.

    `examples` is how many examples each client has, `kept` are the parameters of the versions that are held, `stop` is
    why the run is over, if it is. The buffer must be empty, and no rule of the server may have a memory.
    """
    server = take(begun, "server", dict)
    run, until = timeline.run[0], float(timeline.run["until"][0])
    timed = int(np.isfinite(until))  # the wake that ends the run was entered first
    due = [(time, Due.ARRIVAL, task.task + timed, task.task) for time, task in running]
    entries = sorted(due + [(until, Due.WAKE, 0, NOBODY)] * timed)
    passed = int(run["received"]) % STRETCH
    counted = [*divmod(int(run["received"]) - passed, int(run["buffer"]))]
    return {
        **begun,
        "server": {
            **server,
            "ledger": _ledger(take(server, "ledger", dict), timeline, examples, running),
            "versions": _versions(running, kept),
            "selector": _selector(take(server, "selector", dict), timeline),
            "stopped": stop,
            "_next_task": int(run["sequence"]),
            "ended": [int(run["received"]), 0, 0, 0],
        },
        "agenda": {
            "entries": table(entries, time=float, due=int, sequence=int, whom=int),
            "sequence": int(run["sequence"]) + timed,
        },
        "watchdog": {**take(begun, "watchdog", dict), "reached": [*counted], "admitted": [*counted]},
        "passed": passed,
        "started": True,
        "stop": stop,
    }


def running(timeline: Timeline) -> Running:
    """The running tasks: of all clients that are neither idle nor wait for a version."""
    run, lists = timeline.run[0], timeline.lists
    at_rest = np.concatenate(
        [
            lists[HANDED, run["begun"] : run["handed"]],
            lists[WAITING, : run["waiting"]],
            lists[IDLE, : run["idle"]],
        ]
    )
    at_work = np.ones(len(timeline.clients), np.bool_)
    at_work[at_rest] = False
    rows = timeline.clients[at_work]
    columns = rows["task"], np.flatnonzero(at_work), rows["trained"], rows["given"] - 1, rows["given_at"]
    found = zip(rows["due"].tolist(), *(column.tolist() for column in columns), strict=True)
    return sorted(((due, Dispatch(*task)) for due, *task in found), key=lambda each: each[1].task)


def _ledger(ledger: State, timeline: Timeline, examples: Integers, running: Running) -> State:
    run, clients = timeline.run[0], timeline.clients
    updates, heard = clients["updates"], clients["contributed"] >= 0
    columns: State = {
        **take(ledger, "columns", dict),
        "task": clients["task"].copy(),
        "present": np.ones_like(updates),
        "dispatched": clients["given"].copy(),
        "contributed": clients["contributed"].copy(),
        "examples": examples.copy(),
        "updates": updates.copy(),
        "staleness": clients["staleness"].copy(),
        "position": clients["position"].copy(),
        "mean": np.divide(clients["staleness"], updates, out=np.zeros(len(updates)), where=updates > 0),
        "weight": timeline.weights.copy(),
        "busy": clients["busy"].copy(),
        "since": np.where(clients["given"] > 0, clients["since"], np.nan),
        "arrival": np.where(heard, clients["arrived"], np.nan),
    }
    slowest: list[tuple[float, int]] = []
    if run["profiles"]:
        usual = list(map(mean_duration, clients["busy"].tolist(), updates.tolist()))
        slowest = [(-usual[task.client], task.task) for _, task in running]
    return {
        **ledger,
        "time": float(run["now"]),
        "version": int(run["version"]),
        "renewed": float(run["now"]),
        "clients": len(clients),
        "there": len(clients),
        "received": int(run["received"]),
        "examples": int(examples.sum()),
        "rate": float(run["rate"]),
        "columns": columns,
        "recent": timeline.recent[:, : run["window"]].copy(),
        "running": table([task for _, task in running], **Dispatch.__annotations__),
        "slowest": table(sorted(slowest), usual=float, task=int),
        **({} if timeline.books is None else {"accounts": timeline.books.state()}),
    }


def _versions(running: Running, kept: dict[int, Vector]) -> State:
    holders = dict.fromkeys(sorted(kept), 0)
    for _, task in running:
        holders[task.version] += 1
    return {
        "holders": table(list(holders.items()), version=int, tasks=int),
        "parameters": {str(version): kept[version] for version in holders},
    }


def _selector(selector: State, timeline: Timeline) -> State:
    run, lists = timeline.run[0], timeline.lists
    waiting = {**selector, "waiting": lists[WAITING, : run["waiting"]].copy()}
    if "pool" not in selector:
        return {**waiting, "ready": lists[HANDED, run["begun"] : run["handed"]].copy()}
    return {**waiting, "pool": {"members": lists[IDLE, : run["idle"]].copy(), "drawn": int(run["draws"])}}
