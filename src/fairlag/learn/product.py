"""Matrix products, compiled: sums stay in registers, in one fixed order, with one rounding per term.

The result is the same on every processor, which libraries do not promise. For the matrices of small models it is as
fast as a library, which spends most of that time before it begins to multiply.
"""

from collections.abc import Callable, Iterator
from typing import Any, cast

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from fairlag.core.vector import Matrix
from fairlag.jit import compiled

_VECTORS, _LANES = 2, 8
WIDTH = _VECTORS * _LANES
"""How many columns are computed at once."""
DEPTH = 256
"""How many rows of a panel are processed before the rest: a panel of this depth fits into the first cache."""
_NEAR = 1 << 12
"""The largest matrix, in numbers, that is multiplied in place; larger ones are packed, panel by panel."""

Tile = Callable[[Matrix, Matrix, Matrix, int, int, bool], None]

_NUMBER, _INDEX = ir.FloatType(), ir.IntType(64)
_VECTOR = ir.VectorType(_NUMBER, _LANES)
_BYTES = ir.IntType(8).as_pointer()
_FUSED = f"llvm.fma.v{_LANES}f32"


def _tile(height: int) -> Tile:
    """A function that adds `height` rows of `one`, from `row`, times a panel to WIDTH columns of `out`, from `place`.

    If `fresh`, it overwrites `out` instead of adding. A panel has at least one row.
    """

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        # All but this is llvmlite's public interface. Numba documents no way to the data and strides of an array; if
        # `make_array` goes, nothing here compiles, which tests/test_learn_product.py would notice.
        kinds = zip(signature.args[:3], arguments[:3], strict=True)
        one, panel, out = (context.make_array(kind)(context, builder, value) for kind, value in kinds)
        row, place, fresh = arguments[3:]
        zero = ir.Constant(_VECTOR, [0.0] * _LANES)
        pointers = list(_places(builder, out, row, place, height))
        before = [builder.select(fresh, zero, builder.load(each, align=4)) for each in pointers]
        start, body, after = builder.block, builder.append_basic_block(), builder.append_basic_block()
        builder.branch(body)
        builder.position_at_end(body)
        index, *sums = (builder.phi(value.type) for value in (_INDEX(0), *before))
        right = [builder.load(each, align=4) for each in _places(builder, panel, index, _INDEX(0), 1)]
        further = [builder.add(index, _INDEX(1))]
        for number, held in enumerate(sums):
            if number % _VECTORS == 0:
                where = _where(builder, one, builder.add(row, _INDEX(number // _VECTORS)), index)
                left = _spread(builder, builder.load(where, align=4))
            further.append(_fused(builder, left, right[number % _VECTORS], held))
        for value, first, then in zip((index, *sums), (_INDEX(0), *before), further, strict=True):
            value.add_incoming(first, start)
            value.add_incoming(then, body)
        builder.cbranch(builder.icmp_signed("<", further[0], builder.extract_value(one.shape, 1)), body, after)
        builder.position_at_end(after)
        for pointer, total in zip(pointers, further[1:], strict=True):
            builder.store(total, pointer, align=4)
        return context.get_dummy_value()

    def tile(typing: Any, one: Any, panel: Any, out: Any, row: Any, place: Any, fresh: Any) -> Any:
        return types.void(one, panel, out, types.int64, types.int64, types.boolean), emit

    return cast(Tile, intrinsic(tile))


def _places(builder: Any, array: Any, row: Any, place: Any, height: int) -> Iterator[Any]:
    """The pointers to a tile's vectors in an array, row after row; its rows are contiguous."""
    for number in range(height):
        start = builder.gep(_where(builder, array, builder.add(row, _INDEX(number)), _INDEX(0)), [place])
        for at in range(0, WIDTH, _LANES):
            yield builder.bitcast(builder.gep(start, [_INDEX(at)]), _VECTOR.as_pointer())


def _where(builder: Any, array: Any, row: Any, place: Any) -> Any:
    """The pointer to an entry."""
    rows, places = (builder.extract_value(array.strides, axis) for axis in range(2))
    offset = builder.add(builder.mul(row, rows), builder.mul(place, places))
    return builder.bitcast(builder.gep(builder.bitcast(array.data, _BYTES), [offset]), _NUMBER.as_pointer())


def _spread(builder: Any, number: Any) -> Any:
    """A vector with this number in every lane."""
    kind, nothing = ir.IntType(32), ir.Constant(_VECTOR, ir.Undefined)
    alone = builder.insert_element(nothing, number, kind(0))
    return builder.shuffle_vector(alone, nothing, ir.Constant(ir.VectorType(kind, _LANES), [0] * _LANES))


def _fused(builder: Any, one: Any, other: Any, rest: Any) -> Any:
    """one · other + rest, rounded once."""
    function = builder.module.declare_intrinsic(_FUSED, (), ir.FunctionType(_VECTOR, [_VECTOR] * 3))
    return builder.call(function, [one, other, rest])


_six, _four, _two, _one = (_tile(height) for height in (6, 4, 2, 1))  # six rows of sums fill the registers


@compiled
def _tiles(one: Matrix, panel: Matrix, out: Matrix, place: int, fresh: bool) -> None:
    """All rows of a product, in a panel's columns."""
    rows, row = one.shape[0], 0
    while row + 6 <= rows:
        _six(one, panel, out, row, place, fresh)
        row += 6
    if row + 4 <= rows:
        _four(one, panel, out, row, place, fresh)
        row += 4
    if row + 2 <= rows:
        _two(one, panel, out, row, place, fresh)
        row += 2
    if row < rows:
        _one(one, panel, out, row, place, fresh)


@compiled
def _pack(part: Matrix, panel: Matrix) -> None:
    """Copies columns side by side into a panel, padded with zeros if they are fewer."""
    depth, width = part.shape
    if width < WIDTH:
        panel[:depth] = np.float32(0)
    if part.strides[0] < part.strides[1]:
        for lane in range(width):
            for row in range(depth):
                panel[row, lane] = part[row, lane]
    elif width == WIDTH:  # with a known length, the compiler unrolls the inner loop
        for row in range(depth):
            for lane in range(WIDTH):
                panel[row, lane] = part[row, lane]
    else:
        for row in range(depth):
            for lane in range(width):
                panel[row, lane] = part[row, lane]


@compiled
def multiply(one: Matrix, other: Matrix, out: Matrix, fresh: bool, bench: Matrix) -> None:
    """Writes the product into `out`, or adds it if not `fresh`; `bench` has DEPTH + len(out) rows of WIDTH."""
    rows, places = out.shape
    panel, edge = bench[:DEPTH], bench[DEPTH:]
    near = other.strides[1] == other.itemsize and other.size <= _NEAR
    for place in range(0, places, WIDTH):
        width = min(WIDTH, places - place)
        for start in range(0, other.shape[0], DEPTH):
            depth = min(DEPTH, other.shape[0] - start)
            part = other[start : start + depth, place : place + width]
            some, begins = one[:, start : start + depth], fresh and start == 0
            if width == WIDTH and near:
                _tiles(some, part, out, place, begins)
                continue
            block = panel[:depth, :WIDTH]
            _pack(part, block)
            if width == WIDTH:
                _tiles(some, block, out, place, begins)
                continue
            for row in range(rows):
                for lane in range(width):
                    edge[row, lane] = out[row, place + lane]
            _tiles(some, block, edge, 0, begins)
            for row in range(rows):
                for lane in range(width):
                    out[row, place + lane] = edge[row, lane]
