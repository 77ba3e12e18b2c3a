"""Experiment files: TOML, validated as a whole when read, so that a mistake is one sentence before anything runs."""

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
from fairlag.lab.clients import Clients, check_clients
from fairlag.lab.learning import Data, Evaluate, LocalTraining, Model, Table
from fairlag.lab.messages import first_mistake
from fairlag.lab.strategies import Use, build, strategy_call, takes
from fairlag.lab.track import checked_names
from fairlag.limits import DEPTH, TooMuchError, check_depth, text_of

_MOST_AGGREGATIONS = 10**15


def _unless_virtual(clock: Literal["virtual", "wall"] | None) -> Literal["virtual", "wall"] | None:
    return None if clock == "virtual" else clock


Clock = Annotated[Literal["virtual", "wall"] | None, AfterValidator(_unless_virtual)]
"""None says "virtual". It is not written into run directories, so those begun before there was "wall" continue."""


class Experiment(Table):
    """A whole experiment: a fleet, the strategies that are compared on it, when to stop, and what is learnt.

    Without `[data]` and `[model]` there is nothing to train: audits need neither.

    >>> experiment = load("paper-fashion-mnist")
    >>> experiment.fleet().clients, experiment.aggregations
    (15, 4000)
    """

    name: str = Field(min_length=1, description="The name of the experiment. Runs are compared within it.")
    seed: int = Field(
        default=0,
        ge=0,
        description="All random numbers follow from it: durations, who holds which examples, batches, first weights.",
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
        description='What time it is in a run. `"virtual"`, the default, jumps from event to event: a run can be '
        'repeated byte for byte. `"wall"` lets time [really pass](executors.md#the-wall-clock): each client is a '
        "thread that sleeps.",
    )
    speed: float | None = Field(
        default=None,
        gt=0,
        lt=inf,
        description="How many seconds of the fleet pass in each second of the wall clock; by default 1.",
    )
    model_bytes: int = Field(
        default=0, ge=0, description="The size of the model in bytes, for the time that transfers take."
    )
    clients: tuple[Clients, ...] = Field(
        min_length=1, strict=False, description="The client groups, one [`[[clients]]`](#clients) table each."
    )
    strategies: tuple[Use, ...] = Field(
        min_length=1,
        strict=False,
        description="The strategies to compare, one [`[[strategies]]`](#strategies) table each.",
    )
    data: Data | None = Field(
        default=None, description="The [`[data]`](#data) table. Without it nothing is trained: an audit needs none."
    )
    model: Model | None = Field(default=None, description="The [`[model]`](#model) table. It comes with `[data]`.")
    local: LocalTraining = Field(default=LocalTraining(), description="The [`[local]`](#local) table.")
    evaluate: Evaluate = Field(default=Evaluate(), description="The [`[evaluate]`](#evaluate) table.")
    track: Annotated[tuple[str, ...], BeforeValidator(checked_names)] = Field(
        default=(),
        description='The trackers that are told of its runs, such as `["tensorboard"]`: `mlflow`, `tensorboard`, '
        "`wandb`. They change no result.",
    )
    _folder: Path | None = PrivateAttr(default=None)
    _groups: tuple[Group, ...] = PrivateAttr(default=())
    _code: bool = PrivateAttr(default=True)

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
        check_clients(self.clients, model_bytes=self.model_bytes, in_epochs=self.local.epochs is not None)
        return self

    @property
    def folder(self) -> Path | None:
        """Where its relative paths and modules are looked for."""
        return self._folder

    @property
    def on_the_clock(self) -> str:
        """What is added to the label of a run: nothing in virtual time.

        >>> load("demo").on_the_clock, load("demo").checked(clock="wall", speed=200).on_the_clock
        ('', ', wall clock ×200')
        """
        return "" if self.clock is None else f", wall clock ×{self.speed or 1:g}"

    @property
    def population(self) -> int:
        """How many clients all groups have together."""
        return sum(table.count for table in self.clients)

    def group_of(self, client: int) -> str:
        """The name of the group of a client, numbered through the groups in order."""
        for table in self.clients:
            if client < table.count:
                break
            client -= table.count
        return table.group

    def fleet(self, seed: int | None = None) -> Fleet:
        """The fleet, its draws determined by the seed (default: the experiment's)."""
        if not self._groups:
            self._groups = tuple(table.build(self._folder) for table in self.clients)
        return Fleet(
            self._groups,
            seed=self.seed if seed is None else seed,
            model_bytes=self.model_bytes,
            steps=self.local.steps or 1,
        )

    def strategy(self, use: Use) -> Strategy:
        """The strategy of a table, checked against the fleet.

        The experiment of a run that is only looked at refuses one that is code: building it would run that code.
        """
        if not self._code and is_code(use.use):
            raise StrategyError(f"{use.use!r} is code, which is not imported to look at a run")
        strategy = build(use.use, use.parameters, self._folder)
        strategy.check(self.population)
        _check_importance(strategy, [table.group for table in self.clients])
        return strategy

    def only(self, names: list[str]) -> "Experiment":
        """The same with the named strategies alone: by label, by `use`, or a name of the zoo with parameters.

        One that the file does not have takes the buffer of the file's strategies, if they all have the same and it is
        not given one.

        >>> load("demo").only(["fedbuff", "fedadam(cohort=5)"]).strategies[0].parameters
        {'buffer': 5}
        """
        chosen: list[Use] = []
        for name in names:
            mine = [use for use in self.strategies if name in (use.label, use.name)]
            chosen += [use for use in (mine or [self._called(name)]) if use not in chosen]
        return self.checked(strategies=tuple(chosen)) if chosen else self

    def _called(self, text: str) -> Use:
        """The strategy that a call such as `fedadam(cohort=5)` describes."""
        name, given = strategy_call(text)
        buffers = {use.parameters["buffer"] for use in self.strategies if "buffer" in use.parameters}
        if len(buffers) == 1 and "buffer" not in given and takes(name, "buffer", self._folder):
            given = {**given, "buffer": buffers.pop()}
        return Use.model_validate({"use": name, **given})

    def checked(self, **changes: Any) -> "Experiment":
        """The same with changes, validated as a whole again."""
        same = {name: getattr(self, name) for name in type(self).model_fields}
        return parse({**same, **changes}, self._folder, code=self._code)


def parse(tables: dict[str, Any], folder: Path | None = None, *, code: bool = True) -> Experiment:
    """An experiment from the contents of a file; relative paths and modules are looked for in the folder.

    Strategies of the user's own are imported to check them. Not so with `code=False`, which is for looking at runs:
    the experiment of a run may be anybody's.

    >>> parse({"name": "x", "sead": 1, "aggregations": 1})
    Traceback (most recent call last):
    fairlag.errors.ExperimentError: unknown key 'sead': did you mean 'seed'?
    """
    experiment = check(tables)
    experiment._folder, experiment._code = folder, code
    experiment.fleet()
    for use in experiment.strategies:
        if code or not is_code(use.use):
            experiment.strategy(use)
    experiment.local.build()
    return experiment


def check(tables: dict[str, Any]) -> Experiment:
    """The experiment that tables describe, of which nothing was built yet: no file is read, no rule called."""
    keys = {
        "": Experiment.model_fields,
        "clients": Clients.model_fields,
        "local": LocalTraining.model_fields,
        "evaluate": Evaluate.model_fields,
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
        raise ExperimentError(f"{source}: a number in it has more digits than can be read") from None
    except RecursionError:
        raise ExperimentError(f"{source}: its values are nested more than {DEPTH} deep") from None
    except InputError as error:
        raise ExperimentError(f"{source}: {error}") from None


def given(experiment: Experiment | Mapping[str, Any] | str | Path) -> Experiment:
    """The experiment that a user means: one, its tables, a file or a preset.

    >>> given("demo") == given(load("demo"))
    True
    >>> given(7)
    Traceback (most recent call last):
    ...
    fairlag.errors.InputError: an experiment is given as 7, it must be an Experiment, its tables, a file or a preset
    """
    if isinstance(experiment, Experiment):
        return experiment
    if isinstance(experiment, Mapping):
        return parse(dict(experiment))
    if not isinstance(experiment, str | Path):
        raise InputError(
            f"an experiment is given as {experiment!r}, it must be an Experiment, its tables, a file or a preset"
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
        raise ExperimentError(f"no experiment file or preset {str(path)!r}: {nearest(str(path), shipped)}") from None
    except (OSError, ValueError) as error:
        raise ExperimentError(f"cannot read the experiment file {str(path)!r}: {error}") from None


def _check_importance(strategy: Strategy, groups: list[str]) -> None:
    """A number for a group that does not exist would change nothing."""
    named = strategy.account.importance if strategy.account is not None else None
    for group in named if isinstance(named, Mapping) else ():
        if group not in groups:
            raise StrategyError(f"importance names the group {group!r}, but there is none: {nearest(group, groups)}")
