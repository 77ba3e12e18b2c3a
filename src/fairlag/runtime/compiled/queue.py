"""The queue of the compiled loop: which task ends next, for a million clients as for a few.

What is due in the next moments is a heap at the beginning of `when` and `key`; all that is later lies in buckets,
unsorted, in blocks behind it. A key is the order of handing out, and the client: ties are the reference's.
"""

from math import inf
from typing import Any

from fairlag.core.types import Floats, Integers
from fairlag.jit import compiled
from fairlag.runtime.compiled.layout import BLOCK, FILLED, FIRST, FOLLOWING, FREE


@compiled
def rise(when: Floats, key: Integers, place: int, time: float, order: int) -> None:
    """Puts an entry at the end of a heap, which is that place, and lets it rise to where it belongs."""
    while place:
        parent = (place - 1) >> 2
        if when[parent] < time or (when[parent] == time and key[parent] < order):
            break
        when[place], key[place] = when[parent], key[parent]
        place = parent
    when[place], key[place] = time, order


@compiled
def sink(when: Floats, key: Integers, size: int) -> None:
    """Takes the first entry out of a heap, of which that many are left; the last one sinks to where it belongs."""
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
def _push(run: Any, when: Floats, key: Integers, time: float, order: int) -> None:
    rise(when, key, run.near, time, order)
    run.near += 1


@compiled
def pop(run: Any, when: Floats, key: Integers) -> None:
    """The first entry is taken out."""
    run.near -= 1
    sink(when, key, run.near)


@compiled
def enter(run: Any, when: Floats, key: Integers, chains: Integers, buckets: Integers, time: float, order: int) -> None:
    """Puts an arrival where it belongs."""
    bucket, far = run.buckets, (time - run.base) * run.per_second
    if far < bucket:
        bucket = int(far)
        if bucket <= run.bucket:
            _push(run, when, key, time, order)
            return
    block, filled = buckets[FIRST, bucket], buckets[FILLED, bucket]
    if block < 0 or filled == BLOCK:
        run.free -= 1
        fresh = chains[FREE, run.free]
        chains[FOLLOWING, fresh] = block
        buckets[FIRST, bucket] = block = fresh
        filled = 0
    place = run.heap + block * BLOCK + filled
    when[place], key[place] = time, order
    buckets[FILLED, bucket] = filled + 1


@compiled
def _empty(run: Any, when: Floats, key: Integers, chains: Integers, buckets: Integers, bucket: int) -> None:
    """All entries of a bucket are entered anew."""
    block, filled = buckets[FIRST, bucket], buckets[FILLED, bucket]
    buckets[FIRST, bucket] = -1
    while block >= 0:
        start = run.heap + block * BLOCK
        for place in range(start, start + filled):
            enter(run, when, key, chains, buckets, when[place], key[place])
        chains[FREE, run.free] = block
        run.free += 1
        block, filled = chains[FOLLOWING, block], BLOCK


@compiled
def _earliest(run: Any, when: Floats, chains: Integers, buckets: Integers, bucket: int) -> float:
    block, filled, earliest = buckets[FIRST, bucket], buckets[FILLED, bucket], inf
    while block >= 0:
        start = run.heap + block * BLOCK
        for place in range(start, start + filled):
            earliest = min(earliest, when[place])
        block, filled = chains[FOLLOWING, block], BLOCK
    return earliest


@compiled
def bring(run: Any, when: Floats, key: Integers, chains: Integers, buckets: Integers) -> None:
    """The heap, which is empty, gets the next bucket that is not; after the last the buckets begin anew."""
    last = run.buckets
    while not run.near:
        run.bucket += 1
        if run.bucket < last:
            _empty(run, when, key, chains, buckets, run.bucket)
        elif buckets[FIRST, last] < 0:
            return
        else:
            run.base = _earliest(run, when, chains, buckets, last)
            run.bucket = -1
            _empty(run, when, key, chains, buckets, last)
