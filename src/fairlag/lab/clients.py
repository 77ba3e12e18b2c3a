"""The `[[clients]]` tables of an experiment file, one per group of clients, and the checks of all of them."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import inf
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from fairlag.errors import InputError
from fairlag.fleet import availability, capacity, delay, timing
from fairlag.fleet.clients import Group
from fairlag.fleet.recorded import Recorded
from fairlag.lab.learning import Table
from fairlag.learn import behave


def _distribution(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"it is {value!r}, but must be a number or a distribution such as 'uniform(1, 2)'")
    return value


Distribution = Annotated[Any, AfterValidator(_distribution)]
_MOST_CLIENTS = 100_000_000
Name = Annotated[str, BeforeValidator(lambda name: str(name) if type(name) is int else name)]
"""Of a client of the data; a column may hold numbers."""
Probability = Annotated[float, Field(ge=0, lt=1)]


def _unless_task(per: Literal["task", "step"] | None) -> Literal["task", "step"] | None:
    return None if per == "task" else per


DelayPer = Annotated[Literal["task", "step"] | None, AfterValidator(_unless_task)]
"""None means "task". It is not written into run directories, so runs from before "step" existed can be resumed."""


class Clients(Table):
    """A `[[clients]]` table: a group of clients of one kind."""

    group: str = Field(
        min_length=1,
        description="The name of the group. A table with `capacity` may leave it out: it is then one table per group "
        "that the file names.",
    )
    count: int = Field(
        ge=1,
        le=_MOST_CLIENTS,
        description="The number of clients. With `capacity`, these are the first ones of the file, by default all. If "
        "the data says who holds what, one group may leave it out: it gets the clients that are left.",
    )
    delay: Distribution = Field(
        default=None,
        description="How many seconds a device works on a task, without transfers and overhead: a number or a "
        "[delay](#delays). Give this or `capacity`.",
    )
    capacity: str | None = Field(
        default=None,
        description="How fast each single client is, from a file: a [capacity](#capacities). Its seconds per step "
        "replace `delay`, its line speeds `download` and `upload`.",
    )
    labels: tuple[Annotated[int, Field(ge=0)], ...] | None = Field(
        default=None,
        min_length=1,
        strict=False,
        description="The labels that its clients hold, such as `[0, 1, 2]`, for the partition `labels`.",
    )
    names: tuple[Name, ...] | None = Field(
        default=None,
        min_length=1,
        strict=False,
        description='Which clients of the data they are, such as `["berlin", "paris"]`, for the partitions `natural` '
        "and `file`. By default those that no group names, in order.",
    )
    availability: str = Field(
        default="always", description="When its clients are present: an [availability](#availabilities)."
    )
    join: float = Field(default=0.0, ge=0, description="The time in seconds when its clients first join.")
    leave: float = Field(default=inf, gt=0, description="The time in seconds when they leave for good.")
    vanish: Probability = Field(
        default=0.0,
        description="The probability that a client vanishes during a task, at a random moment. The task is then lost.",
    )
    away: Distribution = Field(
        default=None,
        description="How many seconds a vanished client stays away: a number or a [delay](#delays). By default, the "
        "client returns when its task would have ended.",
    )
    download: Distribution = Field(
        default=None,
        description="The download speed in megabits per second, drawn once per client: a number or a "
        "[delay](#delays). Needs `model_bytes`.",
    )
    upload: Distribution = Field(default=None, description="The same for the upload.")
    overhead: Distribution = Field(
        default=None,
        description="How many seconds the deployment adds to each task, for example by polls and by starting a "
        "process, drawn again for each task: a number or a [delay](#delays). Its device is busy meanwhile.",
    )
    steps: int | None = Field(default=None, ge=1, description="Local steps per task, instead of those in `[local]`.")
    delay_per: DelayPer = Field(
        default=None, description='`"task"`, the default, or `"step"` if `delay` is the time of each local step.'
    )
    per_device: int | None = Field(
        default=None,
        ge=2,
        description="How many clients in a row are one device, which does their tasks one after the other. A SuperNode "
        "with `queued = 2` is two clients of one device.",
    )
    timing: str | None = Field(
        default=None,
        description="Whether its clients work as fast as they can, or hold back on purpose: a [timing](#timings).",
    )
    cost: float | None = Field(
        default=None,
        ge=0,
        lt=inf,
        description="The influence that one update per second is worth to a client. With it, `fairlag audit` also "
        "computes where the fleet [settles](theory.md#what-speed-costs) if clients choose their speed. Runs ignore it.",
    )
    behaviour: str | None = Field(
        default=None,
        description="What its clients send instead of what they trained: a [behaviour](#behaviours). By default they "
        "are honest. See [attacks and defences](siege.md).",
    )

    @model_validator(mode="before")
    @classmethod
    def _counted(cls, table: Any) -> Any:
        """Whoever names clients need not count them."""
        if isinstance(table, Mapping) and "count" not in table and isinstance(table.get("names"), list | tuple):
            return {**table, "count": len(table["names"])}
        return table

    @model_validator(mode="after")
    def _fits_count(self) -> "Clients":
        if self.names is not None and len(self.names) != self.count:
            raise ValueError(f"it names {len(self.names)} clients, but count is {self.count}: leave count out")
        if self.per_device is not None and self.count % self.per_device:
            raise ValueError(
                f"per_device is {self.per_device}, but count is {self.count}, which must be a multiple of it"
            )
        return self

    def build(self, folder: Path | None, batch: int) -> Group:
        """The group of the fleet that this table describes; `batch` is how many examples a local step has."""

        def read(key: str) -> delay.Delay | None:
            text = getattr(self, key)
            with self._blaming(key):
                return None if text is None else delay.parse(text, folder)

        with self._blaming("delay"):
            takes = delay.parse(1 if self.delay is None else self.delay, folder)
        fast = None
        if self.capacity is not None:
            with self._blaming("capacity"):
                fast = capacity.parse(self.capacity, folder, batch=batch).of(self.group, self.count)
        with self._blaming("availability"):
            there = availability.parse(self.availability, folder)
            if isinstance(there, Recorded):
                there = there.of(self.group, self.count, None if fast is None else fast.names)
        with self._blaming("timing"):
            plan = timing.parse(self.timing or "truthful")
        self.misbehaves  # noqa: B018 (refuses one that cannot be read)
        return Group(
            name=self.group,
            count=self.count,
            delay=takes,
            availability=there,
            join=self.join,
            leave=self.leave,
            vanish=self.vanish,
            away=read("away"),
            download=read("download"),
            upload=read("upload"),
            overhead=read("overhead"),
            steps=self.steps,
            per="step" if fast is not None else self.delay_per or "task",
            timing=plan,
            capacity=fast,
            per_device=self.per_device or 1,
        )

    @property
    def misbehaves(self) -> behave.Behaviour | None:
        """How its clients attack; None if they are honest."""
        with self._blaming("behaviour"):
            return None if self.behaviour is None else behave.parse(self.behaviour)

    @contextmanager
    def _blaming(self, key: str) -> Iterator[None]:
        try:
            yield
        except InputError as error:
            raise InputError(f"{key} of group {self.group!r}: {error}") from None


def check_clients(clients: tuple[Clients, ...], *, model_bytes: int, in_epochs: bool) -> None:
    """Refuses groups that do not fit each other or the rest of the experiment; ValueError says why.

    `in_epochs` is true if `[local]` counts epochs, not steps.
    """
    _check_labels(clients)
    _check_speeds(clients)
    _check_groups(clients, model_bytes)
    if in_epochs:
        _check_no_steps(clients)


def _check_labels(clients: tuple[Clients, ...]) -> None:
    """If groups hold labels, every label up to the largest must belong to at least one group."""
    held = [table.labels for table in clients]
    if None in held or not held:
        return
    union = {label for labels in held for label in labels or ()}
    missing = next((place for place, label in enumerate(sorted(union)) if place != label), None)
    if missing is not None:
        raise ValueError(f"no client holds the label {missing}: every label from 0 to {max(union)} needs a group")


def _check_speeds(clients: tuple[Clients, ...]) -> None:
    """Every group has a delay or a capacity; a capacity says all there is to say of speed."""
    for table in clients:
        if table.capacity is None and table.delay is None:
            raise ValueError(f"group {table.group!r} has no speed: give it a delay or a capacity")
        for key in ("delay", "delay_per", "download", "upload"):
            if table.capacity is not None and getattr(table, key) is not None:
                raise ValueError(f"group {table.group!r} has a capacity and {key!r}: give only one of them")


def _check_groups(clients: tuple[Clients, ...], model_bytes: int) -> None:
    for table in clients:
        if table.away is not None and not table.vanish:
            raise ValueError(
                f"group {table.group!r} has `away`, but its probability of vanishing is 0: give `vanish` too"
            )
        if not model_bytes and (table.upload is not None or table.download is not None):
            raise ValueError(
                f"group {table.group!r} has a download or upload speed, but there is no `model_bytes`: give it too"
            )


def _check_no_steps(clients: tuple[Clients, ...]) -> None:
    """If [local] counts epochs, the number of steps is not known before the data is."""
    for table in clients:
        if table.steps is not None:
            raise ValueError(
                f"group {table.group!r} has steps = {table.steps}, but `steps` needs [local] in steps, not epochs"
            )
        if table.delay_per is not None or table.capacity is not None:
            speed = "delay" if table.capacity is None else "capacity"
            raise ValueError(
                f"group {table.group!r} has a {speed} per step, which needs [local] in steps, not epochs: "
                "otherwise a duration would depend on how many examples a client holds"
            )
