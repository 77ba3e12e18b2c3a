"""The queue of the compiled loop: which task ends next, for a few clients or a million.

The next entries are a heap at the beginning of `when` and `key`; all later ones are in buckets, unsorted, in blocks
after the heap. A key is the order of dispatch and the client, so ties break as in the reference. Entries of tasks that
were called off stay until they are due, or until there are too many of them.
"""

from math import inf
from typing import Any

from fairlag.core.types import Floats, Integers
from fairlag.jit import compiled
from fairlag.runtime.compiled.layout import BLOCK, FILLED, FIRST, FOLLOWING, FREE


@compiled
def rise(when: Floats, key: Integers, place: int, time: float, order: int) -> None:
    """Adds an entry to a heap at `place`, its end, and lets it rise."""
    while place:
        parent = (place - 1) >> 2
        if when[parent] < time or (when[parent] == time and key[parent] < order):
            break
        when[place], key[place] = when[parent], key[parent]
        place = parent
    when[place], key[place] = time, order


@compiled
def sink(when: Floats, key: Integers, size: int) -> None:
    """Removes the first entry of a heap, which leaves `size` entries; the last one takes its place and sinks."""
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
    """Removes the first entry."""
    run.near -= 1
    sink(when, key, run.near)


@compiled
def enter(run: Any, when: Floats, key: Integers, chains: Integers, buckets: Integers, time: float, order: int) -> None:
    """Adds an arrival to the heap or to its bucket."""
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
    """Enters all entries of a bucket again."""
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
    """Fills the empty heap from the next bucket that is not empty; after the last one, starts the buckets again."""
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


@compiled
def clear(run: Any, chains: Integers, buckets: Integers) -> None:
    """Removes all entries; the buckets start again now."""
    run.near = run.stale = run.bucket = 0
    run.base, run.free = run.now, chains.shape[1]
    for block in range(chains.shape[1]):
        chains[FREE, block] = block
    for bucket in range(buckets.shape[1]):
        buckets[FIRST, bucket] = -1
