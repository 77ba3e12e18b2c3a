"""`fairlag.deploy`: the strategy of an experiment on a real fleet, over Flower's Grid, into the same kind of run."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from flwr.serverapp import Grid
from numpy.typing import ArrayLike, NDArray

from fairlag.errors import InputError
from fairlag.execute.aside import Aside
from fairlag.lab.conduct import Conductor, Stage
from fairlag.lab.events import Event, Progress, Tell
from fairlag.lab.experiment import Experiment
from fairlag.lab.plan import Plan, Planned
from fairlag.lab.records import check_same, name_of, opened, told
from fairlag.lab.run import Run
from fairlag.lab.simulate import single
from fairlag.lab.track.listen import Trackers
from fairlag.lab.workshop import Scoring, Setting, Workshop
from fairlag.learn.learner import Learner, Score, chunks, total
from fairlag.learn.local import Recipe
from fairlag.learn.models import one_thread
from fairlag.runtime.flower.link import Link, Work
from fairlag.runtime.flower.nodes import LOG
from fairlag.runtime.flower.options import Options
from fairlag.runtime.flower.roster import Roster
from fairlag.runtime.flower.wire import Wire
from fairlag.server import Server
from fairlag.types import Dispatch, Integers, Report
from fairlag.vector import Layout, Vector

if TYPE_CHECKING:
    from torch import nn

Arrays = Mapping[str, ArrayLike]
Judge = Callable[[dict[str, NDArray[Any]]], tuple[ArrayLike, ArrayLike, ArrayLike]]
"""From the arrays of a version to how many test examples there are, how many are right, and the sum of their losses:
each a number, or one number a class."""


def deploy(
    grid: Grid,
    experiment: Experiment | Mapping[str, Any] | str | Path,
    *,
    out: str | Path,
    strategy: Any = None,
    seed: int | None = None,
    arrays: "Arrays | nn.Module | None" = None,
    evaluate: Judge | None = None,
    track: str | Sequence[str] | None = None,
    watch: Tell | None = None,
    **options: Any,
) -> Run:
    """Trains with one strategy on the nodes of a Flower federation, and returns the run: call it in a ServerApp.

    The experiment is the same as for a simulation; its clients' delays are what is assumed of them, and not used. It
    has the model and the test examples, unless `arrays` are what training begins with: a model, its `state_dict()`, or
    named arrays; then `evaluate`, if given, judges versions. A run that is in `out` already is gone on with from its
    last version. `options` are those of `fairlag.runtime.flower.options.Options`.
    """
    chosen = single(experiment, strategy, seed=seed, track=track)
    how = Options(**options)
    plan = Plan(chosen, (chosen.seed,), Path(out), single=True)
    (planned,) = plan
    if plan.saved:
        check_same(planned)
        if Run(planned.folder).status == "finished":
            there = planned.folder.absolute()
            LOG.info("The run in %s is finished: nothing is left to do; another `out` makes a new one", there)
            return Run(planned.folder)
    else:
        plan.check_new()
    with closing(Workshop(chosen)) as workshop:
        model = _given(chosen, arrays, evaluate) if arrays is not None else _own(workshop, planned)
        work = _orders(workshop, planned, how.queued)
        if not plan.saved:
            plan.save()
        teller = _Teller(Trackers(chosen.track, plan.home), watch)
        roster = Roster([(table.group, table.count) for table in chosen.clients], by_key=how.by_key)
        with closing(_Fleet(grid, model.wire, roster, how, work)) as fleet:
            _conduct(workshop, planned, model, fleet, teller)
    return Run(planned.folder)


@dataclass(frozen=True, slots=True)
class _Model:
    """What is trained: how it begins, what is sent of it, and how its versions are judged."""

    setting: Setting
    wire: Wire
    score: Callable[[Vector, int], Score] | None


def _own(workshop: Workshop, planned: Planned) -> _Model:
    """The model of the experiment, judged on its test examples."""
    experiment = workshop.experiment
    if experiment.data is None:
        raise InputError(
            f"the experiment {experiment.name!r} has no [data] and [model]: give `arrays`, which training begins with"
        )
    setting, data, blueprint = workshop.setting(planned.seed), workshop.data, workshop.blueprint
    assert setting.placement is not None  # there is data
    learner = Learner(blueprint, data.inputs, data.labels, setting.placement, planned.seed)
    state = {name: each.numpy() for name, each in blueprint.build(planned.seed).state_dict().items()}
    fixed = {name: each for name, each in state.items() if name not in setting.layout.names}
    hidden = frozenset(setting.layout.names) - state.keys()

    def score(parameters: Vector, stop: int) -> Score:
        with one_thread():
            return total([learner.evaluate(parameters, *part) for part in chunks(stop)])

    return _Model(setting, Wire(setting.layout, fixed, hidden), score)


def _given(experiment: Experiment, arrays: "Arrays | nn.Module", evaluate: Judge | None) -> _Model:
    """Arrays that the user gave: those of float32 are trained, all others stay as they are."""
    if experiment.data is not None:
        raise InputError(f"the experiment {experiment.name!r} has a [model], so `arrays` must not be given")
    state = arrays if isinstance(arrays, Mapping) else arrays.state_dict()
    named = {name: np.asarray(each) for name, each in state.items()}
    trained = {name: each for name, each in named.items() if each.dtype == np.float32}
    if not trained:
        raise InputError(f"none of the arrays {sorted(named)} is of float32: there is nothing to train")
    fixed = {name: each for name, each in named.items() if name not in trained}
    layout = Layout(tuple(trained), tuple(each.shape for each in trained.values()))
    nobody = np.zeros(experiment.population, np.int64)
    scoring = None if evaluate is None else Scoring(1, 1, {})
    setting = Setting(experiment.seed, layout.flatten(trained), layout, nobody, nobody, scoring=scoring)

    def score(parameters: Vector, stop: int) -> Score:
        assert evaluate is not None
        examples, correct, loss = evaluate({**layout.split(parameters), **fixed})
        return Score(_counts(examples), _counts(correct), np.atleast_1d(np.asarray(loss, np.float64)))

    return _Model(setting, Wire(layout, fixed), None if evaluate is None else score)


def _counts(given: ArrayLike) -> Integers:
    return np.atleast_1d(np.asarray(given)).astype(np.int64)


def _conduct(workshop: Workshop, planned: Planned, model: _Model, fleet: "_Fleet", teller: "_Teller") -> None:
    experiment, queued = workshop.experiment, fleet.options.queued
    with ExitStack() as held:
        judge = None if model.score is None else held.enter_context(closing(Aside(model.score)))
        meta = {"runtime": "flower", "queued": queued}
        store = held.enter_context(opened(workshop, planned, meta, queued=queued))
        if store.meta.get("queued") != queued:
            raise InputError(
                f"the run in {str(planned.folder)!r} was begun with {store.meta.get('queued')} tasks a node, "
                f"not {queued}: it can only go on with as many"
            )
        held.enter_context(told(store, planned, teller))
        version = Run(planned.folder).version
        how = f"goes on from version {version}" if version else "begins"
        LOG.info("%s, %s, in %s", name_of(planned), how, planned.folder.absolute())
        places = experiment.population * queued
        stage = Stage(model.setting, places, judge, fleet.begin, fleet.group_of, real=True, news=fleet.news)
        Conductor(experiment, planned.use, stage, store, teller).to_the_end()


@dataclass(slots=True)
class _Fleet:
    """The link to a fleet, once there is a server to drive, and what was learnt of its clients."""

    grid: Grid
    wire: Wire
    roster: Roster
    options: Options
    work: Work
    link: Link | None = None
    known: dict[int, tuple[str, int]] = field(default_factory=dict)

    def begin(self, server: Server) -> Link:
        self.link = Link(server, self.grid, self.wire, self.work, self.roster, self.options)
        return self.link

    def group_of(self, client: int) -> str:
        return self.roster.group_of[client // self.options.queued]

    def close(self) -> None:
        if self.link is not None:
            self.link.close()

    def news(self) -> Iterable[tuple[int, str, int]]:
        """The clients whose group or number of examples is new."""
        assert self.link is not None
        told = {client: (self.group_of(client), examples) for client, examples in self.link.examples.items()}
        fresh = [(client, *facts) for client, facts in told.items() if self.known.get(client) != facts]
        self.known = told
        return fresh


def _orders(workshop: Workshop, planned: Planned, queued: int) -> Work:
    """What the clients of a strategy are told to do."""
    experiment = workshop.experiment
    local = experiment.strategy(planned.use).local
    if local.direction is not None:
        raise InputError(
            f"{planned.use.label} asks clients to remember vectors from one task to the next, "
            "which fairlag does not ask of a Flower ClientApp: take another strategy"
        )
    return _Orders(experiment.local.build().asked(local), planned.seed, experiment.fleet().steps, queued).work


@dataclass(frozen=True, slots=True)
class _Orders:
    recipe: Recipe
    seed: int
    own: Integers
    """Per client of the experiment: how many local steps it makes by itself."""
    queued: int

    @property
    def work(self) -> Work:
        return Work(self.asked, self.usual)

    def asked(self, task: Dispatch) -> dict[str, Any]:
        """Under the names that Flower's own strategies and examples use, where they have one."""
        recipe = self.recipe
        by_epochs = recipe.epochs is not None and not task.steps
        return {
            "local-epochs" if by_epochs else "local-steps": recipe.epochs if by_epochs else self._steps(task),
            "lr": self._lr(task),
            "batch-size": recipe.batch,
            "momentum": recipe.momentum,
            "weight-decay": recipe.weight_decay,
            "proximal-mu": recipe.prox,
            "client": task.client // self.queued,
            "ordinal": task.ordinal,
            "seed": self.seed,
        }

    def usual(self, task: Dispatch) -> Report:
        """As far as it is known here; after epochs, clients must say how many steps they were."""
        steps = self._steps(task)
        return Report(1, steps, self.recipe.effort(steps, self._lr(task)))

    def _steps(self, task: Dispatch) -> int:
        number = task.client // self.queued
        return task.steps or (int(self.own[number]) if number < len(self.own) else self.recipe.steps) or 1

    def _lr(self, task: Dispatch) -> float:
        return self.recipe.lr.at(task.version) * task.pace


class _Teller:
    """Tells trackers, whoever watches, and the log of the app."""

    def __init__(self, trackers: Trackers, watch: Tell | None) -> None:
        self._tellers: list[Tell] = [trackers, *([] if watch is None else [watch])]
        self._told = 0
        self._accuracy: dict[str, float] = {}

    def __call__(self, event: Event) -> None:
        if isinstance(event, Progress) and event.version > self._told:
            self._told = event.version
            known = {} if event.accuracy == self._accuracy else event.accuracy
            scores = "".join(f", {name or 'accuracy'} {value:.1%}" for name, value in known.items())
            self._accuracy = event.accuracy
            LOG.info("Version %s at %.0f s, from %s updates%s", event.version, event.time, event.updates, scores)
        for tell in self._tellers:
            tell(event)
