"""Counts how tasks and updates ended, and passes each event to the run's record."""

from collections import Counter
from collections.abc import Sequence

from fairlag.core.ledger import Ledger
from fairlag.core.state import State, take
from fairlag.core.types import Dispatch, Ended, Outcome, Presence, Record
from fairlag.core.versions import Versions


class TaskCounter:
    """Counts how tasks end and why updates are refused. The ledger counts the aggregated ones."""

    def __init__(self, ledger: Ledger, versions: Versions, record: Record | None) -> None:
        """`record` gets each task that ended without being aggregated, and each client that joins or leaves."""
        self.record = record
        self.refusals: Counter[str] = Counter()
        self.last_loss = ""
        self._ledger, self._versions = ledger, versions
        self._ended: Counter[Outcome] = Counter()

    def end(self, task: Dispatch, outcome: Outcome, reason: str) -> None:
        """A task ends without being aggregated, and releases its version."""
        self._versions.release([task.version])
        self._ended[outcome] += 1
        if outcome is Outcome.LOST:
            self.last_loss = reason
        elif outcome is Outcome.REFUSED:
            self.refusals[reason] += 1
        if self.record is not None:
            self.record(Ended(task, self._ledger.time, outcome, reason))

    def attend(self, clients: Sequence[int], *, present: bool) -> None:
        """Clients join or leave."""
        if self.record is not None and len(clients):
            self.record(Presence(self._ledger.time, self._ledger.version, clients, present))

    def counts(self, dispatched: int) -> dict[str, int]:
        """How many tasks were dispatched, and how they ended: the later entries add up to the first."""
        ledger = self._ledger
        return {
            "dispatched": dispatched,
            **{outcome.value: self._count(outcome) for outcome in Outcome},
            "running": len(ledger.running),
            "buffered": len(ledger.buffer),
        }

    def state(self) -> State:
        """All counts."""
        return {
            "last_loss": self.last_loss,
            "refusals": list(self.refusals),
            "refused": list(self.refusals.values()),
            "ended": [self._count(outcome) for outcome in Outcome],
        }

    def restore(self, state: State) -> None:
        """Continues from these counts."""
        self.last_loss = take(state, "last_loss", str)
        self.refusals.clear()
        self.refusals.update(dict(zip(take(state, "refusals", list), take(state, "refused", list), strict=True)))
        self._ended = Counter(dict(zip(Outcome, take(state, "ended", list), strict=True)))

    def _count(self, outcome: Outcome) -> int:
        return self._ledger.received if outcome is Outcome.AGGREGATED else self._ended[outcome]
