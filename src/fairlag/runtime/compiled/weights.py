"""The weights of many buffers at once: computed by the rules themselves, on a ledger with one row per update.

Rules that treat their buffer as a whole, such as normalising, are implemented here for each buffer.
"""

import operator
from functools import reduce

import numpy as np

from fairlag.core.buffer import Buffer
from fairlag.core.durations import INSTANT
from fairlag.core.intervals import Intervals
from fairlag.core.ledger import Ledger
from fairlag.core.types import Floats, Integers
from fairlag.core.view import View
from fairlag.errors import FairlagError
from fairlag.fleet.clients import Fleet
from fairlag.rules import weigh
from fairlag.rules.rule import provenance, traits
from fairlag.runtime.compiled import layout
from fairlag.runtime.compiled.books import Books, importance
from fairlag.runtime.compiled.spec import LoopSpec
from fairlag.runtime.compiled.sums import exact_sums, make_sums_ready


class Fallback(FairlagError):
    """Something came up that only the reference can handle."""


class _Buffers(Buffer):
    """Buffers of the same size, stacked: what is an array for one buffer is a matrix here."""

    __slots__ = ("_examples", "_late", "_size")

    def __init__(self, rows: Integers, late: Integers, examples: Integers) -> None:
        super().__init__((), [], [])
        self._size = int(rows.shape[-1])
        self._clients = rows
        self._late = late
        self._examples = examples

    def __len__(self) -> int:
        return self._size

    @property
    def staleness(self) -> Integers:
        return self._late

    @property
    def examples(self) -> Integers:
        return self._examples


class Scale:
    """Weighs the updates of a page; the page's arrays are columns of its own ledger."""

    def __init__(self, spec: LoopSpec, fleet: Fleet, *, versions: int, room: int, examples: Integers) -> None:
        """Arrays for a number of versions and updates, in a fleet whose clients have these numbers of examples."""
        make_sums_ready()
        spent = spec.spending
        self.books = None if spent is None else Books(spent, importance(spent.terms, fleet, examples))
        """The accounts, if updates are weighed by account."""
        self._rule = spec.weigh
        longest = traits(spec.weigh).intervals
        self._intervals = Intervals(longest) if longest else None
        self._merged = 0
        """How many versions were weighed before."""
        self._window = spec.window
        self._examples = examples
        self._rows = np.arange(room)
        self.merged: Integers = np.empty((layout.MERGED, room), np.int64)
        self.moments: Floats = np.empty((layout.MOMENTS, room))
        self.made: Floats = np.empty((versions, 2))
        self.pages = self.merged, self.moments
        self._ledger = ledger = Ledger(clients=room)
        self._view = View(ledger)
        self._recently = Ledger(clients=room if spec.window else 0)
        """A ledger in which each client has only the updates of the window."""
        ledger.clients = self._recently.clients = len(examples)
        ledger.examples = int(examples.sum())
        ledger.integers["updates"], ledger.integers["position"] = (
            self.merged[layout.UPDATES],
            self.merged[layout.POSITION],
        )
        for name, row in (("busy", layout.BUSY), ("since", layout.SINCE), ("arrival", layout.ARRIVED)):
            ledger.reals[name] = self.moments[row]

    def weights(self, versions: int, size: int) -> Floats:
        """The weights of the first `versions` versions, one row each, of `size` updates each."""
        count = versions * size
        rows = self._rows[:count].reshape(versions, size)
        self._senders = self.merged[layout.SENDER, :count].reshape(versions, size)
        if self.books is not None:
            return self.books.weights(self._senders)
        updates = self.merged[layout.UPDATES, :count]
        self._ledger.reals["mean"][:count] = self.merged[layout.STALENESS, :count] / updates
        if self._window:
            recent = self.merged[layout.RECENT, :count] / np.minimum(updates, self._window)
            self._recently.reals["mean"][:count] = recent
        examples = self._ledger.integers["examples"][:count]
        self._examples.take(self.merged[layout.SENDER, :count], out=examples)
        if self._intervals is not None:
            self._rounds = self._counted(self._intervals, self._senders)
        buffers = _Buffers(rows, self.merged[layout.LATE, :count].reshape(rows.shape), examples.reshape(rows.shape))
        weights = self._whole(self._weigh(self._rule, buffers), buffers)
        if not np.isfinite(weights).all():
            raise Fallback("a weight is not finite")
        if weights.min(initial=0) < 0 or not weights.any(axis=1).all():
            raise Fallback("weights may not add up to more than 0")
        return weights

    def _counted(self, intervals: Intervals, senders: Integers) -> Floats:
        """Per update: the mean number of versions between those that its sender took part in."""
        found = np.empty(senders.shape)
        for row, clients in enumerate(senders.tolist()):
            intervals.merge(self._merged, clients)
            found[row] = [*map(intervals.mean, clients)]
            self._merged += 1
        return found

    def _weigh(self, rule: weigh.Weigh, buffers: _Buffers) -> Floats:
        made = provenance(rule)
        if rule is weigh.by_slowness:
            rates = self.made[: len(buffers.clients), layout.RATE, None]
            return np.maximum(self._view.mean_duration(buffers.clients), INSTANT) * rates
        if rule is weigh.per_client:
            return np.array([rule(_Buffers(senders, senders, senders), self._view) for senders in self._senders])
        if rule is weigh.by_examples:
            return buffers.examples / exact_sums(buffers.examples.astype(np.float64))[:, None]
        if made is None:
            return rule(buffers, self._view)
        if made.make is weigh.mean_rounds:
            return self._rounds / self._view.n
        if made.make is weigh.mean_staleness and made.arguments["window"] is not None:
            return weigh.mean_staleness(scale=made.arguments["scale"])(buffers, View(self._recently))
        if made.make is weigh.times:
            return reduce(operator.mul, [self._weigh(each, buffers) for each in made.arguments["rules"]])
        if made.make is weigh.divided:
            return self._weigh(made.arguments["rule"], buffers) / float(made.arguments["by"])
        if made.make is weigh.normalised:
            return self._normalised(self._weigh(made.arguments["rule"], buffers), buffers)
        if made.make is weigh.capped:
            return self._capped(self._weigh(made.arguments["rule"], buffers), made.arguments["cap"], buffers)
        return rule(buffers, self._view)

    def _normalised(self, weights: Floats, buffers: _Buffers) -> Floats:
        weights = self._whole(weights, buffers)
        totals = exact_sums(weights)
        if not totals.all():
            raise Fallback("weights add up to 0")
        weights /= totals[:, None]
        return weights

    def _capped(self, weights: Floats, cap: float | None, buffers: _Buffers) -> Floats:
        if cap is None:
            return weights
        weights = self._whole(weights, buffers)
        totals = exact_sums(weights)
        over = totals > cap
        weights[over] *= (cap / totals[over])[:, None]
        return weights

    def _whole(self, weights: Floats, buffers: _Buffers) -> Floats:
        """One weight per update, in a new array: a rule may have returned one value for all buffers."""
        return np.array(np.broadcast_to(weights, buffers.clients.shape), order="C")
