"""Evaluating in a thread of its own, so that a server that waits for a real fleet never waits for an evaluation."""

from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import Thread
from typing import NamedTuple

from fairlag.core.vector import Vector
from fairlag.errors import InputError
from fairlag.learn.failure import reason
from fairlag.learn.learner import ScoreSums


class _Asked(NamedTuple):
    version: int
    parameters: Vector
    stop: int


class BackgroundEvaluator:
    """Evaluates one version after the other, in the order asked for."""

    def __init__(self, score: Callable[[Vector, int], ScoreSums]) -> None:
        """`score` is given the parameters, and on how many of the test examples."""
        self._score = score
        self._asked: SimpleQueue[_Asked | None] = SimpleQueue()
        self._done: SimpleQueue[tuple[int, ScoreSums | Exception]] = SimpleQueue()
        Thread(target=self._live, name="fairlag evaluation", daemon=True).start()

    def evaluate(self, version: int, parameters: Vector, due: float, stop: int) -> None:
        """A version is to be evaluated on the first test examples up to `stop`."""
        self._asked.put(_Asked(version, parameters, stop))

    def evaluated(self, patience: float = 0.0) -> list[tuple[int, ScoreSums]]:
        """The evaluations done since the last call, in the order asked for; waits so many seconds for the first."""
        scores: list[tuple[int, ScoreSums]] = []
        while True:
            try:
                version, score = self._done.get(timeout=patience) if patience else self._done.get_nowait()
            except Empty:
                return scores
            if isinstance(score, Exception):
                raise InputError(f"evaluating version {version} failed: {reason(score)}") from score
            scores.append((version, score))
            patience = 0.0

    def close(self) -> None:
        """The thread ends after the evaluation that it is making."""
        self._asked.put(None)

    def _live(self) -> None:
        while (asked := self._asked.get()) is not None:
            try:
                self._done.put((asked.version, self._score(asked.parameters, asked.stop)))
            except Exception as error:
                self._done.put((asked.version, error))
