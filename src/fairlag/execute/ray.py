"""The executor of Ray actors, on an existing cluster: what will be read first is computed first."""

import os
import signal
import sys
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import Any
from weakref import ref

from fairlag.core.types import Update
from fairlag.core.vector import Vector, published
from fairlag.data.dataset import Dataset
from fairlag.errors import InputError, WorkerError
from fairlag.execute import children
from fairlag.execute.actor import Actor
from fairlag.execute.cluster import Cluster
from fairlag.execute.pool import Job, Pool, Request, Worker
from fairlag.learn.blueprint import Blueprint
from fairlag.learn.descent import kept_numbers
from fairlag.learn.failure import Failure
from fairlag.learn.flat import Flat
from fairlag.learn.learner import Order
from fairlag.learn.placement import Placement
from fairlag.rules.local import Local

_MAX_ACTORS = 64
"""The most actors, unless the user asks for more."""
_CHECK_INTERVAL = 1.0
"""Seconds between two checks whether any actor works."""
_START_TIMEOUT = 120.0
"""Seconds without any working actor (none has started, or all have died and no node has a free CPU) until we fail."""
_MAX_NODE_LOSSES = 3
"""How often the node of the same job may be lost: the job is rarely the cause, but it may be."""


@dataclass(slots=True)
class _Worker(Worker[Any]):
    """An actor; a job's `how` is a reference to its answer."""

    actor: Any
    started: Any
    """A reference to its answer when it is ready for a run."""
    node: str = ""
    process: int = 0
    stopped: int = 0
    """How many checks in a row found it stopped."""

    @property
    def awaited(self) -> Any:
        """A reference to its next answer; None if it has no job."""
        if not self.ready:
            return self.started
        return self.jobs[0].how if self.jobs else None


class Actors(Pool[_Worker]):
    """Computes on a number of actors of a Ray cluster; results are byte-identical to those of one process.

    An actor that dies, alone or with its node, is replaced, and its jobs are computed again.
    """

    def __init__(
        self,
        blueprint: Blueprint,
        data: Dataset,
        placement: Placement,
        *,
        address: str,
        workers: int | None = None,
    ) -> None:
        """Joins the cluster at the address. The default number of workers is one per CPU of the cluster, at most 64."""
        if workers is not None and workers < 1:
            raise InputError(f"workers is {workers}, it must be at least 1")
        self._cluster = Cluster(address)
        self._ray = self._cluster.ray
        flat = Flat(blueprint.build(0))
        super().__init__(flat.trained, kept_numbers(flat, blueprint.recipe))
        try:
            self._check_picklable(blueprint)
            self._made = self._ray.remote(num_cpus=1, max_restarts=0, max_task_retries=0)(Actor)
            stored = (self._ray.put(data.inputs), self._ray.put(data.labels))
            self._given: tuple[Any, ...] = (self._ray.cloudpickle.dumps(blueprint), *stored)
            self._placement = self._ray.put(placement)
            self._last_alive = self._checked = monotonic()
            count = workers or max(1, min(self._cluster.cpus, _MAX_ACTORS))
            self._workers = [self._start() for _ in range(count)]
        except BaseException:
            self.close()
            raise

    def _check_picklable(self, thing: object) -> None:
        children.check_picklable(thing, self._ray.cloudpickle.dumps, "executor='serial'")

    def _forget(self) -> None:
        super()._forget()
        self._stored: dict[int, tuple[ref[Vector], Any]] = {}

    def _check(self, local: Local) -> None:
        self._check_picklable(local)

    def _announce(self, placement: Placement) -> None:
        self._placement = self._ray.put(placement)
        self._last_alive = monotonic()
        for worker in self._workers:
            worker.ready, worker.started = False, worker.actor.begin.remote(self._beginning, self._placement)

    def close(self) -> None:
        """Ends the actors, and leaves the cluster."""
        for worker in self._workers:
            self._end(worker)
        self._workers = []
        self._given, self._placement = (), None
        self._forget()
        self._cluster.close()

    # Communication with the actors

    def _accepts_jobs(self, worker: _Worker) -> bool:
        return worker.ready and super()._accepts_jobs(worker)  # an actor that is not ready may never start

    def _send_job(self, worker: _Worker, number: int, request: Request) -> None:
        parameters = self._put_once(request.version, request.parameters)
        if request.task is None:
            answer = worker.actor.evaluate.remote(parameters, request.part)
        else:
            order, memory = Order.of(request.task, self._beginning.seed), self._memories.of(request.task.client)
            answer = worker.actor.train.remote(order, parameters, memory)
        worker.jobs.append(Job(number, request, answer))

    def _put_once(self, version: int, parameters: Vector) -> Any:
        """A version's parameters in the object store, put there once.

        The server drops a version when no task needs it any longer; then this reference is dropped too, and Ray frees
        it.
        """
        held = self._stored.get(version)
        if held is None or held[0]() is None:
            self._stored = {each: held for each, held in self._stored.items() if held[0]() is not None}
            self._stored[version] = held = ref(parameters), self._ray.put(parameters)
        return held[1]

    def _pump(self, patience: float | None) -> None:
        """Takes the available answers, or waits a moment for one; then sends new jobs."""
        awaited = {worker.awaited: worker for worker in self._workers if worker.awaited is not None}
        if awaited:
            answers = list(awaited)
            if patience != 0:
                self._ray.wait(answers, timeout=_CHECK_INTERVAL if patience is None else patience)
            ready, _ = self._ray.wait(answers, num_returns=len(answers), timeout=0)
            for answer in ready:
                self._receive(awaited[answer], answer)
        self._check_stopped()
        self._check_progress()
        self._dispatch()

    def _receive(self, worker: _Worker, answer: Any) -> None:
        try:
            message = self._ray.get(answer)
        except self._ray.exceptions.RayError as error:
            self._replace(worker, error)
            return
        if not worker.ready:
            worker.node, worker.process, failed = message
            if failed is not None:
                raise InputError(f"a worker cannot build the model: {failed.sentence}") from failed.cause
            self._deaths.pop((_NODE, worker.doing, id(worker)), None)
            worker.ready = True
            return
        number = worker.jobs.popleft().number
        if self._orders.pop(number, None) is None:
            return
        if number < 0:
            self._scores[number] = message
        elif isinstance(message, Failure):
            self._done[number] = message
        else:
            delta, memory, report = message
            self._done[number] = Update(published(delta), report), memory.copy()

    def _check_stopped(self) -> None:
        """Ends actors on this machine that were stopped from outside and would never answer; they are then replaced."""
        if monotonic() - self._checked < _CHECK_INTERVAL:
            return
        self._checked, here = monotonic(), self._ray.get_runtime_context().get_node_id()
        for worker in self._workers:
            stopped = worker.ready and worker.node == here and children.is_stopped(worker.process)
            worker.stopped = worker.stopped + 1 if stopped else 0
            if worker.stopped == children.STOPPED:
                print(children.replaced(worker.process), file=sys.stderr, flush=True)
                os.kill(worker.process, signal.SIGKILL)  # ray.kill would ask the process to end itself

    def _check_progress(self) -> None:
        now = monotonic()
        if any(worker.ready for worker in self._workers):
            self._last_alive = now
        elif now - self._last_alive > _START_TIMEOUT:
            raise WorkerError(
                f"no Ray actor could start within {_START_TIMEOUT:g} seconds: "
                "each needs a free CPU, and fairlag on its node"
            )

    # The actors themselves

    def _start(self) -> _Worker:
        actor = self._made.remote(*self._given, place=os.getcwd(), path=sys.path)
        return _Worker(actor, actor.begin.remote(self._beginning, self._placement))

    def _replace(self, worker: _Worker, error: Exception) -> None:
        """An actor has died: starts another one for its jobs, unless the same job has killed too many."""
        how = " ".join(str(error).strip().splitlines()[-1].split())[:200]
        if getattr(error, "actor_init_failed", False):
            raise WorkerError(f"a Ray actor cannot be made: {how}")
        if self._is_alone(worker, error):
            self._count_death(worker, "a Ray actor", how)
        else:
            self._count_death(worker, _NODE, how, allowed=_MAX_NODE_LOSSES)
        self._end(worker)
        fresh, jobs = self._start(), list(worker.jobs)
        worker.actor, worker.started, worker.ready, worker.stopped = fresh.actor, fresh.started, False, 0
        worker.jobs.clear()
        self._requeue(jobs)

    def _is_alone(self, worker: _Worker, error: Exception) -> bool:
        """Did the actor certainly die alone, that is, its node is still alive?"""
        if not worker.ready or not isinstance(error, self._ray.exceptions.ActorDiedError):
            return False
        return any(node["NodeID"] == worker.node and node["Alive"] for node in self._ray.nodes())

    def _end(self, worker: _Worker) -> None:
        with suppress(Exception):  # it or the whole cluster may have ended already
            self._ray.kill(worker.actor)


_NODE = "the node of a Ray actor"
"""What died, in words, if it may have been more than the actor."""
