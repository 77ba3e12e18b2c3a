"""What all runs of an experiment share: the data, the model, and the executor that computes tasks and evaluations."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairlag.core.strategy import Strategy
from fairlag.core.types import Floats, Integers
from fairlag.core.vector import EMPTY, Layout, Vector
from fairlag.core.view import Reference
from fairlag.data.partition import ByOwner, Partition
from fairlag.data.reserve import drawn_clients, reserve, without
from fairlag.data.shares import Holding, Shares
from fairlag.data.split import reserved, split, stratified
from fairlag.data.stream import NO_TIMES, Recorded, Stream, in_order_of_arrival, parse
from fairlag.errors import InputError
from fairlag.execute import EXECUTORS, Learning
from fairlag.lab.executors import ExecutorChoice
from fairlag.lab.experiment import Experiment
from fairlag.lab.learning import share_out
from fairlag.lab.strategies import Use
from fairlag.learn import devices
from fairlag.learn.targets import Targets
from fairlag.rules.local import Local

if TYPE_CHECKING:
    from fairlag.data.dataset import Dataset
    from fairlag.learn.behave import Behaviour
    from fairlag.learn.blueprint import Blueprint
    from fairlag.learn.evaluation import Asked, Found
    from fairlag.learn.placement import Placement
    from fairlag.learn.task import Task
    from fairlag.learn.tasks import TaskUse


class Scoring(NamedTuple):
    """How a version is scored: on how many test examples, and which labels each client group holds."""

    sample: int
    whole: int
    held: dict[str, Integers]
    task: "Task | None" = None
    """None: classification."""
    clients: Integers = np.empty(0, np.int64)
    """The clients that are tested on their own examples."""
    steps: tuple[int, ...] = ()
    """How many local steps these make before; 0: the model is tested as it is. Empty if no client is tested."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What a seed determines before a run begins: the same for every strategy."""

    seed: int
    parameters: Vector
    layout: Layout
    examples: Integers
    """Per client: how many training examples it holds."""
    visible: Integers
    """Per client: how many of them it has at time 0."""
    placement: "Placement | None" = None
    scoring: Scoring | None = None


def model_bytes(experiment: Experiment) -> int:
    """The size of an experiment's model: 4 bytes per parameter."""
    from fairlag.learn.flat import Flat

    return 4 * Flat(Resources(experiment).blueprint.build(experiment.seed)).parameters.size


class Resources:
    """What all runs of an experiment share; the runs are made one after the other."""

    def __init__(self, experiment: Experiment, choice: ExecutorChoice = ExecutorChoice()) -> None:  # noqa: B008 (frozen)
        """Everything is loaded or built on first use."""
        self.experiment = experiment
        self._choice = choice
        self._executors: dict[str, Learning] = {}
        self._settings: dict[int, Setting] = {}
        self._own: Resources | None = None
        """Those of the last strategy that has its own keys of [local]."""

    def of(self, use: Use) -> "Resources":
        """The resources for the runs of a strategy: the same, unless it has its own keys of [local]."""
        if use.local is None:
            return self
        alone = self.experiment.alone(use)
        if self._own is None or self._own.experiment != alone:
            self.close()
            self._own = Resources(alone, self._choice)
            if alone.data is not None:
                self._own.data = self.data
        return self._own

    @cached_property
    def data(self) -> "Dataset":
        """The data set, as its task takes it."""
        table = self.experiment.data
        if table is None:
            raise InputError(f"the experiment {self.experiment.name!r} has no [data]")
        # Without a [task], nothing here needs torch, which takes a second to import.
        targets = Targets.CLASSES if self.experiment.task is None else self.task.targets
        return targets.fitted(table.load(self.experiment.folder))

    @cached_property
    def task(self) -> "Task":
        """What is to be learnt."""
        return self._task_use.build(self.experiment.folder)

    @property
    def _task_use(self) -> "TaskUse":
        from fairlag.learn.tasks import TaskUse

        table = self.experiment.task
        return TaskUse() if table is None else TaskUse(table.use, tuple(table.parameters.items()), table.metrics)

    @property
    def groups(self) -> list[Holding]:
        """The client groups that share the training examples."""
        return [Holding(table.group, table.count, table.labels, table.names) for table in self.experiment.clients]

    @cached_property
    def stream(self) -> Stream | None:
        """How the clients' examples arrive; None if they have all of them from the start."""
        table = self.experiment.data
        if table is None or (table.stream is None and self.data.times is None):
            return None
        stream = Recorded() if table.stream is None else parse(table.stream)
        if isinstance(stream, Recorded) and self.data.times is None:
            raise InputError(
                f"the stream {stream} needs data that says when each example arrives, but {self.data.name} does not: "
                "name the column in `time`, or use another stream, such as linear(start=0.1, per_second=0.001)"
            )
        return stream

    @cached_property
    def device(self) -> str:
        """Where models are trained on this machine; the CPU if there is nothing to train."""
        return devices.resolved(None if self.experiment.data is None else self.experiment.device)

    @cached_property
    def blueprint(self) -> "Blueprint":
        """How to build the model and train it."""
        from fairlag.learn.blueprint import Blueprint

        model, data = self.experiment.model, self.data
        if model is None:
            raise InputError(f"the experiment {self.experiment.name!r} has no [model]")
        blueprint = Blueprint(
            model=model.use,
            parameters=model.parameters,
            recipe=self.experiment.local.build(),
            shape=data.shape,
            classes=data.classes,
            scale=data.scale,
            offset=data.offset,
            stream=self.stream,
            folder=self.experiment.folder,
            compiled=self.experiment.local.engine == "compiled",
            task=self._task_use,
            target=data.labels.shape[1:],
            tokens=data.inputs.dtype == np.int64,
            device=self.device,
        )
        _ = blueprint.train  # imported now, to fail before anything is written
        return blueprint

    def shares(self, seed: int) -> tuple[Integers, Shares]:
        """The training examples, as indices into the data, and which client trains on which of them, for a seed.

        If the data is a stream, a client's examples are in the order in which they arrive.
        """
        train, shares, reserved = self._reserved(seed)
        return train, without(shares, reserved) if reserved.size else shares

    def _reserved(self, seed: int) -> tuple[Integers, Shares, Integers]:
        """The same with the own test examples of each client, which are its last; and how many these are, if any."""
        train, shares = self._all_shares(seed)
        part = self.experiment.evaluate.clients
        if part is None:
            return train, shares, np.empty(0, np.int64)
        shares, reserved = reserve(shares, part, seed)
        if not reserved.any():
            most = int(shares.sizes.max())
            raise InputError(
                f"evaluate.clients is {part:g}, but no client has enough examples for a test of its own: none holds "
                f"more than {most}; give a larger part, or more data"
            )
        return train, shares, reserved

    def _all_shares(self, seed: int) -> tuple[Integers, Shares]:
        data, groups = self.data, self.groups
        train, _, _ = self._split(seed)
        shares = self._partition.bound(data, train).share(data.strata[train], groups, seed)
        return train, shares if self.stream is None else in_order_of_arrival(shares, seed, self._times(train))

    def names(self, seed: int) -> list[str]:
        """What each client is called: by the data if that says who holds what, otherwise by its group and number."""
        data = self.data
        if data.owners is None or not isinstance(self._partition, ByOwner):
            return [f"{group.name} {number}" for group in self.groups for number in range(group.count)]
        train, shares = self.shares(seed)
        return [data.clients[owner] for owner in data.owners[train[shares.order[shares.bounds[:-1]]]]]

    @property
    def _partition(self) -> Partition:
        assert self.experiment.data is not None  # else there would be no data
        return share_out(self.experiment.data, self.groups, natural=self.data.owners is not None)

    def _times(self, train: Integers) -> Floats | None:
        """When these examples arrive; None if the data does not say."""
        if self.data.times is None:
            return None
        times = self.data.times[train]
        if np.isnan(times).any():
            raise InputError(
                f"example {train[np.isnan(times)][0]} of {self.data.name} has no time, but each training example needs "
                "one"
            )
        return times

    def held(self, client: int, seed: int | None = None) -> tuple[NDArray[Any], NDArray[Any]]:
        """A client's training examples as inputs of the model, and their labels; for this seed, or the file's."""
        train, shares = self.shares(self.experiment.seed if seed is None else seed)
        mine, data = train[shares.of(client)], self.data
        inputs = data.inputs[mine]
        if inputs.dtype != np.int64:
            inputs = inputs.astype(np.float32) * np.float32(data.scale) + np.float32(data.offset)
        return inputs, data.labels[mine]

    def setting(self, seed: int) -> Setting:
        """Which client holds which examples, and the initial model, for a seed."""
        if seed not in self._settings:
            self._settings = {seed: self._setting(seed) if self.experiment.data else self._idle(seed)}
        return self._settings[seed]

    def executor(self, setting: Setting, strategy: Strategy) -> Learning | None:
        """The executor for a run of this strategy in this setting; None if there is nothing to train."""
        if setting.placement is None:
            return None
        if not self._executors:
            self._choice = self._choice.on(self.device).limited(self._jobs_at_once(setting))
        name = self._choice.chosen(batched=self.blueprint.is_batched(strategy.local))
        if not EXECUTORS[name].alone and self.is_compiled(strategy):
            self._compile(setting.placement, strategy)
        if name not in self._executors:
            asked = [self.experiment.strategy(use).local for use in self.experiment.strategies]
            vectors, shares = max(each.vectors for each in asked), any(each.shares for each in asked)
            engaged = self._choice.engaged(name, self.blueprint, self.data, setting.placement, vectors, shares)
            self._executors[name] = engaged
        executor = self._executors[name]
        executor.begin(setting.seed, setting.placement, strategy.local)
        if all(behaviour.flips_labels for behaviour in self.attackers.values()):
            return executor  # wrong labels are part of the placement
        from fairlag.execute.misbehaving import Misbehaving

        return Misbehaving(executor, self.attackers, setting.seed, setting.layout.parameters.size)

    def reference(self, executor: Learning | None) -> Reference | None:
        """Makes steps on the server's own examples; None if it has none."""
        if executor is None or self._trusted is None:
            return None
        from fairlag.execute.misbehaving import Misbehaving
        from fairlag.execute.reference import ReferenceStep, trained_by

        inner = executor.inner if isinstance(executor, Misbehaving) else executor
        return ReferenceStep(trained_by(inner, self.experiment.population))

    @cached_property
    def attackers(self) -> "Mapping[int, Behaviour]":
        """The clients that misbehave, and how."""
        found, first = {}, 0
        for table in self.experiment.clients:
            if (behaviour := table.misbehaves) is not None:
                found.update(dict.fromkeys(range(first, first + table.count), behaviour))
            first += table.count
        return found

    def scorer(self, setting: Setting, local: Local) -> "Callable[[Vector, Asked], Found]":
        """A function that scores parameters in this process, without the executor."""
        from fairlag.learn.evaluation import joined, parts, scored
        from fairlag.learn.learner import Learner

        assert setting.placement is not None  # there is data
        # It hardly trains, so nothing needs to be compiled.
        blueprint = replace(self.blueprint, compiled=False)
        learner = Learner(blueprint, self.data.inputs, self.data.labels, setting.placement, setting.seed, local)

        def score(parameters: Vector, asked: "Asked") -> "Found":
            return joined([scored(learner, parameters, part) for part in parts(asked)])

        return score

    def _jobs_at_once(self, setting: Setting) -> int:
        """The most tasks and parts of evaluations that may be computed at the same time."""
        from fairlag.learn.learner import chunks

        strategies = [self.experiment.strategy(use) for use in self.experiment.strategies]
        most = max(strategy.select.places or self.experiment.population for strategy in strategies)
        parts = 0 if setting.scoring is None else len(chunks(setting.scoring.sample))
        return min(most, self.experiment.population) + parts

    def _compile(self, placement: "Placement", strategy: Strategy) -> None:
        """Compiles in this process, which says so if it takes long; workers on this machine then load the result."""
        from fairlag.learn.learner import Learner

        Learner(self.blueprint, self.data.inputs, self.data.labels, placement, 0, strategy.local)

    def is_compiled(self, strategy: Strategy) -> bool:
        """Are tasks of a run of this strategy trained by compiled loops?"""
        return self.blueprint.is_compiled(strategy.local)

    def close(self) -> None:
        """Stops the workers, if there are any."""
        while self._executors:
            self._executors.popitem()[1].close()
        if self._own is not None:
            self._own.close()

    @property
    def _own_steps(self) -> Integers:
        """Per client: the local steps of its group, 0 if the group has none."""
        clients = self.experiment.clients
        steps = np.repeat([table.steps or 0 for table in clients], [table.count for table in clients])
        return steps if self._trusted is None else np.append(steps, 0)  # the server trains as one more client

    @property
    def _flippers(self) -> Integers:
        """The clients that train on wrong labels."""
        clients = [client for client, behaviour in self.attackers.items() if behaviour.flips_labels]
        if clients and self.task.targets is not Targets.CLASSES:
            raise InputError("label_flip needs labels that are classes, but the task of the experiment has others")
        return np.array(clients, np.int64)

    def _idle(self, seed: int) -> Setting:
        nothing = np.zeros(self.experiment.population, np.int64)
        return Setting(seed, EMPTY, Layout((), ()), examples=nothing, visible=nothing)

    def _split(self, seed: int) -> tuple[Integers, Integers, Integers]:
        """The examples that clients share, those that models are judged on, and those that the server holds.

        With `validation`, models are judged on training examples, and no test example is used for anything.
        """
        table = self.experiment.data
        assert table is not None
        train, test = split(self.data, table.holdout, seed if table.holdout_seed is None else table.holdout_seed)
        if table.validation is not None:
            test = reserved(self.data, train, max(1, round(table.validation * len(train))), seed, "validation")
            train = np.setdiff1d(train, test, assume_unique=True)
        if self._trusted is None:
            return train, test, train[:0]
        if self.stream is not None:
            raise InputError(
                f"trusted is {self._trusted}, but the examples arrive as the stream {self.stream}: the server needs "
                "its own from the start"
            )
        mine = reserved(self.data, train, self._trusted, seed, "trusted")
        return np.setdiff1d(train, mine, assume_unique=True), test, mine

    @property
    def _trusted(self) -> int | None:
        """How many examples the server holds."""
        return None if self.experiment.data is None else self.experiment.data.trusted

    def _setting(self, seed: int) -> Setting:
        from fairlag.learn.descent import Descent
        from fairlag.learn.flat import Flat
        from fairlag.learn.placement import Placement

        data, groups = self.data, self.groups
        train, everything, reserved = self._reserved(seed)
        shares = without(everything, reserved) if reserved.size else everything
        _, test, mine = self._split(seed)
        wanted = self.experiment.evaluate.sample
        sample = stratified(data.strata, test, len(test) if wanted == "all" else wanted, seed)
        tests = np.concatenate([sample, np.setdiff1d(test, sample, assume_unique=True)])
        edges = np.cumsum([0, *(group.count for group in groups)])
        held = self.task.targets.held(data.labels[train[shares.order]], shares.bounds[edges], data.classes)
        recorded = self._times(train) if isinstance(self.stream, Recorded) else None
        times, held_times = (NO_TIMES if recorded is None else recorded[each.order] for each in (shares, everything))
        holdings, bounds = np.concatenate([train[everything.order], mine]), everything.bounds
        if self._trusted is not None:  # the server's examples are those of one more client, which tests nothing
            bounds = np.append(bounds, len(holdings))
        flat = Flat(self.blueprint.build(seed))
        Descent(flat, self.blueprint.recipe)  # refuses an optimiser that does not take the model
        privacy = self.experiment.privacy
        for use in self.experiment.strategies:
            strategy = self.experiment.strategy(use)
            strategy.check_model(flat.layout)
            if privacy is not None:
                privacy.check_model(strategy, flat.layout, use.label)
        return Setting(
            seed=seed,
            parameters=flat.parameters,
            layout=flat.layout,
            examples=shares.sizes,
            visible=shares.sizes if self.stream is None else self.stream.at_start(shares.sizes, times),
            placement=Placement(
                holdings,
                bounds,
                tests,
                self._own_steps,
                held_times,
                np.append(reserved, 0) if reserved.size and self._trusted is not None else reserved,
                self._flippers,
            ),
            scoring=Scoring(len(sample), len(tests), _by_group(groups, held), self.task, *self._tested(reserved, seed)),
        )

    def _tested(self, reserved: Integers, seed: int) -> tuple[Integers, tuple[int, ...]]:
        """The clients that are tested on their own examples, and after how many local steps."""
        if not reserved.size:
            return reserved, ()
        counts = [group.count for group in self.groups]
        steps = self.experiment.evaluate.personalise
        group_of = np.repeat(np.arange(len(counts)), counts)
        return drawn_clients(reserved, group_of, seed), (0,) if steps is None else (0, steps)


def _by_group(groups: Sequence[Holding], held: Sequence[Integers]) -> dict[str, Integers]:
    """By the name of the group; nothing if there are no classes or labels to hold."""
    return {group.name: mine for group, mine in zip(groups, held, strict=True)} if held else {}
