"""Data sets from columns: which are the inputs, the target, the client and the time of an example."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairlag.core.types import Floats, Integers
from fairlag.data.arrays import inputs_of, joined, numbers, scaling, shaped
from fairlag.data.columns import columns
from fairlag.data.dataset import Dataset
from fairlag.data.roles import Part, Roles, checked_roles, missing
from fairlag.errors import InputError
from fairlag.limits import shown


def from_file(
    folder: Path,
    path: str,
    target: str,
    features: list[str] | None = None,
    client: str | None = None,
    time: str | None = None,
    test: str | None = None,
    shape: list[int] | None = None,
) -> Dataset:
    """The data set in a file of columns, with the official test part in a second file if `test` names one."""
    roles = checked_roles(target, features, client, time)
    verbatim = tuple(name for name in (roles.target, roles.client) if name is not None)
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
    targets = [_target(part, roles.target) for part in parts]
    features = roles.features or _numeric(train, roles)
    inputs = [_inputs(part, features, len(target)) for part, target in zip(parts, targets, strict=True)]
    pooled = shaped(train.name, joined(f"inputs of {train.name}", inputs), shape)
    labels, words = _numbered(train.name, targets, names) if names else _classes(train.name, targets)
    clients, owners = _owners(parts, roles.client, [len(target) for target in targets])
    return Dataset(
        train.name,
        pooled,
        labels,
        len(words) or int(labels.max(initial=0)) + 1,
        len(targets[0]),
        *scaling(pooled),
        class_names=words,
        clients=clients,
        owners=owners,
        times=_times(parts, roles.time, [len(target) for target in targets]),
    )


def coded(values: NDArray[Any]) -> tuple[tuple[str, ...], Integers]:
    """The distinct values in order, as text, and the place of each value among them.

    >>> coded(np.array([10, 9, 10]))[0], coded(np.array(["b", "a", "b"], object))[1].tolist()
    (('9', '10'), [1, 0, 1])
    """
    distinct, codes = np.unique(values, return_inverse=True)
    return tuple(str(value) for value in distinct.tolist()), codes.astype(np.int64)


def trained(names: Sequence[str], codes: Integers, official: int) -> tuple[tuple[str, ...], Integers]:
    """The clients that hold any of the official training examples, and the owner of each example: −1 for others.

    >>> trained(("ann", "bob", "cy"), np.array([2, 0, 2, 1, -1]), official=3)
    (('ann', 'cy'), array([ 1,  0,  1, -1, -1]))
    """
    present = np.setdiff1d(codes[:official], [-1])
    place = np.full(len(names) + 1, -1)  # the last place is that of −1
    place[present] = np.arange(len(present))
    return tuple(names[code] for code in present), place[codes]


def _target(part: Part, name: str) -> NDArray[Any]:
    values = part.flat(name, "target")
    if not len(values):
        raise InputError(f"{part.name} has no examples: it needs at least one row")
    return _distinguishable(values, part, name, "target")


def _distinguishable(values: NDArray[Any], part: Part, name: str, what: str) -> NDArray[Any]:
    """Values that can be classes or clients: whole numbers (also written 1.0), truth values or text."""
    if values.dtype.kind == "f":
        odd = values != np.floor(values)
        if not odd.any() and np.abs(values).max(initial=0) < 2**53:
            return values.astype(np.int64)
        wrong: object = values[odd][0].item() if odd.any() else values.max().item()
    elif values.dtype.kind in "biu":
        return values
    else:
        others = [value for value in values.tolist() if not isinstance(value, str)]
        if not others:
            return values
        wrong = others[0]
    raise InputError(
        f"the {what} column {shown(name)} of {part.name} holds {shown(wrong)}, but must hold whole numbers or text"
    )


def _classes(name: str, targets: Sequence[NDArray[Any]]) -> tuple[Integers, tuple[str, ...]]:
    """The labels, and what the classes are called; nothing if they are 0, 1, 2, … already."""
    labels, words = _pooled(name, targets, "target")
    return labels, () if words == tuple(map(str, range(len(words)))) else words


def _numbered(name: str, targets: Sequence[NDArray[Any]], names: Sequence[str]) -> tuple[Integers, tuple[str, ...]]:
    """The labels as they are: the numbers of classes whose names are known."""
    labels = np.concatenate(targets).astype(np.int64)
    if labels.min() < 0:
        raise InputError(f"the target of {name} holds {labels.min()}, but must hold the number of one of its classes")
    return labels, tuple(names)


def _pooled(name: str, parts: Sequence[NDArray[Any]], what: str) -> tuple[Integers, tuple[str, ...]]:
    if len({part.dtype.kind == "O" for part in parts}) > 1:
        raise InputError(f"the {what} of {name} is text in one part and numbers in the other: it must be of one kind")
    words, codes = coded(np.concatenate(parts))
    return codes, words


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
                f"column {shown(name)} of {part.name} holds {shown(values.flat[0])}, but inputs must be numbers: leave "
                "it out of `features`, or replace it by numbers"
            )
        if len(values) != examples:
            raise InputError(f"column {shown(name)} of {part.name} has {len(values)} rows, the target has {examples}")
        if values.ndim > 1 and len(features) > 1:
            raise InputError(
                f"column {shown(name)} of {part.name} has the shape {values.shape}, so it must be the only input: "
                f"write features = [{name!r}]"
            )
    if part.columns[features[0]].ndim > 1:
        return inputs_of(part.name, part.columns[features[0]])
    made = np.empty((examples, len(features)), np.float32)
    for place, name in enumerate(features):
        made[:, place] = numbers(part.columns[name])
    return made


def _owners(parts: Sequence[Part], client: str | None, sizes: Sequence[int]) -> tuple[tuple[str, ...], Integers | None]:
    """The clients of the training part, and the owner of each example; in the test part it may be none of them."""
    if client is None:
        return (), None
    values = [_distinguishable(part.flat(client, "client"), part, client, "client") for part in _with(parts, client)]
    _check_sizes(parts[0], client, values, sizes)
    codes, words = _pooled(parts[0].name, values, "client")
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
