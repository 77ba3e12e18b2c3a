"""Who may take part, in books of their own: nobody excluded gets a task, and no decision about a node is ever lost."""

from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from random import Random

from fairlag.errors import StoreError
from fairlag.lab.nodelog import Line, quarantined
from fairlag.runtime.decisions import QUARANTINED, RELEASED, Order, plain

Asked = Callable[[str, bool], None]
"""A person asks for a node's quarantine, or for its release."""


class Governing:
    """What people and the rule of a fleet decided about nodes, and what follows from it."""

    def __init__(self, chance: Random, faults: Counter[str]) -> None:
        self._chance, self._faults = chance, faults
        self.ask: Asked = self._remember
        self.barred: dict[str, str] = {}
        """The nodes in quarantine, with the reasons."""
        self.wanted: dict[str, bool] = {}
        """Per node that somebody decided about: should it be in quarantine in the end?"""
        self.unsure: set[str] = set()
        """The nodes about which a decision was not confirmed, because the disk was full or the process ended."""
        self.changes: list[tuple[str, str, str]] = []
        """Every quarantine and release that is in the log."""
        self._requests: deque[Order] = deque()
        self._noting: tuple[str, str] | None = None

    def decides(self, nodes: list[str]) -> None:
        """A person excludes one of these nodes, or releases one, and may soon ask for the opposite."""
        inside = sorted(self.barred)
        release = bool(inside) and self._chance.random() < 0.5
        node = self._chance.choice(inside if release else nodes)
        self._asks(node, release)
        if self._chance.random() < 0.25:
            self._asks(node, not release)

    def _asks(self, node: str, release: bool) -> None:
        self._faults["node released by hand" if release else "node put into quarantine by hand"] += 1
        try:
            self.ask(node, release)
        except BaseException as error:
            self.unsure.add(node)
            if not isinstance(error, StoreError):
                raise
        else:
            self.wanted[node] = not release

    def _remember(self, node: str, release: bool) -> None:
        self._requests.append(Order(node, "a person", release))

    def orders(self) -> Iterator[Order]:
        """What was asked for, if there is no disk; it survives the process."""
        while self._requests:
            yield self._requests[0]
            with suppress(IndexError):
                self._requests.popleft()

    def noting(self, kind: str, node: str) -> None:
        """A line is about to be written."""
        self._noting = (kind, node) if kind in (QUARANTINED, RELEASED) else None

    def noted(self, kind: str, node: str, client: int | None, why: str) -> None:
        """A line was written."""
        if kind not in (QUARANTINED, RELEASED):
            return
        self.changes.append((kind, node, why))
        self._noting = None
        if kind == RELEASED:
            self.barred.pop(node)
        else:
            self.barred[node] = why
        if "updates were refused" in why:
            self._faults["node put into quarantine by the rule"] += 1
            self.wanted[node] = True

    def reopened(self, lines: list[Line]) -> None:
        """The log is read again: what was written is there, and perhaps the line that was being written."""
        found = [(line.kind, line.node, line.why) for line in lines if line.kind in (QUARANTINED, RELEASED)]
        more = found[len(self.changes) :]
        assert found[: len(self.changes)] == self.changes, "a decision about a node is lost"
        assert [line[:2] for line in more] == [self._noting][: len(more)], "nobody made this decision about a node"
        for _, node, _ in more:
            self.unsure.add(node)
        self.changes, self._noting, self.barred = found, None, quarantined(lines)

    def check_sent(self, node: str) -> None:
        assert plain(node) not in self.barred, f"{node} is in quarantine, but got a task"

    def check_heard(self, node: str) -> None:
        assert plain(node) not in self.barred, f"{node} is in quarantine, but its update was used"

    def wrong(self) -> str:
        """What was asked for and has not happened; empty if there is nothing."""
        for node, excluded in self.wanted.items():
            if node not in self.unsure and (node in self.barred) is not excluded:
                return f"{node} is {'not ' * excluded}in quarantine, but the last decision was different"
        return "a request was not carried out" if self._requests else ""
