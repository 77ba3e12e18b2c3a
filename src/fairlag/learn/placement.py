"""Which client holds which training examples in a run, and which examples models are tested on."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairlag.core.types import Floats, Integers
from fairlag.data.stream import NO_TIMES
from fairlag.learn.behave import flipped

_NONE: Integers = np.empty(0, np.int64)


class Placement(NamedTuple):
    """Which client holds which examples in a run, and which examples are for testing."""

    holdings: Integers
    """The training examples, client after client."""
    bounds: Integers
    """Client c holds holdings[bounds[c] : bounds[c + 1]]."""
    tests: Integers
    """The test examples, those of the sample first."""
    steps: Integers
    """Per client: its own number of local steps; 0 for the recipe's."""
    times: Floats = NO_TIMES
    """When the examples in `holdings` were recorded; empty unless they arrive as recorded."""
    reserved: Integers = _NONE
    """Per client: how many of its last examples are only for its own test; empty if no client tests."""
    flippers: Integers = _NONE
    """The clients that train on wrong labels."""

    @property
    def sizes(self) -> Integers:
        """Per client: how many examples it trains on."""
        return np.diff(self.bounds) - self.reserved if self.reserved.size else np.diff(self.bounds)

    def of(self, client: int) -> Integers:
        """The examples that a client trains on."""
        stop = self.bounds[client + 1] - self.reserved[client] if self.reserved.size else self.bounds[client + 1]
        return self.holdings[self.bounds[client] : stop]

    def tests_of(self, client: int) -> Integers:
        """The examples that a client is tested on."""
        stop = self.bounds[client + 1]
        return self.holdings[stop - self.reserved[client] : stop]

    def told(self, labels: NDArray[Any], classes: int) -> NDArray[Any]:
        """The labels as clients train on them; each example belongs to one client."""
        if not len(self.flippers):
            return labels
        wrong, labels = np.concatenate([self.of(client) for client in self.flippers.tolist()]), labels.copy()
        labels[wrong] = flipped(labels[wrong], classes)
        return labels
