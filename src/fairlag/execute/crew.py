"""Worker processes that evaluate functions; the results come in the order of the requests."""

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

_DEPTH = 2
"""How many requests a process has at a time: it can start the next while this process is busy."""
_CHECK_INTERVAL = 1.0
"""Seconds between two checks of processes that do not answer."""

Ask = Callable[[Any, Any], Any]
"""A request: a function of the common subject and of one detail."""


def answer(line: Connection, subject: object) -> None:
    """The main loop of a process: a request, then its result or exception, until the connection closes."""
    with suppress(EOFError, ConnectionError):
        while True:
            ask, detail = received(line)
            try:
                result = ask(subject, detail)
            except Exception as error:
                result = error
            try:
                line.send(result)
            except (PicklingError, AttributeError, TypeError):
                line.send(FairlagError(f"{type(result).__name__}: {result}"))


class Crew:
    """A number of processes. One that was stopped from outside is replaced, because requests can be repeated."""

    def __init__(self, subject: object, workers: int) -> None:
        children.check_picklable(subject)
        self._subject = subject
        self._processes: dict[Connection, children.Process] = {}
        self._jobs: dict[Connection, deque[tuple[int, Any]]] = {}
        self._numbers = count()
        """Each request has its own number, so that a late result of an abandoned request is not taken for another."""
        self._stopped = 0
        try:
            for _ in range(workers):
                self._start()
        except BaseException:  # for example Ctrl-C
            self.close()
            raise

    def answers(self, ask: Ask, details: Sequence[Any]) -> Iterator[Any]:
        """The results in order, each as soon as all before it are ready."""
        waiting, done = deque((next(self._numbers), detail) for detail in details), dict[int, Any]()
        for turn in [number for number, _ in waiting]:
            while turn not in done:
                self._dispatch(ask, waiting)
                self._receive(done, waiting)
            result = done.pop(turn)
            if isinstance(result, Exception):
                raise result
            yield result

    def close(self) -> None:
        """Ends the processes."""
        while self._processes:
            self._stop(next(iter(self._processes)))

    def _dispatch(self, ask: Ask, waiting: deque[tuple[int, Any]]) -> None:
        for line, jobs in self._jobs.items():
            while waiting and len(jobs) < _DEPTH:
                jobs.append(waiting.popleft())
                with suppress(OSError):  # if it has died, reading the connection will show it
                    line.send((ask, jobs[-1][1]))

    def _receive(self, done: dict[int, Any], waiting: deque[tuple[int, Any]]) -> None:
        ready = wait(list(self._processes), _CHECK_INTERVAL)
        for line in ready:
            assert isinstance(line, Connection)
            try:
                result = line.recv()
            except (EOFError, OSError):
                raise WorkerError("a worker process died, perhaps out of memory: try fewer workers") from None
            if isinstance(result, Failed):
                raise InputError(f"a worker cannot start: {result.reason}")
            done[self._jobs[line].popleft()[0]] = result
        stopped = [] if ready else [line for line, each in self._processes.items() if children.is_stopped(each.pid)]
        self._stopped = self._stopped + 1 if stopped else 0
        if self._stopped >= children.STOPPED:
            for line in stopped:
                print(children.replaced(self._processes[line].pid), file=sys.stderr, flush=True)
                waiting.extendleft(reversed(self._jobs[line]))
                self._stop(line)
                self._start()

    def _start(self) -> None:
        process, line = children.started(answer, self._subject)
        self._processes[line], self._jobs[line] = process, deque()

    def _stop(self, line: Connection) -> None:
        process = self._processes.pop(line)
        del self._jobs[line]
        process.kill()
        process.wait()
        line.close()
