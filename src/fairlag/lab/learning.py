"""The tables of an experiment file about training: `[data]`, `[model]`, `[local]` and `[evaluate]`."""

from collections.abc import Callable, Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from fairlag.data import partition, stream
from fairlag.data.load import FILES, Dataset, load
from fairlag.data.reserve import MOST_TESTED
from fairlag.data.shares import Holding
from fairlag.errors import InputError
from fairlag.imported import is_code
from fairlag.learn import devices, optimiser
from fairlag.learn.local import Recipe, schedule
from fairlag.learn.within import within


class Table(BaseModel):
    """A table whose keys are all known."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


def checked_maker(use: object) -> object:
    """Checks the `use` of data and models: a name, or in Python also the function itself."""
    if not (isinstance(use, str) or callable(use)):
        raise ValueError(f"it is {use!r}, but must be a name, 'module:function', or a function")
    return use


class Made(BaseModel):
    """A table that says what to use, and with which parameters."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)

    use: Annotated[Any, AfterValidator(checked_maker)] = Field(
        description='A name from the table below, or `"module:function"` for your own function, imported from the '
        "folder of the experiment file. In Python, also the function itself."
    )

    @property
    def parameters(self) -> dict[str, object]:
        """The parameters of the call."""
        return dict(self.model_extra or {})


def _as_written(parse: Callable[[str], object]) -> AfterValidator:
    """A validator that parses a text, and stores it in its normal form."""

    def checked(text: str) -> str:
        try:
            return str(parse(text))
        except InputError as error:
            raise ValueError(str(error)) from None

    return AfterValidator(checked)


Partition = Annotated[str, _as_written(partition.parse)]
Optimiser = Annotated[str, _as_written(optimiser.parse)]
Within = Annotated[str, _as_written(within)]
Stream = Annotated[str, _as_written(stream.parse)]


def _checked_holdout(value: object) -> object:
    if value != "official" and not (isinstance(value, float) and 0 < value < 1):
        raise ValueError(f"it is {value!r}, but must be a share between 0 and 1 such as 0.2, or 'official'")
    return value


def _checked_sample(value: object) -> object:
    if value != "all" and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
        raise ValueError(f"it is {value!r}, but must be a number of examples such as 2000, or 'all'")
    return value


def _checked_lr(value: object) -> object:
    try:
        schedule(value)
    except InputError as error:
        raise ValueError(str(error)) from None
    return value


def checked_part(part: float | None) -> float | None:
    """Checks a share of examples."""
    if part is not None and not 0 < part < 1:
        raise ValueError(f"it is {part:g}, but must be a number between 0 and 1, such as 0.1")
    return part


class Data(Made):
    """A `[data]` table: which data set, what is held out for testing, how clients share the rest, and when."""

    holdout: Annotated[Any, AfterValidator(_checked_holdout)] = Field(
        default=0.2,
        description="The share of the examples that is held out for testing, between 0 and 1, the same for every "
        'label; or `"official"` for the test set that comes with the data, which is the default for `leaf` and if '
        "`test` names one.",
    )
    partition: Partition | None = Field(
        default=None,
        description="How clients share the training examples: a [partition](#partitions). By default, `labels` if "
        "groups have labels, `natural` if the data says who holds what, otherwise `iid`.",
    )
    stream: Stream | None = Field(
        default=None,
        description="How a client's examples arrive over time: a [stream](#streams). By default, all are present from "
        "the start, unless the data says when each arrives: then `recorded`.",
    )
    holdout_seed: int | None = Field(
        default=None,
        ge=0,
        description="The seed that draws the test examples if `holdout` is a share, so that runs with different seeds "
        "have the same ones. By default the seed of the run.",
    )
    validation: Annotated[float | None, AfterValidator(checked_part)] = Field(
        default=None,
        description="The share of the training examples that no client holds and that models are judged on instead of "
        "the test examples, which then play no part. [`fairlag sweep`](sweeps.md) sets it.",
    )
    trusted: int | None = Field(
        default=None,
        ge=1,
        description="How many training examples the server holds itself, for the [defences](#defences) `zeno` and "
        "`aflguard`. No client holds them.",
    )

    @model_validator(mode="before")
    @classmethod
    def _tested_officially(cls, tables: Any) -> Any:
        """Whoever names a test part means to test on it."""
        if isinstance(tables, Mapping) and "holdout" not in tables:
            use = tables.get("use")
            if use == "leaf" or (isinstance(use, str) and use in FILES and "test" in tables):
                return {**tables, "holdout": "official"}
        return tables

    def load(self, folder: Path | None) -> Dataset:
        """The data set, with the owners of the partition file if there is one; paths are relative to the folder."""
        data = load(self.use, self.parameters, folder)
        shared = None if self.partition is None else partition.parse(self.partition)
        return shared.owned(data, folder or Path()) if isinstance(shared, partition.File) else data

    def population(self, data: Dataset) -> int:
        """How many clients the groups are to have if this data says who holds what."""
        shared = partition.parse(self.partition or "natural")
        return shared.population(data) if isinstance(shared, partition.ByOwner) else len(data.clients)


class Model(Made):
    """A `[model]` table: what is trained."""


Device = Annotated[
    Annotated[str, _as_written(devices.parse)] | None,
    AfterValidator(lambda given: None if given == devices.CPU else given),
]
"""None means "cpu"."""


class TaskTable(Made):
    """A `[task]` table: what is to be learnt, and how models are judged."""

    metrics: tuple[str, ...] = Field(
        default=(),
        strict=False,
        description="The metrics to compute, by name; the first leads: strategies are ranked by it. By default the "
        "task's own.",
    )


def _unless_default(task: TaskTable | None) -> TaskTable | None:
    return None if task == TaskTable(use="classification") else task


ChosenTask = Annotated[TaskTable | None, AfterValidator(_unless_default)]
"""None says "classification". It is not written into run directories, so older runs can still be resumed."""


def _unless_standard(engine: Literal["standard", "compiled"] | None) -> Literal["standard", "compiled"] | None:
    return None if engine == "standard" else engine


Engine = Annotated[Literal["standard", "compiled"] | None, AfterValidator(_unless_standard)]
"""None means "standard". It is not written into run directories, so older runs can still be resumed."""


Precision = Annotated[
    Literal["float32", "bfloat16"] | None, AfterValidator(lambda given: None if given == "float32" else given)
]
"""None says "float32", for the same reason."""


def _checked_train(train: object) -> object:
    # A run that was given the function itself has its name in angle brackets.
    if train is None or callable(train) or is_code(train) or str(train).startswith("<"):
        return train
    raise ValueError(f"it is {train!r}, but must be 'module:function', or a function")


class LocalTraining(Table):
    """A `[local]` table: how a client trains the model that it receives."""

    steps: int | None = Field(
        default=None,
        ge=1,
        description="Steps of stochastic gradient descent per task. Give this or `epochs`; by default 1 step.",
    )
    epochs: int | None = Field(
        default=None, ge=1, description="Passes over a client's examples per task, instead of `steps`."
    )
    batch: int = Field(
        default=32, ge=1, description="Examples per step; a client with fewer examples uses all of them."
    )
    lr: Annotated[Any, AfterValidator(_checked_lr)] = Field(
        default=0.01, description="The local step size: a number or a [schedule](#schedules) over versions."
    )
    momentum: float = Field(
        default=0.0, ge=0, lt=1, description="Momentum of the local steps; it is reset for every task."
    )
    weight_decay: float = Field(
        default=0.0, ge=0, lt=inf, description="This times the parameters is added to every gradient (L2)."
    )
    prox: float = Field(
        default=0.0,
        ge=0,
        lt=inf,
        description="The factor μ of (μ/2)‖x − w‖², which pulls local training towards the model w that the client "
        "received (FedProx).",
    )
    engine: Engine = Field(
        default=None,
        description='What trains the model: `"standard"`, the default, is PyTorch, or NumPy for small models of linear '
        'layers. `"compiled"` trains these small models by compiled loops, and all others like `"standard"`. It is '
        "faster, needs the extra `fast`, and changes the last bits of results.",
    )
    optimiser: Optimiser | None = Field(
        default=None,
        description="The optimiser of `torch.optim` that makes the steps, in lower case, with its parameters: "
        '`"adamw"`, `"adamw(betas=[0.9, 0.95], weight_decay=0.01)"`, `"sgd(momentum=0.9, nesterov=true)"`. Its step '
        "size is `lr`. By default gradient descent with `momentum` and `weight_decay`.",
    )
    optimiser_state: Literal["kept"] | None = Field(
        default=None,
        description='`"kept"`: each client keeps the state of its optimiser (for Adam two numbers per parameter) '
        "for its next task. By default every task begins without state.",
    )
    clip_norm: float | None = Field(
        default=None,
        gt=0,
        lt=inf,
        description="Scales a gradient down to this Euclidean norm if it is longer. The proximal term is part of the "
        "gradient, weight decay is not.",
    )
    clip_value: float | None = Field(
        default=None,
        gt=0,
        lt=inf,
        description="Cuts the numbers of a gradient to between minus this and this. Give this or `clip_norm`.",
    )
    accumulate: int | None = Field(
        default=None,
        ge=1,
        description="How many batches a step takes its mean gradient from, by default 1. `steps` counts steps, not "
        "batches.",
    )
    lr_within_task: Within | None = Field(
        default=None,
        description="A factor on the step size that changes with the steps of a task: a "
        "[schedule within a task](#schedules-within-a-task). By default it is always 1.",
    )
    precision: Precision = Field(
        default=None,
        description='`"bfloat16"` computes the model and its loss in mixed precision (`torch.autocast`). Parameters, '
        'updates and evaluations stay in `"float32"`, the default.',
    )
    train: Annotated[Any, AfterValidator(_checked_train)] = Field(
        default=None,
        description='`"module:function"`: a function `train(model, batches, context)` '
        "[of your own](own-training.md) that changes the model in place, for what no key covers. In Python also the "
        "function itself.",
    )
    memory: int | None = Field(
        default=None,
        ge=1,
        description="How many vectors of the size of the trained parameters a client keeps for your `train` function.",
    )

    def build(self) -> Recipe:
        """The recipe of local training; one step if neither steps nor epochs are given."""
        given = self.model_dump(exclude={"engine"})
        given["steps"] = 1 if self.steps is None and self.epochs is None else self.steps
        given["lr"] = schedule(self.lr)
        given["optimiser"] = None if self.optimiser is None else optimiser.parse(self.optimiser)
        given["lr_within_task"] = None if self.lr_within_task is None else within(self.lr_within_task)
        return Recipe(**given)


class Evaluate(Table):
    """An `[evaluate]` table: how often to evaluate, and on how many test examples."""

    every: int = Field(default=50, ge=1, description="Evaluate every version whose number is a multiple of this.")
    sample: Annotated[Any, AfterValidator(_checked_sample)] = Field(
        default=2000,
        description='The number of test examples for the curve of the scores, or `"all"`. The last version is always '
        "evaluated on all of them.",
    )
    clients: Annotated[float | None, AfterValidator(checked_part)] = Field(
        default=None,
        description="The part of each client's own examples that is held back from training, such as `0.1`. The last "
        f"version is tested on them, [client by client](reading-a-report.md#clients-own-data); of more than "
        f"{MOST_TESTED} clients, on a sample.",
    )
    personalise: int | None = Field(
        default=None,
        ge=1,
        description="Also test each client's own copy of the last version after this many local steps, made as "
        "`[local]` says. Needs `clients`. The steps are not part of training.",
    )

    @model_validator(mode="after")
    def _is_consistent(self) -> "Evaluate":
        if self.personalise is not None and self.clients is None:
            raise ValueError(
                f"personalise is {self.personalise}, but clients have no test data of their own: give `clients`, such "
                "as 0.1"
            )
        return self


def share_out(data: Data, groups: Sequence[Holding], *, natural: bool) -> partition.Partition:
    """How the clients of these groups share the training examples; `natural`: does the data say who holds what?"""
    by_default = "labels" if any(group.labels is not None for group in groups) else "natural" if natural else "iid"
    chosen = partition.parse(data.partition or by_default)
    named = next((group.name for group in groups if group.names), None)
    if named is not None and not isinstance(chosen, partition.ByOwner):
        raise InputError(
            f"group {named!r} names clients of the data, but the partition is {chosen}: only natural and file know them"
        )
    return chosen
