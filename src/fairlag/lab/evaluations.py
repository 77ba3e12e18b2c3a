"""Evaluates versions during a run, and stores their scores."""

from collections.abc import Iterator
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from fairlag.core.state import State, take
from fairlag.core.vector import Vector
from fairlag.execute import Evaluating
from fairlag.lab.events import Evaluated
from fairlag.lab.resources import Scoring
from fairlag.lab.store import Score, Store
from fairlag.text.scored import ACCURACY, Scored

if TYPE_CHECKING:
    from fairlag.learn.evaluation import Asked
    from fairlag.learn.task import ScoreSums, Task


MOST_PENDING = 2
"""The most versions that wait to be evaluated in real time; versions that come meanwhile get no score."""


_NOT_BY_CLIENTS = -1


class _Pending(NamedTuple):
    """A version that is being evaluated on the first `stop` test examples, or on clients' own."""

    version: int
    time: float
    stop: int
    parameters: Vector
    steps: int = _NOT_BY_CLIENTS
    """On clients' own test examples: after this many local steps of each."""


class Evaluations:
    """Sends versions to an evaluator and stores their scores, in the same order."""

    def __init__(
        self,
        store: Store,
        evaluator: Evaluating | None,
        scoring: Scoring | None,
        *,
        every: int,
        most_pending: float = inf,
    ) -> None:
        """Every `every`-th version is evaluated, on a sample; none without an evaluator.

        A version is skipped if `most_pending` others are still being evaluated, because each takes as much memory as
        the model.
        """
        self._store = store
        self._evaluator = evaluator
        self._scoring = scoring or Scoring(0, 0, {})
        self._every = every
        self._most_pending = most_pending
        self._pending: list[_Pending] = []
        self._scored = 0
        """The last version that was, or is being, evaluated for the curve of the leading metric."""
        self.scores: dict[str, float] = {}
        """The last values of the leading metric by name, as in `Progress`."""

    @property
    def lead(self) -> Scored:
        """The leading metric."""
        return ACCURACY if self._scoring.task is None else self._task.metrics[0].scored

    @property
    def pending(self) -> bool:
        """Is a version still being evaluated?"""
        return bool(self._pending)

    def offer(self, version: int, time: float, parameters: Vector) -> None:
        """Takes a new version of the run, or its first one."""
        if self._evaluator is None or version % self._every or len(self._pending) >= self._most_pending:
            return
        self._scored = version
        self._submit(_Pending(version, time, self._scoring.sample, parameters))

    def last(self, version: int, time: float, parameters: Vector) -> None:
        """Takes the last version of the run; evaluates it on all test examples, unless that is done or under way.

        It is also tested on the own examples of clients, if they hold some back.
        """
        whole = self._scoring.whole
        on_curve = whole == self._scoring.sample and version == self._scored
        if not on_curve and not any((each.version, each.stop) == (version, whole) for each in self._pending):
            self._submit(_Pending(version, time, whole, parameters))
        for steps in self._scoring.steps:
            if not any((each.version, each.steps) == (version, steps) for each in self._pending):
                self._submit(_Pending(version, time, 0, parameters, steps))

    def collect(self, patience: float = 0.0) -> list[Evaluated]:
        """Stores the scores that are ready, and returns those of the curve; waits up to `patience` seconds for one."""
        if self._evaluator is None:
            return []
        from fairlag.learn.task import ScoreSums  # imports torch

        curve = []
        for _, found in self._evaluator.evaluated(patience):
            version, time, stop, _, steps = self._pending.pop(0)
            if not isinstance(found, ScoreSums):
                self._store.tested(version, steps, found)
                continue
            task = self._task
            rows = list(_scores(found, self._scoring, task, whole=stop == self._scoring.whole))
            self._store.evaluated(version, time, rows)
            lead = task.metrics[0].name
            scores = {row.name: row.values for row in rows if row.scope != "class"}
            self.scores = {name: values[lead] for name, values in scores.items() if lead in values}
            if stop == self._scoring.sample:
                curve.append(Evaluated(version, time, scores))
        return curve

    @cached_property
    def _task(self) -> "Task":
        if self._scoring.task is not None:
            return self._scoring.task
        from fairlag.learn.tasks import classification

        return classification()

    def state(self) -> State:
        """The versions that are still being evaluated."""
        # Named by numbers, because users' names may contain a slash, which names in a state must not.
        pending: State = {str(place): each._asdict() for place, each in enumerate(self._pending)}
        return {"pending": pending, "scored": self._scored}

    def restore(self, state: State, version: int) -> None:
        """Evaluates the versions that were being evaluated when a run was saved at this version."""
        before = version - version % self._every  # a state saved by an older fairlag does not contain it
        self._scored = take({"scored": before, **state}, "scored", int)
        for each in take(state, "pending", dict).values():
            self._submit(_Pending(**each))

    def _submit(self, pending: _Pending) -> None:
        if self._evaluator is not None:
            self._pending.append(pending)
            self._evaluator.evaluate(pending.version, pending.parameters, pending.time, self._asked(pending))

    def _asked(self, pending: _Pending) -> "Asked":
        if pending.steps == _NOT_BY_CLIENTS:
            return pending.stop
        from fairlag.learn.evaluation import ClientTests  # imports torch

        return ClientTests(tuple(self._scoring.clients.tolist()), pending.version, pending.time, pending.steps)


def _scores(sums: "ScoreSums", scoring: Scoring, task: "Task", *, whole: bool) -> Iterator[Score]:
    """The scores of all examples, of every class or label, and of those that each client group holds."""
    cells = range(len(sums.examples))
    parts = [("all", "", list(cells))]
    parts += [("class", str(each), [each]) for each in cells if len(cells) > 1]
    parts += [("group", name, labels.tolist()) for name, labels in scoring.held.items()]
    for scope, name, chosen in parts:
        examples = int(sums.examples[chosen].sum())
        if examples:
            yield Score(scope, name, examples, task.scores(sums, chosen), whole)
