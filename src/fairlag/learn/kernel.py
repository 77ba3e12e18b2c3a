"""Local training of small stacks of linear layers, compiled: task by task, in loops that compile to SIMD code.

small.py computes many tasks at once with NumPy; here each task is computed alone, with the same batches and, apart from
rounding, the same updates. Sums have one fixed order and the exponential is defined here, so no library's rounding
matters.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairlag.core.types import Integers
from fairlag.core.vector import Matrix, Vector
from fairlag.jit import compiled, subkey
from fairlag.learn.product import multiply

SETTINGS = np.dtype(
    [("batch", np.int64), ("stream", np.uint64)]
    + [(name, np.float32) for name in ("factor", "offset", "momentum", "weight_decay", "prox")]
)
"""How tasks are trained: the batch size, the key of the order of examples, the scaling of inputs, …"""

# The columns of `tasks`, one row per task: its key, where its client's examples begin, their number, the number of
# steps, and the index of its start.
KEY, FIRST, EXAMPLES, STEPS, START = range(5)
# The columns of `layers`, one row per layer: its sizes; where its weights and biases (−1 for none) are among the
# parameters; where its inputs (one row per example) are in the work space; and where its outputs (one column per
# example) are, which are later overwritten by their errors.
INPUTS, OUTPUTS, WEIGHTS, BIASES, ROWS, ERRORS = range(6)
# The rows of `paths`: the current parameters, the last step, the gradient.
NOW, STEP, GRADIENT = range(3)

_PLACE = np.uint64(0xFFFF_FFFF)
_LOWEST = np.float32(-87.0)
"""Below, the exponential would not be a normal float32."""
_PER_DOUBLING = np.float32(1 / math.log(2))
_LOG_2 = np.float32(355 / 512)
_LOG_2_REST = np.float32(math.log(2) - 355 / 512)
"""ln 2 in two parts: products of the first with small whole numbers are exact."""
_LARGEST = np.finfo(np.float32).max


@compiled
def _order(settings: Any, key: np.uint64, examples: int, epoch: int, wanted: int, words: Any, counts: Integers) -> None:
    """The first `wanted` places of an epoch, in the order of small.py, into the first row of `words`.

    One bucket per word sorts random words in nearly one pass.
    """
    bits = 1
    while (1 << bits) < examples:
        bits += 1
    shift = np.uint64(64 - bits)
    for bucket in range(1 << bits):
        counts[bucket] = 0
    for place in range(examples):
        factor = subkey(settings.stream, epoch * examples + place) | np.uint64(1)
        word = ((key * factor) & ~_PLACE) | np.uint64(place)
        words[1, place] = word
        counts[word >> shift] += 1
    total, last = 0, 0
    while total < wanted:
        begin = total
        total += counts[last]
        counts[last] = begin
        last += 1
    for place in range(examples):
        word = words[1, place]
        bucket = word >> shift
        if bucket < np.uint64(last):
            words[0, counts[bucket]] = word
            counts[bucket] += 1
    for end in range(1, total):
        word, place = words[0, end], end
        while place > 0 and words[0, place - 1] > word:
            words[0, place] = words[0, place - 1]
            place -= 1
        words[0, place] = word


@compiled
def _exponential(value: np.float32) -> np.float32:
    """exp of a value up to 0, with a relative error of 2e-7: 2^n · e^r with |r| ≤ ln 2 / 2, by a short series."""
    value = _LOWEST if value < _LOWEST else value
    whole = np.floor(value * _PER_DOUBLING + np.float32(0.5))
    rest = value - whole * _LOG_2 - whole * _LOG_2_REST
    series = np.float32(1 / 5040)
    series = series * rest + np.float32(1 / 720)
    series = series * rest + np.float32(1 / 120)
    series = series * rest + np.float32(1 / 24)
    series = series * rest + np.float32(1 / 6)
    series = series * rest + np.float32(1 / 2)
    series = series * rest * rest + rest + np.float32(1)
    raised: np.float32 = series * np.int32((np.int32(whole) + np.int32(127)) << np.int32(23)).view(np.float32)
    return raised


@compiled
def _forwards(layers: Integers, parameters: Vector, room: Vector, bench: Matrix, count: int) -> None:
    """The inputs of each layer, and the output of the last."""
    for number in range(len(layers)):
        inputs, outputs, start, biases, rows_at, errors_at = layers[number]
        weights = parameters[start : start + outputs * inputs].reshape(outputs, inputs)
        rows = room[rows_at : rows_at + count * inputs].reshape(count, inputs)
        out = room[errors_at : errors_at + outputs * count].reshape(outputs, count)
        for row in range(outputs):
            out[row] = parameters[biases + row] if biases >= 0 else np.float32(0)
        multiply(weights, rows.T, out, False, bench)
        if number + 1 < len(layers):
            start = layers[number + 1, ROWS]
            above = room[start : start + count * outputs].reshape(count, outputs)
            for row in range(outputs):
                for place in range(count):
                    value = out[row, place]
                    above[place, row] = np.float32(0) if value < 0 else value


@compiled
def _errors(output: Matrix, labels: Integers, chosen: Integers, rate: np.float32, peaks: Vector, sums: Vector) -> None:
    """Overwrites the outputs with the gradients of the mean loss by them, times −rate."""
    classes, count = output.shape
    for place in range(count):
        peaks[place], sums[place] = output[0, place], np.float32(0)
    for row in range(1, classes):
        for place in range(count):
            peaks[place] = output[row, place] if output[row, place] > peaks[place] else peaks[place]
    for row in range(classes):
        for place in range(count):
            output[row, place] = _exponential(output[row, place] - peaks[place])
            sums[place] += output[row, place]
    share = -rate / np.float32(count)
    for place in range(count):
        sums[place] = share / sums[place]
    for row in range(classes):
        for place in range(count):
            output[row, place] *= sums[place]
    for place in range(count):
        output[labels[chosen[place]], place] -= share


@compiled
def _sum(values: Vector) -> np.float32:
    """Four partial sums, added at the end: no term has to wait for the one before."""
    a = b = c = d = np.float32(0)
    fours = len(values) - len(values) % 4
    for place in range(0, fours, 4):
        a += values[place]
        b += values[place + 1]
        c += values[place + 2]
        d += values[place + 3]
    for place in range(fours, len(values)):
        a += values[place]
    return a + b + (c + d)


@compiled
def _backwards(layers: Integers, parameters: Vector, room: Vector, bench: Matrix, count: int, gradient: Vector) -> None:
    for number in range(len(layers) - 1, -1, -1):
        inputs, outputs, start, biases, rows_at, errors_at = layers[number]
        errors = room[errors_at : errors_at + outputs * count].reshape(outputs, count)
        rows = room[rows_at : rows_at + count * inputs].reshape(count, inputs)
        multiply(errors, rows, gradient[start : start + outputs * inputs].reshape(outputs, inputs), True, bench)
        if biases >= 0:
            for row in range(outputs):
                gradient[biases + row] = _sum(errors[row])
        if number:
            weights = parameters[start : start + outputs * inputs].reshape(outputs, inputs)
            start = layers[number - 1, ERRORS]
            below = room[start : start + inputs * count].reshape(inputs, count)
            multiply(weights.T, errors, below, True, bench)
            for row in range(inputs):
                for place in range(count):
                    below[row, place] = below[row, place] if rows[place, row] > 0 else np.float32(0)


@compiled
def _gather(settings: Any, layers: Integers, data: NDArray[Any], chosen: Integers, room: Vector) -> None:
    """Copies the scaled inputs of these examples into the work space."""
    count, features = len(chosen), layers[0, INPUTS]
    start, factor, offset = layers[0, ROWS], settings.factor, settings.offset
    rows = room[start : start + count * features].reshape(count, features)
    for place in range(count):
        example = chosen[place]
        for feature in range(features):
            rows[place, feature] = np.float32(data[example, feature]) * factor + offset


@compiled
def _first_step(settings: Any, rate: np.float32, start: Vector, delta: Vector, step: Vector) -> None:
    """The first step, from the gradient and weight decay; it is also the update so far."""
    if settings.weight_decay:
        decay = rate * settings.weight_decay
        for place in range(len(delta)):
            delta[place] -= decay * start[place]
    if settings.momentum:
        for place in range(len(delta)):
            step[place] = delta[place]


@compiled
def _later_step(settings: Any, rate: np.float32, paths: Matrix, delta: Vector) -> None:
    """A later step, from the gradient, weight decay, proximal term and momentum; the update sums the steps."""
    now, step, gradient = paths[NOW], paths[STEP], paths[GRADIENT]
    decay, pull, momentum = rate * settings.weight_decay, rate * settings.prox, settings.momentum
    for place in range(len(delta)):
        moved = gradient[place] - decay * now[place] - pull * delta[place]
        if momentum:
            moved += momentum * step[place]
            step[place] = moved
        delta[place] += moved


@compiled
def _descend(
    settings: Any,
    layers: Integers,
    data: NDArray[Any],
    labels: Integers,
    chosen: Integers,
    rate: np.float32,
    start: Vector,
    delta: Vector,
    first: bool,
    room: Vector,
    bench: Matrix,
    paths: Matrix,
    edges: Matrix,
) -> None:
    """One step on the chosen examples."""
    count, now, gradient = len(chosen), start, delta
    if not first:
        now, gradient = paths[NOW], paths[GRADIENT]
        for place in range(len(delta)):
            now[place] = start[place] + delta[place]
    _gather(settings, layers, data, chosen, room)
    _forwards(layers, now, room, bench, count)
    classes, at = layers[-1, OUTPUTS], layers[-1, ERRORS]
    _errors(room[at : at + classes * count].reshape(classes, count), labels, chosen, rate, edges[0], edges[1])
    _backwards(layers, now, room, bench, count, gradient)
    if first:
        _first_step(settings, rate, start, delta, paths[STEP])
    else:
        _later_step(settings, rate, paths, delta)


@compiled
def train(
    settings: Any,
    layers: Integers,
    data: NDArray[Any],
    labels: Integers,
    holdings: Integers,
    tasks: Integers,
    rates: Vector,
    starts: Matrix,
    deltas: Matrix,
    room: Vector,
    bench: Matrix,
    paths: Matrix,
    edges: Matrix,
    chosen: Integers,
    words: NDArray[np.uint64],
    counts: Integers,
) -> bool:
    """Writes the update of each task; returns whether all are finite."""
    one, wild = settings[0], 0
    for number in range(len(rates)):
        key, first, examples, steps, which = tasks[number]
        start, delta = starts[which], deltas[number]
        drawn, epoch = examples, 0
        for step in range(steps):
            if drawn == examples:
                wanted = min(examples, (steps - step) * one.batch)
                _order(one, np.uint64(key), examples, epoch, wanted, words, counts)
                drawn, epoch = 0, epoch + 1
            count = min(one.batch, examples - drawn)
            for place in range(count):
                chosen[place] = holdings[first + np.int64(words[0, drawn + place] & _PLACE)]
            drawn += count
            some, rate = chosen[:count], rates[number]
            _descend(one, layers, data, labels, some, rate, start, delta, step == 0, room, bench, paths, edges)
        for place in range(len(delta)):
            if not steps:
                delta[place] = np.float32(0)
            wild += not abs(delta[place]) <= _LARGEST
    return wild == 0
