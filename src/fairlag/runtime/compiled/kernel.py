"""The compiled loop: clients that are always there, from arrival to arrival, in arrays alone.

It does what virtual.py, server.py and ledger.py do together for the strategies that plan.py recognises; those are the
definition. What updates weigh is not computed here, as no arrival depends on it. All of it is in one file, because
numba looks at the file of a function alone when it decides whether what it has on disk is still true.
"""

from math import inf

import numpy as np
from numpy.typing import NDArray

from fairlag.ledger import INSTANT
from fairlag.runtime.compiled.jit import compiled
from fairlag.seeds import GOLDEN
from fairlag.types import Floats, Integers

OVER, FULL, UNDRAWN, STUCK = range(4)
"""Why the loop comes back."""

BLOCK = 32
"""How many entries of the queue that are due later lie together."""

# Settings and counters, in the array `whole`.
BUFFER, FRESH, PLACES, ROUNDS, LIMIT, AGGREGATIONS, PROFILES, AHEAD, DRAWS_FROM, BITS, BUCKETS, HEAP = range(12)
VERSION, RECEIVED, SEQUENCE, RUNNING, REFUSED, MERGED, BUFFERED, QUEUED, GIVEN_OUT, WAITED, IDLE = range(12, 23)
DRAWS, NEAR, BUCKET, FREE, WHOLE = range(23, 28)
# Moments and rates, in the array `real`.
NOW, UNTIL, RATE, BASE, PER_SECOND, REAL = range(6)
# A client's row in `counts` and in `times`: eight numbers, one line of the processor's cache.
STREAM, GIVEN, TRAINED, UPDATES, STALENESS, POSITION, CONTRIBUTED, LAW = range(8)
SINCE, GIVEN_AT, ARRIVED, BUSY, TRANSFER, FACTOR = range(6)
# The rows of `lists`, in each of which clients stand in order: to be given a task, waiting for a version, idle.
HANDED, WAITING, POOL, LISTS = range(4)
# The columns of `laws`: a task takes factor · (low + width · u). A law below 0 is a row of `drawn` instead.
LOW, WIDTH, TIMES = range(3)
# The rows of `chains`: the block after each, and those that are free. Of `buckets`: the first block, and its entries.
FOLLOWING, UNUSED = range(2)
FIRST, FILLED = range(2)
# The rows of `merged` and `moments`, one column an update: what came, and the ledger's account after the merge.
CLIENT, LATE, COUNT, TOTAL, PLACE = range(5)
FROM, CAME, WORKED, BEGAN, LAST = range(5)
# The columns of `made`, one row a version.
TIME, RATES = range(2)


@compiled
def _word(stream: np.uint64, ordinal: int) -> np.uint64:
    word = stream + np.uint64(ordinal) * np.uint64(GOLDEN)
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return word ^ (word >> np.uint64(31))


@compiled
def uniform(stream: int, ordinal: int) -> float:
    """The number that `seeds.uniform` gives, of a stream as a signed number."""
    return (np.float64(_word(np.uint64(stream), ordinal) >> np.uint64(12)) + 0.5) * 2.0**-52


# The queue: what is due in the next moments is a heap at the beginning of `when` and `key`; all that is later lies in
# buckets, unsorted, in blocks behind it. A key is the order of handing out, and the client: ties are the reference's.


@compiled
def _push(whole: Integers, when: Floats, key: Integers, time: float, order: int) -> None:
    place = whole[NEAR]
    whole[NEAR] = place + 1
    while place:
        parent = (place - 1) >> 2
        if when[parent] < time or (when[parent] == time and key[parent] < order):
            break
        when[place], key[place] = when[parent], key[parent]
        place = parent
    when[place], key[place] = time, order


@compiled
def _pop(whole: Integers, when: Floats, key: Integers) -> None:
    """The first entry is taken out; the last one sinks from the top to where it belongs."""
    size = whole[NEAR] - 1
    whole[NEAR] = size
    time, order = when[size], key[size]
    place, child = 0, 1
    while child < size:
        best, earliest, first = child, when[child], key[child]
        for other in range(child + 1, min(child + 4, size)):
            if when[other] < earliest or (when[other] == earliest and key[other] < first):
                best, earliest, first = other, when[other], key[other]
        if time < earliest or (time == earliest and order < first):
            break
        when[place], key[place] = earliest, first
        place, child = best, 4 * best + 1
    when[place], key[place] = time, order


@compiled
def _enter(
    whole: Integers, real: Floats, when: Floats, key: Integers, chains: Integers, buckets: Integers,
    time: float, order: int
) -> None:
    far = (time - real[BASE]) * real[PER_SECOND]
    bucket = whole[BUCKETS]
    if far < bucket:
        bucket = int(far)
        if bucket <= whole[BUCKET]:
            _push(whole, when, key, time, order)
            return
    block, filled = buckets[FIRST, bucket], buckets[FILLED, bucket]
    if block < 0 or filled == BLOCK:
        whole[FREE] -= 1
        fresh = chains[UNUSED, whole[FREE]]
        chains[FOLLOWING, fresh] = block
        buckets[FIRST, bucket] = block = fresh
        filled = 0
    place = whole[HEAP] + block * BLOCK + filled
    when[place], key[place] = time, order
    buckets[FILLED, bucket] = filled + 1


@compiled
def _empty(
    whole: Integers, real: Floats, when: Floats, key: Integers, chains: Integers, buckets: Integers, bucket: int
) -> None:
    """All entries of a bucket are entered anew."""
    block, filled = buckets[FIRST, bucket], buckets[FILLED, bucket]
    buckets[FIRST, bucket] = -1
    while block >= 0:
        start = whole[HEAP] + block * BLOCK
        for place in range(start, start + filled):
            _enter(whole, real, when, key, chains, buckets, when[place], key[place])
        chains[UNUSED, whole[FREE]] = block
        whole[FREE] += 1
        block, filled = chains[FOLLOWING, block], BLOCK


@compiled
def _earliest(whole: Integers, when: Floats, chains: Integers, buckets: Integers, bucket: int) -> float:
    block, filled, earliest = buckets[FIRST, bucket], buckets[FILLED, bucket], inf
    while block >= 0:
        start = whole[HEAP] + block * BLOCK
        for place in range(start, start + filled):
            earliest = min(earliest, when[place])
        block, filled = chains[FOLLOWING, block], BLOCK
    return earliest


@compiled
def _bring(
    whole: Integers, real: Floats, when: Floats, key: Integers, chains: Integers, buckets: Integers
) -> bool:
    """Where the heap is empty it gets the next bucket that is not; after the last the buckets begin anew."""
    last = whole[BUCKETS]
    while not whole[NEAR]:
        whole[BUCKET] += 1
        if whole[BUCKET] < last:
            _empty(whole, real, when, key, chains, buckets, whole[BUCKET])
        elif buckets[FIRST, last] < 0:
            return False
        else:
            real[BASE] = _earliest(whole, when, chains, buckets, last)
            whole[BUCKET] = -1
            _empty(whole, real, when, key, chains, buckets, last)
    return True


@compiled
def _duration(whole: Integers, counts: Integers, times: Floats, laws: Floats, drawn: Floats, client: int) -> float:
    """How long the client's next task takes; −1 where that is not drawn yet."""
    ordinal, law = counts[client, GIVEN], counts[client, LAW]
    if law < 0:
        ahead = whole[AHEAD]
        return drawn[-law - 1, ordinal % ahead] if ordinal < drawn[-law - 1, ahead] else -1.0
    work = laws[law, TIMES] * (laws[law, LOW] + laws[law, WIDTH] * uniform(counts[client, STREAM], ordinal))
    return (work + times[client, TRANSFER]) * times[client, FACTOR]


@compiled
def _idle(whole: Integers, lists: Integers, client: int) -> None:
    if whole[PLACES]:
        lists[POOL, whole[IDLE]] = client
        whole[IDLE] += 1
    else:
        lists[HANDED, whole[QUEUED]] = client
        whole[QUEUED] += 1


@compiled
def _pick(whole: Integers, lists: Integers) -> None:
    """Free places go to clients drawn from those that are idle; in rounds, all at once when a round is over."""
    if not whole[PLACES] or (whole[ROUNDS] and (whole[RUNNING] or whole[BUFFERED])):
        return
    for _ in range(min(whole[PLACES] - whole[RUNNING], whole[IDLE])):
        place = int(uniform(whole[DRAWS_FROM], whole[DRAWS]) * whole[IDLE])
        whole[DRAWS] += 1
        lists[HANDED, whole[QUEUED]] = lists[POOL, place]
        whole[QUEUED] += 1
        whole[IDLE] -= 1
        lists[POOL, place] = lists[POOL, whole[IDLE]]


@compiled
def _pace(counts: Integers, times: Floats, client: int) -> float:
    """The rate of a client that was heard of."""
    return 1 / max(times[client, BUSY] / counts[client, UPDATES], INSTANT)


@compiled
def _merge(
    whole: Integers, real: Floats, counts: Integers, times: Floats, merged: Integers, moments: Floats, made: Floats
) -> None:
    start, profiles, rate = whole[MERGED] * whole[BUFFER], whole[PROFILES], real[RATE]
    for place in range(start, start + whole[BUFFER]):
        client = merged[CLIENT, place]
        late = whole[VERSION] - merged[LATE, place]  # until now the version it was trained from
        merged[LATE, place] = late
        whole[RECEIVED] += 1
        counts[client, POSITION] = whole[RECEIVED]
        counts[client, STALENESS] += late
        if profiles and counts[client, UPDATES]:
            rate -= _pace(counts, times, client)
        times[client, BUSY] += moments[CAME, place] - moments[FROM, place]
        counts[client, UPDATES] += 1
        if profiles:
            rate += _pace(counts, times, client)
    for place in range(start, start + whole[BUFFER]):
        client = merged[CLIENT, place]
        merged[COUNT, place] = counts[client, UPDATES]
        merged[TOTAL, place] = counts[client, STALENESS]
        merged[PLACE, place] = counts[client, POSITION]
        moments[WORKED, place] = times[client, BUSY]
        moments[BEGAN, place] = times[client, SINCE]
        moments[LAST, place] = times[client, ARRIVED]
    made[whole[MERGED], TIME], made[whole[MERGED], RATES] = real[NOW], rate
    real[RATE] = rate
    whole[MERGED] += 1
    whole[VERSION] += 1
    whole[BUFFERED] = 0


@compiled
def _arrive(
    whole: Integers, real: Floats, counts: Integers, times: Floats, lists: Integers, merged: Integers,
    moments: Floats, client: int
) -> None:
    """The update goes into the buffer, unless it is too stale; its client is idle, or waits for a newer version."""
    whole[RUNNING] -= 1
    trained = counts[client, TRAINED]
    if whole[VERSION] - trained > whole[LIMIT]:
        whole[REFUSED] += 1
    else:
        counts[client, CONTRIBUTED] = trained
        times[client, ARRIVED] = real[NOW]
        place = whole[MERGED] * whole[BUFFER] + whole[BUFFERED]
        merged[CLIENT, place], merged[LATE, place] = client, trained
        moments[CAME, place], moments[FROM, place] = real[NOW], times[client, GIVEN_AT]
        whole[BUFFERED] += 1
    if whole[FRESH] and counts[client, CONTRIBUTED] == whole[VERSION]:
        lists[WAITING, whole[WAITED]] = client
        whole[WAITED] += 1
    else:
        _idle(whole, lists, client)


@compiled
def _renew(whole: Integers, lists: Integers) -> None:
    for place in range(whole[WAITED]):
        _idle(whole, lists, lists[WAITING, place])
    whole[WAITED] = 0


@compiled
def _give(whole, real, counts, times, lists, laws, drawn, when, key, chains, buckets) -> bool:
    """Hands out the newest version to all whose turn it is, as far as it is known how long they will take."""
    while whole[GIVEN_OUT] < whole[QUEUED]:
        client = lists[HANDED, whole[GIVEN_OUT]]
        duration = _duration(whole, counts, times, laws, drawn, client)
        if duration < 0:
            return False
        if not counts[client, GIVEN]:
            times[client, SINCE] = real[NOW]
        counts[client, GIVEN] += 1
        counts[client, TRAINED] = whole[VERSION]
        times[client, GIVEN_AT] = real[NOW]
        order = (whole[SEQUENCE] << whole[BITS]) | client
        _enter(whole, real, when, key, chains, buckets, real[NOW] + duration, order)
        whole[SEQUENCE] += 1
        whole[RUNNING] += 1
        whole[GIVEN_OUT] += 1
    whole[GIVEN_OUT] = whole[QUEUED] = 0
    return True


@compiled
def begin(whole: Integers, lists: Integers) -> None:
    """Every client is there."""
    for client in range(lists.shape[1]):
        _idle(whole, lists, client)
    _pick(whole, lists)


@compiled
def proceed(
    whole, real, counts, times, lists, laws, drawn, when, key, chains, buckets, merged, moments, made
) -> int:
    """Goes on until the run is over, the pages are full, or durations have to be drawn elsewhere."""
    mask = (1 << whole[BITS]) - 1
    while whole[VERSION] != whole[AGGREGATIONS]:
        if not _give(whole, real, counts, times, lists, laws, drawn, when, key, chains, buckets):
            return UNDRAWN
        if whole[MERGED] == len(made):
            return FULL
        if not _bring(whole, real, when, key, chains, buckets):
            return STUCK
        if when[0] > real[UNTIL]:
            real[NOW] = real[UNTIL]
            return OVER
        real[NOW] = when[0]
        client = key[0] & mask
        _pop(whole, when, key)
        _arrive(whole, real, counts, times, lists, merged, moments, client)
        if whole[BUFFERED] == whole[BUFFER]:
            _merge(whole, real, counts, times, merged, moments, made)
            _renew(whole, lists)
        _pick(whole, lists)
    return OVER
