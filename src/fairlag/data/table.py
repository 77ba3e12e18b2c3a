"""Data sets from columns: which are the inputs, the target, the client and the time of an example."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairlag.core.types import Floats, Integers
from fairlag.data.arrays import inputs_of, is_tokens, joined, numbers, scaling, shaped
from fairlag.data.columns import columns
from fairlag.data.dataset import Dataset
from fairlag.data.distinct import distinguishable, pooled
from fairlag.data.roles import Part, Roles, checked_roles, first_text, missing
from fairlag.data.target import target_of
from fairlag.errors import InputError
from fairlag.limits import shown


def from_file(
    folder: Path,
    path: str,
    target: str | list[str],
    features: list[str] | None = None,
    client: str | None = None,
    time: str | None = None,
    test: str | None = None,
    shape: list[int] | None = None,
) -> Dataset:
    """The data set in a file of columns, with the official test part in a second file if `test` names one."""
    roles = checked_roles(target, features, client, time)
    verbatim = tuple(name for name in (roles.target, roles.client) if isinstance(name, str))
    files = [path] if test is None else [path, test]
    return dataset([Part(str(each), columns(folder, each, verbatim)) for each in files], roles, shape)


def dataset(parts: Sequence[Part], roles: Roles, shape: object, names: Sequence[str] = ()) -> Dataset:
    """The data set of a training part and, if there are two parts, a test part.

    `names` are the classes if the target holds their numbers. Otherwise they are the distinct values of the target.

    >>> columns = {"x": np.array([0.5, 1.5, 2.5]), "y": np.array(["no", "yes", "no"], object)}
    >>> made = dataset([Part("tiny", columns)], Roles("y"), None)
    >>> made.labels.tolist(), made.class_names, made.inputs.tolist()
    ([0, 1, 0], ('no', 'yes'), [[0.5], [1.5], [2.5]])
    """
    train = parts[0]
    target = target_of(parts, roles.target, names)
    sizes = [len(part.column(roles.taken[0])) for part in parts]
    features = roles.features or _numeric(train, roles)
    inputs = [_inputs(part, features, size) for part, size in zip(parts, sizes, strict=True)]
    every = shaped(train.name, joined(f"inputs of {train.name}", inputs), shape)
    clients, owners = _owners(parts, roles.client, sizes)
    # Tokens that are read and tokens that are predicted come from one vocabulary.
    speaks = is_tokens(every) and is_tokens(target.labels) and target.labels.ndim > 1
    return Dataset(
        train.name,
        every,
        target.labels,
        max(target.classes, int(every.max()) + 1) if speaks else target.classes,
        sizes[0],
        *scaling(every),
        class_names=target.names,
        clients=clients,
        owners=owners,
        times=_times(parts, roles.time, sizes),
    )


def trained(names: Sequence[str], codes: Integers, official: int) -> tuple[tuple[str, ...], Integers]:
    """The clients that hold any of the official training examples, and the owner of each example: −1 for others.

    >>> trained(("ann", "bob", "cy"), np.array([2, 0, 2, 1, -1]), official=3)
    (('ann', 'cy'), array([ 1,  0,  1, -1, -1]))
    """
    present = np.setdiff1d(codes[:official], [-1])
    place = np.full(len(names) + 1, -1)  # the last place is that of −1
    place[present] = np.arange(len(present))
    return tuple(names[code] for code in present), place[codes]


def _numeric(part: Part, roles: Roles) -> list[str]:
    """The columns of numbers that have no other role."""
    free = [name for name in part.columns if name not in roles.taken]
    found = [name for name in free if part.columns[name].dtype.kind in "biuf"]
    for name in free:
        _check_text(part.columns[name], f"column {shown(name)} of {part.name}")
    if not found:
        raise InputError(f"{part.name} has no column of numbers to learn from beside {', '.join(roles.taken)}")
    return found


def _check_text(values: NDArray[Any], what: str) -> None:
    """Refuses a column that is left out because it is text, although some of its values are numbers."""
    if values.dtype.kind != "O":
        return
    import pandas as pd

    present = values[~missing(values)]
    numeric = pd.to_numeric(pd.Series(present).astype(str), errors="coerce").notna().to_numpy(np.bool_)
    if numeric.any():
        found = "numbers as text" if numeric.all() else "both numbers and text"
        example = present[0] if numeric.all() else present[~numeric][0]
        raise InputError(
            f"{what} holds {found}, such as {shown(example)}: correct it, or list the columns to learn from in "
            "`features`"
        )


def _inputs(part: Part, features: Sequence[str], examples: int) -> NDArray[Any]:
    """One array with more than one axis as it is; otherwise one number per example and column, side by side."""
    for name in features:
        values = part.column(name)
        if values.dtype.kind not in "biuf":
            raise InputError(
                f"column {shown(name)} of {part.name} holds {shown(first_text(values))}, but inputs must be numbers: "
                "leave it out of `features`, or replace it by numbers"
            )
        if len(values) != examples:
            raise InputError(f"column {shown(name)} of {part.name} has {len(values)} rows, the target has {examples}")
        if values.ndim > 1 and len(features) > 1:
            raise InputError(
                f"column {shown(name)} of {part.name} has the shape {values.shape}, so it must be the only input: "
                f"write features = [{name!r}]"
            )
    first = part.columns[features[0]]
    if first.ndim > 1:
        return _tokens(part, features[0]) if is_tokens(first) else inputs_of(part.name, first)
    made = np.empty((examples, len(features)), np.float32)
    for place, name in enumerate(features):
        made[:, place] = numbers(part.columns[name])
    return made


def _tokens(part: Part, name: str) -> Integers:
    values = part.columns[name]
    if values.min(initial=0) < 0:
        raise InputError(
            f"column {shown(name)} of {part.name} holds {values.min()}, but arrays of whole numbers are token ids, "
            "which count from 0: save measurements as float32"
        )
    return np.ascontiguousarray(values, np.int64)


def _owners(parts: Sequence[Part], client: str | None, sizes: Sequence[int]) -> tuple[tuple[str, ...], Integers | None]:
    """The clients of the training part, and the owner of each example; in the test part it may be none of them."""
    if client is None:
        return (), None
    values = [distinguishable(part.flat(client, "client"), part, client, "client") for part in _with(parts, client)]
    _check_sizes(parts[0], client, values, sizes)
    codes, words = pooled(parts[0].name, values, "client")
    return trained(words, np.concatenate([codes, np.full(sum(sizes) - len(codes), -1)]), sizes[0])


def _times(parts: Sequence[Part], time: str | None, sizes: Sequence[int]) -> Floats | None:
    """Seconds since the earliest example of the training part."""
    if time is None:
        return None
    values = [_seconds(part.flat(time, "time"), part, time) for part in _with(parts, time)]
    _check_sizes(parts[0], time, values, sizes)
    times = np.full(sum(sizes), np.nan)
    times[: sum(map(len, values))] = np.concatenate(values)
    times -= times[: sizes[0]].min()
    return times


def _with(parts: Sequence[Part], name: str) -> list[Part]:
    """The training part, and the test part if it has the column as well."""
    return [parts[0], *(part for part in parts[1:] if name in part.columns)]


def _check_sizes(part: Part, name: str, values: Sequence[NDArray[Any]], sizes: Sequence[int]) -> None:
    for found, size in zip(values, sizes, strict=False):
        if len(found) != size:
            raise InputError(f"column {shown(name)} of {part.name} has {len(found)} rows, the target has {size}")


def _seconds(values: NDArray[Any], part: Part, name: str) -> Floats:
    if values.dtype.kind in "iuf":
        return values.astype(np.float64)
    import pandas as pd

    try:
        dates = pd.to_datetime(pd.Series(values), format="ISO8601", utc=True)
    except (ValueError, TypeError) as error:
        raise InputError(
            f"the time column {shown(name)} of {part.name} must hold seconds, or dates such as '2024-05-31 12:00' "
            f"({error})"
        ) from None
    return dates.astype("datetime64[ns, UTC]").astype(np.int64).to_numpy() / 1e9
