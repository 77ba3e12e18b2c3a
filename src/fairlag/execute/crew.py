"""Processes that answer questions; the answers come in the order of the questions, whichever is ready first."""

import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import count
from multiprocessing.connection import Connection, wait
from pickle import PicklingError
from typing import Any

from fairlag.errors import FairlagError, InputError, WorkerError
from fairlag.execute import children
from fairlag.execute.child import Failed, received

_AHEAD = 2
"""How many questions a process has at hand: it begins the next while this process is busy elsewhere."""
_LOOK = 1.0
"""How many seconds pass between two looks at processes that say nothing."""

Ask = Callable[[Any, Any], Any]
"""A question: a function of what all questions are about, and of what this one is about."""


def answer(line: Connection, subject: object) -> None:
    """The life of a process: a question, an answer or what was raised, until there is nobody who asks."""
    with suppress(EOFError, ConnectionError):
        while True:
            ask, detail = received(line)
            try:
                said = ask(subject, detail)
            except Exception as error:
                said = error
            try:
                line.send(said)
            except (PicklingError, AttributeError, TypeError):
                line.send(FairlagError(f"{type(said).__name__}: {said}"))


class Crew:
    """That many processes; one that somebody stops is replaced, as questions can be asked again."""

    def __init__(self, subject: object, workers: int) -> None:
        children.check_that_it_travels(subject)
        self._subject = subject
        self._processes: dict[Connection, children.Process] = {}
        self._handed: dict[Connection, deque[tuple[int, Any]]] = {}
        self._numbers = count()
        """Every question has its own, so that answers to questions that were given up are not taken for others."""
        self._stopped = 0
        try:
            for _ in range(workers):
                self._hire()
        except BaseException:  # such as Ctrl-C
            self.close()
            raise

    def answers(self, ask: Ask, details: Sequence[Any]) -> Iterator[Any]:
        """The answers, each as soon as those before it are there."""
        waiting, done = deque((next(self._numbers), detail) for detail in details), dict[int, Any]()
        for turn in [number for number, _ in waiting]:
            while turn not in done:
                self._hand_out(ask, waiting)
                self._hear(done, waiting)
            said = done.pop(turn)
            if isinstance(said, Exception):
                raise said
            yield said

    def close(self) -> None:
        """Ends the processes."""
        while self._processes:
            self._dismiss(next(iter(self._processes)))

    def _hand_out(self, ask: Ask, waiting: deque[tuple[int, Any]]) -> None:
        for line, jobs in self._handed.items():
            while waiting and len(jobs) < _AHEAD:
                jobs.append(waiting.popleft())
                with suppress(OSError):  # if it has died, its line says so
                    line.send((ask, jobs[-1][1]))

    def _hear(self, done: dict[int, Any], waiting: deque[tuple[int, Any]]) -> None:
        heard = wait(list(self._processes), _LOOK)
        for line in heard:
            assert isinstance(line, Connection)
            try:
                said = line.recv()
            except (EOFError, OSError):
                raise WorkerError("a worker process died, perhaps for want of memory: try fewer workers") from None
            if isinstance(said, Failed):
                raise InputError(f"a worker cannot start: {said.reason}")
            done[self._handed[line].popleft()[0]] = said
        stopped = [] if heard else [line for line, each in self._processes.items() if children.is_stopped(each.pid)]
        self._stopped = self._stopped + 1 if stopped else 0
        if self._stopped >= children.STOPPED:
            for line in stopped:
                print(children.replaced(self._processes[line].pid), file=sys.stderr, flush=True)
                waiting.extendleft(reversed(self._handed[line]))
                self._dismiss(line)
                self._hire()

    def _hire(self) -> None:
        process, line = children.started(answer, self._subject)
        self._processes[line], self._handed[line] = process, deque()

    def _dismiss(self, line: Connection) -> None:
        process = self._processes.pop(line)
        del self._handed[line]
        process.kill()
        process.wait()
        line.close()
