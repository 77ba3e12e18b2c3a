"""A server, a Flower grid in memory and the link between them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from fairlag.core.server import Server
from fairlag.core.strategy import Strategy
from fairlag.core.types import Ended, Outcome, Report, Row, Stop
from fairlag.core.vector import Layout, published
from fairlag.runtime.flower.gate import Gate
from fairlag.runtime.flower.link import Link, Work
from fairlag.runtime.flower.options import Options
from fairlag.runtime.flower.roster import Roster
from fairlag.runtime.flower.wire import Wire
from fairlag.zoo import buffered_fedavg
from tests.support.flower_grid import FakeGrid, FakeNode
from tests.support.patience import wait_until

LAYOUT = Layout(("weight",), ((3,),))
QUICK = {"poll": 0.005, "look": 0.01, "backoff": 0.05, "longest_backoff": 0.4}


class Bench:
    """A server, a grid and the link between them."""

    def __init__(
        self,
        grid: FakeGrid,
        strategy: Strategy | None = None,
        aggregations: int | None = 10,
        until_time: float | None = None,
        gate: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        """`gate` has the arguments of the gate, besides the roster."""
        self.rows: list[Row] = []
        self.decisions: list[tuple[str, str, int | None, str]] = []
        self.grid = grid
        self.options = Options(**{**QUICK, **options})
        self.roster = Roster([("fast", 2), ("slow", 2)], by_key=self.options.by_key)
        note = lambda *decision: self.decisions.append(decision)  # noqa: E731
        self.gate = Gate(self.roster, queued=self.options.queued, note=note, **(gate or {}))
        self.server = Server(
            strategy or buffered_fedavg(buffer=2),
            clients=4 * self.options.queued,
            parameters=published(np.zeros(3)),
            layout=LAYOUT,
            aggregations=aggregations,
            until_time=until_time,
            group_of=lambda client: self.roster.group_of[client // self.options.queued],
            record=self._record,
        )
        work = Work(lambda task: {"lr": 0.1}, lambda task, told: Report(told.examples, told.steps or 1, loss=told.loss))
        self.link = Link(self.server, grid, Wire(LAYOUT), work, self.roster, self.options, self.gate)

    def _record(self, row: Row) -> None:
        self.rows.append(row)
        self.gate.watch(row)

    def until(self, done: Callable[[], object]) -> Stop | None:
        """Continues until a condition holds, or the run is over."""
        stop = None

        def proceed() -> None:
            nonlocal stop
            stop = self.link.proceed(1, patience=0.01)

        state = lambda: f"{self.server.waits_for}, {self.server.counts}"  # noqa: E731
        wait_until(lambda: done() or stop is not None, "the end", state, proceed)
        return stop

    def to_the_end(self) -> Stop:
        stop = self.until(lambda: False)
        assert stop is not None
        counts = self.server.counts
        assert counts["dispatched"] == sum(count for name, count in counts.items() if name != "dispatched")
        return stop

    def updates(self, client: int) -> int:
        return int(self.server.view.update_counts[client])

    @property
    def ended(self) -> list[tuple[int, Outcome, str]]:
        return [(row.task.client, row.outcome, row.reason) for row in self.rows if isinstance(row, Ended)]


@contextmanager
def benches() -> Iterator[Callable[..., Bench]]:
    """Makes as many benches as a test needs, and closes all of them."""
    made: list[Bench] = []

    def make(grid: FakeGrid, *arguments: Any, **named: Any) -> Bench:
        made.append(Bench(grid, *arguments, **named))
        return made[-1]

    yield make
    for each in made:
        each.grid.stuck.clear()
        each.link.close()


def four(**changes: Any) -> FakeGrid:
    return FakeGrid({100 + each: FakeNode({"partition-id": each}, **changes) for each in range(4)})
