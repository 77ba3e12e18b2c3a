"""A run with training in compiled loops: the timeline says, page by page, what is merged, and then it is trained.

For strategies whose timeline does not depend on the training. virtual.py is the reference, and continues the run if
something comes up that is not implemented here.
"""

import numpy as np

from fairlag.core.server import Server
from fairlag.core.state import State, take
from fairlag.core.strategy import Strategy
from fairlag.core.types import Aggregation, Dispatch, Integers, Presence, Stop, record_of
from fairlag.core.vector import Matrix, Vector, finite, published
from fairlag.fastpath import other_field
from fairlag.fleet.clients import Fleet
from fairlag.learn import kernel
from fairlag.learn.learner import Learner
from fairlag.rules.apply import scale
from fairlag.rules.reduce import weighted_sum
from fairlag.rules.rule import provenance
from fairlag.runtime.compiled.layout import COUNT
from fairlag.runtime.compiled.moment import moment, running
from fairlag.runtime.compiled.spec import LoopSpec, loop_spec
from fairlag.runtime.compiled.timeline import Merges, Timeline
from fairlag.runtime.compiled.weights import Fallback
from fairlag.runtime.virtual import Simulation, few_collections

STRATEGY = frozenset(("select", "trigger", "weigh", "local", "reduce", "apply"))
LOCAL = frozenset(("prox",))
APPLY = frozenset(("label", "init", "update"))
"""The fields of a strategy, of its Local and of its Apply that are implemented here or in spec.py."""

_PAGE = 512
"""About how many updates a page has; at least one per client."""
_WORK = 3e8
"""The most work of a page, about a tenth of a second: Ctrl-C is handled only between pages."""
_MAX_CLIENTS = 2048
"""The most clients of a fleet: after each page, the server's record of every client is updated."""
_ROOM = 1 << 24
"""The most parameters (64 MB) of the versions with which a page begins, at most one per client; and of those that it
makes."""


def known(strategy: Strategy, fleet: Fleet, size: int) -> LoopSpec | None:
    """The strategy as a loop specification; None if the loops do not implement its timeline or its versions.

    `size` is the model's size: if both model and fleet are large, a page would need too much memory.
    Every update must be admitted, and a version must be the last one plus a weighted sum of updates, without memory.

    >>> from fairlag.fleet.clients import Group
    >>> from fairlag.fleet.delay import parse
    >>> from fairlag.zoo import fedasync, fedavg, fedstaleweight
    >>> fleet = Fleet([Group("all", 20, parse("uniform(1, 2)"))], seed=0)
    >>> [known(strategy, fleet, 650) is not None for strategy in (fedstaleweight(), fedavg(cohort=5), fedasync())]
    [True, False, False]
    """
    found = loop_spec(strategy, fleet)
    if isinstance(found, str) or found.trigger != COUNT or found.rounds or found.delay or strategy.intervals:
        return None
    known_fields = (strategy, STRATEGY), (strategy.local, LOCAL), (strategy.apply, APPLY)
    if any(other_field(*each) for each in known_fields):
        return None
    if fleet.clients > min(_MAX_CLIENTS, _ROOM // max(size, 1)):
        return None
    applied = provenance(strategy.apply.update)
    plain = strategy.reduce is weighted_sum and applied is not None and applied.make is scale
    return found if plain else None


class PagedSimulation:
    """A simulation of a server and a fleet, page by page; between two pages the server is up to date."""

    def __init__(
        self,
        spec: LoopSpec,
        simulation: Simulation,
        server: Server,
        fleet: Fleet,
        learner: Learner,
        *,
        seed: int,
        until: tuple[int | None, float | None],
        examples: Integers,
    ) -> None:
        """Replaces a simulation of this server and fleet, up to this number of aggregations or this time.

        The simulation must not be used directly; `examples` is how many examples each client has throughout the run.
        """
        assert learner.trainer is not None
        self._simulation = simulation
        self._server = server
        self._learner = learner
        self._trainer = learner.trainer
        self._examples = examples
        aggregations, until_time = until
        most = min(_WORK / learner.work, _ROOM / server.versions.newest.size)
        page = min(max(_PAGE, fleet.clients), max(1, int(most)))
        self._timeline = Timeline(
            spec, fleet, seed=seed, aggregations=aggregations, until_time=until_time, examples=examples, page=page
        )
        self._pages = iter(self._timeline)
        self._begun = self._saved = simulation.state()
        self._kept = {0: server.versions.newest}
        """The versions from which a task may start."""
        self._stop: Stop | None = None
        self._handed_over = False

    def proceed(self, events: int) -> Stop | None:
        """Simulates one page, whatever `events` is; returns why the run is over, or None."""
        if self._stop is None and not self._handed_over:
            self._turn()
        return self._simulation.proceed(events) if self._handed_over else self._stop

    def state(self) -> State:
        """The state of the simulation, so that either of the two can continue."""
        return self._simulation.state() if self._handed_over else self._saved

    def restore(self, state: State) -> None:
        """Continues from the saved state of a simulation or a paged one; compiled loops only if a page ended there."""
        self._server.restore(take(state, "server", dict))
        view, timeline = self._server.view, self._timeline
        if view.buffered or view.version % timeline.versions_per_page:
            self._hand_over(state)
            return
        while timeline.version < view.version and self._next() is not None:
            pass
        if not self._is_in_step():
            self._hand_over(state)
            return
        self._kept = {version: self._server.versions[version] for version in self._server.versions.kept}
        self._saved = state
        self._stop = Stop(reason) if isinstance(reason := state["stop"], str) else None

    def _is_in_step(self) -> bool:
        """Is the timeline in the same state as the server? It knows nothing of tasks that were not aggregated."""
        view, counts, timeline = self._server.view, self._server.counts, self._timeline
        where = view.version, view.time, counts["dispatched"], counts["aggregated"] + counts["running"]
        handed = int(timeline.run["sequence"][0])
        return where == (timeline.version, timeline.time, handed, handed)

    @few_collections(young_too=True)
    def _turn(self) -> None:
        """Trains the next page, or leaves it to the simulation."""
        merges = self._next()
        learnt = None if merges is None else self._learnt(merges)
        if merges is None or learnt is None:
            self._hand_over(self._saved)
        else:
            self._tell(merges, learnt)
            self._arrive(merges, learnt)

    def _next(self) -> Merges | None:
        """The next page; None if the run ends in the middle of a version, or only the reference can continue."""
        try:
            merges = next(self._pages, None)
        except Fallback:
            return None
        return None if self._timeline.over and not self._timeline.complete else merges

    def _hand_over(self, state: State) -> None:
        self._handed_over = True
        if state is not self._begun:
            self._simulation.restore(state)

    def _learnt(self, merges: Merges) -> Matrix | None:
        """The versions of a page, one row each; None if something is not finite or would be refused."""
        first, (versions, buffer) = merges.first, merges.clients.shape
        trained = merges.trained
        prepared = self._learner.prepared(merges.clients.ravel(), merges.ordinals.ravel(), trained.ravel())
        if prepared is None:
            return None
        tasks, rates = prepared
        before = sorted({first - 1, *trained[trained < first].tolist()})
        parameters = np.empty((len(before) + versions, self._kept[first - 1].size), np.float32)
        for row, version in enumerate(before):
            parameters[row] = self._kept[version]
        starts = tasks[:, kernel.START]
        starts[:] = np.where(starts < first, np.searchsorted(before, starts), starts - first + len(before))
        apply, deltas = self._server.strategy.apply, np.empty((buffer, parameters.shape[1]), np.float32)
        newest = len(before) - 1
        with np.errstate(all="ignore"):
            for row, weights in enumerate(merges.weights):
                some = slice(row * buffer, (row + 1) * buffer)
                if not self._trainer.train(tasks[some], rates[some], parameters, deltas):
                    return None
                step, _ = apply.update(weighted_sum(weights, deltas), (), parameters[newest])
                np.add(parameters[newest], step, out=parameters[newest + 1])
                newest += 1
        learnt = parameters[len(before) :]
        return learnt if finite(learnt.reshape(-1)) else None

    def _tell(self, merges: Merges, learnt: Matrix) -> None:
        """Publishes and records the versions one by one."""
        learnt.flags.writeable = False
        record, on_version, versions = self._server.record, self._server.on_version, self._server.versions
        rows = zip(*(column.tolist() for column in (merges.times, merges.arrivals)), strict=True)
        staleness, tasks = merges.staleness.copy(), _tasks(merges)
        if record is not None and merges.first == 1:
            record(Presence(0.0, 0, range(len(self._examples)), True))
        for row, (time, arrivals) in enumerate(rows):
            version = merges.first + row
            versions.publish(learnt[row])
            if record is not None:
                found = tuple(tasks[row * len(arrivals) : (row + 1) * len(arrivals)])
                record(Aggregation(version, time, found, arrivals, staleness[row], merges.weights[row], False))
            if on_version is not None:
                on_version(version, time, versions.newest)

    def _arrive(self, merges: Merges, learnt: Matrix) -> None:
        """The end of a page: brings the server up to date."""
        timeline = self._timeline
        self._stop = Stop(timeline.reason) if timeline.over else None
        at_work = running(timeline)
        held = {timeline.version, *(task.version for _, task in at_work)}
        self._kept = {version: self._vector(version, merges.first, learnt) for version in sorted(held)}
        stop = None if self._stop is None else self._stop.reason
        self._saved = moment(self._begun, timeline, at_work, examples=self._examples, kept=self._kept, stop=stop)
        self._server.restore(take(self._saved, "server", dict))

    def _vector(self, version: int, first: int, learnt: Matrix) -> Vector:
        """The parameters of a version; copied if it is from the page, so that the page can be freed."""
        return self._kept[version] if version < first else published(learnt[version - first])


def _tasks(merges: Merges) -> list[Dispatch]:
    """All tasks of a page, in order of arrival."""
    columns = merges.tasks, merges.clients, merges.trained, merges.ordinals, merges.given_at
    rows = zip(*(column.ravel().tolist() for column in columns), strict=True)
    return [record_of(Dispatch, (*row, 0, 1.0)) for row in rows]
