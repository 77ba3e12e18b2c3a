"""Which column of a data file is what, and the columns of a part, refused if a value is missing."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairlag.data.columns import Columns
from fairlag.errors import InputError, nearest
from fairlag.limits import shown


class Roles(NamedTuple):
    """What the columns are for; without `features`, every column of numbers that has no other role is one."""

    target: str | tuple[str, ...]
    """A tuple if there are several columns."""
    features: list[str] | None = None
    client: str | None = None
    time: str | None = None

    @property
    def by_role(self) -> dict[str, tuple[str, ...]]:
        """The columns of each role."""
        return {
            "target": (self.target,) if isinstance(self.target, str) else self.target,
            "client": () if self.client is None else (self.client,),
            "time": () if self.time is None else (self.time,),
            "features": tuple(self.features or ()),
        }

    @property
    def taken(self) -> tuple[str, ...]:
        """The columns that are no inputs."""
        return tuple(name for role, names in self.by_role.items() if role != "features" for name in names)


class Part(NamedTuple):
    """The training part or the test part: its name in messages, and its columns."""

    name: str
    columns: Columns

    def column(self, name: str) -> NDArray[Any]:
        """A column without missing values."""
        values = self._known(name)
        if values.dtype.kind in "fOM" and (gaps := missing(values)).any():
            row = int(np.argwhere(gaps)[0, 0]) + 1
            raise InputError(
                f"column {shown(name)} of {self.name} has no value in row {row}: fill it in, or remove the row"
            )
        return values

    def flat(self, name: str, what: str) -> NDArray[Any]:
        """A column with one value per example; `what` is its role."""
        values = self.column(name)
        if values.ndim != 1:
            raise InputError(
                f"the {what} column {shown(name)} of {self.name} has the shape {values.shape}, but must have one value "
                "per example"
            )
        return values

    def _known(self, name: str) -> NDArray[Any]:
        if name not in self.columns:
            raise InputError(f"{self.name} has no column {shown(name)}: {nearest(name, self.columns)}")
        return self.columns[name]


def checked_roles(target: object, features: object, client: object, time: object) -> Roles:
    """The roles, if each names a column of its own.

    >>> checked_roles("y", None, "y", None)
    Traceback (most recent call last):
    ...
    fairlag.errors.InputError: the column 'y' is given as target and as client: each column has one role
    """
    roles = Roles(
        _columns("target", target) if isinstance(target, list | tuple) else _column("target", target),
        None if features is None else [*_columns("features", features)],
        None if client is None else _column("client", client),
        None if time is None else _column("time", time),
    )
    seen: dict[str, str] = {}
    for role, names in roles.by_role.items():
        for name in names:
            if name in seen:
                raise InputError(
                    f"the column {shown(name)} is given as {seen[name]} and as {role}: each column has one role"
                )
            seen[name] = role
    return roles


def _column(role: str, name: object) -> str:
    if isinstance(name, str):
        return name
    raise InputError(f"{role} is {shown(name)}, but must be the name of a column")


def _columns(role: str, names: object) -> tuple[str, ...]:
    if isinstance(names, list | tuple) and names and all(isinstance(each, str) for each in names):
        return tuple(names)
    raise InputError(f"{role} is {shown(names)}, but must be a list of columns such as ['age', 'height']")


def missing(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Which values are not there: NaN, None, and dates that are none."""
    import pandas as pd

    return np.asarray(pd.isna(values), np.bool_)


def first_text(values: NDArray[Any]) -> object:
    """The first value that cannot be read as a number; the first of all if there is none.

    >>> first_text(np.array(["1.5", "much"], object))
    'much'
    """
    for value in values.flat:
        try:
            float(value)
        except (TypeError, ValueError):
            return value
    return values.flat[0]
