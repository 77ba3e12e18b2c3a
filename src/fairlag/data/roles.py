"""Which column of a data file is what, and the columns of a part, refused if a value is missing."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairlag.data.columns import Columns
from fairlag.errors import InputError, nearest
from fairlag.limits import shown


class Roles(NamedTuple):
    """What the columns are for; without `features`, every column of numbers that has no other role is one."""

    target: str
    features: list[str] | None = None
    client: str | None = None
    time: str | None = None

    @property
    def taken(self) -> tuple[str, ...]:
        """The columns that are no inputs."""
        return tuple(name for name in (self.target, self.client, self.time) if name is not None)


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
    named = {"target": target, "client": client, "time": time}
    given = {role: name for role, name in named.items() if role == "target" or name is not None}
    for role, name in given.items():
        if not isinstance(name, str):
            raise InputError(f"{role} is {shown(name)}, but must be the name of a column")
    if features is not None and not (
        isinstance(features, list | tuple) and features and all(isinstance(each, str) for each in features)
    ):
        raise InputError(f"features is {shown(features)}, but must be a list of columns such as ['age', 'height']")
    listed = [("features", name) for name in features] if isinstance(features, list | tuple) else []
    seen: dict[object, str] = {}
    for role, name in [*given.items(), *listed]:
        if name in seen:
            raise InputError(
                f"the column {shown(name)} is given as {seen[name]} and as {role}: each column has one role"
            )
        seen[name] = role
    others = [None if name is None else str(name) for name in (client, time)]
    return Roles(str(target), [name for _, name in listed] or None, *others)


def missing(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Which values are not there: NaN, None, and dates that are none."""
    import pandas as pd

    return np.asarray(pd.isna(values), np.bool_)
