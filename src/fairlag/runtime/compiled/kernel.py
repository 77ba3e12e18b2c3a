"""The compiled loop: simulates clients that are always present from arrival to arrival, with arrays only.

It does what virtual.py, server.py and ledger.py do together, for the strategies that spec.py recognises; they are the
reference. Weights are not computed here, because no arrival depends on them.
"""

from math import inf
from typing import Any

import numpy as np

from fairlag.core.durations import INSTANT
from fairlag.core.types import Floats, Integers
from fairlag.jit import compiled, subkey
from fairlag.runtime.compiled.layout import (
    ARRIVED,
    BUSY,
    BY_PART,
    CAME,
    CANCELLED,
    EARLIER,
    ENDS,
    EVERYONE,
    EVERYONE_FIRST,
    GIVEN_AT,
    HANDED,
    IDLE,
    LATE,
    LATER,
    LOW,
    ORDINAL,
    PERIOD,
    PLAN,
    POSITION,
    RATE,
    RECENT,
    REFUSED,
    SENDER,
    SENT,
    SINCE,
    STALENESS,
    TASK,
    TIME,
    TIMES,
    UPDATES,
    WAITING,
    WIDTH,
)
from fairlag.runtime.compiled.queue import bring, clear, enter, pop

OVER, FULL, UNDRAWN, STUCK = range(4)
"""Why the loop returns."""

_AT_ONCE, _MANY = 16, 1 << 14
"""How many draws are prefetched if more clients are idle than the processor's cache holds."""


@compiled
def uniform(stream: int, ordinal: int) -> float:
    """The number of `seeds.uniform`, for a stream given as a signed number."""
    return (np.float64(subkey(np.uint64(stream), ordinal) >> np.uint64(12)) + 0.5) * 2.0**-52


@compiled
def _touch(run: Any, clients: Any, key: Integers) -> None:
    """Prefetches all clients that are next: the processor fetches many at once, the loop would fetch one by one."""
    mask = (1 << run.bits) - 1
    for place in range(run.near):
        client = key[place] & mask
        run.touched ^= clients[client].given + (clients[client].factor > 1)


@compiled
def _duration(
    run: Any, client: Any, number: int, laws: Floats, drawn: Floats, plans: Integers, pieces: Floats
) -> float:
    """The duration of the client's next task; −1 if it is not drawn yet."""
    ordinal, law = client.given, client.law
    whole = 0.0
    if law >= 0:
        work = laws[law, TIMES] * (laws[law, LOW] + laws[law, WIDTH] * uniform(client.stream, ordinal))
        whole = (work + client.transfer) * client.factor
    elif ordinal < drawn[-law - 1, run.ahead]:
        whole = drawn[-law - 1, ordinal % run.ahead]
    else:
        return -1.0
    slowed: float = whole
    if len(plans) and plans[number] >= 0:
        slowed = whole * _slowed(run, pieces[plans[number]])
    return slowed


@compiled
def _slowed(run: Any, plan: Floats) -> float:
    """The current factor of a client that follows this plan."""
    now = run.now
    if plan[BY_PART]:
        now = run.now / run.until
        if run.aggregations > 0:
            now = max(run.version / run.aggregations, now)
    if plan[PERIOD] < inf:
        now = now % plan[PERIOD]
    place = 0
    while place < plan[ENDS] and plan[PLAN + place] <= now:
        place += 1
    factor: float = plan[PLAN + int(plan[ENDS]) + place]
    return factor


@compiled
def _idle(run: Any, lists: Integers, client: int) -> None:
    if run.places:
        lists[IDLE, run.idle] = client
        run.idle += 1
    else:
        lists[HANDED, run.handed] = client
        run.handed += 1


@compiled
def _look_ahead(run: Any, clients: Any, lists: Integers) -> None:
    """Prefetches the clients that will probably be drawn next, for the same reason as `_touch`."""
    for draw in range(run.draws, run.draws + _AT_ONCE):
        run.touched ^= clients[lists[IDLE, int(uniform(run.draws_from, draw) * run.idle)]].given


@compiled
def _pick(run: Any, clients: Any, lists: Integers) -> None:
    """Gives free places to random idle clients; in rounds, all at once when a round is over."""
    if not run.places or (run.rounds and (run.running or run.buffered)):
        return
    for _ in range(min(run.places - run.running, run.idle)):
        if run.draws % _AT_ONCE == 0 and run.idle > _MANY:
            _look_ahead(run, clients, lists)
        place = int(uniform(run.draws_from, run.draws) * run.idle)
        run.draws += 1
        lists[HANDED, run.handed] = lists[IDLE, place]
        run.handed += 1
        run.idle -= 1
        lists[IDLE, place] = lists[IDLE, run.idle]


@compiled
def _link(lists: Integers, number: int) -> None:
    """The client's task is the last of the running ones in order of dispatch."""
    end = lists.shape[1] - 1
    last = lists[EARLIER, end]
    lists[LATER, last] = lists[EARLIER, end] = number
    lists[EARLIER, number], lists[LATER, number] = last, end


@compiled
def _unlink(lists: Integers, number: int) -> None:
    before, after = lists[EARLIER, number], lists[LATER, number]
    lists[LATER, before], lists[EARLIER, after] = after, before


@compiled
def _waste(run: Any, lists: Integers, outcome: int, client: Any, number: int) -> None:
    """A task ends without being merged."""
    lists[outcome, number] += 1
    run.wasted += run.now - client.given_at


@compiled
def _arrive(run: Any, clients: Any, lists: Integers, merged: Integers, moments: Floats, number: int) -> None:
    """Puts the update into the buffer, unless it is too stale; its client is idle, or waits for a newer version."""
    client = clients[number]
    run.running -= 1
    if run.delay:
        _unlink(lists, number)
    if run.version - client.trained > run.limit:
        _waste(run, lists, REFUSED, client, number)
    else:
        client.contributed = client.trained
        client.arrived = run.now
        place = run.merged * run.buffer + run.buffered
        merged[SENDER, place], merged[LATE, place] = number, client.trained
        merged[TASK, place], merged[ORDINAL, place] = client.task, client.given - 1
        moments[CAME, place], moments[GIVEN_AT, place] = run.now, client.given_at
        run.buffered += 1
        if run.trigger == EVERYONE and lists[SENT, number] != run.version:
            lists[SENT, number] = run.version
            run.missing -= 1
    if run.fresh and client.contributed == run.version:
        lists[WAITING, run.waiting] = number
        run.waiting += 1
    else:
        _idle(run, lists, number)


@compiled
def _ready(run: Any) -> bool:
    """Is it time to merge the buffer?"""
    ready: bool = run.buffered == run.buffer
    if run.trigger == EVERYONE:
        ready = run.missing == 0
    elif run.trigger == EVERYONE_FIRST and not run.version:
        ready = run.running == 0
    return ready


@compiled
def _rate(client: Any) -> float:
    rate: float = 1 / max(client.busy / client.updates, INSTANT)
    return rate


@compiled
def _remember(run: Any, samples: Integers, updates: int, late: int) -> None:
    """Replaces the oldest of the last samples with a new one."""
    place = updates % run.window
    samples[run.window] += late - samples[place]
    samples[place] = late


@compiled
def _merge(run: Any, clients: Any, recent: Integers, merged: Integers, moments: Floats, made: Floats) -> None:
    start = run.merged * run.buffer
    for place in range(start, start + run.buffered):
        client = clients[merged[SENDER, place]]
        merged[LATE, place] = run.version - merged[LATE, place]  # it held the version that the update was trained from
        run.received += 1
        client.position = run.received
        client.staleness += merged[LATE, place]
        if run.window:
            _remember(run, recent[merged[SENDER, place]], client.updates, merged[LATE, place])
        if run.profiles and client.updates:
            run.rate -= _rate(client)
        client.busy += moments[CAME, place] - moments[GIVEN_AT, place]
        client.updates += 1
        if run.profiles:
            run.rate += _rate(client)
    for place in range(start, start + run.buffered):
        client = clients[merged[SENDER, place]]
        merged[UPDATES, place], merged[STALENESS, place] = client.updates, client.staleness
        if run.window:
            merged[RECENT, place] = recent[merged[SENDER, place], run.window]
        merged[POSITION, place], moments[BUSY, place] = client.position, client.busy
        moments[SINCE, place], moments[ARRIVED, place] = client.since, client.arrived
    made[run.merged, TIME], made[run.merged, RATE] = run.now, run.rate
    run.merged += 1
    run.version += 1
    run.size, run.buffered, run.missing, run.quiet = run.buffered, 0, len(clients), 0


@compiled
def _renew(run: Any, lists: Integers) -> None:
    for place in range(run.waiting):
        _idle(run, lists, lists[WAITING, place])
    run.waiting = 0


@compiled
def _call_off(
    run: Any,
    clients: Any,
    lists: Integers,
    when: Floats,
    key: Integers,
    chains: Integers,
    buckets: Integers,
) -> None:
    """Calls off the tasks that are too many versions behind; their entries in the queue no longer count."""
    end = lists.shape[1] - 1
    number = lists[LATER, end]
    while number != end and clients[number].trained <= run.version - run.delay:
        run.running -= 1
        _unlink(lists, number)
        _waste(run, lists, CANCELLED, clients[number], number)
        clients[number].task = -1
        _idle(run, lists, number)
        run.stale += 1
        number = lists[LATER, end]
    if run.stale > run.spare:
        clear(run, chains, buckets)
        while number != end:
            enter(run, when, key, chains, buckets, clients[number].due, (clients[number].task << run.bits) | number)
            number = lists[LATER, number]


@compiled
def begin(runs: Any, clients: Any, lists: Integers) -> None:
    """Starts with every client present and idle."""
    runs[0].missing = len(clients)
    for client in range(len(clients)):
        _idle(runs[0], lists, client)
    _pick(runs[0], clients, lists)


@compiled
def _give(
    run: Any,
    clients: Any,
    lists: Integers,
    laws: Floats,
    drawn: Floats,
    plans: Integers,
    pieces: Floats,
    when: Floats,
    key: Integers,
    chains: Integers,
    buckets: Integers,
) -> bool:
    """Dispatches the newest version to the clients that are next, as far as their durations are drawn."""
    while run.begun < run.handed:
        number = lists[HANDED, run.begun]
        client = clients[number]
        duration = _duration(run, client, number, laws, drawn, plans, pieces)
        if duration < 0:
            return False
        if not client.given:
            client.since = run.now
        client.given += 1
        client.trained = run.version
        client.given_at = run.now
        client.task, client.due = run.sequence, run.now + duration
        enter(run, when, key, chains, buckets, client.due, (run.sequence << run.bits) | number)
        run.sequence += 1
        run.running += 1
        if run.delay:
            _link(lists, number)
        run.begun += 1
    run.begun = run.handed = 0
    return True


@compiled
def proceed(
    runs: Any,
    clients: Any,
    lists: Integers,
    laws: Floats,
    drawn: Floats,
    plans: Integers,
    pieces: Floats,
    when: Floats,
    key: Integers,
    chains: Integers,
    buckets: Integers,
    recent: Integers,
    merged: Integers,
    moments: Floats,
    made: Floats,
) -> int:
    """Continues until the run is over, a page is full, or durations must be drawn outside the loop."""
    run = runs[0]
    while run.version != run.aggregations:
        if not _give(run, clients, lists, laws, drawn, plans, pieces, when, key, chains, buckets):
            return UNDRAWN
        if run.version == run.full:
            return FULL
        if not run.near:
            bring(run, when, key, chains, buckets)
            _touch(run, clients, key)
        if not run.near or run.quiet == run.patience:
            return STUCK
        if when[0] > run.until:
            run.now = run.until
            return OVER
        time, task, number = when[0], key[0] >> run.bits, key[0] & ((1 << run.bits) - 1)
        pop(run, when, key)
        run.quiet += 1
        if task != clients[number].task:
            run.stale -= 1
            continue
        run.now = time
        _arrive(run, clients, lists, merged, moments, number)
        if _ready(run):
            _merge(run, clients, recent, merged, moments, made)
            _renew(run, lists)
            if run.delay:
                _call_off(run, clients, lists, when, key, chains, buckets)
        _pick(run, clients, lists)
    return OVER
