"""Where the noise comes from: a seed in simulations, which repeat; the operating system in deployments, which must not.

Both draw 64-bit words and turn pairs of them into pairs of normal numbers (Box and Muller 1958). Numbers are doubles,
so the noise is a discretised normal distribution with |x| < 8.6: the usual caveat of such noise (Mironov 2012).
"""

import secrets

import numpy as np
from numpy.typing import NDArray

from fairlag.core import seeds
from fairlag.core.mechanism import Draw
from fairlag.core.types import Floats

SEEDED = "seeded"
SYSTEM = "system"
"""The names of the two sources in the record of a run."""


def seeded(seed: int) -> Draw:
    """Noise that depends on the seed and the version alone, so that a run can be repeated. It hides nothing.

    >>> seeded(0)(1, 3).tolist() == seeded(0)(1, 3).tolist() != seeded(0)(2, 3).tolist()
    True
    """
    stream = seeds.key(seed, "noise")
    return lambda version, count: _normal(seeds.subkeys(seeds.subkey(stream, version), count + count % 2), count)


def system(version: int, count: int) -> Floats:
    """Noise from the operating system's cryptographically strong generator (ChaCha20 in Linux): nobody can repeat it.

    >>> system(1, 3).shape
    (3,)
    """
    return _normal(np.frombuffer(secrets.token_bytes(8 * (count + count % 2)), np.uint64), count)


def _normal(words: NDArray[np.uint64], count: int) -> Floats:
    """This many standard normal numbers, from as many random words, or one more."""
    radius, angle = seeds.units(words).reshape(2, -1)
    radius, angle = np.sqrt(-2 * np.log(radius)), 2 * np.pi * angle
    return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:count]
