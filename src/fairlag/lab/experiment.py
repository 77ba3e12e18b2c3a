"""Experiment files: TOML, validated when read, so that a mistake is one sentence before anything runs."""

import tomllib
from collections.abc import Mapping
from importlib import resources
from math import inf
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PrivateAttr,
    ValidationError,
    model_validator,
)

from fairlag.core.strategy import Strategy
from fairlag.errors import ExperimentError, InputError, StrategyError, nearest
from fairlag.fleet.clients import Fleet, Group
from fairlag.imported import is_code
from fairlag.lab.attacks import Attack
from fairlag.lab.clients import Clients, check_clients
from fairlag.lab.learning import ChosenTask, Data, Device, Evaluate, LocalTraining, Model, Table
from fairlag.lab.messages import first_mistake
from fairlag.lab.privacy import Privacy
from fairlag.lab.strategies import Use, build, strategy_call, takes
from fairlag.lab.suitable import check_importance, check_local, check_trusted
from fairlag.lab.sweep.table import Sweep
from fairlag.lab.traces import digests, with_groups
from fairlag.lab.track import checked_names
from fairlag.limits import DEPTH, TooMuchError, check_depth, text_of
from fairlag.zoo import defended

_MOST_AGGREGATIONS = 10**15


def _unless_virtual(clock: Literal["virtual", "wall"] | None) -> Literal["virtual", "wall"] | None:
    return None if clock == "virtual" else clock


Clock = Annotated[Literal["virtual", "wall"] | None, AfterValidator(_unless_virtual)]
"""None means "virtual". It is not written into run directories, so runs from before "wall" existed can be resumed."""


class Experiment(Table):
    """An experiment: a fleet, the strategies to compare on it, when to stop, and what to train.

    Without `[data]` and `[model]`, nothing is trained: audits need neither.

    >>> experiment = load("paper-fashion-mnist")
    >>> experiment.fleet().clients, experiment.aggregations
    (15, 4000)
    """

    name: str = Field(min_length=1, description="The name of the experiment. Runs are compared within it.")
    seed: int = Field(
        default=0,
        ge=0,
        description="The seed of all random numbers: durations, who holds which examples, batches, initial weights.",
    )
    aggregations: int | None = Field(
        default=None,
        ge=1,
        le=_MOST_AGGREGATIONS,
        description="Stop after this many versions. Give this, `until_time`, or both.",
    )
    until_time: float | None = Field(default=None, gt=0, lt=inf, description="Stop at this virtual time, in seconds.")
    clock: Clock = Field(
        default=None,
        description='The clock of a run. `"virtual"`, the default, jumps from event to event: results are '
        'reproducible to the byte. `"wall"` lets time [really pass](executors.md#the-wall-clock): each client is a '
        "thread that sleeps.",
    )
    speed: float | None = Field(
        default=None,
        gt=0,
        lt=inf,
        description="Seconds of fleet time per second of the wall clock; by default 1.",
    )
    model_bytes: int = Field(
        default=0,
        ge=0,
        description="The size of the model in bytes, to compute transfer times. With a `capacity` that has line "
        "speeds, by default 4 bytes per parameter of `[model]`.",
    )
    clients: tuple[Clients, ...] = Field(
        min_length=1, strict=False, description="The client groups, one [`[[clients]]`](#clients) table per group."
    )
    strategies: tuple[Use, ...] = Field(
        min_length=1,
        strict=False,
        description="The strategies to compare, one [`[[strategies]]`](#strategies) table per strategy.",
    )
    data: Data | None = Field(
        default=None,
        description="The [`[data]`](#data) table. Without it, nothing is trained; an audit does not need it.",
    )
    model: Model | None = Field(
        default=None, description="The [`[model]`](#model) table. `[data]` needs it, and it needs `[data]`."
    )
    task: ChosenTask = Field(
        default=None, description="The [`[task]`](#task) table. By default `classification` by cross-entropy."
    )
    local: LocalTraining = Field(default=LocalTraining(), description="The [`[local]`](#local) table.")
    evaluate: Evaluate = Field(default=Evaluate(), description="The [`[evaluate]`](#evaluate) table.")
    privacy: Privacy | None = Field(
        default=None,
        description="The [`[privacy]`](#privacy) table. Without it, the server sees every update.",
    )
    track: Annotated[tuple[str, ...], BeforeValidator(checked_names)] = Field(
        default=(),
        description='The trackers that record its runs, such as `["tensorboard"]`: `mlflow`, `tensorboard`, '
        "`wandb`. They do not change results.",
    )
    device: Device = Field(
        default=None,
        description='Where models are trained and evaluated: `"cpu"`, the default, `"cuda"` (all of them), `"cuda:1"`, '
        '`"mps"`, or `"auto"` for the first accelerator if there is one, otherwise the CPU. Results are reproducible '
        "[per device](devices.md), not across devices.",
    )
    defences: tuple[str, ...] | None = Field(
        default=None,
        strict=False,
        description="The [defences](#defences) with which `fairlag attack` tries every strategy. Runs ignore them.",
    )
    attacks: tuple[Attack, ...] | None = Field(
        default=None,
        strict=False,
        description="The attacks that `fairlag attack` tries, one [`[[attacks]]`](#attacks) table per attack. Runs "
        "ignore them.",
    )
    sweep: Sweep | None = Field(
        default=None, description="The [`[sweep]`](#sweep) table: what `fairlag sweep` tries. Runs ignore it."
    )
    files: dict[str, str] | None = Field(
        default=None,
        description="The SHA-256 digests of the files of `capacity` and `availability`. fairlag fills them in, so that "
        "a run is continued only with the same files.",
    )
    _folder: Path | None = PrivateAttr(default=None)
    _groups: tuple[Group, ...] = PrivateAttr(default=())
    _code: bool = PrivateAttr(default=True)
    _measured: bool = PrivateAttr(default=False)

    @model_validator(mode="after")
    def _is_consistent(self) -> "Experiment":
        if self.aggregations is None and self.until_time is None:
            raise ValueError("nothing says when to stop: give aggregations or until_time")
        if self.speed is not None and self.clock is None:
            raise ValueError(
                f'speed is {self.speed:g}, but only the wall clock has a speed: give clock = "wall" (--clock wall)'
            )
        labels = [use.label for use in self.strategies]
        if twice := next((each for each in labels if labels.count(each) > 1), None):
            raise ValueError(f"two strategies are labelled {twice!r}: give each its own label")
        if (self.data is None) != (self.model is None):
            missing, given = ("data", "model") if self.data is None else ("model", "data")
            raise ValueError(f"there is a [{given}] but no [{missing}]: training needs both")
        if self.task is not None and self.data is None:
            raise ValueError("there is a [task] but no [data]: training needs both")
        if self.evaluate.clients is not None and self.data is None:
            raise ValueError(
                f"evaluate.clients is {self.evaluate.clients:g}, but there is no [data] that clients could hold"
            )
        check_clients(self.clients, model_bytes=self.model_bytes, in_epochs=self.local.epochs is not None)
        return self

    @property
    def measured(self) -> bool:
        """Was `model_bytes` not given, but taken from the model?"""
        return self._measured

    @property
    def folder(self) -> Path | None:
        """The folder of its relative paths and modules."""
        return self._folder

    @property
    def on_the_clock(self) -> str:
        """A suffix for the name of a run; empty in virtual time.

        >>> load("demo").on_the_clock, load("demo").checked(clock="wall", speed=200).on_the_clock
        ('', ', wall clock ×200')
        """
        return "" if self.clock is None else f", wall clock ×{self.speed or 1:g}"

    @property
    def population(self) -> int:
        """The number of clients in all groups."""
        return sum(table.count for table in self.clients)

    def group_of(self, client: int) -> str:
        """The name of a client's group; clients are numbered group by group, in order."""
        for table in self.clients:
            if client < table.count:
                break
            client -= table.count
        return table.group

    def fleet(self, seed: int | None = None) -> Fleet:
        """The fleet, with draws determined by the seed (default: the experiment's)."""
        if not self._groups:
            self._groups = tuple(table.build(self._folder, self.local.batch) for table in self.clients)
        return Fleet(
            self._groups,
            seed=self.seed if seed is None else seed,
            model_bytes=self.model_bytes,
            steps=self.local.steps or 1,
        )

    def strategy(self, use: Use) -> Strategy:
        """The strategy of a table, checked against the fleet.

        An experiment that was read only to inspect a run refuses a strategy that is code, because building it would run
        that code.
        """
        if not self._code and is_code(use.use):
            raise StrategyError(f"{use.use!r} is code, which is not imported to inspect a run")
        strategy = build(use.use, use.parameters, self._folder)
        if use.defence is not None:
            strategy = defended(strategy, use.defence)
        if self.privacy is not None:
            strategy = self.privacy.protected(strategy, self.population, use.label)
        strategy.check(self.population)
        check_importance(strategy, [table.group for table in self.clients])
        return strategy

    def alone(self, use: Use, **changes: Any) -> "Experiment":
        """The experiment with changes and only this strategy, whose own keys of [local] are in [local].

        >>> demo = load("demo")
        >>> demo.alone(Use(use="fedbuff", local={"lr": 0.5})).local.lr, demo.local.lr
        (0.5, 0.1)
        """
        if use.local is None:
            return self.checked(strategies=(use,), **changes)
        local = {**self.local.model_dump(), **use.local}
        return self.checked(strategies=(use.model_copy(update={"local": None}),), local=local, **changes)

    def only(self, names: list[str]) -> "Experiment":
        """The experiment with only these strategies: by label, by `use`, or an algorithm of the zoo with parameters.

        A strategy that is not in the file uses the buffer of the file's strategies, if they all have the same one and
        it is not given its own.

        >>> load("demo").only(["fedbuff", "fedadam(cohort=5)"]).strategies[0].parameters
        {'buffer': 5}
        """
        chosen: list[Use] = []
        for name in names:
            mine = [use for use in self.strategies if name in (use.label, use.name)]
            chosen += [use for use in (mine or [self._called(name)]) if use not in chosen]
        if not chosen:
            return self
        kept, left = ({name for use in uses for name in (use.label, use.name)} for uses in (chosen, self.strategies))
        sweep = None if self.sweep is None else self.sweep.without(left - kept)
        return self.checked(strategies=tuple(chosen), sweep=sweep)

    def _called(self, text: str) -> Use:
        """The strategy that a call such as `fedadam(cohort=5)` describes."""
        name, given = strategy_call(text)
        buffers = {use.parameters["buffer"] for use in self.strategies if "buffer" in use.parameters}
        if len(buffers) == 1 and "buffer" not in given and takes(name, "buffer", self._folder):
            given = {**given, "buffer": buffers.pop()}
        return Use.model_validate({"use": name, **given})

    def checked(self, **changes: Any) -> "Experiment":
        """The experiment with changes, validated again."""
        same = {name: getattr(self, name) for name in type(self).model_fields}
        keeps = self._measured and not changes.keys() & {"data", "model", "model_bytes"}
        if self._measured and not keeps:
            del same["model_bytes"]
        experiment = parse({**same, **changes}, self._folder, code=self._code)
        experiment._measured = experiment._measured or keeps
        return experiment


def parse(tables: dict[str, Any], folder: Path | None = None, *, code: bool = True) -> Experiment:
    """An experiment from the contents of a file; its relative paths and modules are found from the folder.

    A user's own strategies are imported to check them. With `code=False` they are not: this is for inspecting runs,
    whose experiments may come from anyone.

    >>> parse({"name": "x", "sead": 1, "aggregations": 1})
    Traceback (most recent call last):
    fairlag.errors.ExperimentError: unknown key 'sead': did you mean 'seed'?
    """
    tables = with_groups(tables, folder)
    experiment = _counted(tables, folder) if code else check(tables)
    experiment._folder, experiment._code = folder, code
    experiment = _with_files(experiment)
    recipe = experiment.local.build()
    for use in experiment.strategies:
        if use.local is not None:
            _check_alone(experiment, use)
        elif code or not is_code(use.use):
            strategy = experiment.strategy(use)
            check_local(strategy, recipe, use.label)
            check_trusted(strategy, experiment.data, recipe, use.label)
    return experiment


def _counted(tables: dict[str, Any], folder: Path | None) -> Experiment:
    """The experiment, in which a group without a count has the clients of the data that are left."""
    clients = tables.get("clients")
    groups = list(clients) if isinstance(clients, list | tuple) else []
    open_ends = [
        place
        for place, table in enumerate(groups)
        if isinstance(table, Mapping) and not {"count", "names"} & table.keys()
    ]
    if len(open_ends) != 1 or tables.get("data") is None:
        return check(tables)
    (place,) = open_ends
    groups[place] = {**groups[place], "count": 1}  # so that whatever else is wrong is said first
    experiment = check({**tables, "clients": groups})
    assert experiment.data is not None  # it is in the tables
    data, name = experiment.data.load(folder), experiment.clients[place].group
    if data.owners is None:
        raise ExperimentError(
            f"group {name!r} has no count, and {data.name} does not say who holds what: give count, or name a column "
            "in `client`"
        )
    every = experiment.data.population(data)
    if (left := every - experiment.population + 1) < 1:
        raise ExperimentError(
            f"group {name!r} has no count, but the other groups take all {every} clients of {data.name}"
        )
    groups[place] = {**groups[place], "count": left}
    return check({**tables, "clients": groups})


def _with_files(experiment: Experiment) -> Experiment:
    """With what follows from the files of its fleet: their digests, and the size of a model that is sent over lines."""
    experiment.fleet()
    files = digests(experiment._groups, experiment.files)
    changes: dict[str, Any] = {} if files == experiment.files else {"files": files}
    lined = next((group for group in experiment._groups if group.capacity and group.capacity.has_lines), None)
    if lined is not None and not experiment.model_bytes:
        if experiment.model is None or not experiment._code:  # building a model may run the user's code
            raise InputError(
                f"the capacity of group {lined.name!r} has line speeds, but the size of the model is not known: "
                "give model_bytes"
            )
        from fairlag.lab.resources import model_bytes  # resources are made from experiments

        changes["model_bytes"], experiment._measured = model_bytes(experiment), True
    return experiment.model_copy(update=changes) if changes else experiment


def check(tables: dict[str, Any]) -> Experiment:
    """The experiment that tables describe, without building anything: no file is read, and no rule is called."""
    keys = {
        "": Experiment.model_fields,
        "clients": Clients.model_fields,
        "attacks": Attack.model_fields,
        "local": LocalTraining.model_fields,
        "evaluate": Evaluate.model_fields,
        "privacy": Privacy.model_fields,
        "sweep": Sweep.model_fields,
    }
    try:
        check_depth(tables)
        return Experiment.model_validate(tables)
    except TooMuchError as error:
        raise ExperimentError(f"the experiment cannot be read: {error}") from None
    except ValidationError as error:
        raise ExperimentError(first_mistake(error, keys)) from None


def load(source: str | Path) -> Experiment:
    """An experiment from a file, or a preset by its name.

    >>> [use.label for use in load("demo").strategies]
    ['Buffered FedAvg', 'FedStaleWeight', 'FairShare']
    """
    path = Path(source)
    shipped = presets()
    if str(source) in shipped and not path.is_file():
        text, folder = shipped[str(source)], None
    else:
        text, folder = _read(path, shipped), path.parent
    try:
        return parse(tomllib.loads(text), folder)
    except tomllib.TOMLDecodeError as error:
        raise ExperimentError(f"{source} is not valid TOML: {error}") from None
    except ValueError:
        raise ExperimentError(f"{source}: it has a number with too many digits") from None
    except RecursionError:
        raise ExperimentError(f"{source}: its values are nested more than {DEPTH} levels deep") from None
    except InputError as error:
        raise ExperimentError(f"{source}: {error}") from None


def given(experiment: Experiment | Mapping[str, Any] | str | Path) -> Experiment:
    """The experiment that a user gives: an Experiment, its tables, a file or a preset.

    >>> given("demo") == given(load("demo"))
    True
    >>> given(7)
    Traceback (most recent call last):
    ...
    fairlag.errors.InputError: an experiment was given as 7, it must be an Experiment, its tables, a file or a preset
    """
    if isinstance(experiment, Experiment):
        return experiment
    if isinstance(experiment, Mapping):
        return parse(dict(experiment))
    if not isinstance(experiment, str | Path):
        raise InputError(
            f"an experiment was given as {experiment!r}, it must be an Experiment, its tables, a file or a preset"
        )
    return load(experiment)


def presets() -> dict[str, str]:
    """The text of every experiment file that comes with the package, by name."""
    folder = resources.files("fairlag.lab") / "presets"
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".toml")), key=lambda file: file.name)
    return {file.name.removesuffix(".toml"): file.read_text("utf-8") for file in files}


def _read(path: Path, shipped: dict[str, str]) -> str:
    try:
        return text_of(path, "utf-8-sig")
    except FileNotFoundError:
        raise ExperimentError(
            f"there is no experiment file or preset {str(path)!r}: {nearest(str(path), shipped)}"
        ) from None
    except (OSError, ValueError) as error:
        raise ExperimentError(f"cannot read the experiment file {str(path)!r}: {error}") from None


def _check_alone(experiment: Experiment, use: Use) -> None:
    try:
        experiment.alone(use)
    except InputError as error:
        raise StrategyError(f"{use.label}: {error}") from None
