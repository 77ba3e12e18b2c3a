"""The examples that tasks are trained on, as every trainer is given them."""

from typing import Any, NamedTuple

from numpy.typing import NDArray

from fairlag.core.types import Integers


class Examples(NamedTuple):
    """Examples, and how models see them: factor · input + offset."""

    inputs: NDArray[Any]
    """One row per example."""
    labels: NDArray[Any]
    holdings: Integers
    """Which examples clients hold, client after client."""
    factor: float = 1.0
    offset: float = 0.0

    @property
    def scaling(self) -> tuple[float, float] | None:
        """The factor and the offset; None if they change nothing."""
        return None if (self.factor, self.offset) == (1, 0) else (self.factor, self.offset)
