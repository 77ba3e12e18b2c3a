"""Conducting a run, simulated or on a real fleet: evaluated as it goes, its rows and checkpoints kept in a store."""

import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from time import monotonic
from types import FrameType
from typing import TYPE_CHECKING, NamedTuple, Protocol

from fairlag import execute
from fairlag.core.server import Server
from fairlag.core.state import Savable, State, pack, take, unpack
from fairlag.core.strategy import Strategy
from fairlag.core.types import Aggregation, Integers, Row, Stop
from fairlag.core.vector import Vector
from fairlag.errors import Interrupted
from fairlag.execute import Evaluating, Learning
from fairlag.lab.events import Kept, Progress, Tell, nobody
from fairlag.lab.experiment import Experiment, Use
from fairlag.lab.resources import Resources, Scoring, Setting
from fairlag.lab.store import Score, Store
from fairlag.runtime.virtual import Simulation

if TYPE_CHECKING:
    from fairlag.learn.learner import ScoreSums

CHECKPOINT = 5.0
"""How many seconds of work a crash may cost, or a page that follows a run is behind it, where that is cheap."""
_COSTLY = 100
"""A checkpoint is made only after this many times the seconds that the last one took: at most 1 % of the time. Its rows
do not count: they must be written anyway, and the longer one waits, the more there are."""
_LOOK = 0.1
"""About how many seconds pass between two looks at the clock, at Ctrl-C, and at what was evaluated."""
_MOST = 1000
_WAITING = 2
"""How many versions of a real run may wait to be evaluated: where that is slow, versions in between have no score."""


class _Pending(NamedTuple):
    """A version that is being evaluated, on so many test examples."""

    version: int
    time: float
    stop: int
    parameters: Vector


class Timeline(Savable, Protocol):
    """The life of a fleet under a server."""

    def proceed(self, events: int) -> Stop | None:
        """About so many more events; says why the run is over if it is."""


@dataclass(frozen=True, slots=True)
class RunSetup:
    """Where a run takes place."""

    setting: Setting
    clients: int
    executor: Evaluating | None
    """Who evaluates; None where there is nothing to evaluate."""
    begin: Callable[[Server], Timeline]
    group_of: Callable[[int], str]
    """The name of a client's group."""
    examples: Integers | None = None
    """Per client: how many examples it has at first, as far as the server is told."""
    real: bool = False
    """Can nothing be computed again? Then every version is committed at once."""
    news: Callable[[], Iterable[tuple[int, str, int]]] = tuple
    """Of which clients something was learnt since the last commit: their groups and examples."""
    strategy: Strategy | None = None
    """The strategy with what a real fleet adds to it; None: as the experiment has it."""
    max_growth: float | None = None
    """How many times as large the model may become by one aggregation; None: what is not finite ends the run."""


def simulated(resources: Resources, use: Use, seed: int) -> RunSetup:
    """Virtual time, as an experiment describes its fleet."""
    experiment, setting = resources.experiment, resources.setting(seed)
    executor = resources.executor(setting, experiment.strategy(use))
    return RunSetup(
        setting,
        experiment.population,
        executor,
        lambda server: _timeline(server, experiment, setting, executor),
        experiment.group_of,
        examples=setting.visible if setting.placement is not None else None,
    )


def _timeline(server: Server, experiment: Experiment, setting: Setting, executor: Learning | None) -> Timeline:
    """Event by event; or by compiled loops, where tasks are trained in this process by such, and they know the rest."""
    fleet = experiment.fleet(setting.seed)
    simulation = Simulation(server, fleet, executor)
    learner = None if executor is None else executor.learner
    if learner is None or learner.trainer is None:
        return simulation
    from fairlag.runtime.compiled.paged import PagedSimulation, known

    spec = known(server.strategy, fleet, server.versions.newest.size)
    if spec is None:
        return simulation
    until = experiment.aggregations, experiment.until_time
    return PagedSimulation(
        spec, simulation, server, fleet, learner, seed=setting.seed, until=until, examples=setting.examples
    )


class Conductor:
    """Takes one run from its beginning, or from its last checkpoint, to its end."""

    def __init__(self, experiment: Experiment, use: Use, setup: RunSetup, store: Store, tell: Tell = nobody) -> None:
        setting = setup.setting
        self._setup = setup
        self._store = store
        self._tell = tell
        self._layout = setting.layout
        self._scoring = setting.scoring
        self._every = experiment.evaluate.every
        self._executor = setup.executor
        self._server = Server(
            setup.strategy or experiment.strategy(use),
            clients=setup.clients,
            parameters=setting.parameters,
            layout=setting.layout,
            seed=setting.seed,
            aggregations=experiment.aggregations,
            until_time=experiment.until_time,
            examples=setup.examples,
            group_of=setup.group_of,
            max_growth=setup.max_growth,
            record=store.record if self._scoring is None else self._record,
        )
        self._timeline = setup.begin(self._server)
        self._pending: list[_Pending] = []
        self._accuracy: dict[str, float] = {}
        self._saved, self._cost = monotonic(), 0.0
        """When the last checkpoint was made, and how many seconds it took."""
        self._kept = 0
        """The version that it has."""
        self._scored = 0
        """The last version that was evaluated for the curve, or is being."""
        saved = store.checkpoint()
        if saved is not None:
            self._restore(unpack(*saved))
        elif self._scoring is not None:
            self._evaluate(0, 0.0, self._scoring.sample)

    def to_the_end(self) -> None:
        """All that is left of the run; the first Ctrl-C makes a checkpoint and raises Interrupted."""
        events = 1
        with _interrupts_noted() as interrupted:
            began = monotonic()
            while (stop := self._proceed(events)) is None:
                self._look(interrupted)
                now = monotonic()
                if not self._setup.real:  # there, each event may make a version, to be committed at once
                    events = min(2 * events, _MOST) if now - began < _LOOK / 2 else max(events // 2, 1)
                began = now
            if self._scoring is not None and not self._is_scored(self._scoring.whole):
                self._evaluate(self._server.view.version, self._server.view.time, self._scoring.whole)
            while self._pending:
                self._look(interrupted, patience=_LOOK)
        self._finish(stop)
        if interrupted.is_set():
            raise self._interruption()

    def _proceed(self, events: int) -> Stop | None:
        with suppress(Interrupted):  # while a result was waited for: no event was cut in two
            return self._timeline.proceed(events)
        return None

    def _look(self, interrupted: threading.Event, patience: float = 0.0) -> None:
        self._collect(patience)
        if interrupted.is_set():
            self._commit()
            raise self._interruption()
        if self._is_due():
            self._commit()
        self._report()

    def _is_due(self) -> bool:
        """Is it time for a checkpoint?"""
        if self._setup.real:
            return self._server.view.version > self._kept
        return monotonic() - self._saved > max(CHECKPOINT, _COSTLY * self._cost)

    def _interruption(self) -> Interrupted:
        return Interrupted(f"interrupted at version {self._server.view.version}")

    def _report(self) -> None:
        view, updates = self._server.view, self._server.counts["aggregated"]
        self._tell(Progress(view.version, view.time, updates, self._accuracy))

    # Evaluation

    def _record(self, row: Row) -> None:
        self._store.record(row)
        # What is simulated waits for its scores; a fleet does not, and each version is as big as the model.
        hurried = self._setup.real and len(self._pending) >= _WAITING
        if hurried or not isinstance(row, Aggregation) or row.version % self._every:
            return
        if self._scoring is not None:
            self._scored = row.version
            self._evaluate(row.version, row.time, self._scoring.sample)

    def _evaluate(self, version: int, time: float, stop: int) -> None:
        parameters = self._server.versions.newest
        self._pending.append(_Pending(version, time, stop, parameters))
        if self._executor is not None:
            self._executor.evaluate(version, parameters, time, stop)

    def _is_scored(self, stop: int) -> bool:
        """Is the newest version being evaluated on so many examples, or was it for the curve?"""
        version = self._server.view.version
        if self._scoring is not None and stop == self._scoring.sample and version == self._scored:
            return True
        return any((each.version, each.stop) == (version, stop) for each in self._pending)

    def _collect(self, patience: float) -> None:
        if self._executor is None or self._scoring is None:
            return
        for _, score in self._executor.evaluated(patience):
            version, time, stop, _ = self._pending.pop(0)
            rows = list(_scores(score, self._scoring, whole=stop == self._scoring.whole))
            self._store.evaluated(version, time, rows)
            self._accuracy = {row.name: row.correct / row.examples for row in rows if row.scope != "class"}

    # The store

    def _commit(self) -> None:
        began = monotonic()
        # Named by numbers: what a user named may hold a slash, which no name in a state may.
        pending: State = {
            str(place): {"version": each.version, "time": each.time, "stop": each.stop, "parameters": each.parameters}
            for place, each in enumerate(self._pending)
        }
        state: State = {"simulation": self._timeline.state(), "pending": pending, "scored": self._scored}
        self._kept = self._server.view.version
        self._store.commit(*pack(state), self._kept, refusals=self._server.refusals, clients=self._setup.news())
        self._saved = monotonic()
        self._cost = self._saved - began - self._store.rows_took
        self._tell(Kept(self._server.view.version))

    def _restore(self, state: State) -> None:
        self._timeline.restore(take(state, "simulation", dict))
        self._kept = self._server.view.version
        before = self._kept - self._kept % self._every  # what was saved by an older fairlag does not say
        self._scored = take({"scored": before, **state}, "scored", int)
        for each in take(state, "pending", dict).values():
            pending = _Pending(each["version"], each["time"], each["stop"], each["parameters"])
            self._pending.append(pending)
            if self._executor is not None:
                self._executor.evaluate(pending.version, pending.parameters, pending.time, pending.stop)

    def _finish(self, stop: Stop) -> None:
        if self._setup.real:
            self._commit()
        view = self._server.view
        tensors = self._layout.split(self._server.versions.newest)
        meta = {"virtual_time": view.time, "counts": self._server.counts}
        self._store.finish(tensors, stop.reason, refusals=self._server.refusals, meta=meta)
        self._report()


def _scores(sums: "ScoreSums", scoring: Scoring, *, whole: bool) -> Iterator[Score]:
    """Of all examples, of every class, and of the labels that each client group holds."""
    classes = range(len(sums.examples))
    parts = [("all", "", list(classes))]
    parts += [("class", str(each), [each]) for each in classes if len(classes) > 1]
    parts += [("group", name, labels.tolist()) for name, labels in scoring.held.items()]
    for scope, name, chosen in parts:
        examples = int(sums.examples[chosen].sum())
        if examples:
            loss = float(sums.loss[chosen].sum()) / examples
            yield Score(scope, name, examples, int(sums.correct[chosen].sum()), loss, whole)


@contextmanager
def _interrupts_noted() -> Iterator[threading.Event]:
    """The first Ctrl-C is noted, so that no event is cut in two; the second one interrupts as usual.

    What ignores it, as after `nohup`, or was not set by Python and so could not be set again, stays as it is.
    """
    noted = threading.Event()
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or before in (signal.SIG_IGN, None):
        yield noted
        return

    def note(number: int, frame: FrameType | None) -> None:
        noted.set()
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, note)
    asked = execute.interrupted.set(noted.is_set)
    try:
        yield noted
    finally:
        execute.interrupted.reset(asked)
        signal.signal(signal.SIGINT, before)
