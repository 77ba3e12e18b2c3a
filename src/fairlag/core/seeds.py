"""Random numbers by address: the same (seed, purpose, client, ordinal) always gives the same draw.

A draw is a hash of its address (the finaliser of SplitMix64), so a stream has no state: a million clients cost
nothing until they draw, any draw can be repeated after a crash, and adding a client or a strategy changes no
other client's draws.
"""

from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

_MASK = 0xFFFF_FFFF_FFFF_FFFF
GOLDEN = 0x9E37_79B9_7F4A_7C15
_GOLDEN = np.uint64(GOLDEN)
_SHIFTS = np.array([30, 27, 31], np.uint64)
_FACTORS = np.array([0xBF58_476D_1CE4_E5B9, 0x94D0_49BB_1331_11EB], np.uint64)


def key(*address: int | str) -> int:
    """A 64-bit key for an address such as (seed, "delay", "slow").

    >>> key(0, "delay", "slow") == key(0, "delay", "slow")
    True
    >>> key(0, "delay", "slow") == key(0, "delay", "fast")
    False
    """
    return int.from_bytes(blake2b(repr(address).encode(), digest_size=8).digest(), "little")


def subkey(parent: int, index: int) -> int:
    """The key of the index-th member below a key: a client of a group, a task of a client.

    >>> subkey(7, 0) != subkey(7, 1)
    True
    """
    return _mix((parent + index * GOLDEN) & _MASK)


def subkeys(parent: int | NDArray[np.uint64], count: int, start: int = 0) -> NDArray[np.uint64]:
    """The keys of the members start … start + count − 1 below a key at once, or below each key of a column.

    >>> subkeys(7, 2).tolist() == [subkey(7, 0), subkey(7, 1)]
    True
    >>> subkeys(np.array([[7], [8]], np.uint64), 1, start=5).tolist() == [[subkey(7, 5)], [subkey(8, 5)]]
    True
    """
    members = np.arange(start, start + count, dtype=np.uint64) * _GOLDEN
    return _mixed(np.asarray(parent, np.uint64) + members)


def subkeys_at(parents: NDArray[np.uint64], indices: NDArray[np.int64]) -> NDArray[np.uint64]:
    """The key of one member below each of these keys, element by element, equal to those of :func:`subkey`.

    >>> subkeys_at(np.array([7, 8], np.uint64), np.array([0, 5])).tolist() == [subkey(7, 0), subkey(8, 5)]
    True
    """
    return _mixed(parents + indices.astype(np.uint64) * _GOLDEN)


def uniform(stream: int, ordinal: int) -> float:
    """The ordinal-th number of a stream, uniform on the open interval (0, 1).

    >>> 0 < uniform(key(0), 0) < 1
    True
    """
    word = _mix((stream + ordinal * GOLDEN) & _MASK)
    return ((word >> 12) + 0.5) * 2.0**-52


def uniforms(stream: int, start: int, count: int) -> NDArray[np.float64]:
    """Numbers start … start + count − 1 of a stream at once, equal to those of :func:`uniform`.

    >>> list(uniforms(5, 3, 2)) == [uniform(5, 3), uniform(5, 4)]
    True
    """
    return units(subkeys(stream, count, start))


def uniforms_at(streams: NDArray[np.uint64], ordinals: NDArray[np.int64]) -> NDArray[np.float64]:
    """The number at each ordinal of each stream, element by element, equal to those of :func:`uniform`.

    >>> list(uniforms_at(np.array([5, 6], np.uint64), np.array([3, 4]))) == [uniform(5, 3), uniform(6, 4)]
    True
    """
    return units(subkeys_at(streams, ordinals))


def first_uniforms(parent: int, count: int) -> NDArray[np.float64]:
    """The first number of each of the streams ``subkey(parent, 0 … count − 1)``.

    >>> list(first_uniforms(5, 2)) == [uniform(subkey(5, 0), 0), uniform(subkey(5, 1), 0)]
    True
    """
    return units(_mixed(subkeys(parent, count)))


def units(words: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Random words as numbers, uniform on the open interval (0, 1).

    >>> units(np.array([0, 2**63, 2**64 - 1], np.uint64)).round(3).tolist()
    [0.0, 0.5, 1.0]
    """
    return ((words >> 12).astype(np.float64) + 0.5) * 2.0**-52


def _mix(word: int) -> int:
    word = (word ^ (word >> 30)) * 0xBF58_476D_1CE4_E5B9 & _MASK
    word = (word ^ (word >> 27)) * 0x94D0_49BB_1331_11EB & _MASK
    return word ^ (word >> 31)


def _mixed(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The same arithmetic for a new array, in place: uint64 products wrap around without a mask."""
    words ^= words >> _SHIFTS[0]
    words *= _FACTORS[0]
    words ^= words >> _SHIFTS[1]
    words *= _FACTORS[1]
    words ^= words >> _SHIFTS[2]
    return words
