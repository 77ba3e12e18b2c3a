"""The limit: a hand-written loop that trains one model, without clients, versions or a record.

Variants: `kept` makes the allocator keep the memory of big tensors, as fairlag does; a number runs that many loops.
"""

import ctypes
import multiprocessing

import torch

from benchmarks.peers import work

_KEEP = {-3: 1 << 25, -1: 1 << 29, -2: 1 << 26}
"""M_MMAP_THRESHOLD, M_TRIM_THRESHOLD and M_TOP_PAD of glibc, as fairlag sets them."""


def loop(name: str, updates: int) -> work.Meter:
    torch.set_num_threads(1)
    model, meter = work.build(name), work.Meter(updates)
    optimizer = torch.optim.SGD(model.parameters(), lr=work.LR)
    update = 0
    while not meter.enough:
        work.train_step(model, optimizer, *work.batch(name, update % work.CLIENTS))
        update += 1
        meter.seen(update)
    return meter


def several(name: str, updates: int, processes: int) -> work.Meter:
    """Several independent loops at once: all the steps that these cores can make."""
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        meters = pool.starmap(loop, [(name, updates)] * processes, chunksize=1)
    rate = sum(counted / seconds for counted, seconds, _ in (meter.counted for meter in meters))
    together = work.Meter(updates)
    together.marks = [(0, 0.0, 0.0), (processes * updates, processes * updates / rate, 0.0)]
    return together


def main() -> None:
    options = work.options()
    if options.variant == "kept":
        for option, size in _KEEP.items():
            ctypes.CDLL(None).mallopt(option, size)
    if options.variant.isdigit():
        processes = int(options.variant)
        work.report(several(options.model, options.updates, processes), options.model, processes=processes)
        return
    meter, model = loop(options.model, options.updates), work.build(options.model)
    evaluation = work.timed(lambda: work.accuracy(model, options.model))
    work.report(meter, options.model, evaluation=evaluation)


if __name__ == "__main__":
    main()
