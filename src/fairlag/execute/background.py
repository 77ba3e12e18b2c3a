"""Evaluation in a separate thread, so that a server of a real fleet never waits for an evaluation."""

from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import Thread
from typing import NamedTuple

from fairlag.core.vector import Vector
from fairlag.errors import InputError
from fairlag.learn.evaluation import Asked, Found
from fairlag.learn.failure import reason


class _Request(NamedTuple):
    version: int
    parameters: Vector
    asked: Asked


class BackgroundEvaluator:
    """Evaluates one version after the other, in order of request."""

    def __init__(self, score: Callable[[Vector, Asked], Found]) -> None:
        """`score` gets the parameters and what to evaluate them on."""
        self._score = score
        self._requests: SimpleQueue[_Request | None] = SimpleQueue()
        self._done: SimpleQueue[tuple[int, Found | Exception]] = SimpleQueue()
        Thread(target=self._run, name="fairlag evaluation", daemon=True).start()

    def evaluate(self, version: int, parameters: Vector, due: float, asked: Asked) -> None:
        """Requests the evaluation of a version: on the test examples up to a number, or on clients' own."""
        self._requests.put(_Request(version, parameters, asked))

    def evaluated(self, patience: float = 0.0) -> list[tuple[int, Found]]:
        """The evaluations finished since the last call, in order of request; waits up to `patience` seconds for one."""
        scores: list[tuple[int, Found]] = []
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
        """Ends the thread after its current evaluation."""
        self._requests.put(None)

    def _run(self) -> None:
        while (request := self._requests.get()) is not None:
            try:
                self._done.put((request.version, self._score(request.parameters, request.asked)))
            except Exception as error:
                self._done.put((request.version, error))
