"""What rules may read: the current state of the run and every client's history."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from fairlag.core.accounts import Accounts
from fairlag.core.ledger import Ledger
from fairlag.core.types import Dispatch, Floats, Integers
from fairlag.core.vector import EMPTY, Vector
from fairlag.core.versions import Versions
from fairlag.errors import StrategyError

Number = TypeVar("Number", np.int64, np.float64)
Reference = Callable[[int, Vector], Vector]
"""From a version and its parameters to the update that the server itself would send."""


class View:
    """What rules may read: the current state of the run and every client's history, read-only.

    >>> ledger = Ledger(clients=2)
    >>> ledger.join(0), ledger.join(1)
    (True, True)
    >>> view = View(ledger)
    >>> view.n, view.version, view.update_counts.tolist()
    (2, 0, [0, 0])
    """

    __slots__ = ("_hidden", "_ledger", "_reference", "_versions")

    def __init__(
        self,
        ledger: Ledger,
        versions: Versions | None = None,
        hidden: int = 0,
        reference: "Reference | None" = None,
    ) -> None:
        """`hidden` is how many numbers at the end of a version rules do not see, such as statistics of the model.

        `reference` trains a version on examples of the server's own, for rules that compare updates with that step.
        """
        self._reference = reference
        self._ledger = ledger
        self._versions = versions or Versions(EMPTY)
        self._hidden = hidden

    def parameters(self, version: int) -> Vector:
        """The parameters of the newest version, or of one that a running or buffered task was trained from.

        Statistics, such as BatchNorm's running mean and variance, are not included.
        """
        return self._shown(self._versions[version])

    @property
    def reference(self) -> Vector:
        """The step that the server makes from the newest version on its own trusted examples, without statistics."""
        if self._reference is None:
            raise StrategyError(
                "a rule reads view.reference, but the server has no examples of its own: give `trusted` in [data]"
            )
        return self._shown(self._reference(self.version, self._versions.newest))

    def _shown(self, whole: Vector) -> Vector:
        """A version or a step without the numbers that rules do not see."""
        return whole[: -self._hidden] if self._hidden else whole

    @property
    def time(self) -> float:
        """The time of the current event."""
        return self._ledger.time

    @property
    def version(self) -> int:
        """The newest version."""
        return self._ledger.version

    @property
    def renewed(self) -> float:
        """When the newest version was made."""
        return self._ledger.renewed

    @property
    def n(self) -> int:
        """How many clients the server has ever seen."""
        return self._ledger.clients

    @property
    def running(self) -> int:
        """How many tasks are running."""
        return len(self._ledger.running)

    @property
    def buffered(self) -> int:
        """How many updates wait in the buffer."""
        return len(self._ledger.buffer)

    @property
    def senders(self) -> list[int]:
        """The clients of the buffered updates, in order of arrival."""
        return [task.client for task in self._ledger.buffer]

    @property
    def woke(self) -> bool:
        """Is the current event a Woke?"""
        return self._ledger.woke

    @property
    def target(self) -> int:
        """How many updates complete the round; 0 if selection does not work in rounds."""
        return self._ledger.round.target

    @property
    def until(self) -> float:
        """The deadline of the round; infinite if it has none."""
        return self._ledger.round.until

    @property
    def round(self) -> int:
        """Which round it is, for selections whose rounds make several versions; otherwise 0."""
        return self._ledger.round.number

    @property
    def awaited(self) -> int:
        """How many present clients have no update in the buffer, for rules declared to await clients."""
        if self._ledger.awaited is None:
            raise StrategyError("a rule read view.awaited but is not declared to: give the trigger awaits=True")
        return self._ledger.awaited.count

    def is_present(self, client: int) -> bool:
        """Is the client present?"""
        return self._ledger.is_present(client)

    @property
    def restarted(self) -> Sequence[int]:
        """The clients whose tasks were cancelled or lost, and that started a new one in this round."""
        return self._ledger.round.restarted

    @property
    def tasks(self) -> Mapping[int, Dispatch]:
        """The running tasks by number, in order of dispatch."""
        return MappingProxyType(self._ledger.running)

    @property
    def present(self) -> int:
        """How many clients are present."""
        return self._ledger.there

    @property
    def slowest(self) -> float:
        """The longest mean task duration among the running clients, for rules declared to read profiles."""
        self._check_profiles("slowest")
        return self._ledger.slowest()

    @property
    def rate(self) -> float:
        """The sum of 1 / mean task duration over all clients with updates, for rules declared to read profiles."""
        self._check_profiles("rate")
        return self._ledger.rate

    @property
    def contributed(self) -> Integers:
        """Per client: the version that its last admitted update was trained from; −1 before its first."""
        return self._known(self._ledger.integers["contributed"])

    @property
    def update_counts(self) -> Integers:
        """Per client: how many of its updates were aggregated."""
        return self._known(self._ledger.integers["updates"])

    @property
    def staleness_sums(self) -> Integers:
        """Per client: the sum of the staleness of its aggregated updates."""
        return self._known(self._ledger.integers["staleness"])

    @property
    def weight_sums(self) -> Floats:
        """Per client: the sum of its parts of all versions; its share of the total is its influence.

        If an update acts in one version, its part of that version is its weight. If it is kept, it has a part of every
        version until it is replaced.
        """
        return self._known(self._ledger.weights())

    @property
    def parts(self) -> Floats:
        """Per client: its current part of each version, in the units of a reduction that keeps updates."""
        return self._known(self._ledger.reals["part"])

    @property
    def examples(self) -> Integers:
        """Per client: its training examples, as last reported; 0 if it was never seen."""
        return self._known(self._ledger.integers["examples"])

    @property
    def total_examples(self) -> int:
        """The training examples of all clients in total."""
        return self._ledger.examples

    @property
    def losses(self) -> Floats:
        """Per client: the loss that it reported last; 0 before its first report."""
        return self._known(self._ledger.reals["loss"])

    @property
    def earned(self) -> Floats:
        """Per client: what it was entitled to so far (one unit per version in total), for rules that read accounts."""
        return self.weight_sums + self._known(self._accounts("earned").balances)

    def balance(self, clients: Integers) -> Floats:
        """What each of the clients was entitled to and has not spent, for rules that read accounts."""
        return np.array([*map(self._accounts("balance").held, clients.tolist())])

    def shares(self, clients: Integers) -> Floats:
        """Each client's share of all known training examples: n_i / N."""
        shares: Floats = self._ledger.integers["examples"][clients] / self._ledger.examples
        return shares

    def mean_staleness(self, clients: Integers, window: int | None = None) -> Floats:
        """The mean staleness of all of a client's aggregated updates, or of its last `window`."""
        if window is None:
            return self._ledger.reals["mean"][clients]
        counts = self._ledger.integers["updates"][clients]
        ring, ago = self._ledger.recent, np.arange(window)
        if window > ring.shape[1]:
            raise StrategyError(
                f"a rule reads a window of {window} updates but the ledger keeps {ring.shape[1]}: "
                "decorate it with @fairlag.rules.reads_window(…)"
            )
        latest = ring[clients[:, None], (counts[:, None] - 1 - ago) % ring.shape[1]]
        means: Floats = latest.sum(axis=1, where=ago < counts[:, None]) / np.minimum(counts, window)
        return means

    def mean_duration(self, clients: Integers) -> Floats:
        """The mean duration of a client's tasks whose updates were aggregated; NaN before the first."""
        with np.errstate(invalid="ignore"):
            return self._ledger.reals["busy"][clients] / self._ledger.integers["updates"][clients]

    def mean_duration_of(self, client: int) -> float:
        """The mean duration of one client's tasks whose updates were aggregated; 0 before the first."""
        return self._ledger.usual(client)

    def mean_gap(self, clients: Integers) -> Floats:
        """The mean number of updates that the server merged between two of a client's updates, the second included.

        A client's gaps add up to the position of its last update, so no list of them is needed.
        """
        columns = self._ledger.integers
        return columns["position"][clients] / columns["updates"][clients]

    def mean_rounds(self, clients: Integers) -> Floats:
        """The mean number of versions from one that a client took part in to its next, before the one being made.

        1 before its second; for rules declared to read intervals.
        """
        if self._ledger.intervals is None:
            raise StrategyError(
                "a rule read view.mean_rounds but is not declared to: decorate it with "
                "@fairlag.rules.reads_intervals(…)"
            )
        return np.array([*map(self._ledger.intervals.mean, clients.tolist())])

    def mean_interval(self, clients: Integers) -> Floats:
        """The mean time between a client's updates, from its first task on: 1 / its observed rate; never 0."""
        columns = self._ledger.reals
        spans = columns["arrival"][clients] - columns["since"][clients]
        return np.maximum(spans / self._ledger.integers["updates"][clients], np.finfo(np.float64).tiny)

    def _check_profiles(self, what: str) -> None:
        if not self._ledger.profiles:
            raise StrategyError(
                f"a rule read view.{what} but is not declared to: decorate it with @fairlag.rules.reads_profiles, "
                "or give the trigger profiles=True"
            )

    def _accounts(self, what: str) -> Accounts:
        if self._ledger.accounts is None:
            raise StrategyError(
                f"a rule read view.{what} but is not declared to: decorate it with @fairlag.rules.reads_account()"
            )
        return self._ledger.accounts

    def _known(self, column: NDArray[Number]) -> NDArray[Number]:
        rows = column[: self._ledger.rows]
        rows.flags.writeable = False
        return rows
