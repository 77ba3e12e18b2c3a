"""The executor of Ray actors, on a cluster that is already there: what will be read first is computed first."""

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
from fairlag.execute.pool import Asked, Handed, Pool, Worker
from fairlag.learn.failure import Failure
from fairlag.learn.flat import Flat
from fairlag.learn.learner import Blueprint, Order, Placement
from fairlag.rules.local import Local

_MOST = 64
"""How many actors there are at most, unless somebody asks for more."""
_LOOK = 1.0
"""How many seconds pass until we look whether anybody works at all."""
_NOBODY = 120.0
"""How many seconds there may be no actor that works: none has started, or all have died and no node has room."""
_LOST = 3
"""How often a job may be at work on a node that is lost: such a job is rarely to blame, but it may be what kills."""


@dataclass(slots=True)
class _Worker(Worker[Any]):
    """An actor; how it tells of a job is a reference to the answer."""

    actor: Any
    started: Any
    """A reference to what it says when it is ready for a run."""
    node: str = ""
    process: int = 0
    stopped: int = 0
    """At how many looks in a row it was found stopped."""

    @property
    def awaited(self) -> Any:
        """A reference to what it will say next, None if it has nothing to do."""
        if not self.ready:
            return self.started
        return self.jobs[0].how if self.jobs else None


class Actors(Pool[_Worker]):
    """Computes on so many actors of a Ray cluster; results are the same bytes as those of one process.

    An actor that dies, alone or with its node, is replaced, and what it was at is computed again.
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
        """On the cluster at the address; without a number of workers, one per CPU of the cluster, but at most 64."""
        if workers is not None and workers < 1:
            raise InputError(f"workers is {workers}, it must be at least 1")
        self._cluster = Cluster(address)
        self._ray = self._cluster.ray
        super().__init__(Flat(blueprint.build(0)).trained)
        try:
            self._travels(blueprint)
            self._made = self._ray.remote(num_cpus=1, max_restarts=0, max_task_retries=0)(Actor)
            stored = (self._ray.put(data.inputs), self._ray.put(data.labels))
            self._given: tuple[Any, ...] = (self._ray.cloudpickle.dumps(blueprint), *stored)
            self._placement = self._ray.put(placement)
            self._seen = self._looked = monotonic()
            count = workers or max(1, min(self._cluster.cpus, _MOST))
            self._workers = [self._hire() for _ in range(count)]
        except BaseException:
            self.close()
            raise

    def _travels(self, thing: object) -> None:
        children.check_that_it_travels(thing, self._ray.cloudpickle.dumps, "executor='serial'")

    def _forget(self) -> None:
        super()._forget()
        self._stored: dict[int, tuple[ref[Vector], Any]] = {}

    def _check(self, local: Local) -> None:
        self._travels(local)

    def _announce(self, placement: Placement) -> None:
        self._placement = self._ray.put(placement)
        self._seen = monotonic()
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

    # Between this process and the actors

    def _may_be_handed(self, worker: _Worker) -> bool:
        return worker.ready and super()._may_be_handed(worker)  # there may never be room for one that is not

    def _hand(self, worker: _Worker, number: int, asked: Asked) -> None:
        parameters = self._put_once(asked.version, asked.parameters)
        if asked.task is None:
            answer = worker.actor.evaluate.remote(parameters, *asked.part)
        else:
            order, memory = Order.of(asked.task, self._beginning.seed), self._memories.of(asked.task.client)
            answer = worker.actor.train.remote(order, parameters, memory)
        worker.jobs.append(Handed(number, asked, answer))

    def _put_once(self, version: int, parameters: Vector) -> Any:
        """Where the parameters of a version are in the object store: as long as anybody here still holds them.

        The server lets go of a version when no task can need it any more; so then do we, and Ray frees it.
        """
        held = self._stored.get(version)
        if held is None or held[0]() is None:
            self._stored = {each: held for each, held in self._stored.items() if held[0]() is not None}
            self._stored[version] = held = ref(parameters), self._ray.put(parameters)
        return held[1]

    def _pump(self, patience: float | None) -> None:
        """Takes the answers that are there, or waits a moment for one; and hands out new work."""
        awaited = {worker.awaited: worker for worker in self._workers if worker.awaited is not None}
        if awaited:
            answers = list(awaited)
            if patience != 0:
                self._ray.wait(answers, timeout=_LOOK if patience is None else patience)
            ready, _ = self._ray.wait(answers, num_returns=len(answers), timeout=0)
            for answer in ready:
                self._hear(awaited[answer], answer)
        self._look_for_the_stopped()
        self._check_that_somebody_works()
        self._hand_out()

    def _hear(self, worker: _Worker, answer: Any) -> None:
        try:
            said = self._ray.get(answer)
        except self._ray.exceptions.RayError as error:
            self._replace(worker, error)
            return
        if not worker.ready:
            worker.node, worker.process, failed = said
            if failed is not None:
                raise InputError(f"a worker cannot build the model: {failed.sentence}") from failed.cause
            self._deaths.pop((_NODE, worker.doing, id(worker)), None)
            worker.ready = True
            return
        number = worker.jobs.popleft().number
        if self._orders.pop(number, None) is None:
            return
        if number < 0:
            self._scores[number] = said
        elif isinstance(said, Failure):
            self._done[number] = said
        else:
            delta, memory, report = said
            self._done[number] = Update(published(delta), report), memory.copy()

    def _look_for_the_stopped(self) -> None:
        """An actor on this machine that somebody has stopped would never answer: it is ended, and so replaced."""
        if monotonic() - self._looked < _LOOK:
            return
        self._looked, here = monotonic(), self._ray.get_runtime_context().get_node_id()
        for worker in self._workers:
            stopped = worker.ready and worker.node == here and children.is_stopped(worker.process)
            worker.stopped = worker.stopped + 1 if stopped else 0
            if worker.stopped == children.STOPPED:
                print(children.replaced(worker.process), file=sys.stderr, flush=True)
                os.kill(worker.process, signal.SIGKILL)  # Ray's own way asks the process to end itself

    def _check_that_somebody_works(self) -> None:
        now = monotonic()
        if any(worker.ready for worker in self._workers):
            self._seen = now
        elif now - self._seen > _NOBODY:
            raise WorkerError(
                f"no Ray actor could start within {_NOBODY:g} seconds: each needs a free CPU, and fairlag on its node"
            )

    # The actors themselves

    def _hire(self) -> _Worker:
        actor = self._made.remote(*self._given, place=os.getcwd(), path=sys.path)
        return _Worker(actor, actor.begin.remote(self._beginning, self._placement))

    def _replace(self, worker: _Worker, error: Exception) -> None:
        """An actor has died: others do what it was at, unless its job has ended others, too."""
        how = " ".join(str(error).strip().splitlines()[-1].split())[:200]
        if getattr(error, "actor_init_failed", False):
            raise WorkerError(f"a Ray actor cannot be made: {how}")
        if self._is_alone(worker, error):
            self._blame(worker, "a Ray actor", how)
        else:
            self._blame(worker, _NODE, how, allowed=_LOST)
        self._end(worker)
        fresh, jobs = self._hire(), list(worker.jobs)
        worker.actor, worker.started, worker.ready, worker.stopped = fresh.actor, fresh.started, False, 0
        worker.jobs.clear()
        self._wait_again(jobs)

    def _is_alone(self, worker: _Worker, error: Exception) -> bool:
        """Did the actor certainly die by itself, and not with its node, nor out of our sight?"""
        if not worker.ready or not isinstance(error, self._ray.exceptions.ActorDiedError):
            return False
        return any(node["NodeID"] == worker.node and node["Alive"] for node in self._ray.nodes())

    def _end(self, worker: _Worker) -> None:
        with suppress(Exception):  # it has ended already, or the whole cluster has
            self._ray.kill(worker.actor)


_NODE = "the node of a Ray actor"
"""What is said to have died where it may have been more than the actor."""
