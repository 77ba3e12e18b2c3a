"""`fairlag.deploy`: trains with a strategy on a real fleet, over Flower's Grid, and records it like any other run."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fairlag import imported
from fairlag.core.server import Server
from fairlag.core.strategy import Strategy
from fairlag.core.types import Integers
from fairlag.core.vector import Layout, Vector, is_statistic
from fairlag.core.view import Reference
from fairlag.errors import InputError
from fairlag.execute.background import BackgroundEvaluator
from fairlag.execute.reference import ReferenceStep
from fairlag.lab.evaluations import MOST_PENDING, Evaluations
from fairlag.lab.events import Event, Progress, Tell
from fairlag.lab.executors import ExecutorChoice
from fairlag.lab.experiment import Experiment
from fairlag.lab.governed import Governed, authenticated
from fairlag.lab.keeping import keeper_sum
from fairlag.lab.loop import RunLoop
from fairlag.lab.orders import Orders
from fairlag.lab.plan import Plan, Planned
from fairlag.lab.privacy import deployed, noise_facts
from fairlag.lab.records import check_same, name_of, opened, told
from fairlag.lab.resources import Resources, Scoring, Setting
from fairlag.lab.run import Run
from fairlag.lab.simulate import single
from fairlag.lab.store import Store
from fairlag.lab.track.listen import Trackers
from fairlag.lab.trusted import Trusted, TrustedTraining, check_trusted
from fairlag.learn.evaluation import Asked, Found
from fairlag.learn.task import LOSS, ScoreSums
from fairlag.privacy.noise import SYSTEM
from fairlag.privacy.secure.sums import KeeperSum
from fairlag.rules.admit import all_of, max_norm
from fairlag.rules.local import Local
from fairlag.runtime.flower.link import Link
from fairlag.runtime.flower.masked_wire import MaskedWire
from fairlag.runtime.flower.nodes import LOG
from fairlag.runtime.flower.options import KeeperAddress, Options
from fairlag.runtime.flower.roster import Roster
from fairlag.runtime.flower.wire import Wire
from fairlag.text.scored import Scored

if TYPE_CHECKING:
    from flwr.serverapp import Grid
    from torch import nn

Arrays = Mapping[str, ArrayLike]
Judge = Callable[[dict[str, NDArray[Any]]], tuple[ArrayLike, ArrayLike, ArrayLike]]
"""From the arrays of a version to the number of test examples, the number of correct ones, and the sum of the losses:
each is one number, or one number per class."""


def deploy(
    grid: "Grid",
    experiment: Experiment | Mapping[str, Any] | str | Path,
    *,
    out: str | Path,
    strategy: Any = None,
    seed: int | None = None,
    arrays: "Arrays | nn.Module | None" = None,
    evaluate: Judge | None = None,
    trusted: Trusted | None = None,
    secure: KeeperAddress | None = None,
    track: str | Sequence[str] | None = None,
    watch: Tell | None = None,
    keep: int = 5,
    **options: Any,
) -> Run:
    """Trains with one strategy on the nodes of a Flower federation, and returns the run. Call it in a ServerApp.

    The experiment is the same as for a simulation; its clients' delays are only assumptions, and not used. It provides
    the model and the test examples, unless `arrays` are given to begin with: a model, its `state_dict()`, or named
    arrays; then `evaluate`, if given, scores the versions. Defences that compare updates with a step of the server's
    own (`zeno`, `aflguard`) make it on the `trusted` examples of [data]. Without [data], `trusted` is a function that
    trains as a client does: from the arrays of a version and a configuration to the arrays after training. If its
    [privacy] has `secure = true`, `secure` names the mask keeper, and clients mask their updates
    (`fairlag.flower.masked`). A run that is already in `out` continues from its last version. `keep` checkpoints are
    kept, at increasing distances, so that `fairlag rollback` can go back to one. `options` are those of
    `fairlag.runtime.flower.options.Options`.

    >>> import fairlag
    >>> from flwr.serverapp import ServerApp
    >>> app = ServerApp()
    >>> @app.main()
    ... def main(grid, context):
    ...     fairlag.deploy(grid, "demo", strategy="fairshare", out="runs/fleet")
    """
    chosen = single(experiment, strategy, seed=seed, track=track)
    how = _fitting(Options(**options), chosen)
    if chosen.evaluate.clients is not None:
        raise InputError(
            f"evaluate.clients is {chosen.evaluate.clients:g}, but the clients of a real fleet keep their data to "
            "themselves: remove it, or simulate the experiment"
        )
    if type(keep) is not int or keep < 1:
        raise InputError(f"keep is {keep!r}, it must be a whole number of at least 1")
    allowed = authenticated(grid, how)
    plan = Plan(chosen, (chosen.seed,), Path(out), single=True)
    (planned,) = plan
    if plan.saved:
        check_same(planned, deployed=True)
        if Run(planned.folder).status == "finished":
            there = planned.folder.absolute()
            LOG.info("The run in %s is finished: there is nothing to do; give another `out` for a new run", there)
            return Run(planned.folder)
    else:
        plan.check_new()
    deployed(chosen.privacy, chosen.strategy(planned.use))  # refuses a budget that allows no update
    with closing(Resources(chosen, ExecutorChoice("serial", 1))) as resources:
        model = _given(chosen, arrays, evaluate) if arrays is not None else _own(resources, planned)
        chosen.strategy(planned.use).check_model(model.setting.layout)
        check_trusted(chosen, planned.use, trusted)
        sums = keeper_sum(chosen, chosen.strategy(planned.use), model.setting.layout, secure, LOG.warning)
        orders = _orders(resources, planned, model.setting.examples, how)
        if not plan.saved:
            plan.save()
        teller = _Teller(Trackers(chosen.track, plan.home), watch)
        groups = [(table.group, table.count) for table in chosen.clients]
        noisy = chosen.privacy is not None and chosen.privacy.differential
        roster = Roster(groups, by_key=how.identified, most=how.max_clients, lasting=noisy)
        _run(resources, planned, model, _Fleet(grid, roster, how, allowed, orders, trusted, sums), teller, keep)
    return Run(planned.folder)


@dataclass(frozen=True, slots=True)
class _Model:
    """What is trained: its initial parameters, what is sent to clients, and how versions are scored."""

    setting: Setting
    fixed: Mapping[str, NDArray[Any]]
    """The arrays that are sent, but not trained."""
    wire: Wire
    score: Callable[[Vector, Asked], Found] | None


def _own(resources: Resources, planned: Planned) -> _Model:
    """The model of the experiment, evaluated on its test examples."""
    experiment = resources.experiment
    if experiment.data is None:
        raise InputError(f"the experiment {experiment.name!r} has no [data] and [model]: give the initial `arrays`")
    setting, blueprint = resources.setting(planned.seed), resources.blueprint
    state = {name: each.numpy() for name, each in blueprint.build(planned.seed).state_dict().items()}
    fixed = {name: each for name, each in state.items() if name not in setting.layout.names}
    hidden = frozenset(setting.layout.names) - state.keys()
    return _Model(setting, fixed, Wire(setting.layout, fixed, hidden), resources.scorer(setting, Local()))


def _given(experiment: Experiment, arrays: "Arrays | nn.Module", evaluate: Judge | None) -> _Model:
    """A model from the user's arrays: float32 arrays are trained, or mixed if they are statistics; others are fixed."""
    if experiment.data is not None:
        raise InputError(f"the experiment {experiment.name!r} has a [model], so `arrays` must not be given")
    state = arrays if isinstance(arrays, Mapping) else arrays.state_dict()
    named = {name: np.asarray(each) for name, each in state.items()}
    sent = {name: each for name, each in named.items() if each.dtype == np.float32}
    buffers = () if isinstance(arrays, Mapping) else [name for name, _ in arrays.named_buffers(remove_duplicate=False)]
    statistics = [name for name in sent if name in buffers or is_statistic(name)]
    if len(sent) == len(statistics):
        raise InputError(
            f"none of the arrays {sorted(named)} has type float32, except statistics: there is nothing to train"
        )
    fixed = {name: each for name, each in named.items() if name not in sent}
    order = (*(name for name in sent if name not in statistics), *statistics)
    layout = Layout(order, tuple(sent[name].shape for name in order), len(statistics))
    no_examples = np.zeros(experiment.population, np.int64)
    scoring = None if evaluate is None else Scoring(1, 1, {})
    setting = Setting(experiment.seed, layout.flatten(sent), layout, no_examples, no_examples, scoring=scoring)

    def score(parameters: Vector, asked: Asked) -> ScoreSums:
        assert evaluate is not None
        examples, correct, loss = evaluate({**layout.split(parameters), **fixed})
        sums = {"accuracy": _counts(correct).astype(np.float64), LOSS: np.atleast_1d(np.asarray(loss, np.float64))}
        return ScoreSums(_counts(examples), sums)

    return _Model(setting, fixed, Wire(layout, fixed), None if evaluate is None else score)


def _counts(given: ArrayLike) -> Integers:
    return np.atleast_1d(np.asarray(given)).astype(np.int64)


@dataclass(frozen=True, slots=True)
class _Fleet:
    """The nodes that train: how to reach them, which clients they are, and what they are asked to do."""

    grid: "Grid"
    roster: Roster
    options: Options
    allowed: Mapping[str, str] | None
    """The keys that may take part; None if any key may."""
    orders: Orders
    trusted: Trusted | None
    sums: KeeperSum | None = None
    """What adds up their updates, if these are masked."""

    def group_of(self, client: int) -> str:
        return self.roster.group_of[client // self.options.queued]


def _reference(resources: Resources, strategy: Strategy, model: _Model, fleet: _Fleet) -> Reference | None:
    """The step that the strategy compares updates with, if it does. It is trained in this process.

    A function of the user is told what the client after the last one would be.
    """
    if not strategy.reference:
        return None
    if fleet.trusted is None:
        return resources.reference(resources.executor(model.setting, strategy))
    number = resources.experiment.population * fleet.options.queued
    return ReferenceStep(TrustedTraining(fleet.trusted, model.setting.layout, model.fixed, fleet.orders.asked, number))


def _run(resources: Resources, planned: Planned, model: _Model, fleet: _Fleet, teller: "_Teller", keep: int) -> None:
    experiment, setting, queued = resources.experiment, model.setting, fleet.options.queued
    with ExitStack() as held:
        judge = None if model.score is None else held.enter_context(closing(BackgroundEvaluator(model.score)))
        store = held.enter_context(_opened(resources, planned, queued, keep))
        governed = Governed(planned.folder, store.meta, fleet.roster, fleet.options, fleet.allowed)
        held.enter_context(closing(governed))
        held.enter_context(told(store, planned, teller))
        every = experiment.evaluate.every
        evaluations = Evaluations(store, judge, setting.scoring, every=every, most_pending=MOST_PENDING)
        strategy = experiment.strategy(planned.use)
        server = Server(
            _bounded(strategy, fleet.options),
            clients=experiment.population * queued,
            parameters=setting.parameters,
            layout=setting.layout,
            seed=setting.seed,
            aggregations=experiment.aggregations,
            until_time=experiment.until_time,
            examples=None if setting.placement is None else np.repeat(setting.visible, queued),
            group_of=fleet.group_of,
            max_growth=fleet.options.max_growth,
            reference=_reference(resources, strategy, model, fleet),
            secure=fleet.sums,
            privacy=deployed(experiment.privacy, strategy),
            record=governed.recorded(store.record),
            on_version=evaluations.offer,
        )
        wire = model.wire
        if fleet.sums is not None and experiment.privacy is not None:
            wire = MaskedWire(setting.layout, model.fixed, run=fleet.sums.run, clip=experiment.privacy.clip)
        link = Link(server, fleet.grid, wire, governed.work(fleet.orders), fleet.roster, fleet.options, governed.gate)
        held.enter_context(closing(link))
        news = _News(link, fleet.group_of)
        facts = governed.log.head
        RunLoop(
            server, link, store, evaluations, setting.layout, teller, real=True, news=news, facts=facts
        ).to_the_end()


def _opened(resources: Resources, planned: Planned, queued: int, keep: int) -> Store:
    """The store of a run; the log says whether it is a new one."""
    experiment = resources.experiment
    noise = noise_facts(experiment.privacy, experiment.strategy(planned.use), SYSTEM)
    store = opened(resources, planned, {"runtime": "flower", "queued": queued, **noise}, queued=queued, keep=keep)
    if (before := store.meta.get("queued")) != queued:
        store.close()
        raise InputError(
            f"the run in {str(planned.folder)!r} was begun with {before} tasks per node, "
            f"not {queued}: it can only continue with {before}"
        )
    version = Run(planned.folder).version
    how = f"continues from version {version}" if version else "begins"
    LOG.info("%s, %s, in %s", name_of(planned), how, planned.folder.absolute())
    return store


class _News:
    """The new facts about the clients of a fleet since the last call."""

    def __init__(self, link: Link, group_of: Callable[[int], str]) -> None:
        self._link = link
        self._group_of = group_of
        self._told: dict[int, tuple[str, int]] = {}

    def __call__(self) -> list[tuple[int, str, int]]:
        """The clients whose group or number of examples is new."""
        known = {client: (self._group_of(client), examples) for client, examples in self._link.examples.items()}
        fresh = [(client, *facts) for client, facts in known.items() if self._told.get(client) != facts]
        self._told = known
        return fresh


def _orders(resources: Resources, planned: Planned, examples: Integers, options: Options) -> Orders:
    """What a strategy asks clients to do, and how much of their reports the server believes."""
    experiment = resources.experiment
    local = experiment.strategy(planned.use).local
    if local.direction is not None:
        raise InputError(
            f"{planned.use.label} needs clients that remember vectors from one task to the next, "
            "which fairlag does not ask of a Flower ClientApp: use another strategy"
        )
    for name in ("train", "optimiser_state"):
        if (value := getattr(experiment.local, name)) is not None:
            raise InputError(
                f"{name} of [local] is {imported.name_of(value)!r}, which fairlag does not ask of a Flower ClientApp: "
                "it trains by its own code, so remove the key"
            )
    most = options.max_examples or int(examples.max(initial=0))
    if not most:
        raise InputError(
            f"the experiment {experiment.name!r} has no [data] that limits how many examples clients may report: "
            "give max_examples, the largest number of training examples that one client can have"
        )
    own = np.repeat([table.steps or 0 for table in experiment.clients], [table.count for table in experiment.clients])
    return Orders(experiment.local.build().asked(local), planned.seed, own, most, options)


def _fitting(options: Options, experiment: Experiment) -> Options:
    """The options as [privacy] allows them.

    The server cannot see the length of masked updates. Differential privacy bounds it by a number that does not depend
    on other updates. A node must be one client, because that is what both hide.
    """
    privacy = experiment.privacy
    if privacy is None or not (privacy.secure or privacy.differential):
        return options
    if options.queued > 1:
        raise InputError(
            f"queued is {options.queued}, so a node counts as {options.queued} clients, but [privacy] hides one: use 1"
        )
    return replace(options, max_norm=None, max_growth=None if privacy.differential else options.max_growth)


def _bounded(strategy: Strategy, options: Options) -> Strategy:
    """The strategy with a further rule, which refuses updates with a much larger norm than usual."""
    if options.max_norm is None:
        return strategy
    rules = [] if strategy.admit is None else [strategy.admit]
    return replace(strategy, admit=all_of(*rules, max_norm(options.max_norm)))


class _Teller:
    """Tells trackers, the caller's `watch`, and the log of the app."""

    def __init__(self, trackers: Trackers, watch: Tell | None) -> None:
        self._tellers: list[Tell] = [trackers, *([] if watch is None else [watch])]
        self._told = 0
        self._scores: dict[str, float] = {}

    def __call__(self, event: Event) -> None:
        if isinstance(event, Progress) and event.version > self._told:
            self._told = event.version
            known = {} if event.scores == self._scores else event.scores
            scores = "".join(
                f", {name or event.lead.words} {_short(value, event.lead)}" for name, value in known.items()
            )
            self._scores = event.scores
            LOG.info("Version %s at %.0f s, from %s updates%s", event.version, event.time, event.updates, scores)
        for tell in self._tellers:
            tell(event)


def _short(value: float, lead: Scored) -> str:
    return f"{value:.1%}" if lead.rate else lead.told(value)
