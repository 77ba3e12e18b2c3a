"""The server's buffer of masked updates: each is a row of words, and with a keeper they become one step."""

from collections.abc import Callable, Sequence
from math import fsum

import numpy as np

from fairlag.core.state import Savable, State, take
from fairlag.core.types import Dispatch, Floats
from fairlag.core.vector import Vector
from fairlag.errors import InputError, KeeperError, RefusedError
from fairlag.privacy.fixed import Words, whole_weights
from fairlag.privacy.secure.client import Masked
from fairlag.privacy.secure.seal import Sealed
from fairlag.privacy.secure.server import Ask, mean_of

_SEAL = Sealed.SIZE // 8
"""How many words a sealed seed has."""


def row(masked: Masked) -> Words:
    """A masked update as one row of words: its coordinates, then its sealed seed."""
    return np.concatenate([masked.vector, np.frombuffer(bytes(masked.sealed), "<u8")])


def masked(row: Words) -> Masked:
    """The masked update that a row holds: the inverse of `row`.

    >>> masked(np.zeros(650 + _SEAL, np.uint64)).vector.size
    650
    """
    return Masked(row[:-_SEAL], Sealed.read(row[-_SEAL:].astype("<u8").tobytes()))


class KeeperSum:
    """Adds up masked updates with the help of a keeper: a `fairlag.core.secure.SecureSum`.

    An update that the keeper refuses on its own, because its seal is wrong, gets the weight 0, and the keeper is asked
    for the others: a client must not be able to spoil every buffer that it is in.
    """

    def __init__(
        self,
        run: str,
        size: int,
        ask: Ask,
        *,
        used: Savable | None = None,
        warn: Callable[[str], None] = lambda sentence: None,
    ) -> None:
        """For updates of `size` numbers. `used` is what a keeper in this process must remember; `warn` is told of
        updates that the keeper refuses."""
        self.words, self.run = size + _SEAL, run
        self._ask, self._used, self._warn = ask, used, warn

    def objection(self, row: Words, task: Dispatch) -> str | None:
        """Why the row cannot be the update of this task, as far as its seal says; None if it can."""
        sealed = masked(row).sealed
        right = (sealed.task, sealed.version) == (task.task, task.version)
        return None if right else "it is sealed for another task or version"

    def summed(self, tasks: Sequence[Dispatch], rows: Words, weights: Floats) -> tuple[Vector, Floats] | str:
        """The step Σ_j α_j Δ_j and the weights, 0 for updates that were left out; or why there is no step.

        The keeper takes weights in units of 2^−24 of their sum: as exact as the float32 of a sum in the clear.
        """
        updates, left = [masked(each) for each in rows], list(range(len(rows)))
        while True:
            try:
                whole = whole_weights(weights[left].tolist())
                mean = mean_of(self.run, [updates[place] for place in left], whole, self._ask)
            except RefusedError as reason:
                if reason.update is None:
                    return str(reason)
                self._warn(f"the update of client {tasks[left[reason.update]].client} is left out: {reason}")
                del left[reason.update]
            except (InputError, KeeperError) as reason:
                return str(reason)
            else:
                merged = np.zeros_like(weights)
                merged[left] = weights[left]
                return scaled(mean, merged), merged

    def state(self) -> State:
        """What a keeper in this process must remember."""
        return {} if self._used is None else {"used": self._used.state()}

    def restore(self, state: State) -> None:
        """Replaces it."""
        if self._used is not None:
            self._used.restore(take(state, "used", dict))


def scaled(mean: Vector, weights: Floats) -> Vector:
    """The step for weights that do not add up to 1.

    >>> scaled(np.ones(1, np.float32), np.array([0.25, 0.5])).tolist()
    [0.75]
    """
    return np.multiply(mean, fsum(weights.tolist()), dtype=np.float32)
